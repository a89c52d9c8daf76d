//! Shared locks on real servers: what is saved, loaded, replicated, swept and found again is the lock of every holder.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{
    Answer, FakeClock, SOON, Server, ServerBuilder, Wire, eventually, granted, start_frozen,
};
use std::time::Duration;

/// What `REDLOCK.INSPECT` says about a shared lock: its fence, and label, time left and extensions of each holder.
type Holders = (i64, Vec<(String, i64, i64)>);

fn pass(clock: &FakeClock, ms: u64) {
    clock.advance_module(Duration::from_millis(ms));
}

/// Takes a lock with three holders, which differ in everything.
fn prepare(wire: &mut Wire, clock: &FakeClock) -> Holders {
    prepare_with(wire, |ms| pass(clock, ms))
}

fn prepare_with(wire: &mut Wire, pass: impl Fn(u64)) -> Holders {
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k a 60000 SHARED"), Answer::Int(1));
    pass(1_000);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k b 50000 LABEL second SHARED"), Answer::Int(1));
    pass(1_000);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k c 40000 LABEL third SHARED FENCE 7"), Answer::Int(7));
    assert_eq!(wire.call_strs("REDLOCK.EXTEND k b 70000"), Answer::Int(7));
    let before = holders(wire);
    let expected = [("", 58_000, 0), ("second", 70_000, 1), ("third", 40_000, 0)];
    assert_eq!(before, (7, expected.map(|(label, left, count)| (label.to_owned(), left, count)).to_vec()));
    before
}

fn holders(wire: &mut Wire) -> Holders {
    let lock = wire.inspect("k").expect("the lock is held");
    let holders = lock
        .holders
        .into_iter()
        .map(|holder| (String::from_utf8_lossy(&holder.label).into_owned(), holder.pttl, holder.extensions));
    // After a load the order may be another one: the time since a grant is not always known.
    let mut holders: Vec<_> = holders.collect();
    holders.sort();
    (lock.fence, holders)
}

/// Asserts that the lock has all its holders, each with at least its time left, and still works.
fn verify(wire: &mut Wire, (fence, before): &Holders, what: &str) {
    let (now, after) = holders(wire);
    assert_eq!((now, after.len()), (*fence, before.len()), "{what}: {after:?}");
    for (one, other) in before.iter().zip(&after) {
        assert_eq!((&one.0, one.2), (&other.0, other.2), "{what}: {after:?}");
        assert!((one.1..=one.1 + 2_000).contains(&other.1), "{what}: {after:?}");
    }
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k stranger 1000"), Answer::Nil, "{what}");
    // The anchor is one of the first two: it leaves while others stay.
    for owner in ["a", "b"] {
        assert_eq!(wire.call_strs(&format!("REDLOCK.EXTEND k {owner} 60000")), Answer::Int(7), "{what}");
        assert_eq!(wire.call_strs(&format!("REDLOCK.RELEASE k {owner}")), Answer::Int(1), "{what}");
        assert_eq!(wire.call_strs(&format!("REDLOCK.RELEASE k {owner}")), Answer::Int(0), "{what}");
        assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k stranger 1000"), Answer::Nil, "{what}");
    }
    // Under a new name or on another server, the key may have had other holders, so the fence goes up by one.
    let joined = if ["renamed", "restored"].contains(&what) { 8 } else { 7 };
    assert_eq!(
        wire.call_strs("REDLOCK.ACQUIRE k d 1000 SHARED"),
        Answer::Int(joined),
        "{what}: one more joins"
    );
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k d"), Answer::Int(1), "{what}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k c"), Answer::Int(1), "{what}");
    // A restart continues above the high-water mark.
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE k writer 1000")) > joined, "{what}");
}

fn locks(server: &Server) -> Option<String> {
    server.info("redlock", "redlock_locks")
}

fn aof() -> ServerBuilder {
    Server::builder().arg("appendonly", "yes").arg("appendfsync", "always")
}

