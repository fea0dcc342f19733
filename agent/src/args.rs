//! Flags and environment, and what they make of the agent.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, ValueEnum};
use thiserror::Error;

use crate::Options;
use crate::dial::{Dialer, Endpoint};
use crate::session::Role;
use crate::session::deadlines::Timing;
use crate::session::state::{Adapter, Character, Source};

/// What the agent is started as.
#[derive(Debug)]
pub enum Invocation {
    /// Beside the game.
    Beside(Args),
    /// With this command, the game, as its child.
    Run(Args, Vec<OsString>),
}

impl Invocation {
    /// Reads a command line, its program name first. Ends the process on `--help` and on flags that cannot be read.
    pub fn parse_from(line: impl IntoIterator<Item = OsString>) -> Self {
        Self::try_parse_from(line).unwrap_or_else(|error| error.exit())
    }

    fn try_parse_from(line: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut line: Vec<OsString> = line.into_iter().collect();
        if line.get(1).is_none_or(|word| word != RUN) {
            return Args::try_parse_from(line).map(Self::Beside);
        }
        line.remove(1);
        RunArgs::try_parse_from(line).map(|RunArgs { agent, command }| Self::Run(agent, command))
    }

    /// The agent's own flags.
    pub fn args(&self) -> &Args {
        let (Self::Beside(args) | Self::Run(args, _)) = self;
        args
    }
}

/// The word that makes the game the agent's child.
const RUN: &str = "run";

/// Starts a game, reports to the Spawnery operator who is on it, and ends with it.
#[derive(Debug, Parser)]
#[command(name = "spawnery-agent run", version)]
struct RunArgs {
    #[command(flatten)]
    agent: Args,
    /// The game's command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Reports to the Spawnery operator who is on this pod, and carries out its doors and drains.
#[derive(Debug, Parser)]
#[command(version, after_help = "spawnery-agent run [FLAGS] -- COMMAND [ARGUMENTS] starts the game as its child.")]
pub struct Args {
    #[command(flatten)]
    role: RoleArgs,
    /// Most players that this proxy takes: the slots of its count where the game does not say.
    #[arg(long, env = "SPAWNERY_PLAYER_LIMIT", value_name = "PLAYERS")]
    player_limit: Option<u32>,
    /// Where the operator is, and the name that its certificate must carry.
    #[arg(long, env = "SPAWNERY_OPERATOR_ENDPOINT", value_name = "HOST:PORT")]
    operator_endpoint: Endpoint,
    /// Connect to this address instead of resolving the operator's host; the certificate is still checked for the host.
    #[arg(long, value_name = "IP:PORT")]
    dial_address: Option<SocketAddr>,
    /// The CA bundle that the operator's certificate must chain to; read anew for each session.
    #[arg(long, default_value = "/var/run/spawnery/ca.crt", value_name = "FILE")]
    ca_file: PathBuf,
    /// The bearer token; read anew for each session.
    #[arg(long, default_value = "/var/run/spawnery/token", value_name = "FILE")]
    token_file: PathBuf,
    /// Where counts come from: `slp:HOST:PORT` asks the game by server list ping, `local` takes them over the local API.
    /// Default: `slp:127.0.0.1:25565` for servers, `local` for proxies.
    #[arg(long, value_name = "slp:HOST:PORT|local")]
    count_source: Option<CountSource>,
    /// How often the game is asked, in milliseconds.
    #[arg(long, default_value = "500", value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(50..=60_000))]
    ping_interval_ms: u64,
    /// Who carries out directory, doors and drains: a part of the game over the local API, or nobody, in which case orders
    /// are confirmed at once.
    #[arg(long, default_value = "none")]
    adapter: AdapterArg,
    /// Whether the game refuses newcomers while its door is closed and confirms that through POST /v1/applied.
    #[arg(long, default_value = "none")]
    door: DoorArg,
    /// Where the local API listens.
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "IP:PORT")]
    local_listen: SocketAddr,
    /// Proxies: where the readiness gate listens while it is open.
    #[arg(long, default_value = "0.0.0.0:8081", value_name = "IP:PORT")]
    ready_listen: SocketAddr,
    /// Where the pre-stop hook listens: the kubelet calls it before it tells the game to stop.
    #[arg(long, default_value = "0.0.0.0:8091", value_name = "IP:PORT")]
    hook_listen: SocketAddr,
    /// How logs are written.
    #[arg(long, default_value = "json")]
    pub log_format: LogFormat,
    /// What is logged: a level, or directives as in `info,spawnery_agent=debug`.
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    pub log_level: String,
}

