//! Steps that run one after another, each with its name and time, up to the first failure.

use crate::say;
use anyhow::{Context as _, Result, bail, ensure};
use spawnery_tests::{nodes, target};
use std::{
    ffi::OsString,
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

/// Work that is not a command.
type Work = Pin<Box<dyn Future<Output = Result<()>>>>;

/// One step.
pub(crate) struct Step {
    name: String,
    limit: Duration,
    action: Action,
}

enum Action {
    Commands(Vec<Vec<OsString>>),
    Work(Work),
}

impl Step {
    /// Commands in the workspace's root, one after another, with their output where ours goes.
    pub(crate) fn commands<A: AsRef<str>>(name: &str, lines: impl IntoIterator<Item = A>) -> Self {
        // A word cannot hold a space; no command here has one.
        let words = |line: A| line.as_ref().split(' ').map(OsString::from).collect();
        Self::new(name, Action::Commands(lines.into_iter().map(words).collect()))
    }

    /// One command; see [`Step::commands`].
    pub(crate) fn command(name: &str, line: &str) -> Self {
        Self::commands(name, [line])
    }

    /// One command where there can be real nodes; where not, why is said, and it is passed over.
    pub(crate) fn command_on_real_nodes(name: &str, line: &'static str) -> Self {
        Self::work(name, async move {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            if nodes::support::wanted()? { run_command(&words).await } else { Ok(()) }
        })
    }

    /// Work of our own.
    pub(crate) fn work(name: &str, work: impl Future<Output = Result<()>> + 'static) -> Self {
        Self::new(name, Action::Work(Box::pin(work)))
    }

    fn new(name: &str, action: Action) -> Self {
        // No step takes half of that from an empty cache.
        Self { name: name.to_owned(), limit: Duration::from_mins(40), action }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    async fn run(self) -> Result<()> {
        let limit = self.limit;
        let work = async move {
            match self.action {
                Action::Work(work) => work.await,
                Action::Commands(commands) => {
                    for command in commands {
                        run_command(&command).await?;
                    }
                    Ok(())
                }
            }
        };
        tokio::time::timeout(limit, work).await.with_context(|| format!("not done after {limit:?}"))?
    }
}

async fn run_command(words: &[OsString]) -> Result<()> {
    let Some((program, args)) = words.split_first() else { bail!("an empty command") };
    let line = words.join(" ".as_ref()).to_string_lossy().into_owned();
    let mut command = tokio::process::Command::new(program);
    command.args(args).current_dir(target::workspace()).kill_on_drop(true);
    let status = command.status().await.with_context(|| format!("could not run `{line}`"))?;
    ensure!(status.success(), "`{line}` failed ({status})");
    Ok(())
}

/// Runs steps up to the first that fails, and says how long each took.
pub(crate) async fn run(steps: Vec<Step>) -> Result<()> {
    let start = Instant::now();
    let mut times = Vec::new();
    let mut failure = Ok(());
    for step in steps {
        let name = step.name().to_owned();
        say(&format!("\n=== {name}"));
        let begin = Instant::now();
        let result = step.run().await;
        times.push((name.clone(), begin.elapsed(), result.is_ok()));
        if let Err(error) = result {
            say(&format!("error: {error:#}"));
            failure = Err(anyhow::anyhow!("step `{name}` failed; `cargo xtask test {name}` runs it alone"));
            break;
        }
    }
    say("");
    for (name, time, ok) in times {
        say(&format!("{} {name:<20} {:>7.1} s", if ok { "ok    " } else { "FAILED" }, time.as_secs_f64()));
    }
    say(&format!("       {:<20} {:>7.1} s", "in all", start.elapsed().as_secs_f64()));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, rc::Rc};

    #[tokio::test]
    async fn ends_at_the_first_failure_and_names_it() {
        let done = Rc::new(RefCell::new(Vec::new()));
        let step = |name: &'static str, ok: bool| {
            let done = Rc::clone(&done);
            Step::work(name, async move {
                done.borrow_mut().push(name);
                ensure!(ok, "as asked");
                Ok(())
            })
        };
        let error = run(vec![step("one", true), step("two", false), step("three", true)]).await.unwrap_err();
        assert_eq!(*done.borrow(), ["one", "two"]);
        assert!(error.to_string().contains("`two`"), "{error}");
    }

    #[tokio::test]
    async fn a_command_succeeds_with_its_exit_code() {
        assert!(run(vec![Step::commands("both", ["true", "true"])]).await.is_ok());
        assert!(run(vec![Step::commands("second", ["true", "false"])]).await.is_err());
    }
}
