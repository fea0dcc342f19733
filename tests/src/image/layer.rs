//! A layer: a tar of a tree, and its digest.

use super::tree::{Contents, Entry, Tree};
use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use std::{
    fmt,
    fs::File,
    io::{self, BufWriter, Read as _, Seek as _, Write},
};

/// A layer, in an unnamed temporary file that goes with it. It is not compressed: a node reads it at the speed of its
/// disk, and whatever pushes an image to a registry compresses on the way.
#[derive(Debug)]
pub struct Layer {
    file: File,
    blob: Blob,
}

/// What a descriptor says of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

/// SHA-256, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest(String);

impl Digest {
    /// Where a layout keeps the blob.
    pub(super) fn path(&self) -> String {
        format!("blobs/sha256/{}", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl Blob {
    /// Of bytes that are at hand.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { digest: digest(Sha256::new().chain_update(bytes)), bytes: bytes.len() as u64 }
    }
}

impl Layer {
    /// Writes the layer.
    ///
    /// # Errors
    /// When a file cannot be read, a path goes upwards, or the disk is full.
    pub fn write(tree: &Tree) -> Result<Self> {
        let file = tempfile::tempfile().context("could not make a file for a layer")?;
        let hashed = Hashed { inner: BufWriter::new(file), hash: Sha256::new(), bytes: 0 };
        let mut tar = tar::Builder::new(hashed);
        for (path, entry) in tree.entries() {
            append(&mut tar, path, entry).with_context(|| format!("could not put /{path} into a layer"))?;
        }
        let Hashed { inner, hash, bytes } = tar.into_inner().context("could not end a layer")?;
        let file = inner.into_inner().context("could not write a layer")?;
        Ok(Self { file, blob: Blob { digest: digest(hash), bytes } })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.blob.bytes
    }

    pub(super) fn blob(&self) -> &Blob {
        &self.blob
    }

    /// Its contents, from the start.
    pub(super) fn read(&self) -> Result<impl io::Read> {
        let mut file = &self.file;
        file.rewind().context("could not read a layer")?;
        Ok(file)
    }
}

fn append(tar: &mut tar::Builder<impl Write>, path: &str, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Directory { mode } => {
            let mut header = header(tar::EntryType::Directory, *mode, 0);
            tar.append_data(&mut header, format!("{path}/"), io::empty())?;
        }
        Entry::File { contents: Contents::Here(contents), mode } => {
            let mut header = header(tar::EntryType::Regular, *mode, contents.len() as u64);
            tar.append_data(&mut header, path, contents.as_slice())?;
        }
        Entry::File { contents: Contents::On(from), mode } => {
            let file = File::open(from).with_context(|| format!("could not open {}", from.display()))?;
            let bytes = file.metadata().with_context(|| format!("could not look at {}", from.display()))?.len();
            let mut header = header(tar::EntryType::Regular, *mode, bytes);
            // Not a byte more than the header says, should the file grow meanwhile.
            tar.append_data(&mut header, path, file.take(bytes))?;
        }
        Entry::Link { to } => {
            let mut header = header(tar::EntryType::Symlink, 0o777, 0);
            tar.append_link(&mut header, path, to)?;
        }
    }
    Ok(())
}

/// All of an entry but its path: nothing of this machine or moment.
pub(super) fn header(kind: tar::EntryType, mode: u32, bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn digest(hash: Sha256) -> Digest {
    Digest(format!("{:x}", hash.finalize()))
}

/// Hashes what it passes on.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or(bytes));
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(layer: &Layer) -> Vec<u8> {
        let mut bytes = Vec::new();
        layer.read().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn says_of_itself_what_it_holds() {
        let layer = Layer::write(&Tree::base()).unwrap();
        assert_eq!(layer.blob(), &Blob::of(&bytes(&layer)));
        assert_eq!(layer.bytes() % 512, 0);
    }

    #[test]
    fn files_times_and_masks_leave_no_trace() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let layer = || {
            let tree = Tree::base().copy_all(folder.path(), "/app", |_| true).unwrap();
            Layer::write(&tree).unwrap().blob().clone()
        };
        std::fs::write(&file, "x").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let first = layer();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o664)).unwrap();
        File::open(&file).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(layer(), first);
        std::fs::write(&file, "y").unwrap();
        assert_ne!(layer(), first);
    }

    #[test]
    fn holds_paths_of_any_length() {
        let long = format!("/app/{}/file", ["a-long-name"; 30].join("/"));
        let layer = Layer::write(&Tree::default().file(&long, "x", 0o644)).unwrap();
        let bytes = bytes(&layer);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let last = archive.entries().unwrap().last().unwrap().unwrap();
        assert_eq!(last.path().unwrap().to_str(), long.strip_prefix('/'));
    }

    #[test]
    fn refuses_paths_that_go_upwards() {
        assert!(Layer::write(&Tree::default().file("/a/../../b", "x", 0o644)).is_err());
    }
}