#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
struct RoleArgs {
    /// This pod is the game server of this name.
    #[arg(long, env = "SPAWNERY_SERVER", value_name = "NAME")]
    server: Option<String>,
    /// This pod is the proxy of this name.
    #[arg(long, env = "SPAWNERY_PROXY", value_name = "NAME")]
    proxy: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AdapterArg {
    None,
    External,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DoorArg {
    None,
    Enforced,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Where counts come from, as a flag says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountSource {
    /// The local API.
    Local,
    /// Server list ping.
    Ping {
        /// The game's host.
        host: String,
        /// The game's port.
        port: u16,
    },
}

/// Flags that do not go together or cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadArgs {
    /// Not a source.
    #[error("{0:?} is no count source; accepted: local, slp:HOST:PORT")]
    CountSource(String),
    /// The adapter counts for itself.
    #[error("--adapter external goes with --count-source local: its confirmations carry the count")]
    AdapterAndPing,
    /// Nobody could confirm the door.
    #[error("--door enforced goes with --adapter external: the game must confirm that it refuses newcomers")]
    DoorWithoutAdapter,
}

impl FromStr for CountSource {
    type Err = BadArgs;

    fn from_str(text: &str) -> Result<Self, BadArgs> {
        let refuse = || BadArgs::CountSource(text.to_owned());
        if text == "local" {
            return Ok(Self::Local);
        }
        let place = text.strip_prefix("slp:").ok_or_else(refuse)?;
        let (host, port) = place.rsplit_once(':').ok_or_else(refuse)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(refuse)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(refuse());
        }
        Ok(Self::Ping { host: host.to_owned(), port })
    }
}

impl Args {
    /// The agent that these flags ask for.
    pub fn options(self) -> Result<Options, BadArgs> {
        let Self {
            role: RoleArgs { server, proxy },
            player_limit,
            operator_endpoint,
            dial_address,
            ca_file,
            token_file,
            count_source,
            ping_interval_ms,
            adapter,
            door,
            local_listen,
            ready_listen,
            hook_listen,
            log_format: _,
            log_level: _,
        } = self;
        let role = if proxy.is_some() { Role::Proxy } else { Role::Server };
        let source = count_source.unwrap_or_else(|| match role {
            Role::Server => CountSource::Ping { host: "127.0.0.1".to_owned(), port: 25565 },
            Role::Proxy => CountSource::Local,
        });
        let adapter = match adapter {
            AdapterArg::None => Adapter::None,
            AdapterArg::External => Adapter::External,
        };
        let door_enforced = matches!(door, DoorArg::Enforced);
        if adapter == Adapter::External && source != CountSource::Local {
            return Err(BadArgs::AdapterAndPing);
        }
        if door_enforced && adapter == Adapter::None {
            return Err(BadArgs::DoorWithoutAdapter);
        }
        let (source, ping) = match source {
            CountSource::Local => (Source::Local, None),
            CountSource::Ping { host, port } => (Source::Ping, Some((host, port))),
        };
        let timing = Timing::default();
        Ok(Options {
            name: proxy.or(server).unwrap_or_default(),
            character: Character { role, source, adapter, door_enforced },
            slots: player_limit.filter(|_| role == Role::Proxy),
            ping,
            ping_interval: Duration::from_millis(ping_interval_ms),
            local_listen,
            gate: (role == Role::Proxy).then_some(ready_listen),
            hook: hook_listen,
            dialer: Dialer {
                role,
                endpoint: operator_endpoint,
                dial_address,
                ca_file,
                token_file,
                connect_limit: timing.connect,
            },
            timing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn parse(flags: &[&str]) -> Result<Options, String> {
        let common = ["spawnery-agent", "--operator-endpoint", "operator:9443"];
        let args = Args::try_parse_from(common.iter().chain(flags)).map_err(|error| error.to_string())?;
        args.options().map_err(|error| error.to_string())
    }

    #[test]
    fn a_servers_defaults() {
        let options = parse(&["--server", "lobby-a2"]).expect("flags");
        assert_eq!(options.character.role, Role::Server);
        assert_eq!(options.ping, Some(("127.0.0.1".to_owned(), 25565)));
        assert_eq!(options.gate, None);
        assert_eq!(options.name, "lobby-a2");
    }

    #[test]
    fn a_proxys_defaults() {
        let options = parse(&["--proxy", "gate-b3", "--player-limit", "500"]).expect("flags");
        assert_eq!(options.character.role, Role::Proxy);
        assert_eq!(options.character.source, Source::Local);
        assert_eq!(options.slots, Some(500));
        assert_eq!(options.gate.map(|address| address.port()), Some(8081));
    }

    #[test]
    fn a_command_after_run_is_the_game_s() {
        let line =
            ["spawnery-agent", "run", "--operator-endpoint", "o:1", "--server", "a", "--", "node", "--proxy", "run"];
        let read = Invocation::try_parse_from(line.map(OsString::from)).expect("flags");
        let Invocation::Run(args, command) = read else { panic!("not the game's parent") };
        assert_eq!(command, ["node", "--proxy", "run"]);
        assert_eq!(args.options().expect("an agent").name, "a");
    }

    #[rstest]
    #[case::no_command(&["run", "--server", "a", "--operator-endpoint", "o:1"], "COMMAND")]
    #[case::an_empty_command(&["run", "--server", "a", "--operator-endpoint", "o:1", "--"], "COMMAND")]
    #[case::no_dashes(&["run", "--server", "a", "--operator-endpoint", "o:1", "node"], "node")]
    #[case::no_run(&["--server", "a", "--operator-endpoint", "o:1", "--", "node"], "node")]
    #[case::no_role(&["run", "--operator-endpoint", "o:1", "--", "node"], "--server")]
    fn refuses_a_line(#[case] words: &[&str], #[case] names: &str) {
        let line = ["spawnery-agent"].iter().chain(words).map(OsString::from);
        let refused = Invocation::try_parse_from(line).expect_err("not accepted").to_string();
        assert!(refused.contains(names), "{refused}");
    }

    #[rstest]
    #[case::no_role(&[], "--server")]
    #[case::two_roles(&["--server", "a", "--proxy", "b"], "--proxy")]
    #[case::source(&["--server", "a", "--count-source", "rcon:1"], "accepted: local, slp:HOST:PORT")]
    #[case::adapter_and_ping(&["--server", "a", "--adapter", "external"], "--count-source local")]
    #[case::door_alone(&["--server", "a", "--door", "enforced"], "--adapter external")]
    fn refuses(#[case] flags: &[&str], #[case] names: &str) {
        let refused = parse(flags).expect_err("not accepted");
        assert!(refused.contains(names), "{refused}");
    }

    #[rstest]
    #[case("local", Some(CountSource::Local))]
    #[case("slp:127.0.0.1:25565", Some(CountSource::Ping { host: "127.0.0.1".into(), port: 25565 }))]
    #[case("slp:[::1]:25565", Some(CountSource::Ping { host: "::1".into(), port: 25565 }))]
    #[case("slp:game", None)]
    #[case("slp::25565", None)]
    #[case("slp:game:0", None)]
    fn count_sources(#[case] text: &str, #[case] want: Option<CountSource>) {
        assert_eq!(text.parse().ok(), want);
    }
}
