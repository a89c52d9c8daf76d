//! `INFO redlock`: every command changes exactly its own counters.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{Answer, SOON, Server, Wire, eventually};
use std::collections::BTreeMap;
use std::time::Duration;

/// The numbers of `INFO redlock` by name, without the prefix `redlock_`.
fn numbers(wire: &mut Wire) -> BTreeMap<String, i64> {
    let text = wire.call_strs("INFO redlock").string();
    let number = |line: &str| {
        let (name, value) = line.strip_prefix("redlock_")?.split_once(':')?;
        Some((name.to_string(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(number).collect()
}

/// The counters that a command changed, and by how much. Ignores the gauges that depend on its arguments.
fn changes(wire: &mut Wire, line: &str) -> Vec<(String, i64)> {
    let before = numbers(wire);
    wire.call_strs(line);
    let after = numbers(wire);
    assert_eq!(before.len(), after.len());
    let difference = |(name, value): (&String, &i64)| Some((name.clone(), value - before.get(name)?));
    let gauges = [
        "memory_bytes",
        "allocated_bytes",
        "largest_fence",
        "longest_lease_ms",
        "high_water",
        "state_writes",
    ];
    let counted = |(name, change): &(String, i64)| *change != 0 && !gauges.contains(&name.as_str());
    after.iter().filter_map(difference).filter(counted).collect()
}

#[test]
fn every_field_is_there() {
    let server = Server::start();
    let mut wire = server.connect();
    let numbers = numbers(&mut wire);
    for name in [
        "locks",
        "waiters",
        "waiter_keys",
        "max_waiters",
        "longest_queue",
        "max_waiters_per_key",
        "most_waiters_on_connection",
        "max_waiters_per_connection",
        "waiters_bytes",
        "max_waiters_bytes",
        "largest_fence",
        "longest_lease_ms",
        "max_ttl_ms",
        "high_water",
        "far_stripes",
        "incarnation",
        "voting",
        "state_writes",
        "grants",
        "refreshes",
        "refusals",
        "late_refusals",
        "extensions",
        "stale_extensions",
        "releases",
        "stale_releases",
        "expirations",
        "memory_bytes",
        "allocated_bytes",
    ] {
        assert!(numbers.contains_key(name), "no {name} in {numbers:?}");
    }
    assert_eq!(server.info("redlock", "redlock_version"), Some(env!("CARGO_PKG_VERSION").into()));
    let everything = wire.call_strs("INFO everything").string();
    assert!(everything.contains("redlock_grants:"), "INFO everything includes modules");
}

#[test]
fn a_command_changes_exactly_its_own_counters() {
    let (server, _clock) = Server::start_frozen();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SET plain value"), Answer::ok());
    assert_eq!(wire.call_strs("RPUSH list value"), Answer::Int(1));
    let steps: [(&str, &[(&str, i64)]); 29] = [
        ("REDLOCK.ACQUIRE a me 60000", &[("grants", 1), ("locks", 1)]),
        ("REDLOCK.ACQUIRE a me 60000", &[("refreshes", 1)]),
        ("REDLOCK.ACQUIRE a other 60000", &[("refusals", 1)]),
        ("REDLOCK.ACQUIRE plain me 60000", &[("refusals", 1)]),
        ("REDLOCK.EXTEND a me 60000", &[("extensions", 1)]),
        ("REDLOCK.EXTEND a other 60000", &[("stale_extensions", 1)]),
        ("REDLOCK.EXTEND free me 60000", &[("stale_extensions", 1)]),
        ("REDLOCK.RELEASE a other", &[("stale_releases", 1)]),
        ("REDLOCK.RELEASE plain value", &[("stale_releases", 1)]),
        ("REDLOCK.RELEASE a me", &[("locks", -1), ("releases", 1)]),
        ("REDLOCK.RELEASE a me", &[("stale_releases", 1)]),
        ("REDLOCK.MACQUIRE 2 a b me 60000", &[("grants", 1), ("locks", 2)]),
        ("REDLOCK.MACQUIRE 2 a b me 60000", &[("refreshes", 1)]),
        ("REDLOCK.MACQUIRE 2 b c other 60000", &[("refusals", 1)]),
        ("REDLOCK.MEXTEND 2 a b me 60000", &[("extensions", 1)]),
        ("REDLOCK.MEXTEND 2 a c me 60000", &[("stale_extensions", 1)]),
        ("REDLOCK.MRELEASE 2 a c me", &[("stale_releases", 1)]),
        ("REDLOCK.MRELEASE 2 a b me", &[("locks", -2), ("releases", 1)]),
        ("REDLOCK.ACQUIRE a me 60000", &[("grants", 1), ("locks", 1)]),
        ("RENAME a b", &[]),
        ("DEL b", &[("locks", -1)]),
        ("REDLOCK.INSPECT a", &[]),
        ("REDLOCK.NODE", &[]),
        ("REDLOCK.ACQUIRE a me 0", &[]),
        ("REDLOCK.ACQUIRE a me 60000 FENCE x", &[]),
        ("REDLOCK.ACQUIRE a me 60000 WAIT ticket 1000 channel", &[]),
        ("REDLOCK.ACQUIRE list me 60000", &[]),
        ("REDLOCK.MACQUIRE 2 free list me 60000", &[]),
        ("REDLOCK.RELEASE a", &[]),
    ];
    for (line, expected) in steps {
        let expected: Vec<_> = expected.iter().map(|(name, change)| ((*name).to_string(), *change)).collect();
        assert_eq!(changes(&mut wire, line), expected, "{line}");
    }
}

#[test]
fn expirations_are_counted_once() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    let expirations = |wire: &mut Wire| numbers(wire)["expirations"];
    wire.call_strs("REDLOCK.MACQUIRE 2 a b me 1000");
    clock.advance_module(Duration::from_secs(2));
    eventually("both locks are counted as expired", SOON, || (expirations(&mut wire) == 2).then_some(()));
    // The sweep or the next acquire may detect the expiry first.
    wire.call_strs("REDLOCK.ACQUIRE a me 1000");
    clock.advance_module(Duration::from_millis(1001));
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a other 1000"), Answer::Int(1..)));
    assert_eq!(expirations(&mut wire), 3);
    assert_eq!(numbers(&mut wire)["locks"], 1);
}

#[test]
fn gauges_follow_the_largest_values() {
    let server = Server::start();
    let mut wire = server.connect();
    let empty = numbers(&mut wire);
    assert_eq!((empty["locks"], empty["largest_fence"], empty["longest_lease_ms"]), (0, 0, 0));
    assert_eq!(empty["memory_bytes"], 0, "without locks and waiters");
    assert!(empty["allocated_bytes"] > 0, "the fences have memory from the start: {empty:?}");
    wire.call_strs("REDLOCK.ACQUIRE a me 5000 FENCE 700");
    wire.call_strs("REDLOCK.ACQUIRE b me 90000 FENCE 30");
    let held = numbers(&mut wire);
    assert_eq!((held["locks"], held["largest_fence"]), (2, 700));
    assert!((90_000..=90_000 * 9 / 8).contains(&held["longest_lease_ms"]), "{held:?}");
    assert!(held["memory_bytes"] > empty["memory_bytes"], "{held:?}");
    wire.call_strs("REDLOCK.MRELEASE 1 a me");
    wire.call_strs("REDLOCK.MRELEASE 1 b me");
    let released = numbers(&mut wire);
    assert_eq!((released["locks"], released["largest_fence"]), (0, 700), "the largest fence only grows");
    assert_eq!(released["memory_bytes"], 0, "no lock is held");
    // The module keeps space for the next lock, and says so.
    assert!(released["allocated_bytes"] > empty["allocated_bytes"], "{released:?}");
}

/// The use of each limit on waiters, beside the limit.
#[test]
fn waiters_are_counted_for_each_of_their_limits() {
    let server = Server::start();
    let (mut wire, mut other) = (server.connect(), server.connect());
    let names = ["waiters", "waiter_keys", "longest_queue", "most_waiters_on_connection"];
    let used = |wire: &mut Wire| {
        let numbers = numbers(wire);
        (names.map(|name| numbers[name]), numbers["waiters_bytes"])
    };
    let none = ([0; 4], 0);
    assert_eq!(used(&mut wire), none);
    wire.call_strs("REDLOCK.MACQUIRE 3 a b c me 600000");
    wire.call_strs("REDLOCK.MACQUIRE 3 a b c first 600000 WAIT 1 600000 channel");
    let (counts, one) = used(&mut wire);
    assert_eq!(counts, [1, 3, 1, 3]);
    other.call_strs("REDLOCK.ACQUIRE a second 600000 WAIT 2 600000 channel");
    let (counts, two) = used(&mut wire);
    assert_eq!(counts, [2, 4, 2, 3]);
    assert!(0 < one && one < two, "{one}, {two}");
    // The lock passes to the first waiter, which is no waiter from then on.
    assert_eq!(wire.call_strs("REDLOCK.MRELEASE 3 a b c me"), Answer::Int(1));
    eventually("the hand-off", SOON, || (used(&mut wire).0 == [1, 1, 1, 1]).then_some(()));
    assert_eq!(other.call_strs("REDLOCK.RELEASE a second"), Answer::Int(0));
    assert_eq!(used(&mut wire), none);
    for (setting, field) in [
        ("max-waiters", "max_waiters"),
        ("max-waiters-per-key", "max_waiters_per_key"),
        ("max-waiters-per-connection", "max_waiters_per_connection"),
        ("max-waiters-memory", "max_waiters_bytes"),
    ] {
        assert_eq!(wire.call_strs(&format!("CONFIG SET redlock.{setting} 4711")), Answer::ok());
        assert_eq!(numbers(&mut wire)[field], 4_711);
    }
}

#[test]
fn an_expired_lock_counts_as_held_only_until_its_key_is_deleted() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    wire.call_strs("REDLOCK.ACQUIRE a me 5000");
    assert_eq!(numbers(&mut wire)["locks"], 1);
    clock.advance_module(Duration::from_secs(6));
    eventually("the key is deleted", SOON, || (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(()));
    let expired = numbers(&mut wire);
    assert_eq!((expired["locks"], expired["memory_bytes"]), (0, 0), "{expired:?}");
}
