//! An acquire that arrives after its own release leaves no ghost: the release that found nothing bars it.

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
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock ghost 60000")), "the window is over");
}

#[test]
fn others_are_not_barred() {
    let server = Server::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(second.call_strs("REDLOCK.RELEASE lock ghost"), Answer::Int(0));
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock other 60000")));
}

#[test]
fn order_on_one_connection_is_meant() {
    let server = Server::start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(0));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 60000")));
}

#[test]
fn a_script_belongs_to_the_connection_that_runs_it() {
    let server = Server::start();
    let script = "return redis.call(ARGV[1], KEYS[1], 'me', unpack(ARGV, 2))";
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.RELEASE one me"), Answer::Int(0));
    assert!(granted(&wire.call(&["EVAL", script, "1", "one", "REDLOCK.ACQUIRE", "60000"])));
    assert_eq!(wire.call(&["EVAL", script, "1", "two", "REDLOCK.RELEASE"]), Answer::Int(0));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE two me 60000")));
}

#[test]
fn a_release_that_freed_the_lock_bars_nothing() {
    let server = Server::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock me 60000")));
    assert_eq!(first.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    assert!(granted(&second.call_strs("REDLOCK.ACQUIRE lock me 60000")));
}

#[test]
fn the_window_is_configurable() {
    let (server, clock) = Server::start_frozen();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(first.call_strs("CONFIG SET redlock.late-window 500"), Answer::ok());
    assert_eq!(second.call_strs("REDLOCK.RELEASE lock ghost"), Answer::Int(0));
    assert_eq!(first.call_strs("REDLOCK.ACQUIRE lock ghost 60000"), Answer::Nil);
    clock.advance_module(Duration::from_millis(501));
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE lock ghost 60000")));

    assert_eq!(first.call_strs("CONFIG SET redlock.late-window 0"), Answer::ok());
    assert_eq!(second.call_strs("REDLOCK.RELEASE another ghost"), Answer::Int(0));
    assert!(granted(&first.call_strs("REDLOCK.ACQUIRE another ghost 60000")), "0 turns it off");
}
