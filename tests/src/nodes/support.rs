//! Whether real nodes can be had here.

use crate::{args::settings, image::NONROOT};
use anyhow::{Result, anyhow, bail};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// What a run does where real nodes cannot be had: the value of `REAL_NODES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Want {
    /// Says why not, and goes on without.
    #[default]
    Auto,
    /// Fails.
    Required,
    /// Does not try.
    Off,
}

/// The programs that make a node, and the Debian packages that hold them.
const PROGRAMS: [(&str, &str); 7] = [
    ("timeout", "coreutils"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("setpriv", "util-linux"),
];

/// In namespaces of its own, what nodes need of the kernel, each in its smallest form.
const PROBE: &str = "set -e
mount -t sysfs sysfs /sys
ip link add probe0 type bridge
ip link add probe1 type veth peer name probe2
nft add table ip probe
mount -t tmpfs probe /mnt
mkdir /mnt/lower /mnt/upper /mnt/work /mnt/merged
mount -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work probe /mnt/merged";

/// What the machine is like, as far as nodes depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    root: bool,
    /// Those that are not there, with their packages.
    missing: Vec<(&'static str, &'static str)>,
    /// What the kernel does not have or does not allow.
    refused: Option<String>,
    cgroups: Option<String>,
}

impl Machine {
    fn look() -> Self {
        let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let root = rustix::process::geteuid().is_root() && most_users(&users) > NONROOT;
        let missing: Vec<_> = PROGRAMS.into_iter().filter(|(program, _)| find(program).is_none()).collect();
        let refused = if root && missing.is_empty() { probe() } else { None };
        let cgroups = super::cgroups::Trees::usable().err().map(|error| format!("{error:#}"));
        Self { root, missing, refused, cgroups }
    }

    /// The first reason against real nodes.
    fn objection(&self) -> Option<String> {
        if !self.root {
            return Some("namespaces, mounts and control groups need root".to_owned());
        }
        if let Some((program, package)) = self.missing.first() {
            return Some(format!("no `{program}` (Debian package {package})"));
        }
        let refused = self.refused.as_ref().map(|error| format!("the kernel refuses: {error}"));
        refused.or_else(|| self.cgroups.clone())
    }
}

/// The length of the longest range in `/proc/self/uid_map` (`INSIDE OUTSIDE LENGTH`): a root that was made by a person's own
/// user namespace has no other users, and containers have.
fn most_users(map: &str) -> u32 {
    let lengths = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse().ok());
    lengths.max().unwrap_or_default()
}

/// Tries it out; says what went wrong.
fn probe() -> Option<String> {
    let mut command = Command::new("timeout");
    command.args(["20", "unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork"]);
    command.args(["--kill-child=KILL", "--mount-proc", "sh", "-c", PROBE]).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Some(said.lines().next().map_or_else(|| output.status.to_string(), str::to_owned))
        }
        Err(error) => Some(error.to_string()),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&settings().path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether to start real nodes: `Ok(false)` says that a run goes on without them, and has said why.
///
/// # Errors
/// When they are required and cannot be had; the message says why.
pub fn wanted() -> Result<bool> {
    decide(settings().real_nodes, Machine::look().objection())
}

fn decide(want: Want, objection: Option<String>) -> Result<bool> {
    match (want, objection) {
        (Want::Off, _) => {
            tell("without real nodes: REAL_NODES=off");
            Ok(false)
        }
        (_, None) => Ok(true),
        (Want::Auto, Some(why)) => {
            tell(&format!("without real nodes: {why}"));
            Ok(false)
        }
        (Want::Required, Some(why)) => bail!("REAL_NODES=required, but {why}"),
    }
}

/// Fails where real nodes cannot be had, for a person who asked for them.
///
/// # Errors
/// Says why not.
pub fn require() -> Result<()> {
    Machine::look().objection().map_or(Ok(()), |why| Err(anyhow!("no real nodes: {why}")))
}

#[expect(clippy::print_stderr, reason = "why a test does less is for the person who reads its output")]
fn tell(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn good() -> Machine {
        Machine { root: true, missing: Vec::new(), refused: None, cgroups: None }
    }

    #[rstest]
    #[case::nothing_is_missing(good(), None)]
    #[case::not_root(Machine { root: false, ..good() }, Some("namespaces, mounts and control groups need root"))]
    #[case::a_program(Machine { missing: vec![("nft", "nftables")], ..good() }, Some("no `nft` (Debian package nftables)"))]
    #[case::the_kernel(Machine { refused: Some("unshare: Not permitted".into()), ..good() }, Some("the kernel refuses: unshare: Not permitted"))]
    #[case::cgroups(Machine { cgroups: Some("no control groups for pids".into()), ..good() }, Some("no control groups for pids"))]
    fn says_what_is_missing(#[case] machine: Machine, #[case] expected: Option<&str>) {
        assert_eq!(machine.objection().as_deref(), expected);
    }

    #[rstest]
    #[case::of_the_machine("         0          0 4294967295\n", 4_294_967_295)]
    #[case::of_ones_own_namespace("         0          0          1\n", 1)]
    #[case::unreadable("", 0)]
    fn a_root_without_other_users_is_none(#[case] map: &str, #[case] expected: u32) {
        assert_eq!(most_users(map), expected);
    }

    #[rstest]
    #[case::had(Want::Auto, None, Some(true))]
    #[case::had_as_required(Want::Required, None, Some(true))]
    #[case::gone_without(Want::Auto, Some("x"), Some(false))]
    #[case::failed_for_want_of(Want::Required, Some("x"), None)]
    #[case::not_even_tried(Want::Off, None, Some(false))]
    fn is_decided_by_want_and_machine(
        #[case] want: Want,
        #[case] objection: Option<&str>,
        #[case] expected: Option<bool>,
    ) {
        assert_eq!(decide(want, objection.map(str::to_owned)).ok(), expected);
    }
}
