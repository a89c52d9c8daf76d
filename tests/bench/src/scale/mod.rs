//! One node under load: a million locks, mass expiry, bursts of short locks, long wait queues, many connections.

mod burst;
mod connections;
mod expiry;
mod held;
mod waiters;

use std::time::Instant;

use redlock_tests::{Answer, Server, Wire};

use crate::report::Report;

/// How many commands are sent together.
const BATCH: usize = 1_000;

pub(crate) const PIECES: [&str; 5] = ["held", "expiry", "burst", "waiters", "connections"];

/// Measures the named pieces, or all of them if none is named.
pub(crate) fn measure(report: &mut Report, pieces: &[String]) {
    let all: [fn(&mut Report); 5] =
        [held::measure, expiry::measure, burst::measure, waiters::measure, connections::measure];
    for (name, measure) in PIECES.iter().zip(all) {
        if pieces.is_empty() || pieces.iter().any(|wanted| wanted == name) {
            measure(report);
        }
    }
}

/// Sends a command for each number, many at a time. Returns the duration in seconds.
fn send_each(wire: &mut Wire, count: usize, command: impl Fn(usize) -> Vec<String>) -> f64 {
    let start = Instant::now();
    for first in (0..count).step_by(BATCH) {
        let answers = wire.pipeline((first..count.min(first + BATCH)).map(&command).collect());
        if let Some(Answer::Error(error)) = answers.iter().find(|answer| matches!(answer, Answer::Error(_))) {
            panic!("the server refused: {error}");
        }
    }
    start.elapsed().as_secs_f64()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A number in the server's INFO.
fn told(server: &Server, section: &str, field: &str) -> f64 {
    let number = server.info(section, field).and_then(|number| number.parse().ok());
    number.expect("INFO has this number")
}

/// The durations of `count` calls in microseconds, sorted.
fn sorted_us(mut call: impl FnMut(usize), count: usize) -> Vec<f64> {
    let mut all: Vec<f64> = (0..count)
        .map(|number| {
            let start = Instant::now();
            call(number);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all
}
