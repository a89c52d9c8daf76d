//! Configuration: `CONFIG GET`, `SET` and `REWRITE` of `redlock.*`, and the same names as module arguments.

use redlock_tests::{Answer, Server, Wire};

fn get(wire: &mut Wire, name: &str) -> Option<String> {
    wire.call(&["CONFIG", "GET", name]).field(name).map(Answer::string)
}

#[test]
fn defaults_are_those_of_the_contract() {
    let server = Server::start();
    let mut wire = server.connect();
    assert_eq!(get(&mut wire, "redlock.max-ttl"), Some("3600000".into()));
    assert_eq!(get(&mut wire, "redlock.late-window"), Some("10000".into()));
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a me 3600000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE b me 3600001").error_word(), Some("REDLOCKTTL"));
}

#[test]
fn a_new_limit_applies_at_once() {
    let server = Server::start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE long me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("CONFIG SET redlock.max-ttl 1000"), Answer::ok());
    for command in ["ACQUIRE a me", "EXTEND long me", "MACQUIRE 1 a me", "MEXTEND 1 long me"] {
        let answer = wire.call_strs(&format!("REDLOCK.{command} 1001"));
        assert_eq!(answer.error_word(), Some("REDLOCKTTL"), "{command}: {answer:?}");
    }
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a me 1000"), Answer::Int(1..)));
    assert!(wire.inspect("long").is_some_and(|lock| lock.pttl > 1000), "a held lock keeps its lease");
}

#[test]
fn a_bad_value_is_refused_and_changes_nothing() {
    let server = Server::start();
    let mut wire = server.connect();
    for value in ["0", "-1", "abc", "", "1.5", "99999999999999999999"] {
        let answer = wire.call(&["CONFIG", "SET", "redlock.max-ttl", value]);
        assert!(matches!(answer, Answer::Error(_)), "max-ttl {value:?}: {answer:?}");
    }
    for value in ["-1", "abc", "99999999999999999999"] {
        let answer = wire.call(&["CONFIG", "SET", "redlock.late-window", value]);
        assert!(matches!(answer, Answer::Error(_)), "late-window {value:?}: {answer:?}");
    }
    assert_eq!(get(&mut wire, "redlock.max-ttl"), Some("3600000".into()));
    assert_eq!(get(&mut wire, "redlock.late-window"), Some("10000".into()));
}

#[test]
fn a_rewritten_configuration_survives_a_restart() {
    let mut server = Server::start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("CONFIG SET redlock.max-ttl 70000 redlock.late-window 5"), Answer::ok());
    assert_eq!(wire.call_strs("CONFIG REWRITE"), Answer::ok());
    server.restart();
    let mut wire = server.connect();
    assert_eq!(get(&mut wire, "redlock.max-ttl"), Some("70000".into()));
    assert_eq!(get(&mut wire, "redlock.late-window"), Some("5".into()));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE a me 70001").error_word(), Some("REDLOCKTTL"));
}

#[test]
fn the_configuration_file_sets_a_limit() {
    let server = Server::builder().arg("redlock.max-ttl", "1234").start();
    let mut wire = server.connect();
    assert_eq!(get(&mut wire, "redlock.max-ttl"), Some("1234".into()));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE a me 1235").error_word(), Some("REDLOCKTTL"));
}

#[test]
fn module_arguments_have_the_same_names() {
    let server = Server::builder().module_args(["max-ttl", "60000", "late-window", "0"]).start();
    let mut wire = server.connect();
    assert_eq!(get(&mut wire, "redlock.max-ttl"), Some("60000".into()));
    assert_eq!(get(&mut wire, "redlock.late-window"), Some("0".into()));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE a me 60001").error_word(), Some("REDLOCKTTL"));
}

#[test]
fn a_rewritten_configuration_wins_over_older_module_arguments() {
    let mut server = Server::builder().module_args(["max-ttl", "60000"]).start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("CONFIG SET redlock.max-ttl 70000"), Answer::ok());
    assert_eq!(wire.call_strs("CONFIG REWRITE"), Answer::ok());
    server.restart();
    let mut wire = server.connect();
    assert_eq!(get(&mut wire, "redlock.max-ttl"), Some("70000".into()));
}
