//! A crash of a server that keeps no data set: its locks are lost, its numbers are not.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{Answer, Builder, Clock, Server};
use std::time::Duration;

/// A frozen clock stands still over a crash too.
fn frozen(builder: Builder) -> (Server, Clock) {
    let clock = Clock::new();
    clock.freeze_module();
    (builder.clock(&clock).start(), clock)
}

fn granted(answer: &Answer) -> i64 {
    assert!(matches!(answer, Answer::Int(1..)), "expected a fence, got {answer:?}");
    answer.int()
}

/// Grants again at once after a crash, whatever it may have forgotten.
fn forgetful() -> Builder {
    Server::builder().module_args(["restart-grace", "off"])
}

#[test]
fn a_crash_without_persistence_loses_locks_but_no_number() {
    let (mut server, _clock) = frozen(forgetful());
    let mut largest = [0; 3];
    let keys = ["held", "released", "untouched"];
    for round in 0..5 {
        let mut wire = server.connect();
        assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(0), "round {round}");
        for (key, largest) in keys.into_iter().zip(&mut largest).take(2) {
            // Steps of every size, up to what one wish may lift and over what is put aside at a time.
            let floor = *largest + [0, 7, 1 << 20, 1 << 31, 1 << 32][round];
            let fence =
                granted(&wire.call(&["REDLOCK.ACQUIRE", key, "me", "60000", "FENCE", &floor.to_string()]));
            assert!(fence > *largest && fence >= floor, "round {round}: {key} has {fence} after {largest}");
            *largest = fence;
        }
        assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
        server.kill();
        server.restart();
    }
    let mut wire = server.connect();
    for (key, largest) in keys.into_iter().zip(largest) {
        assert!(granted(&wire.call(&["REDLOCK.ACQUIRE", key, "other", "60000"])) > largest, "{key}");
    }
}

#[test]
fn a_crash_after_many_grants_loses_no_number() {
    let (mut server, _clock) = frozen(forgetful());
    let mut wire = server.connect();
    let pair =
        [["REDLOCK.ACQUIRE", "lock", "me", "60000"].to_vec(), ["REDLOCK.RELEASE", "lock", "me"].to_vec()];
    let answers = wire.pipeline(std::iter::repeat_n(pair, 10_000).flatten().collect());
    let largest = answers.iter().map(Answer::int).max().expect("answers");
    assert!(largest >= 10_000);
    server.kill();
    server.restart();
    assert!(granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock other 60000")) > largest);
}

#[test]
fn a_node_that_may_have_forgotten_locks_grants_none_until_they_have_run_out() {
    let (mut server, clock) = frozen(Server::builder());
    let before = granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 5000"));
    server.kill();
    server.restart();
    let mut wire = server.connect();
    let answer = wire.call_strs("REDLOCK.ACQUIRE lock other 5000");
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{answer:?}");
    clock.advance_module(Duration::from_secs(6));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 5000")) > before);
}
