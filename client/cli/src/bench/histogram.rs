//! The measured times as bars. They show what percentiles hide, such as a second peak.

use crate::duration::show_latency;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::Duration;

/// The length of the longest bar, in columns.
const WIDTH: u64 = 40;

/// The upper bounds of the buckets, in microseconds. Longer times count in the last bucket.
const EDGES: [u64; 20] = [
    20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000, 20_000_000, 60_000_000,
];

/// A bucket: the times above the bound of the previous bucket and up to its own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) up_to_us: u64,
    pub(super) count: u64,
}

/// The buckets from the first to the last that is not empty.
pub(super) fn buckets(histogram: &Histogram<u64>) -> Vec<Bucket> {
    let mut buckets = EDGES.map(|up_to_us| Bucket { up_to_us, count: 0 });
    for step in histogram.iter_recorded() {
        let place =
            EDGES.partition_point(|edge| *edge < histogram.lowest_equivalent(step.value_iterated_to()));
        if let Some(bucket) = buckets.get_mut(place.min(EDGES.len() - 1)) {
            bucket.count += step.count_at_value();
        }
    }
    let is_used = |bucket: &Bucket| bucket.count > 0;
    let first = buckets.iter().position(is_used);
    let last = buckets.iter().rposition(is_used);
    first.zip(last).and_then(|(first, last)| buckets.get(first..=last)).unwrap_or_default().to_vec()
}

pub(super) fn json(histogram: &Histogram<u64>) -> Value {
    let bucket = |bucket: Bucket| json!({"up_to_us": bucket.up_to_us, "count": bucket.count});
    buckets(histogram).into_iter().map(bucket).collect()
}

/// One line for each bucket: its bound, a bar, and the count.
pub(super) fn lines(histogram: &Histogram<u64>) -> Vec<String> {
    let buckets = buckets(histogram);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    let line = |bucket: &Bucket| {
        let edge = show_latency(Duration::from_micros(bucket.up_to_us));
        format!("  up to {edge:>8}  {} {}", bar(bucket.count, most), bucket.count)
    };
    buckets.iter().map(line).collect()
}

/// A bar in proportion to the largest count. A count above 0 is always visible.
fn bar(count: u64, most: u64) -> String {
    let eighths = usize::try_from(u128::from(count) * u128::from(WIDTH) * 8 / u128::from(most)).unwrap_or(0);
    let eighths = eighths.max(usize::from(count > 0));
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8).copied().unwrap_or_default();
    "█".repeat(eighths / 8) + part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000, 3).expect("a histogram");
        times.iter().for_each(|time| histogram.saturating_record(*time));
        histogram
    }

    #[test]
    fn every_time_counts_in_exactly_one_bucket() {
        let counts = |times: &[u64]| {
            let buckets = buckets(&of(times));
            buckets.iter().map(|bucket| (bucket.up_to_us, bucket.count)).collect::<Vec<_>>()
        };
        assert_eq!(counts(&[]), []);
        assert_eq!(counts(&[1, 20, 21]), [(20, 2), (50, 1)]);
        assert_eq!(
            counts(&[100, 101, 5_000]),
            [(100, 1), (200, 1), (500, 0), (1_000, 0), (2_000, 0), (5_000, 1)]
        );
        assert_eq!(counts(&[u64::MAX]), [(60_000_000, 1)], "a time above the largest bound");
    }

    #[test]
    fn the_length_of_a_bar_is_its_share_of_the_largest_count() {
        assert_eq!(bar(8, 8).chars().count(), 40);
        assert_eq!(bar(4, 8), "█".repeat(20));
        assert_eq!(bar(1, 1_000_000), "▏", "one of a million is visible");
        assert_eq!(bar(0, 8), "");
        let lines = lines(&of(&[150, 150, 400]));
        assert_eq!(lines[0], format!("  up to   0.20ms  {} 2", "█".repeat(40)));
        assert_eq!(lines[1], format!("  up to   0.50ms  {} 1", "█".repeat(20)));
    }
}
