//! Metrics of the process itself, read from /proc on each scrape, under Prometheus' customary names.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::clock::Clock;

/// Linux reports times to user space in hundredths of a second on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
/// Memory is counted in pages of this many bytes; 4 KiB on the architectures we build for.
const PAGE_BYTES: u64 = 4096;

/// Adds the process metrics to a registry.
pub fn register(registry: &mut Registry, clock: Clock) {
    registry.register_collector(Box::new(Process { started: clock.wall() }));
}

#[derive(Debug)]
struct Process {
    started: Timestamp,
}

/// What one look at /proc/self shows.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Usage {
    cpu: Duration,
    threads: u64,
    resident_pages: u64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)
        };
        gauge("process_start_time_seconds", "Start of the process since the Unix epoch", seconds(self.started))?;
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            gauge("process_open_fds", "Open file descriptors", approximate(entries.count() as u64))?;
        }
        let Some(usage) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(parse_stat) else {
            return Ok(());
        };
        let resident = approximate(usage.resident_pages.saturating_mul(PAGE_BYTES));
        gauge("process_resident_memory_bytes", "Resident memory", resident)?;
        gauge("process_threads", "Threads", approximate(usage.threads))?;
        let cpu = ConstCounter::new(usage.cpu.as_secs_f64());
        let metric =
            encoder.encode_descriptor("process_cpu_seconds", "CPU time, user and system", None, cpu.metric_type())?;
        cpu.encode(metric)
    }
}

fn parse_stat(stat: &str) -> Option<Usage> {
    // The second field is the program's name in parentheses and may hold anything; fields are counted after it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = number(11)?.saturating_add(number(12)?);
    Some(Usage {
        cpu: Duration::try_from_secs_f64(approximate(ticks) / TICKS_PER_SECOND).ok()?,
        threads: number(17)?,
        resident_pages: number(21)?,
    })
}

#[allow(clippy::cast_precision_loss)] // metrics are floating point; these stay far below 2^52
fn approximate(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss)] // seconds since 1970 are exact in a double
fn seconds(time: Timestamp) -> f64 {
    time.as_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_stat_line_whatever_the_program_is_called() {
        let line =
            "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 12345 1000000 321 18446744073709551615";
        let want = Usage { cpu: Duration::from_secs(3), threads: 9, resident_pages: 321 };
        assert_eq!(parse_stat(line), Some(want));
        assert_eq!(parse_stat("no parentheses"), None);
    }
}
