//! Eviction: a server that evicts locks to free memory must not grant them again while clients rely on them.

#![allow(clippy::expect_used, clippy::panic)]

use redlock_tests::{Answer, Server, Wire};

const LOCKS: usize = 200;

fn key(number: usize) -> String {
    format!("lock:{number}")
}

/// Acquires [`LOCKS`] locks.
fn acquire_all(wire: &mut Wire, key: impl Fn(usize) -> String) {
    for number in 0..LOCKS {
        assert!(matches!(wire.call(&["REDLOCK.ACQUIRE", &key(number), "holder", "60000"]), Answer::Int(1..)));
    }
}

/// Acquires locks, and then makes the server evict keys of any kind until some locks are gone.
fn evict_some(server: &Server) -> Wire {
    let mut wire = server.connect();
    acquire_all(&mut wire, key);
    evict(server, wire)
}

/// Makes the server evict keys of any kind until some locks are gone.
fn evict(server: &Server, mut wire: Wire) -> Wire {
    let used: u64 =
        server.info("memory", "used_memory").and_then(|used| used.parse().ok()).expect("used_memory");
    wire.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    wire.call(&["CONFIG", "SET", "maxmemory", &(used + 256 * 1024).to_string()]);
    let filler = "x".repeat(1_000);
    for number in 0..20_000 {
        wire.call(&["SET", &format!("filler:{number}"), &filler]);
        if number % 50 == 0 && gone(&mut wire).is_some() {
            return wire;
        }
    }
    panic!("the server evicted no lock");
}

fn gone(wire: &mut Wire) -> Option<String> {
    (0..LOCKS).map(key).find(|key| wire.call(&["EXISTS", key]) == Answer::Int(0))
}

#[test]
fn an_evicted_lock_is_not_granted_again_before_its_time() {
    let server = Server::start();
    let mut wire = evict_some(&server);
    let evicted = gone(&mut wire).expect("a lock is gone");
    let answer = wire.call(&["REDLOCK.ACQUIRE", &evicted, "thief", "60000"]);
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{answer:?}");
    let count = server.info("redlock", "redlock_quarantines").expect("a counter");
    assert_ne!(count, "0");
    assert!(server.log().contains("evicted a held lock"), "{}", server.log());
}

/// The module knows a lock by the key under which it was granted; the server evicts it under its current key.
#[test]
fn an_evicted_lock_that_was_renamed_is_not_granted_again_before_its_time() {
    let server = Server::start();
    let mut wire = server.connect();
    let before = |number| format!("before:{number}");
    acquire_all(&mut wire, before);
    for number in 0..LOCKS {
        assert_eq!(wire.call(&["RENAME", &before(number), &key(number)]), Answer::ok());
    }
    let mut wire = evict(&server, wire);
    let evicted = gone(&mut wire).expect("a lock is gone");
    let answer = wire.call(&["REDLOCK.ACQUIRE", &evicted, "thief", "60000"]);
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{answer:?}");
}

/// The same for a lock that was moved to another database.
#[test]
fn an_evicted_lock_that_was_moved_is_not_granted_again_before_its_time() {
    let server = Server::start();
    let mut wire = server.connect();
    acquire_all(&mut wire, key);
    for number in 0..LOCKS {
        assert_eq!(wire.call(&["MOVE", &key(number), "1"]), Answer::Int(1));
    }
    assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
    let mut wire = evict(&server, wire);
    let evicted = gone(&mut wire).expect("a lock is gone");
    let answer = wire.call(&["REDLOCK.ACQUIRE", &evicted, "thief", "60000"]);
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{answer:?}");
}

/// The control: without the quarantine, the check fails.
#[test]
fn without_the_quarantine_an_evicted_lock_is_granted_at_once() {
    let server = Server::builder().module_args(["restart-grace", "off"]).start();
    let mut wire = evict_some(&server);
    let evicted = gone(&mut wire).expect("a lock is gone");
    assert!(matches!(wire.call(&["REDLOCK.ACQUIRE", &evicted, "thief", "60000"]), Answer::Int(1..)));
}

#[test]
fn the_module_warns_of_a_policy_that_may_evict_locks() {
    for (policy, warns) in [("allkeys-lru", true), ("volatile-lru", false), ("noeviction", false)] {
        let server = Server::builder().arg("maxmemory-policy", policy).start();
        assert_eq!(server.log().contains("allows the server to evict locks"), warns, "{policy}");
    }
}

/// The module must not show up as a caller of commands: the slow log and the command statistics belong to clients.
///
/// The server itself may call commands while it starts, as the Lua engine of Valkey 9.1 does with `CONFIG`.
#[test]
fn the_module_calls_no_command_of_the_server() {
    let config_calls = |mut server: Server| {
        server.restart();
        let logged = server.connect().call_strs("SLOWLOG GET 128").list().to_vec();
        let names = logged.iter().map(|entry| entry.list()[3].list()[0].string().to_lowercase());
        (names.filter(|name| name == "config").count(), server.calls("config|get"))
    };
    let slow_log = || Server::builder().arg("slowlog-log-slower-than", "0");
    let server = slow_log().start();
    assert!(matches!(server.connect().call_strs("REDLOCK.ACQUIRE k me 60000"), Answer::Int(1..)));
    assert_eq!(config_calls(server), config_calls(slow_log().without_module().start()));
}
