//! What was measured, beside what it is measured by.

use serde::{Deserialize, Serialize};
use spawnery_tests::bench::Samples;
use std::{fmt::Write as _, time::Duration};

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// `BENCH/WHAT`.
    pub(crate) name: String,
    /// What was measured.
    pub(crate) value: f64,
    /// Of the value, its baseline and its goal.
    pub(crate) unit: String,
    /// The same without our work, measured in the same run.
    pub(crate) baseline: Option<f64>,
    /// Most that the value may be.
    pub(crate) goal: Option<f64>,
    /// Whether it is at most that.
    pub(crate) holds: Option<bool>,
}

impl Figure {
    /// A figure that only informs.
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.to_owned(), baseline: None, goal: None, holds: None }
    }

    /// Sets what the same takes without our work.
    pub(crate) fn baseline(mut self, baseline: f64) -> Self {
        self.baseline = Some(baseline);
        self
    }

    /// Sets the most that it may be.
    pub(crate) fn at_most(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self.holds = Some(self.value <= goal);
        self
    }
}

/// A quantile in milliseconds; infinite without samples, so that no goal holds.
pub(crate) fn millis(samples: &Samples, percent: u8) -> f64 {
    samples.percentile(percent).map_or(f64::INFINITY, |time| time.as_secs_f64() * 1000.0)
}

/// Median and 99th percentile of `samples`, the latter with its goal if there is one.
pub(crate) fn quantiles(name: &str, samples: &Samples, baseline: &Samples, goal: Option<Duration>) -> [Figure; 2] {
    let figure = |percent| {
        let name = format!("{name}/p{percent}");
        Figure::new(name, millis(samples, percent), "ms").baseline(millis(baseline, percent))
    };
    let high = figure(99);
    [
        figure(50),
        match goal {
            Some(goal) => high.at_most(goal.as_secs_f64() * 1000.0),
            None => high,
        },
    ]
}

/// The figures for a person.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut table = String::new();
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or_default().max(6);
    // Writing to a string cannot fail.
    let _ = writeln!(
        table,
        "{:<width$} {:>10} {:>10} {:>10} {:<8} holds",
        "figure", "value", "baseline", "at most", "unit"
    );
    for figure in figures {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
        let holds = figure.holds.map_or("-", |holds| if holds { "yes" } else { "NO" });
        let _ = writeln!(
            table,
            "{:<width$} {:>10} {:>10} {:>10} {:<8} {holds}",
            figure.name,
            short(figure.value),
            number(figure.baseline),
            number(figure.goal),
            figure.unit,
        );
    }
    table
}

/// Two digits behind the point for small numbers, none for large ones.
fn short(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_goal_holds_when_the_value_is_at_most_that() {
        assert_eq!(Figure::new("a", 2.0, "ms").holds, None);
        assert_eq!(Figure::new("a", 2.0, "ms").at_most(2.0).holds, Some(true));
        assert_eq!(Figure::new("a", 2.1, "ms").at_most(2.0).holds, Some(false));
    }

    #[test]
    fn no_samples_meet_no_goal() {
        let none = Samples::default();
        let [_, high] = quantiles("a", &none, &none, Some(Duration::from_secs(1)));
        assert_eq!(high.holds, Some(false));
    }

    #[test]
    fn is_one_object_a_line_in_json() {
        let figure = Figure::new("verdict/p99", 0.5, "ms").baseline(0.25).at_most(0.75);
        let want = json!({
            "name": "verdict/p99", "value": 0.5, "unit": "ms", "baseline": 0.25, "goal": 0.75, "holds": true,
        });
        assert_eq!(serde_json::to_value(figure).unwrap(), want);
    }

    #[test]
    fn is_a_table_for_people() {
        let figures =
            [Figure::new("verdict/p99", 0.5, "ms").baseline(0.25).at_most(0.75), Figure::new("size", 1234.4, "KiB")];
        let table = table(&figures);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "verdict/p99       0.50       0.25       0.75 ms       yes");
        assert_eq!(lines[2], "size              1234          -          - KiB      -");
    }
}
