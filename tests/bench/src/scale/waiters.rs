//! Long wait queues: many waiters for one lock, and many locks with one waiter each.

use redlock_tests::Server;

use super::{send_each, told, words};
use crate::names::{key, owner};
use crate::report::{Report, figure};

const FOR_ONE: usize = 10_000;
const FOR_MANY: usize = 100_000;
const A_DAY_MS: &str = "86400000";

pub(crate) fn measure(report: &mut Report) {
    let server = Server::start();
    let mut wire = server.connect();
    for bound in ["max-waiters", "max-waiters-per-key", "max-waiters-per-connection"] {
        let most = FOR_MANY.to_string();
        wire.call(&["CONFIG", "SET", &format!("redlock.{bound}"), &most]);
    }
    // Waiters do not claim: the long window keeps each grant until its release.
    wire.call(&["CONFIG", "SET", "redlock.claim-window", "60000"]);
    let wait = |key: &str, number: usize| {
        let ticket = (number + 1).to_string();
        words(&["REDLOCK.ACQUIRE", key, &owner(number), A_DAY_MS, "WAIT", &ticket, A_DAY_MS, "line"])
    };
    let holder = "the-holder";

    wire.call(&["REDLOCK.ACQUIRE", "one", holder, A_DAY_MS]);
    let before = told(&server, "memory", "used_memory");
    let one_queue_s = send_each(&mut wire, FOR_ONE, |number| wait("one", number));
    let one_bytes = (told(&server, "memory", "used_memory") - before) / FOR_ONE as f64;
    wire.call(&["REDLOCK.RELEASE", "one", holder]);
    // Each release hands the lock to the next waiter.
    let one_serve_s =
        send_each(&mut wire, FOR_ONE, |number| words(&["REDLOCK.RELEASE", "one", &owner(number)]));

    send_each(&mut wire, FOR_MANY, |number| words(&["REDLOCK.ACQUIRE", &key(number), holder, A_DAY_MS]));
    let before = told(&server, "memory", "used_memory");
    let many_queue_s = send_each(&mut wire, FOR_MANY, |number| wait(&key(number), number));
    let many_bytes = (told(&server, "memory", "used_memory") - before) / FOR_MANY as f64;
    let many_serve_s =
        send_each(&mut wire, FOR_MANY, |number| words(&["REDLOCK.RELEASE", &key(number), holder]));
    assert_eq!(told(&server, "redlock", "redlock_waiters"), 0.0, "waiters were not served");

    report.section("waiters", "Waiters on one node, over one connection");
    let row = |name: &str, count: usize, bytes: f64, queue_s: f64, serve_s: f64| {
        let rate = |seconds: f64| figure(count as f64 / seconds, 0);
        vec![name.into(), figure(bytes, 0), rate(queue_s), rate(serve_s)]
    };
    report.table(
        &["", "bytes each", "queued/s", "handed off/s"],
        &[
            row("10,000 for one lock", FOR_ONE, one_bytes, one_queue_s, one_serve_s),
            row("100,000, each for one of its own", FOR_MANY, many_bytes, many_queue_s, many_serve_s),
        ],
    );
}
