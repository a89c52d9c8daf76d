//! A burst of short locks, and how long after the last deadline plain commands still see one of them.

use std::time::{Duration, Instant};

use redlock_tests::{Answer, Server};

use super::{send_each, words};
use crate::names::{key, owner};
use crate::report::{Report, TerminalBar, figure, median, spread};

const LOCKS: usize = 300_000;
const TTL: Duration = Duration::from_millis(50);
const ROUNDS: usize = 5;

pub(crate) fn measure(report: &mut Report) {
    let server = Server::start();
    let (mut taken, mut late) = (Vec::new(), Vec::new());
    let progress = TerminalBar::of("a burst of short locks", ROUNDS);
    let ttl = TTL.as_millis().to_string();
    for _ in 0..ROUNDS {
        let mut wire = server.connect();
        let seconds = send_each(&mut wire, LOCKS, |number| {
            words(&["REDLOCK.ACQUIRE", &key(number), &owner(number), &ttl])
        });
        taken.push(seconds * 1e3);
        // The last lock was granted at the latest now.
        let deadline = Instant::now() + TTL;
        while wire.call(&["DBSIZE"]) != Answer::Int(0) {}
        late.push(Instant::now().saturating_duration_since(deadline).as_secs_f64() * 1e3);
        progress.step();
    }
    drop(progress);
    report.section(
        "burst",
        format!(
            "{LOCKS} locks of {} ms, acquired one after the other on one connection, {ROUNDS} rounds",
            TTL.as_millis()
        ),
    );
    let row = |name: &str, ms: &[f64]| {
        let (_, most) = spread(ms);
        vec![name.into(), figure(median(ms), 1), figure(most, 1)]
    };
    report.table(
        &["", "median ms", "most ms"],
        &[row("to acquire them", &taken), row("from the last deadline until DBSIZE is 0", &late)],
    );
    report.at_most("how long the last expired key is visible, ms", median(&late), 100.0);
}
