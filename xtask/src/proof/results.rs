//! What a proof leaves behind: a page that says what was run, where, and what came out.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use spawnery_tests::target;
use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

/// A page of results.
#[derive(Debug)]
pub(crate) struct Results {
    name: String,
    date: String,
    facts: Vec<(String, String)>,
    output: String,
    verdict: String,
}

impl Results {
    /// A page for a proof that begins now, of the commit that is checked out.
    ///
    /// # Errors
    /// When git does not say which that is.
    pub(crate) async fn begin(name: &str) -> Result<Self> {
        let commit = git(&["rev-parse", "HEAD"]).await?;
        // Results themselves do not make what was proven another.
        let changed = !git(&["status", "--porcelain", "--", ".", ":!docs/results"]).await?.is_empty();
        let commit = format!("{commit}{}", if changed { ", with changes that are not committed" } else { "" });
        let now = now();
        let mut results = Self {
            name: name.to_owned(),
            date: now.strftime("%Y-%m-%d").to_string(),
            facts: Vec::new(),
            output: String::new(),
            verdict: String::new(),
        };
        results.fact("begun", &now.strftime("%Y-%m-%d %H:%M UTC").to_string());
        results.fact("commit", &commit);
        results.fact("machine", &machine());
        Ok(results)
    }

    /// Notes something that whoever repeats this must know.
    pub(crate) fn fact(&mut self, name: &str, value: &str) {
        self.facts.push((name.to_owned(), value.to_owned()));
    }

    /// Keeps what was printed.
    pub(crate) fn output(&mut self, text: &str) {
        self.output.push_str(text.trim_end());
        self.output.push('\n');
    }

    /// Notes how it ended.
    pub(crate) fn end(&mut self, proven: &Result<()>, took: Duration) {
        self.fact("took", &format!("{:.0} s", took.as_secs_f64()));
        self.verdict = match proven {
            Ok(()) => "It held.".to_owned(),
            Err(error) => format!("**It did not hold**: {error:#}."),
        };
    }

    /// The page.
    fn page(&self) -> String {
        let mut page = format!("# {}, {}\n\n{}\n\n", self.name, self.date, self.verdict);
        for (name, value) in &self.facts {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "- {name}: {value}");
        }
        let _ = write!(page, "\n```text\n{}```\n", self.output);
        page
    }

    /// Writes the page to where results are kept; a second one of the same day replaces the first.
    pub(crate) fn write(&self) -> Result<PathBuf> {
        let directory = target::workspace().join("docs/results");
        fs::create_dir_all(&directory).with_context(|| format!("could not make {}", directory.display()))?;
        let path = directory.join(format!("{}-{}.md", self.name, self.date));
        fs::write(&path, self.page()).with_context(|| format!("could not write {}", path.display()))?;
        Ok(path)
    }
}

async fn git(args: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new("git").args(args).current_dir(target::workspace()).output().await;
    let output = output.context("could not run git")?;
    ensure!(output.status.success(), "git {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Processors and memory, as far as the kernel says.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    format!("{processors} processors, {} MiB, load {load} at the start", total / 1024)
}

#[expect(clippy::disallowed_methods, reason = "a page says when it was written; nothing is decided by it")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn results() -> Results {
        Results {
            name: "speed".to_owned(),
            date: "2026-11-29".to_owned(),
            facts: vec![("commit".to_owned(), "abc".to_owned())],
            output: String::new(),
            verdict: String::new(),
        }
    }

    #[test]
    fn a_page_says_what_held() {
        let mut results = results();
        results.output("one\n\n");
        results.output("two");
        results.end(&Ok(()), Duration::from_millis(1600));
        let want = "# speed, 2026-11-29\n\nIt held.\n\n- commit: abc\n- took: 2 s\n\n```text\none\ntwo\n```\n";
        assert_eq!(results.page(), want);
    }

    #[test]
    fn a_page_says_what_did_not_hold() {
        let mut results = results();
        results.end(&Err(anyhow!("inner").context("outer")), Duration::ZERO);
        assert!(results.page().contains("**It did not hold**: outer: inner."), "{}", results.page());
    }
}
