//! Locks next to other keys: plain `SET NX` locks, other types, and general commands on locks.

use redlock_tests::{Answer, SOON, Server, Wire, eventually};
use std::time::Duration;

fn grant(wire: &mut Wire, key: &str, owner: &str) -> i64 {
    let answer = wire.call(&["REDLOCK.ACQUIRE", key, owner, "60000"]);
    assert!(matches!(answer, Answer::Int(1..)), "{key}: {answer:?}");
    answer.int()
}

#[test]
fn a_plain_lock_counts_as_held() {
    let server = Server::start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SET lock plain NX PX 60000"), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Nil);
    assert_eq!(
        wire.call_strs("REDLOCK.ACQUIRE lock plain 60000"),
        Answer::Nil,
        "the value of a plain lock is not an owner"
    );
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock plain 60000"), Answer::Nil);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock plain"), Answer::Int(0));
    assert_eq!(wire.call_strs("REDLOCK.INSPECT lock"), Answer::Nil);
    assert_eq!(wire.call_strs("REDLOCK.MACQUIRE 2 free lock me 60000"), Answer::Nil);
    assert_eq!(wire.call_strs("EXISTS free"), Answer::Int(0), "REDLOCK.MACQUIRE acquires all keys or none");
    assert_eq!(wire.call_strs("GET lock"), Answer::text("plain"));
    assert_eq!(wire.call_strs("DEL lock"), Answer::Int(1));
    grant(&mut wire, "lock", "me");
}

