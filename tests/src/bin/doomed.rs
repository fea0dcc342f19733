//! A process that starts a cluster and ends without putting anything away, for the test that nothing is left then.
//!
//! `doomed panic|exit|wait [real]` prints the cluster's directory and panics in a test's thread, exits, or waits to be
//! killed; with real nodes when asked for.

use anyhow::{Context as _, Result, bail};
use spawnery_tests::{
    Cluster,
    nodes::{self, RealOptions},
};
use std::{io::Write as _, path::Path};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let end = args.next().context("usage: doomed panic|exit|wait [real]")?;
    let real = args.next().is_some();
    // As in a test binary: the cluster is started on a thread, by a runtime, that both end before the process does.
    let test = std::thread::spawn(move || if real { on_real_nodes(&end) } else { on_loopback(&end) });
    let Ok(result) = test.join() else { bail!("the thread panicked") };
    result
}

fn on_loopback(end: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let cluster = runtime.block_on(Cluster::shared())?;
    drop(runtime);
    tell_and_end(cluster.directory(), end)
}

fn on_real_nodes(end: &str) -> Result<()> {
    // Without waiting for its turn: whoever starts this has the turn.
    nodes::run_required(RealOptions { dns: false, ..RealOptions::default() }, async |real| {
        tell_and_end(real.cluster().directory(), end)
    })
}

fn tell_and_end(directory: &Path, end: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", directory.display()).and_then(|()| out.flush()).context("nobody listens")?;
    match end {
        "panic" => std::panic::resume_unwind(Box::new("as asked")),
        "exit" => std::process::exit(0),
        "wait" => {
            std::thread::park();
            Ok(())
        }
        other => bail!("{other:?} is not panic, exit or wait"),
    }
}
