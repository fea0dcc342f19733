//! Finds Rust files that no `mod` names: the compiler never sees them, so they rot in silence.

use anyhow::{Context as _, Result, bail};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

/// Fails when a package of the workspace has a Rust file that belongs to none of its targets.
pub(crate) async fn check() -> Result<()> {
    let launch = spawnery_tests::Launch::new("cargo", &spawnery_tests::args::settings().cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .directory(spawnery_tests::target::workspace());
    let metadata = spawnery_tests::command::run(&launch, None, Duration::from_mins(5)).await?.stdout()?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("cargo's metadata is not as expected")?;
    let mut orphans = Vec::new();
    for package in metadata.packages {
        let directory = package.manifest_path.parent().context("a manifest without a directory")?;
        let roots = package.targets.into_iter().map(|target| target.src_path);
        orphans.extend(find(directory, roots)?);
    }
    if orphans.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = orphans.iter().map(|path| format!("  {}", path.display())).collect();
    bail!("no `mod` names these files; name them or delete them:\n{}", names.join("\n"))
}

#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(serde::Deserialize)]
struct Package {
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(serde::Deserialize)]
struct Target {
    src_path: PathBuf,
}

/// The Rust files under `directory` that cannot be reached from `roots` by `mod name;`.
fn find(directory: &Path, roots: impl IntoIterator<Item = PathBuf>) -> Result<Vec<PathBuf>> {
    let mut reached = BTreeSet::new();
    // Modules of a root are beside it; those of another file are in the folder with its name.
    let mut open: Vec<(PathBuf, PathBuf)> =
        roots.into_iter().filter_map(|root| Some((root.parent()?.to_owned(), root))).collect();
    while let Some((folder, file)) = open.pop() {
        if !reached.insert(file.clone()) {
            continue;
        }
        let text = std::fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))?;
        for module in modules(&text) {
            let beside = file.parent().map(Path::to_owned).unwrap_or_default();
            let candidates = match module.path {
                Some(path) => vec![(folder.join(&module.name), beside.join(path))],
                None => vec![
                    (folder.join(&module.name), folder.join(format!("{}.rs", module.name))),
                    (folder.join(&module.name), folder.join(&module.name).join("mod.rs")),
                ],
            };
            open.extend(candidates.into_iter().filter(|(_, file)| file.is_file()));
        }
    }
    let mut files = Vec::new();
    collect(directory, directory, &mut files)?;
    Ok(files.into_iter().filter(|file| !reached.contains(file)).collect())
}

struct Module {
    name: String,
    path: Option<String>,
}

/// The `mod name;` lines of a file, with the `#[path]` that may stand before one.
fn modules(text: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut path = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            path = rest.split('"').next().map(str::to_owned);
            continue;
        }
        let declaration = line.split("//").next().unwrap_or_default().trim().strip_suffix(';');
        let name = declaration.and_then(|words| {
            let (before, name) = words.rsplit_once("mod ")?;
            let visible = before.is_empty() || before.ends_with(' ') && before.starts_with("pub");
            visible.then(|| name.trim().to_owned())
        });
        if let Some(name) = name {
            found.push(Module { name, path: path.take() });
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            path = None;
        }
    }
    found
}

fn collect(top: &Path, directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("could not read {}", directory.display()))? {
        let path = entry.context("could not read a directory")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A folder with a manifest of its own is another package; what starts with a dot and npm's folder hold no source.
        let foreign = path != top && path.join("Cargo.toml").is_file();
        if path.is_dir() && !foreign && !name.starts_with('.') && name != "node_modules" && name != "target" {
            collect(top, &path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_no_module_names() {
        let package = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = package.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let lib = write(
            "src/lib.rs",
            "pub mod a; // why\npub(crate) mod b;\n#[cfg(test)]\nmod testing;\n#[path = \"odd/place.rs\"]\nmod odd;\nmod inline { }\n",
        );
        write("src/a.rs", "mod deep;");
        write("src/a/deep.rs", "");
        write("src/b/mod.rs", "mod c;");
        write("src/b/c.rs", "// mod gone;");
        write("src/testing.rs", "");
        write("src/odd/place.rs", "");
        let test = write("tests/it.rs", "mod common;");
        write("tests/common/mod.rs", "");
        let gone = write("src/gone.rs", "");
        let astray = write("src/deep.rs", "");
        write("other/Cargo.toml", "");
        write("other/src/lib.rs", "");
        let mut orphans = find(package.path(), [lib, test]).unwrap();
        orphans.sort();
        assert_eq!(orphans, [astray, gone]);
    }
}