#[test]
fn a_plain_client_is_kept_out_while_a_lock_is_held() {
    let server = Server::start();
    let mut wire = server.connect();
    grant(&mut wire, "lock", "me");
    assert_eq!(wire.call_strs("SET lock plain NX PX 60000"), Answer::Nil);
    assert_eq!(wire.call_strs("SETNX lock plain"), Answer::Int(0));
    assert_eq!(wire.call_strs("GET lock").error_word(), Some("WRONGTYPE"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    assert_eq!(wire.call_strs("SET lock plain NX PX 60000"), Answer::ok());
}

#[test]
fn other_types_are_an_error_and_stay_as_they_are() {
    let server = Server::builder().debug_commands().start();
    let mut wire = server.connect();
    for line in ["RPUSH list a", "HSET hash a 1", "SADD set a", "ZADD zset 1 a", "XADD stream * a 1"] {
        wire.call_strs(line);
    }
    let before = wire.call_strs("DEBUG DIGEST");
    for key in ["list", "hash", "set", "zset", "stream"] {
        for line in [
            format!("REDLOCK.ACQUIRE {key} me 60000"),
            format!("REDLOCK.EXTEND {key} me 60000"),
            format!("REDLOCK.RELEASE {key} me"),
            format!("REDLOCK.INSPECT {key}"),
            format!("REDLOCK.MACQUIRE 2 free {key} me 60000"),
            format!("REDLOCK.MEXTEND 2 free {key} me 60000"),
            format!("REDLOCK.MRELEASE 2 free {key} me"),
        ] {
            assert_eq!(wire.call_strs(&line).error_word(), Some("WRONGTYPE"), "{line}");
        }
    }
    assert_eq!(wire.call_strs("DEBUG DIGEST"), before);
}

#[test]
fn general_commands_work_on_a_lock() {
    let server = Server::builder().debug_commands().start();
    let mut wire = server.connect();
    let empty = wire.call_strs("DEBUG DIGEST");
    grant(&mut wire, "lock", "me");
    let Answer::Status(kind) = wire.call_strs("TYPE lock") else { panic!("TYPE answers a status") };
    assert!(kind.starts_with("redlock"), "{kind}");
    let scan = wire.call(&["SCAN", "0", "TYPE", &kind, "COUNT", "100"]);
    assert_eq!(scan.list()[1], Answer::List(vec![Answer::text("lock")]));
    assert!(wire.call_strs("MEMORY USAGE lock").int() > 0);
    assert!(matches!(wire.call_strs("OBJECT ENCODING lock"), Answer::Text(_)));
    assert!(matches!(wire.call_strs("OBJECT IDLETIME lock"), Answer::Int(_)));
    assert_eq!(wire.call_strs("OBJECT REFCOUNT lock"), Answer::Int(1));
    assert_eq!(
        wire.call_strs("TTL lock"),
        Answer::Int(-1),
        "the server itself has no time to live for the lock"
    );
    assert!(matches!(wire.call_strs("DEBUG OBJECT lock"), Answer::Status(_)));

    let held = wire.call_strs("DEBUG DIGEST");
    assert_ne!(held, empty);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    assert_eq!(wire.call_strs("DEBUG DIGEST"), empty);
    grant(&mut wire, "lock", "other");
    assert_ne!(wire.call_strs("DEBUG DIGEST"), held, "another lock has another digest");
}

#[test]
fn a_longer_label_takes_more_memory() {
    let server = Server::start();
    let mut wire = server.connect();
    grant(&mut wire, "plain", "me");
    let label = "x".repeat(256);
    assert!(matches!(
        wire.call(&["REDLOCK.ACQUIRE", "tagged", "me", "60000", "LABEL", &label]),
        Answer::Int(1..)
    ));
    let usage = |wire: &mut Wire, key: &str| wire.call(&["MEMORY", "USAGE", key]).int();
    assert!(usage(&mut wire, "tagged") >= usage(&mut wire, "plain") + 200);
}

/// Runs a transaction that watches `lock` while another connection runs `line`. Returns whether the transaction was
/// aborted.
fn is_aborted(server: &Server, line: &str) -> bool {
    let mut watcher = server.connect();
    assert_eq!(watcher.call_strs("WATCH lock"), Answer::ok());
    server.connect().call_strs(line);
    assert_eq!(watcher.call_strs("MULTI"), Answer::ok());
    assert_eq!(watcher.call_strs("PING"), Answer::Status("QUEUED".into()));
    watcher.call_strs("EXEC") == Answer::Nil
}

#[test]
fn watch_notices_changes_and_nothing_else() {
    let server = Server::start();
    for (line, changes) in [
        ("REDLOCK.ACQUIRE lock me 60000", true),
        ("REDLOCK.ACQUIRE lock other 60000", false),
        ("REDLOCK.EXTEND lock other 60000", false),
        ("REDLOCK.RELEASE lock other", false),
        ("REDLOCK.INSPECT lock", false),
        ("REDLOCK.ACQUIRE elsewhere me 60000", false),
        ("REDLOCK.EXTEND lock me 60000", true),
        ("REDLOCK.RELEASE lock me", true),
        ("REDLOCK.MACQUIRE 2 lock another me 60000", true),
        ("REDLOCK.MRELEASE 2 lock another me", true),
    ] {
        assert_eq!(is_aborted(&server, line), changes, "{line}");
    }
}

#[test]
fn watch_notices_the_end_of_a_lock() {
    let (server, clock) = Server::start_frozen();
    let (mut wire, mut watcher) = (server.connect(), server.connect());
    grant(&mut wire, "lock", "me");
    assert_eq!(watcher.call_strs("WATCH lock"), Answer::ok());
    clock.advance_module(Duration::from_secs(61));
    eventually("the lock is swept", SOON, || (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(()));
    assert_eq!(watcher.call_strs("MULTI"), Answer::ok());
    assert_eq!(watcher.call_strs("PING"), Answer::Status("QUEUED".into()));
    assert_eq!(watcher.call_strs("EXEC"), Answer::Nil);
}

#[test]
fn an_administrator_breaks_a_lock_with_del() {
    let server = Server::start();
    let mut wire = server.connect();
    let first = grant(&mut wire, "lock", "me");
    assert_eq!(wire.call_strs("DEL lock"), Answer::Int(1));
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 60000"), Answer::Nil, "the old holder cannot extend");
    assert!(grant(&mut wire, "lock", "other") > first);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(0));
}

#[test]
fn persist_holds_no_lock_for_ever() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    grant(&mut wire, "lock", "me");
    assert_eq!(
        wire.call_strs("PERSIST lock"),
        Answer::Int(0),
        "the server itself has no time to live for the lock"
    );
    // PERSIST removes a time to live that PEXPIRE has set. The deadline of the lock does not change.
    assert_eq!(wire.call_strs("PEXPIRE lock 3600000"), Answer::Int(1));
    assert_eq!(wire.call_strs("PERSIST lock"), Answer::Int(1));
    assert_eq!(wire.call_strs("PTTL lock"), Answer::Int(-1));
    clock.advance_module(Duration::from_secs(59));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock other 60000"), Answer::Nil, "the lock has not expired");
    clock.advance_module(Duration::from_secs(2));
    eventually("the lock is swept", SOON, || (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(()));
    grant(&mut wire, "lock", "other");
}

#[test]
fn databases_have_separate_locks() {
    let server = Server::start();
    let mut wire = server.connect();
    grant(&mut wire, "lock", "me");
    assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.INSPECT lock"), Answer::Nil);
    grant(&mut wire, "lock", "other");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock other"), Answer::Int(1));
    assert_eq!(wire.call_strs("SELECT 0"), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
}
