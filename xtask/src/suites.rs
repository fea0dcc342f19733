//! A package's test executables, two at a time.
//!
//! `cargo test` runs them one after another, and those on a control plane spend most of their time waiting for deadlines
//! with idle cores. Within an executable the tests share one cluster, so that is what runs side by side.

use crate::say;
use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, stream};
use serde::Deserialize;
use spawnery_tests::target;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::process::Command;

/// More of them at once would measure each other: what they assert has deadlines.
const AT_ONCE: usize = 2;
/// Four times what the slowest takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(20);

/// A test executable.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suite {
    name: String,
    executable: PathBuf,
}

/// Builds and runs the tests of `package`, which lies at `directory` in the workspace; those named in `slow` begin first, in that order.
///
/// # Errors
/// When they cannot be built, or with the names of those that failed; what each printed has been shown by then.
pub(crate) async fn run(package: &str, directory: &str, slow: &[&str]) -> Result<()> {
    let directory = &target::workspace().join(directory);
    let logs = target::directory()?.join("test-logs");
    std::fs::create_dir_all(&logs).with_context(|| format!("could not make {}", logs.display()))?;
    let mut suites = build(package).await?;
    suites.sort_by_key(|suite| slow.iter().position(|name| *name == suite.name).unwrap_or(slow.len()));
    let results = stream::iter(suites).map(|suite| {
        let log = logs.join(format!("{}.log", suite.name));
        async move {
            say(&format!("begin  {}", suite.name));
            let begin = Instant::now();
            let result = run_suite(&suite, directory, &log).await;
            show(&suite.name, begin.elapsed(), &result, &log);
            result.is_err().then_some(suite.name)
        }
    });
    let failed: Vec<String> = results.buffer_unordered(AT_ONCE).filter_map(async |name| name).collect().await;
    ensure!(
        failed.is_empty(),
        "failed: {}; `cargo test --package {package} --test NAME` runs one alone",
        failed.join(", ")
    );
    Ok(())
}

/// Compiles them; what the compiler says goes where ours goes.
async fn build(package: &str) -> Result<Vec<Suite>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--package", package, "--no-run", "--message-format=json-render-diagnostics"]);
    let cargo = cargo.current_dir(target::workspace()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = cargo.output().await.context("could not run cargo test")?;
    ensure!(output.status.success(), "the tests of {package} do not compile ({})", output.status);
    let suites = suites(&output.stdout)?;
    ensure!(!suites.is_empty(), "cargo built no tests of {package}");
    Ok(suites)
}

/// What of cargo's messages is read here: <https://doc.rust-lang.org/cargo/reference/external-tools.html#json-messages>.
#[derive(Debug, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact {
        target: Target,
        profile: Profile,
        executable: Option<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

fn suites(messages: &[u8]) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for line in messages.split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b'{')) {
        let message = serde_json::from_slice(line).context("cargo wrote a message that cannot be read")?;
        if let Message::CompilerArtifact { target, profile: Profile { test: true }, executable: Some(executable) } =
            message
        {
            suites.push(Suite { name: target.name, executable });
        }
    }
    Ok(suites)
}

async fn run_suite(suite: &Suite, directory: &Path, log: &Path) -> Result<()> {
    let out = std::fs::File::create(log).with_context(|| format!("could not write {}", log.display()))?;
    let mut command = Command::new(&suite.executable);
    command.current_dir(directory).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).kill_on_drop(true);
    match tokio::time::timeout(LIMIT, command.status()).await {
        Ok(status) => {
            let status = status.with_context(|| format!("could not run {}", suite.executable.display()))?;
            ensure!(status.success(), "{status}");
            Ok(())
        }
        Err(_) => bail!("not done after {LIMIT:?}"),
    }
}

/// All that it printed, in one piece.
fn show(name: &str, time: Duration, result: &Result<()>, log: &Path) {
    let printed = std::fs::read(log).unwrap_or_default();
    let verdict = match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("FAILED: {error:#}"),
    };
    say(&format!("\n--- {name}, {:.1} s: {verdict}\n{}", time.as_secs_f64(), String::from_utf8_lossy(&printed)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_cargos_messages_only_test_executables_are_taken() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"name":"kit"},"profile":{"test":true},"executable":"/t/kit-1","x":1}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"lib"},"profile":{"test":false},"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"bin"},"profile":{"test":false},"executable":"/t/bin"}"#,
            r#"{"reason":"build-script-executed","package_id":"a"}"#,
            "not a message",
            r#"{"reason":"build-finished","success":true}"#,
        ];
        let found = suites(messages.join("\n").as_bytes()).unwrap();
        assert_eq!(found, [Suite { name: "kit".to_owned(), executable: PathBuf::from("/t/kit-1") }]);
    }

    #[test]
    fn a_message_that_cannot_be_read_is_not_passed_over() {
        assert!(suites(b"{\"reason\":\"compiler-artifact\"}").is_err());
    }

    #[tokio::test]
    async fn a_suite_fails_with_its_exit_code() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        for (program, ok) in [("/bin/true", true), ("/bin/false", false), ("/nowhere", false)] {
            let suite = Suite { name: "it".to_owned(), executable: PathBuf::from(program) };
            assert_eq!(run_suite(&suite, folder.path(), &log).await.is_ok(), ok, "{program}");
        }
    }
}