#[test]
fn a_snapshot_keeps_every_holder() {
    let (mut server, clock) = start_frozen(Server::builder().module_args(["restart-grace", "off"]));
    let before = prepare(&mut server.connect(), &clock);
    assert_eq!(server.connect().call_strs("SAVE"), Answer::ok());
    server.kill();
    server.restart();
    verify(&mut server.connect(), &before, "a snapshot");
}

#[test]
fn a_clean_restart_keeps_every_holder_and_needs_no_quarantine() {
    for (what, builder) in
        [("a snapshot", Server::builder().arg("save", "3600 1")), ("an append-only file", aof())]
    {
        let (mut server, clock) = start_frozen(builder);
        let before = prepare(&mut server.connect(), &clock);
        server.restart();
        let mut wire = server.connect();
        let left = wire.call_strs("REDLOCK.NODE").field("quarantine-ms").cloned();
        assert_eq!(left, Some(Answer::Int(0)), "{what}");
        verify(&mut wire, &before, what);
    }
}

#[test]
fn an_append_only_file_keeps_every_holder_over_a_crash() {
    let (mut server, clock) = start_frozen(aof().module_args(["restart-grace", "off"]));
    let before = prepare(&mut server.connect(), &clock);
    server.kill();
    server.restart();
    verify(&mut server.connect(), &before, "an append-only file");
}

#[test]
fn a_rewritten_append_only_file_keeps_every_holder() {
    let builder = aof().arg("aof-use-rdb-preamble", "no").module_args(["restart-grace", "off"]);
    let (mut server, clock) = start_frozen(builder);
    let before = prepare(&mut server.connect(), &clock);
    assert!(matches!(server.connect().call_strs("BGREWRITEAOF"), Answer::Status(_)));
    eventually("the file is rewritten", SOON, || {
        let value = |name| server.info("persistence", name);
        (value("aof_rewrite_in_progress")? == "0" && value("aof_rewrites")? != "0").then_some(())
    });
    server.kill();
    server.restart();
    verify(&mut server.connect(), &before, "a rewritten append-only file");
}

#[test]
fn a_reload_keeps_every_holder_and_counts_each_once() {
    let (server, clock) = start_frozen(Server::builder().debug_commands());
    let mut wire = server.connect();
    let before = prepare(&mut wire, &clock);
    let digest = wire.call_strs("DEBUG DIGEST-VALUE k");
    assert_eq!(wire.call_strs("DEBUG RELOAD"), Answer::ok());
    assert_eq!(wire.call_strs("DEBUG DIGEST-VALUE k"), digest);
    eventually("the module counts each holder once", SOON, || (locks(&server)? == "3").then_some(()));
    verify(&mut wire, &before, "a reload");
}

#[test]
fn a_replica_has_every_holder_and_follows_each_change() {
    let clock = FakeClock::new();
    clock.freeze_module();
    let master = Server::builder().tcp().clock(&clock).start();
    let mut wire = master.connect();
    // The first copy of the data set contains one holder; the others follow as effects.
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE early x 90000 SHARED"), Answer::Int(1));
    let replica = Server::builder().replica_of(&master).clock(&clock).start();
    replica.wait_for_replication(&master);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE early y 90000 SHARED"), Answer::Int(1));
    // A time left starts when the effect arrives.
    let before = prepare_with(&mut wire, |ms| {
        replica.wait_for_replication(&master);
        pass(&clock, ms);
    });
    replica.wait_for_replication(&master);
    let mut copy = replica.connect();
    assert_eq!(holders(&mut copy), before);
    assert_eq!(copy.inspect("early").map(|lock| lock.holders.len()), Some(2));
    assert_eq!(locks(&replica), Some("5".into()));
    let mut same = |wire: &mut Wire, what: &str| {
        replica.wait_for_replication(&master);
        assert_eq!(copy.inspect("k"), wire.inspect("k"), "{what}");
    };
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k a 90000 SHARED FENCE 9"), Answer::Int(9));
    same(&mut wire, "a repeated acquire raises the fence of all");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k a"), Answer::Int(1));
    same(&mut wire, "a holder leaves");
    pass(&clock, 40_001);
    eventually("the expired holder is swept", SOON, || (locks(&master)? == "3").then_some(()));
    same(&mut wire, "a holder expires");
    let mut writer = master.connect();
    let queued = writer.call_strs("REDLOCK.ACQUIRE k w 60000 WAIT 1 600000 channel");
    assert!(matches!(queued, Answer::List(_)), "{queued:?}");
    let queued = writer.call_strs("REDLOCK.ACQUIRE k d 60000 WAIT 2 600000 channel SHARED LABEL text");
    assert!(matches!(queued, Answer::List(_)), "{queued:?}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k w"), Answer::Int(0));
    replica.wait_for_replication(&master);
    assert_eq!(copy_holders(&replica), 2, "the reader behind the writer was handed the lock");
    assert_eq!(wire.call_strs("REDLOCK.BREAK k"), Answer::Int(9));
    replica.wait_for_replication(&master);
    assert_eq!((replica.connect().inspect("k"), locks(&replica)), (None, Some("2".into())), "a break");
}

