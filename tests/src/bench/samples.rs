//! Many durations of the same thing.

use std::time::Duration;

/// Durations of which the quantiles are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    sorted: Vec<Duration>,
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        Self { sorted }
    }
}

impl Samples {
    /// All of these together.
    pub fn merge(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().flat_map(|part| part.sorted).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The least duration that at least `percent` of all do not exceed (nearest rank); none without samples. With less
    /// than a hundred, the 99th is the longest.
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let rank = (self.sorted.len() * usize::from(percent.min(100))).div_ceil(100);
        self.sorted.get(rank.max(1) - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::none(&[], 50, None)]
    #[case::one(&[7], 99, Some(7))]
    #[case::median_of_three(&[3, 1, 2], 50, Some(2))]
    #[case::longest_of_few(&[3, 1, 2], 99, Some(3))]
    #[case::least(&[3, 1, 2], 0, Some(1))]
    #[case::over_the_top(&[3, 1, 2], 200, Some(3))]
    fn takes_the_nearest_rank(#[case] millis: &[u64], #[case] percent: u8, #[case] want: Option<u64>) {
        let samples: Samples = millis.iter().map(|&millis| Duration::from_millis(millis)).collect();
        assert_eq!(samples.percentile(percent), want.map(Duration::from_millis));
    }

    #[test]
    fn leaves_one_in_a_hundred_out() {
        let samples: Samples = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(samples.percentile(99), Some(Duration::from_millis(198)));
        assert_eq!(samples.count(), 200);
    }
}
