//! Commands that run to their end and whose output is wanted.

use crate::launch::Launch;
use anyhow::{Context as _, Result, bail};
use std::{io::Write as _, process::ExitStatus, time::Duration};

/// What a command printed and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command as it was given.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

impl Output {
    /// Whether it ended with exit code 0.
    pub fn ok(&self) -> bool {
        self.status.success()
    }

    /// Its standard output.
    ///
    /// # Errors
    /// When its exit code is not 0; the message holds both outputs.
    pub fn stdout(self) -> Result<String> {
        if self.ok() {
            return Ok(self.stdout);
        }
        bail!("`{}` failed ({})\n{}{}", self.command, self.status, self.stdout, self.stderr)
    }

    /// Both outputs, for looking for a phrase.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs a command to its end, with `input` on its standard input. It dies with us and when the future is dropped.
///
/// # Errors
/// When it cannot be started or has not ended after `limit`; it is killed then. A failing command is not an error here.
pub async fn run(launch: &Launch, input: Option<&str>, limit: Duration) -> Result<Output> {
    let directory = tempfile::tempdir().context("could not make a directory for the command's output")?;
    let (out, err) = (directory.path().join("out"), directory.path().join("err"));
    let mut launch = launch.clone().stdout(&out).log(&err);
    if let Some(input) = input {
        let path = directory.path().join("in");
        let written = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(input.as_bytes()));
        written.context("could not write the command's input")?;
        launch = launch.stdin(path);
    }
    let command = launch.to_string();
    let process = launch.start()?;
    let status = process.wait(limit).await.with_context(|| format!("`{command}`"))?;
    let read = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let (stdout, stderr) = (read(&out).context("lost the output")?, read(&err).context("lost the error output")?);
    Ok(Output { command, status, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Launch {
        Launch::new("sh", "/bin/sh").args(["-c", script])
    }

    #[tokio::test]
    async fn gives_both_outputs_and_the_code() {
        let output = run(&shell("cat; echo no >&2; exit 3"), Some("yes"), Duration::from_secs(10)).await.unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("yes", "no\n"));
        assert_eq!(output.status.code(), Some(3));
        assert!(output.stdout().unwrap_err().to_string().contains("no"));
    }

    #[tokio::test]
    async fn kills_what_does_not_end() {
        let error = run(&shell("echo started >&2; sleep 100"), None, Duration::from_millis(500)).await.unwrap_err();
        assert!(format!("{error:#}").contains("has not ended after 500ms\nstarted"), "{error:#}");
    }
}