fn copy_holders(replica: &Server) -> usize {
    replica.connect().inspect("k").map_or(0, |lock| lock.holders.len())
}

#[test]
fn a_master_and_its_replica_report_the_events_of_every_holder() {
    let clock = FakeClock::new();
    clock.freeze_module();
    let start = |builder: ServerBuilder| builder.clock(&clock).arg("notify-keyspace-events", "Ed").start();
    let master = start(Server::builder().tcp());
    let replica = start(Server::builder().replica_of(&master));
    replica.wait_for_replication(&master);
    let mut listeners = [&master, &replica].map(|server| {
        let mut wire = server.connect();
        wire.call_strs("PSUBSCRIBE __keyevent@*");
        wire
    });
    let (mut wire, mut waiter) = (master.connect(), master.connect());
    for line in [
        "REDLOCK.ACQUIRE k a 1000 SHARED",
        "REDLOCK.ACQUIRE k b 1000 SHARED",
        "REDLOCK.EXTEND k b 1000",
        "REDLOCK.ACQUIRE k b 1000 SHARED",
        "REDLOCK.ACQUIRE k c 9000 SHARED",
        "REDLOCK.RELEASE k c",
    ] {
        granted(&wire.call_strs(line));
    }
    waiter.call_strs("REDLOCK.ACQUIRE k w 1000 WAIT 1 600000 channel");
    waiter.call_strs("REDLOCK.ACQUIRE k d 1000 WAIT 2 600000 channel SHARED");
    wire.call_strs("REDLOCK.RELEASE k w");
    pass(&clock, 1_001);
    // Every lease has expired, and the grant reports that before itself, unless the sweep was faster.
    granted(&wire.call_strs("REDLOCK.ACQUIRE k x 60000 SHARED"));
    granted(&wire.call_strs("REDLOCK.ACQUIRE k y 60000 SHARED"));
    granted(&wire.call_strs("REDLOCK.BREAK k"));
    let expected = [
        "acquired",
        "acquired",
        "extended",
        "extended",
        "acquired",
        "released",
        "handed-off",
        "expired",
        "expired",
        "expired",
        "acquired",
        "acquired",
        "released",
    ];
    for listener in &mut listeners {
        for event in expected {
            let message = listener.receive().expect("a message");
            assert_eq!(message.list()[2].string(), format!("__keyevent@0__:redlock.{event}"));
        }
    }
}

