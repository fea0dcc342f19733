//! A process that starts a cluster and ends without putting anything away, for the test that nothing is left then.
//!
//! `doomed panic|exit|wait` prints the cluster's directory and panics in a test's thread, exits, or waits to be killed.

use anyhow::{Context as _, Result, bail};
use spawnery_tests::Cluster;
use std::io::Write as _;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let end = args.next().context("usage: doomed panic|exit|wait")?;
    // As in a test binary: the cluster is started on a thread, by a runtime, that both end before the process does.
    let test = std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
        let cluster = runtime.block_on(Cluster::shared())?;
        drop(runtime);
        let mut out = std::io::stdout();
        writeln!(out, "{}", cluster.directory().display()).and_then(|()| out.flush()).context("nobody listens")?;
        match end.as_str() {
            "panic" => std::panic::resume_unwind(Box::new("as asked")),
            "exit" => std::process::exit(0),
            "wait" => {
                std::thread::park();
                Ok(())
            }
            other => bail!("{other:?} is not panic, exit or wait"),
        }
    });
    let Ok(result) = test.join() else { bail!("the thread panicked") };
    result
}
