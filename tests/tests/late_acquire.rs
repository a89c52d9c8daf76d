//! Late acquires: a release that frees nothing leaves a tombstone. It rejects an acquire of the same owner that arrives
//! later on another connection, so that no ghost lock remains.

use redlock_tests::{Answer, Server};
use std::time::Duration;

fn granted(answer: &Answer) -> bool {
    matches!(answer, Answer::Int(1..))
}

#[test]
fn a_late_acquire_on_another_connection_is_refused() {
    let (server, clock) = Server::start_frozen();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(second.call_strs("REDLOCK.RELEASE lock ghost"), Answer::Int(0));
    assert_eq!(first.call_strs("REDLOCK.ACQUIRE lock ghost 60000"), Answer::Nil);
    assert_eq!(first.call_strs("REDLOCK.MACQUIRE 2 free lock ghost 60000"), Answer::Nil);
    assert_eq!(first.call_strs("DBSIZE"), Answer::Int(0));
    assert_eq!(server.info("redlock", "redlock_late_refusals"), Some("2".into()));
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE other-lock ghost 60000")), "another key is free");
    clock.advance_module(Duration::from_millis(10_001));
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock ghost 60000")), "the late window has ended");
}

#[test]
fn a_tombstone_does_not_reject_other_owners() {
    let server = Server::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(second.call_strs("REDLOCK.RELEASE lock ghost"), Answer::Int(0));
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock other 60000")));
}

#[test]
fn an_acquire_after_a_release_on_one_connection_is_not_late() {
    let server = Server::start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(0));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 60000")));
}

#[test]
fn a_command_of_a_script_counts_for_the_connection_that_runs_it() {
    let server = Server::start();
    let script = "return redis.call(ARGV[1], KEYS[1], 'me', unpack(ARGV, 2))";
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.RELEASE one me"), Answer::Int(0));
    assert!(granted(&wire.call(&["EVAL", script, "1", "one", "REDLOCK.ACQUIRE", "60000"])));
    assert_eq!(wire.call(&["EVAL", script, "1", "two", "REDLOCK.RELEASE"]), Answer::Int(0));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE two me 60000")));
}

#[test]
fn a_release_that_freed_the_lock_leaves_no_tombstone() {
    let server = Server::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock me 60000")));
    assert_eq!(first.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    assert!(granted(&second.call_strs("REDLOCK.ACQUIRE lock me 60000")));
}

#[test]
fn the_late_window_is_configurable() {
    let (server, clock) = Server::start_frozen();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(first.call_strs("CONFIG SET redlock.late-window 500"), Answer::ok());
    assert_eq!(second.call_strs("REDLOCK.RELEASE lock ghost"), Answer::Int(0));
    assert_eq!(first.call_strs("REDLOCK.ACQUIRE lock ghost 60000"), Answer::Nil);
    clock.advance_module(Duration::from_millis(501));
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock ghost 60000")));

    assert_eq!(first.call_strs("CONFIG SET redlock.late-window 0"), Answer::ok());
    assert_eq!(second.call_strs("REDLOCK.RELEASE another ghost"), Answer::Int(0));
    assert!(
        granted(&first.call_strs("REDLOCK.ACQUIRE another ghost 60000")),
        "late-window 0 turns tombstones off"
    );
}