#[test]
fn the_holders_of_a_renamed_or_moved_lock_are_found_and_swept() {
    for (what, lines) in [
        ("RENAME", &["RENAME k other"][..]),
        ("MOVE", &["MOVE k 3"]),
        ("SWAPDB", &["SWAPDB 0 5"]),
        ("RENAME and back", &["RENAME k other", "RENAME other k"]),
    ] {
        let (server, clock) = Server::start_frozen();
        let mut wire = server.connect();
        prepare(&mut wire, &clock);
        for line in lines {
            wire.call_strs(line);
        }
        pass(&clock, 40_001);
        // The wheel notices a lock that was found again at its next tick.
        eventually(&format!("{what}: the first holder is swept"), SOON, || {
            pass(&clock, 1);
            (locks(&server)? == "2").then_some(())
        });
        pass(&clock, 30_001);
        eventually(&format!("{what}: all holders are swept"), SOON, || {
            pass(&clock, 1);
            (locks(&server)? == "0").then_some(())
        });
        let keys = server.info("keyspace", "db0").or(server.info("keyspace", "db3"));
        assert_eq!(keys.or(server.info("keyspace", "db5")), None, "{what}: the key is deleted");
    }
}

#[test]
fn a_renamed_lock_works_for_every_holder_and_for_new_ones() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    let before = prepare(&mut wire, &clock);
    assert_eq!(wire.call_strs("RENAME k j"), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k a"), Answer::Int(0));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE j e 60000 SHARED"), Answer::Int(7));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE j e"), Answer::Int(1));
    assert_eq!(wire.call_strs("RENAME j k"), Answer::ok());
    verify(&mut wire, &before, "renamed");
    // The fence of the other name is larger too.
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE j w 60000"), Answer::Int(8));
}

#[test]
fn a_deleted_or_overwritten_lock_is_gone_for_every_holder() {
    for line in ["DEL k", "UNLINK k", "SET k plain", "RENAME other k", "FLUSHALL", "FLUSHALL ASYNC"] {
        let (server, clock) = start_frozen(Server::builder().module_args(["restart-grace", "off"]));
        let mut wire = server.connect();
        prepare(&mut wire, &clock);
        wire.call_strs("SET other value");
        wire.call_strs(line);
        for owner in ["a", "b", "c"] {
            assert_eq!(wire.call_strs(&format!("REDLOCK.EXTEND k {owner} 1000")), Answer::Nil, "{line}");
        }
        eventually(&format!("{line}: no record stays"), SOON, || (locks(&server)? == "0").then_some(()));
        wire.call_strs("DEL k");
        assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE k a 1000 SHARED")) > 7, "{line}");
    }
}

#[test]
fn after_a_flush_the_node_waits_for_the_last_holder() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    prepare(&mut wire, &clock);
    assert_eq!(wire.call_strs("FLUSHALL"), Answer::ok());
    pass(&clock, 69_999);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k w 1000 SHARED").error_word(), Some("REDLOCKQUARANTINE"));
    pass(&clock, 2);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k w 1000 SHARED"), Answer::Int(8));
}

/// The server evicts the only key that it may evict, whose holder with the longest lease is not the anchor.
#[test]
fn after_an_eviction_the_node_waits_for_the_last_holder() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    prepare(&mut wire, &clock);
    wire.call_strs("CONFIG SET maxmemory-policy allkeys-random");
    wire.call_strs("CONFIG SET maxmemory 1");
    wire.call_strs("SET filler x");
    assert_eq!(wire.call_strs("EXISTS k"), Answer::Int(0), "the lock is evicted");
    wire.call_strs("CONFIG SET maxmemory 0");
    pass(&clock, 69_999);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k w 1000").error_word(), Some("REDLOCKQUARANTINE"));
    pass(&clock, 2);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k w 1000"), Answer::Int(8));
}

#[test]
fn loaded_holders_release_and_do_not_extend_or_join_in_quarantine() {
    let (mut server, clock) = start_frozen(aof());
    prepare(&mut server.connect(), &clock);
    server.kill();
    server.restart();
    let mut wire = server.connect();
    for line in
        ["REDLOCK.EXTEND k a 60000", "REDLOCK.ACQUIRE k a 60000 SHARED", "REDLOCK.ACQUIRE k d 60000 SHARED"]
    {
        assert_eq!(wire.call_strs(line).error_word(), Some("REDLOCKQUARANTINE"), "{line}");
    }
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k a"), Answer::Int(1));
    assert_eq!(holders(&mut wire).1.len(), 2);
    let left = wire.call_strs("REDLOCK.NODE").field("quarantine-ms").map_or(0, Answer::int);
    assert!(left >= 70_000, "until the last lease that the node may have forgotten: {left}");
}

