//! Which files a dynamically linked program needs besides itself.

use super::Tree;
use crate::{Launch, command::run};
use anyhow::{Context as _, Result, bail};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

const LDD_LIMIT: Duration = Duration::from_secs(20);

/// The loader and libraries of a program, as `ldd` finds them on this machine; none for one that is linked statically.
///
/// # Errors
/// When `ldd` cannot be run or a library is missing.
pub async fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    // Another language would have other words for "not found".
    let ldd = Launch::new("ldd", "ldd").arg(program).env("LC_ALL", "C");
    let output = run(&ldd, None, LDD_LIMIT).await?;
    parse(&output.all()).with_context(|| format!("`ldd {}`", program.display()))
}

impl Tree {
    /// A program of this machine, with its loader and libraries where they are here: the loader looks for them there.
    ///
    /// # Errors
    /// When one of its libraries is missing.
    pub async fn program(self, from: &Path, path: &str) -> Result<Self> {
        let mut tree = self.copy(from, path, 0o755);
        for library in libraries(from).await? {
            let at = library.to_str().with_context(|| format!("{} is not UTF-8", library.display()))?;
            tree = tree.copy(&library, at, 0o755);
        }
        Ok(tree)
    }
}

fn parse(output: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in output.lines().map(str::trim) {
        if line.contains("not a dynamic executable") || line.contains("statically linked") {
            return Ok(Vec::new());
        }
        // `NAME => PATH (ADDRESS)`; the loader has no name, and what the kernel itself provides has no path.
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        if place == "not found" {
            bail!("a library is missing: {line}");
        }
        let path = place.rsplit_once(" (0x").map_or(place, |(path, _)| path);
        if path.starts_with('/') {
            libraries.push(PathBuf::from(path));
        } else if !line.starts_with("linux-vdso") && !line.starts_with("linux-gate") {
            bail!("cannot read the line `{line}`");
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::dynamic(
        "\tlinux-vdso.so.1 (0x00007f4fb8aa8000)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f4fb853e000)\n\
         \t/lib64/ld-linux-x86-64.so.2 (0x00007f4fb8aaa000)\n",
        Some(&["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"][..])
    )]
    #[case::loader_with_a_name(
        "\tlibc.so.6 => /nix/libc.so.6 (0x1)\n\t/lib64/ld.so.2 => /nix/ld.so.2 (0x2)\n",
        Some(&["/nix/libc.so.6", "/nix/ld.so.2"][..])
    )]
    #[case::static_pie("\tstatically linked\n", Some(&[][..]))]
    #[case::static_exec("\tnot a dynamic executable\n", Some(&[][..]))]
    #[case::missing("\tlibgone.so.1 => not found\n", None)]
    #[case::no_such_file("ldd: /gone: No such file or directory\n", None)]
    fn reads_ldd(#[case] output: &str, #[case] want: Option<&[&str]>) {
        let got = parse(output).ok();
        let want = want.map(|paths| paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(got, want);
    }
}
