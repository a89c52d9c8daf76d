//! One node with much to do: a million locks, as many as can end at once, long lines, many connections.

mod connections;
mod expiry;
mod held;
mod waiters;

use std::time::Instant;

use redlock_tests::{Answer, Server, Wire};

/// How many commands travel together.
const BATCH: usize = 1_000;

pub(crate) fn measure(parts: &[String]) {
    let all: [(&str, fn()); 4] = [
        ("held", held::measure),
        ("expiry", expiry::measure),
        ("waiters", waiters::measure),
        ("connections", connections::measure),
    ];
    if let Some(unknown) = parts.iter().find(|part| !all.iter().any(|(name, _)| name == part)) {
        eprintln!("no such part: {unknown}; there are held, expiry, waiters, connections");
        std::process::exit(2);
    }
    for (name, part) in all {
        if parts.is_empty() || parts.iter().any(|wanted| wanted == name) {
            part();
            println!();
        }
    }
}

/// Sends a command for each number, many at a time; tells how long it took in seconds.
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

/// A number that the server tells of itself.
fn told(server: &Server, section: &str, field: &str) -> f64 {
    let number = server.info(section, field).and_then(|number| number.parse().ok());
    number.expect("the server tells this of itself")
}

/// How long each of some calls takes, in microseconds, sorted.
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

fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}
