//! Many locks that expire at the same moment, and how long another client waits for the server meanwhile.

use std::time::{Duration, Instant};

use redlock_tests::{Server, Wire};

use super::{send_each, told, words};
use crate::names::{key, owner};
use crate::report::{Report, TerminalBar, figure, median, spread};

const LOCKS: usize = 100_000;
/// Longer than it takes to acquire all locks.
const AHEAD: Duration = Duration::from_secs(4);
const ROUNDS: usize = 5;

pub(crate) fn measure(report: &mut Report) {
    let server = Server::start();
    let (mut quiet, mut swept, mut took) = (Vec::new(), Vec::new(), Vec::new());
    let progress = TerminalBar::of("locks that end at once", ROUNDS);
    for _ in 0..ROUNDS {
        let end = Instant::now() + AHEAD;
        let left = || (end - Instant::now()).as_millis().to_string();
        send_each(&mut server.connect(), LOCKS, |number| {
            words(&["REDLOCK.ACQUIRE", &key(number), &owner(number), &left()])
        });
        let mut wire = server.connect();
        // The longest wait before the sweep shows what the machine causes by itself.
        quiet.push(longest_ms(&mut wire, || Instant::now() + Duration::from_millis(500) < end));
        while Instant::now() < end {
            wire.call(&["PING"]);
        }
        let start = Instant::now();
        swept.push(longest_ms(&mut wire, || told(&server, "redlock", "redlock_locks") > 0.0));
        took.push(start.elapsed().as_secs_f64() * 1e3);
        progress.step();
    }
    drop(progress);
    report.section(
        "expiry",
        format!("{LOCKS} locks run out within a few milliseconds; the longest PING of another client, {ROUNDS} rounds"),
    );
    let row = |name: &str, ms: &[f64]| {
        let (_, most) = spread(ms);
        vec![name.into(), figure(median(ms), 2), figure(most, 2)]
    };
    report.table(
        &["", "median ms", "most ms"],
        &[row("before", &quiet), row("while they are swept", &swept), row("the whole sweep", &took)],
    );
    // A busy machine delays a client too, so the aim is about what the sweep adds.
    let added: Vec<f64> = swept.iter().zip(&quiet).map(|(swept, quiet)| (swept - quiet).max(0.0)).collect();
    report.at_most("what the sweep adds to the longest wait of another client, ms", median(&added), 5.0);
}

/// The duration in milliseconds of the longest of many PINGs, sent for as long as `goes_on` returns true.
fn longest_ms(wire: &mut Wire, goes_on: impl Fn() -> bool) -> f64 {
    let mut longest = Duration::ZERO;
    while goes_on() {
        for _ in 0..50 {
            let start = Instant::now();
            wire.call(&["PING"]);
            longest = longest.max(start.elapsed());
        }
    }
    longest.as_secs_f64() * 1e3
}
