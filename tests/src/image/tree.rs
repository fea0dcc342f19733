//! The files of a layer.

use super::NONROOT;
use anyhow::{Context as _, Result};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Files, directories and links by their paths. Owners are root and times the epoch, so only names, modes and contents
/// decide over the bytes of a layer; the order in which they were added does not.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
pub(super) enum Entry {
    Directory { mode: u32 },
    File { contents: Contents, mode: u32 },
    Link { to: String },
}

#[derive(Debug, Clone)]
pub(super) enum Contents {
    Here(Vec<u8>),
    /// Read when the layer is written.
    On(PathBuf),
}

impl Tree {
    /// What any process may expect: `/tmp`, names for root and for the user that images run as, and the order in which
    /// the C library looks up hosts. Without that file it asks DNS first, and `localhost` fails where DNS does not know it.
    pub fn base() -> Self {
        let passwd = format!("root:x:0:0::/:/\nnonroot:x:{NONROOT}:{NONROOT}::/:/\n");
        Self::default()
            .directory("/tmp", 0o1777)
            .file("/etc/passwd", passwd, 0o644)
            .file("/etc/group", format!("root:x:0:\nnonroot:x:{NONROOT}:\n"), 0o644)
            .file("/etc/nsswitch.conf", "hosts: files dns\n", 0o644)
    }

    /// An empty directory. Parents of what is added come by themselves, with mode 0755.
    #[must_use]
    pub fn directory(self, path: &str, mode: u32) -> Self {
        self.with(path, Entry::Directory { mode })
    }

    /// A file with these contents.
    #[must_use]
    pub fn file(self, path: &str, contents: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.with(path, Entry::File { contents: Contents::Here(contents.into()), mode })
    }

    /// A file as it is on this machine when the layer is written; a link is followed.
    #[must_use]
    pub fn copy(self, from: impl Into<PathBuf>, path: &str, mode: u32) -> Self {
        self.with(path, Entry::File { contents: Contents::On(from.into()), mode })
    }

    /// A symbolic link at `path` that says `to`.
    #[must_use]
    pub fn link(self, path: &str, to: impl Into<String>) -> Self {
        self.with(path, Entry::Link { to: to.into() })
    }

    /// All that is below `from`, placed below `path`; `keep` is asked with each path relative to `from`, and what it does
    /// not want is left out with all that is below it. Files are 0755 when their owner may execute them, else 0644: a
    /// umask does not get into an image.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn copy_all(mut self, from: &Path, path: &str, keep: impl Fn(&Path) -> bool) -> Result<Self> {
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let full = from.join(&directory);
            let list = fs::read_dir(&full).with_context(|| format!("could not read {}", full.display()))?;
            for entry in list {
                let entry = entry.with_context(|| format!("could not list {}", full.display()))?;
                let relative = directory.join(entry.file_name());
                if !keep(&relative) {
                    continue;
                }
                let metadata = fs::symlink_metadata(entry.path());
                let metadata = metadata.with_context(|| format!("could not look at {}", entry.path().display()))?;
                let name = relative.to_str().with_context(|| format!("{} is not UTF-8", relative.display()))?;
                let at = format!("{}/{name}", path.trim_end_matches('/'));
                if metadata.is_dir() {
                    self = self.directory(&at, 0o755);
                    open.push(relative);
                } else if metadata.is_symlink() {
                    let to = fs::read_link(entry.path()).with_context(|| format!("could not read the link {at}"))?;
                    self = self.link(&at, to.to_str().with_context(|| format!("{at} links to what is not UTF-8"))?);
                } else {
                    let executable = metadata.permissions().mode() & 0o100 != 0;
                    self = self.copy(entry.path(), &at, if executable { 0o755 } else { 0o644 });
                }
            }
        }
        Ok(self)
    }

    /// What is in it, parents before children.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    fn with(mut self, path: &str, entry: Entry) -> Self {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            // The parent of what stands in a map of paths: `end` lies on a separator, so the slice is whole.
            let parent = path.get(..end).unwrap_or_default().to_owned();
            self.entries.entry(parent).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(tree: &Tree) -> Vec<&str> {
        tree.entries().map(|(path, _)| path).collect()
    }

    #[test]
    fn parents_come_first_and_order_does_not_matter() {
        let one = Tree::default().file("/usr/local/bin/a", "a", 0o755).file("/etc/b", "b", 0o644);
        let other = Tree::default().file("etc/b", "b", 0o644).file("usr/local/bin/a", "a", 0o755);
        assert_eq!(paths(&one), ["etc", "etc/b", "usr", "usr/local", "usr/local/bin", "usr/local/bin/a"]);
        assert_eq!(paths(&one), paths(&other));
    }

    #[test]
    fn a_directorys_own_mode_survives_its_children() {
        let tree = Tree::default().directory("/data", 0o1777).file("/data/a", "", 0o644);
        assert!(matches!(tree.entries().next(), Some(("data", Entry::Directory { mode: 0o1777 }))));
    }

    #[test]
    fn copies_a_folder_without_what_is_not_wanted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("kept/deep")).unwrap();
        fs::create_dir_all(folder.path().join("left/deep")).unwrap();
        fs::write(folder.path().join("kept/deep/file"), "x").unwrap();
        fs::write(folder.path().join("left/deep/file"), "x").unwrap();
        std::os::unix::fs::symlink("deep/file", folder.path().join("kept/link")).unwrap();
        let tree = Tree::default().copy_all(folder.path(), "/app", |path| path != "left").unwrap();
        assert_eq!(paths(&tree), ["app", "app/kept", "app/kept/deep", "app/kept/deep/file", "app/kept/link"]);
        assert!(matches!(tree.entries.get("app/kept/link"), Some(Entry::Link { to }) if to == "deep/file"));
    }
}
