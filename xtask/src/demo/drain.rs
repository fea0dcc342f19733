//! The real `kubectl drain`, and what it says.

use anyhow::{Context as _, Result, ensure};
use spawnery_tests::{Cluster, Process};
use std::{fs, time::Duration};

/// After this long kubectl gives up by itself; the story takes half a minute.
const TIMEOUT: &str = "--timeout=180s";
/// What kubectl says when it was refused in the way that makes it come back (429), and after how long it does.
const WILL_RETRY: &str = "(will retry after 5s): ";

/// A running drain.
#[derive(Debug)]
pub(crate) struct Drain {
    process: Process,
    command: String,
}

impl Drain {
    /// Starts to drain a node.
    pub(crate) fn start(cluster: &Cluster, node: &str) -> Result<Self> {
        let args = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", TIMEOUT];
        let process = cluster.kubectl_spawn("kubectl-drain", args)?;
        Ok(Self { process, command: format!("kubectl {}", args.join(" ")) })
    }

    /// The command as a person would type it.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// What it has said so far, line by line.
    pub(crate) fn said(&self) -> Vec<String> {
        let path = self.process.log_path();
        let text = path.and_then(|path| fs::read(path).ok()).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// Each refusal after which it comes back.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        self.said().iter().filter_map(|line| Refusal::parse(line)).collect()
    }

    /// Whether it has ended, and how.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        self.process.exit_status().map(|status| status.code().unwrap_or(-1))
    }

    /// Waits until it has ended with exit code 0.
    pub(crate) async fn done(&self, limit: Duration) -> Result<()> {
        let status = self.process.wait(limit).await.context("the drain goes on")?;
        ensure!(status.success(), "`{}` ended with {status}\n{}", self.command, self.process.tail(10));
        Ok(())
    }
}

/// One refusal, as kubectl prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The pod that may not go.
    pub(crate) pod: String,
    /// The whole message after it.
    pub(crate) message: String,
}

impl Refusal {
    fn parse(line: &str) -> Option<Self> {
        let (head, message) = line.split_once(WILL_RETRY)?;
        let pod = head.split_once("pods/\"")?.1.split('"').next()?;
        Some(Self { pod: pod.to_owned(), message: message.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_refusal() {
        let line = r#"error when evicting pods/"lobby-x7kd" -n "minecraft" (will retry after 5s): admission webhook "w" denied the request: people are on it"#;
        let refusal = Refusal::parse(line).unwrap();
        assert_eq!(refusal.pod, "lobby-x7kd");
        assert!(refusal.message.ends_with("people are on it"));
    }

    #[test]
    fn other_lines_are_no_refusals() {
        assert_eq!(Refusal::parse("evicting pod minecraft/lobby-x7kd"), None);
        assert_eq!(Refusal::parse(r#"error when evicting pods/"lobby-x7kd": it is forbidden"#), None);
    }
}
