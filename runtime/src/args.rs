//! Flags that every process has, and parsers for their values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// How to reach the API server.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientArgs {
    /// Kubeconfig to use; without it the usual places ($KUBECONFIG, ~/.kube/config, the pod's own account).
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
}

/// How to log.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// `json` for clusters, `text` for people.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Least level that is logged, or a filter such as `info,spawnery_runtime=debug`.
    #[arg(long, default_value = "info", value_name = "FILTER")]
    pub log_level: String,
}

/// Shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Lines for a terminal.
    Text,
}

/// Where metrics and health are served, in plain HTTP.
#[derive(Debug, Clone, Args)]
pub struct AdminArgs {
    /// Address of /metrics; `:8080` means every address of this machine, `0` switches it off.
    #[arg(long, default_value = ":8080", value_name = "HOST:PORT", value_parser = optional_address)]
    pub metrics_bind_address: OptionalAddress,
    /// Address of /livez, /healthz and /readyz.
    #[arg(long, default_value = ":8081", value_name = "HOST:PORT", value_parser = optional_address)]
    pub health_probe_bind_address: OptionalAddress,
}

/// How to end.
#[derive(Debug, Clone, Copy, Args)]
pub struct ShutdownArgs {
    /// Time between becoming unready and refusing connections, so that endpoints have forgotten us.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    pub shutdown_delay: Duration,
    /// Time after that for what is under way.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    pub shutdown_grace: Duration,
}

/// What to look at.
#[derive(Debug, Clone, Args)]
pub struct ScopeArgs {
    /// Only namespace to look after; empty means all.
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    pub namespace: String,
    /// Namespace of our own objects: lease, certificates, services.
    #[arg(long, env = "POD_NAMESPACE", default_value = "spawnery-system", value_name = "NAMESPACE")]
    pub operator_namespace: String,
}

impl ScopeArgs {
    /// The one namespace to look after, or `None` for all.
    pub fn only(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalAddress(pub Option<SocketAddr>);

/// Why a flag's value was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not a duration.
    #[error("`{0}` is not a duration; write numbers with units, such as 300ms, 5s, 1m30s or 2h")]
    Duration(String),
    /// Not an address.
    #[error("`{0}` is not an address; write HOST:PORT with an IP address, or :PORT for every address of this machine")]
    Address(String),
}

/// Parses a duration as Go writes it: one or more numbers with the units `ms`, `s`, `m` or `h`.
///
/// # Errors
/// Says what would be accepted.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let refuse = || ValueError::Duration(text.to_owned());
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(refuse());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let number: f64 = number.parse().map_err(|_| refuse())?;
        let seconds = match unit {
            "ms" => number / 1000.0,
            "s" => number,
            "m" => number * 60.0,
            "h" => number * 3600.0,
            _ => return Err(refuse()),
        };
        let part = Duration::try_from_secs_f64(seconds).map_err(|_| refuse())?;
        total = total.checked_add(part).ok_or_else(refuse)?;
        rest = tail;
    }
    Ok(total)
}

/// Parses an address to listen on; `:PORT` means every IPv4 address of this machine.
///
/// # Errors
/// Says what would be accepted.
pub fn bind_address(text: &str) -> Result<SocketAddr, ValueError> {
    let refuse = || ValueError::Address(text.to_owned());
    match text.strip_prefix(':') {
        Some(port) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port.parse().map_err(|_| refuse())?)),
        None => text.parse().map_err(|_| refuse()),
    }
}

/// As [`bind_address`]; `0` and the empty string mean none.
///
/// # Errors
/// Says what would be accepted.
pub fn optional_address(text: &str) -> Result<OptionalAddress, ValueError> {
    match text {
        "" | "0" => Ok(OptionalAddress(None)),
        _ => bind_address(text).map(|address| OptionalAddress(Some(address))),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::milliseconds("500ms", 500)]
    #[case::seconds("5s", 5_000)]
    #[case::several_units("1h2m3.5s", 3_723_500)]
    #[case::nothing("0s", 0)]
    fn reads_durations(#[case] text: &str, #[case] milliseconds: u64) {
        assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)));
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_unit("5")]
    #[case::no_number("s")]
    #[case::unknown_unit("5d")]
    #[case::negative("-5s")]
    #[case::too_large("99999999999999999999999h")]
    fn refuses_other_durations(#[case] text: &str) {
        assert_eq!(duration(text), Err(ValueError::Duration(text.to_owned())));
    }

    #[rstest]
    #[case::port_only(":9443", "0.0.0.0:9443")]
    #[case::loopback("127.0.0.1:0", "127.0.0.1:0")]
    #[case::version_6("[::1]:80", "[::1]:80")]
    fn reads_addresses(#[case] text: &str, #[case] want: &str) {
        assert_eq!(bind_address(text).map(|address| address.to_string()), Ok(want.to_owned()));
    }

    #[rstest]
    #[case::no_port("127.0.0.1")]
    #[case::a_name("localhost:80")]
    #[case::port_too_large(":70000")]
    fn refuses_other_addresses(#[case] text: &str) {
        assert_eq!(bind_address(text), Err(ValueError::Address(text.to_owned())));
    }

    #[test]
    fn an_address_can_be_switched_off() {
        assert_eq!(optional_address("0"), Ok(OptionalAddress(None)));
    }
}
