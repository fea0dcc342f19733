//! The reconciler, the webhook and the extender in one file, told apart by the name that it is called by.
//!
//! They share most of what they are made of: one file instead of three is half the image and a third of the linking.
//! Each is still a program of its own to whoever starts it: `/usr/local/bin/spawnery-webhook` is a link to this file.

use anyhow::{Context as _, bail};
use clap::Parser;
use spawnery_extender as extender;
use spawnery_reconciler as reconciler;
use spawnery_runtime::{args::LogArgs, telemetry};
use spawnery_webhook as webhook;
use std::{env, ffi::OsStr, path::Path};

/// A program in this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Extender,
    Reconciler,
    Webhook,
}

impl Program {
    const ALL: [Self; 3] = [Self::Extender, Self::Reconciler, Self::Webhook];

    const fn name(self) -> &'static str {
        match self {
            Self::Extender => "spawnery-extender",
            Self::Reconciler => "spawnery-reconciler",
            Self::Webhook => "spawnery-webhook",
        }
    }

    /// The program that is called by this path.
    fn called(path: &OsStr) -> Option<Self> {
        let name = Path::new(path).file_name()?;
        Self::ALL.into_iter().find(|program| name == program.name())
    }
}

fn main() -> anyhow::Result<()> {
    let called = env::args_os().next().unwrap_or_default();
    let Some(program) = Program::called(&called) else {
        let names = Program::ALL.map(Program::name).join(", ");
        bail!("this file is called by the name of one of its programs: {names}; not {}", called.display())
    };
    match program {
        Program::Extender => start(|args: &extender::args::Args| &args.log, extender::run),
        Program::Reconciler => start(|args: &reconciler::args::Args| &args.log, reconciler::run),
        Program::Webhook => start(|args: &webhook::args::Args| &args.log, webhook::run),
    }
}

/// Does what each program's own `main` does.
fn start<A: Parser, F: Future<Output = anyhow::Result<()>>>(
    log: impl FnOnce(&A) -> &LogArgs,
    run: impl FnOnce(A) -> F,
) -> anyhow::Result<()> {
    spawnery_certs::install_default();
    let args = A::parse();
    telemetry::init(log(&args))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("could not start the async runtime")?.block_on(run(args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::by_path("/usr/local/bin/spawnery-webhook", Some(Program::Webhook))]
    #[case::by_name("spawnery-reconciler", Some(Program::Reconciler))]
    #[case::in_a_folder("./spawnery-extender", Some(Program::Extender))]
    #[case::the_file_itself("/usr/local/bin/spawnery", None)]
    #[case::somebody_else("/usr/local/bin/spawnery-webhooks", None)]
    #[case::nothing("", None)]
    fn is_what_it_is_called(#[case] path: &str, #[case] want: Option<Program>) {
        assert_eq!(Program::called(OsStr::new(path)), want);
    }
}
