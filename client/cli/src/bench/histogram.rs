//! How long it took, as bars: what a table of shares hides, as a second hump, can be seen.

use crate::duration::show_latency;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::Duration;

/// How long the longest bar is.
const WIDTH: u64 = 40;

/// The upper edges of the buckets, in microseconds. What is above the last one counts there.
const EDGES: [u64; 20] = [
    20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000, 20_000_000, 60_000_000,
];

/// A bucket: times above the edge of the one before, and up to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) up_to_us: u64,
    pub(super) count: u64,
}

/// All buckets from the first to the last in which there is anything.
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

/// One line for each bucket: its edge, a bar, and how many there are.
pub(super) fn lines(histogram: &Histogram<u64>) -> Vec<String> {
    let buckets = buckets(histogram);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    let line = |bucket: &Bucket| {
        let edge = show_latency(Duration::from_micros(bucket.up_to_us));
        format!("  up to {edge:>8}  {} {}", bar(bucket.count, most), bucket.count)
    };
    buckets.iter().map(line).collect()
}

/// As long as its share of the most; whatever there is at all can be seen.
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
    fn every_time_is_in_one_bucket_and_none_is_lost() {
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
        assert_eq!(counts(&[u64::MAX]), [(60_000_000, 1)], "longer than anything that is told apart");
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(8, 8).chars().count(), 40);
        assert_eq!(bar(4, 8), "█".repeat(20));
        assert_eq!(bar(1, 1_000_000), "▏", "one of many can be seen");
        assert_eq!(bar(0, 8), "");
        let lines = lines(&of(&[150, 150, 400]));
        assert_eq!(lines[0], format!("  up to   0.20ms  {} 2", "█".repeat(40)));
        assert_eq!(lines[1], format!("  up to   0.50ms  {} 1", "█".repeat(20)));
    }
}
