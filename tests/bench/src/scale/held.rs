//! A million held locks.

use std::time::Instant;

use redlock_tests::Server;

use super::{send_each, sorted_us, told, words};
use crate::names::{key, owner};
use crate::report::{Report, figure, quantile};

const LOCKS: usize = 1_000_000;
/// How many acquires the bench times.
const TIMED: usize = 20_000;
const AN_HOUR_MS: &str = "3600000";

/// The cost of a million locks: bytes for each, seconds to save and load all.
struct HoldCost {
    bytes: f64,
    save_s: f64,
    load_s: f64,
}

pub(crate) fn measure(report: &mut Report) {
    let locks = Server::builder().debug_commands().start();
    let empty = acquire_us(&locks);
    let ours = cost(&locks, |key, owner| words(&["REDLOCK.ACQUIRE", key, owner, AN_HOUR_MS]));
    let full = acquire_us(&locks);
    drop(locks);
    let plain = Server::builder().without_module().debug_commands().start();
    let string = cost(&plain, |key, owner| words(&["SET", key, owner, "NX", "PX", AN_HOUR_MS]));
    report.section(
        "held",
        format!(
            "{LOCKS} locks on one node, keys of 17 bytes, owners of 36, against as many strings with a TTL"
        ),
    );
    let row = |name: &str, cost: &HoldCost| {
        vec![name.into(), figure(cost.bytes, 1), figure(cost.save_s, 2), figure(cost.load_s, 2)]
    };
    report.table(&["", "bytes each", "SAVE s", "load s"], &[row("strings", &string), row("locks", &ours)]);
    let row = |name: &str, us: &[f64]| {
        vec![name.into(), figure(quantile(us, 0.5), 1), figure(quantile(us, 0.99), 1)]
    };
    report.table(
        &["an acquire over one connection", "p50 us", "p99 us"],
        &[row("empty", &empty), row("full", &full)],
    );
    report.at_most("bytes against a string with a TTL", ours.bytes / string.bytes, 1.05);
    report.at_most(
        "p50 of an acquire, full against empty",
        quantile(&full, 0.5) / quantile(&empty, 0.5),
        1.5,
    );
    report.at_most(
        "p99 of an acquire, full against empty",
        quantile(&full, 0.99) / quantile(&empty, 0.99),
        1.5,
    );
}

/// The durations of successive acquires in microseconds, sorted; each lock is released again.
fn acquire_us(server: &Server) -> Vec<f64> {
    let (mut wire, mut freeing) = (server.connect(), server.connect());
    let mut timed = Vec::with_capacity(TIMED);
    for number in 0..TIMED {
        let (key, owner) = (format!("timed:{number}"), owner(number));
        timed.extend(sorted_us(|_| drop(wire.call(&["REDLOCK.ACQUIRE", &key, &owner, AN_HOUR_MS])), 1));
        freeing.call(&["REDLOCK.RELEASE", &key, &owner]);
    }
    timed.sort_by(f64::total_cmp);
    timed
}

fn cost(server: &Server, take: impl Fn(&str, &str) -> Vec<String>) -> HoldCost {
    let mut wire = server.connect();
    let before = told(server, "memory", "used_memory");
    send_each(&mut wire, LOCKS, |number| take(&key(number), &owner(number)));
    let bytes = (told(server, "memory", "used_memory") - before) / LOCKS as f64;
    let mut seconds = |command: &[&str]| {
        let start = Instant::now();
        let answer = wire.call(command);
        assert_eq!(answer, redlock_tests::Answer::ok(), "{command:?}");
        start.elapsed().as_secs_f64()
    };
    let save_s = seconds(&["SAVE"]);
    let load_s = seconds(&["DEBUG", "RELOAD", "NOSAVE"]);
    HoldCost { bytes, save_s, load_s }
}