#[test]
fn a_long_lease_of_one_holder_counts_until_it_ends() {
    let (server, clock) = start_frozen(Server::builder());
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k a 3600000 SHARED"), Answer::Int(1));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k b 1000 SHARED"), Answer::Int(1));
    let longest = || server.info("redlock", "redlock_longest_lease_ms").expect("a field");
    let (long, passes) = (longest(), |ms| pass(&clock, ms));
    assert!(long.parse::<u64>().is_ok_and(|long| long >= 3_600_000), "{long}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k a"), Answer::Int(1));
    eventually("the long lease is forgotten", SOON, || {
        passes(30_000);
        (longest().parse::<u64>().ok()? < 3_600_000).then_some(())
    });
}

#[test]
fn an_image_with_a_holder_that_the_node_could_not_have_granted_is_refused() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    let before = prepare(&mut wire, &clock);
    let Answer::Text(image) = wire.call_strs("DUMP k") else { panic!("no image") };
    assert_eq!(wire.call_strs("DEL k"), Answer::Int(1));
    wire.call_strs("CONFIG SET redlock.max-ttl 69999");
    let refused = wire.call(&[&b"RESTORE"[..], b"k", b"0", &image]);
    assert!(matches!(refused, Answer::Error(_)), "the second holder has 70000 ms left: {refused:?}");
    assert_eq!(wire.call_strs("EXISTS k"), Answer::Int(0));
    wire.call_strs("CONFIG SET redlock.max-ttl 70000");
    assert_eq!(wire.call(&[&b"RESTORE"[..], b"k", b"0", &image]), Answer::ok());
    eventually("no record of the refused image stays", SOON, || (locks(&server)? == "3").then_some(()));
    verify(&mut wire, &before, "restored");
}

#[test]
fn a_watching_transaction_sees_a_reader_join_and_leave() {
    let server = Server::start();
    let (mut wire, mut other) = (server.connect(), server.connect());
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE k a 60000 SHARED"), Answer::Int(1));
    for line in ["REDLOCK.ACQUIRE k b 60000 SHARED", "REDLOCK.EXTEND k b 60000", "REDLOCK.RELEASE k b"] {
        assert_eq!(wire.call_strs("WATCH k"), Answer::ok());
        assert_eq!(other.call_strs(line), Answer::Int(1));
        assert_eq!(wire.call_strs("MULTI"), Answer::ok());
        wire.call_strs("PING");
        assert_eq!(wire.call_strs("EXEC"), Answer::Nil, "{line}");
    }
}

#[test]
fn inspect_lists_holders_as_maps_in_resp3_and_as_flat_lists_in_resp2_and_never_owners() {
    let server = Server::start();
    let (mut flat, mut maps) = (server.connect(), server.connect_resp3());
    granted(&flat.call_strs("REDLOCK.ACQUIRE k first-secret 60000 SHARED LABEL one"));
    granted(&flat.call_strs("REDLOCK.ACQUIRE k second-secret 60000 SHARED"));
    let (in_2, in_3) = (flat.call_strs("REDLOCK.INSPECT k"), maps.call_strs("REDLOCK.INSPECT k"));
    let holders = |reply: &Answer| reply.field("holders").expect("holders").list().to_vec();
    assert!(matches!(holders(&in_2)[..], [Answer::List(_), Answer::List(_)]), "{in_2:?}");
    assert!(matches!(holders(&in_3)[..], [Answer::Map(_), Answer::Map(_)]), "{in_3:?}");
    for reply in [in_2, in_3] {
        assert!(!format!("{reply:?}").contains("secret"), "{reply:?}");
        assert_eq!(reply.field("mode"), Some(&Answer::text("shared")));
    }
}
