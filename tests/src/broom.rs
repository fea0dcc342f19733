//! Puts away what outlives processes, in whatever way we end.

use anyhow::{Context as _, Result};
use std::{
    ffi::OsStr,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

/// What is put away, and so how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waste {
    /// Directories with all that is in them.
    Directories,
    /// Control groups: no file in them can be removed, and none of them while a process is in it.
    ControlGroups,
}

impl Waste {
    fn command(self) -> &'static str {
        match self {
            Self::Directories => r#"rm -rf "$@""#,
            Self::ControlGroups => r#"find "$@" -depth -type d -exec rmdir {} +"#,
        }
    }
}

/// A process that waits for the end of its input, which is our end, and puts away what it was given. Processes that die
/// with us may hold on to it for a moment, so it looks again, for ten seconds.
#[derive(Debug)]
pub struct Broom {
    process: Child,
}

impl Broom {
    /// Starts it. It is at work when this is dropped, or when we end.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn start<P: AsRef<OsStr>>(waste: Waste, paths: impl IntoIterator<Item = P>) -> Result<Self> {
        let sweep = waste.command();
        let left = r#"left() { for path; do [ ! -e "$path" ] || return 0; done; return 1; }"#;
        let script = format!(
            r#"{left}; read -r _; n=0; while left "$@" && [ $n -lt 50 ]; do {sweep}; n=$((n+1)); left "$@" && sleep 0.2; done"#
        );
        let mut command = Command::new("sh");
        // A group of its own: Ctrl-C is meant for us, and the broom has work after that.
        command.args(["-c", &script, "broom"]).args(paths).process_group(0);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context("could not start the broom")?;
        Ok(Self { process })
    }
}

impl Drop for Broom {
    fn drop(&mut self) {
        // The end of its input is its signal.
        drop(self.process.stdin.take());
        // It is our child: waiting cannot fail.
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually;
    use std::time::Duration;

    #[test]
    fn removes_everything_when_its_owner_ends() {
        let parent = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| parent.path().join(name));
        for path in &paths {
            std::fs::create_dir_all(path.join("deep")).unwrap();
            std::fs::write(path.join("deep/file"), "").unwrap();
        }
        let broom = Broom::start(Waste::Directories, &paths).unwrap();
        assert!(paths.iter().all(|path| path.exists()));
        drop(broom);
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[tokio::test]
    async fn a_control_group_is_a_tree_of_empty_folders() {
        let parent = tempfile::tempdir().unwrap();
        let (empty, full) = (parent.path().join("empty"), parent.path().join("full"));
        std::fs::create_dir_all(empty.join("node/pod")).unwrap();
        std::fs::create_dir_all(full.join("node")).unwrap();
        std::fs::write(full.join("node/file"), "").unwrap();
        let mut broom = Broom::start(Waste::ControlGroups, [&empty, &full]).unwrap();
        drop(broom.process.stdin.take());
        eventually(Duration::from_secs(10), "the empty group to go", || async {
            anyhow::ensure!(!empty.exists(), "it is there");
            Ok(())
        })
        .await
        .unwrap();
        assert!(full.join("node/file").exists());
        std::fs::remove_file(full.join("node/file")).unwrap();
        drop(broom);
        assert!(!full.exists());
    }
}
