//! Wait queues in difficult cases: keys that disappear without a command of the module, a state that cannot be stored,
//! owners with several requests, and crowds.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Answer, SOON, Server, Wire, eventually, granted, without_proof};
use std::fs;
use std::time::Duration;

/// A server with a claim window that is longer than any test.
fn with_long_claim_window() -> Server {
    Server::builder().module_args(["claim-window", "60000"]).start()
}

fn listener(server: &Server, channel: &str) -> Wire {
    let mut wire = server.connect();
    let reply = wire.call_strs(&format!("SUBSCRIBE redlock:grant:{channel}"));
    assert_eq!(reply.list()[0], Answer::text("subscribe"));
    wire
}

fn next_message(listener: &mut Wire) -> String {
    let message = listener.receive().expect("a message");
    without_proof(&message.list()[2].string())
}

/// Sends a request, asserts that the node queues it, and returns the position.
fn queued(wire: &mut Wire, line: &str) -> i64 {
    let reply = wire.call_strs(&format!("REDLOCK.{line}"));
    assert_eq!(reply.list().len(), 3, "{line}: {reply:?}");
    reply.list()[1].int()
}

fn number(server: &Server, field: &str) -> u64 {
    let value = server.info("redlock", &format!("redlock_{field}")).expect(field);
    value.parse().expect("a number")
}

fn until(server: &Server, field: &str, value: u64) {
    eventually(&format!("{field} is {value}"), SOON, || (number(server, field) == value).then_some(()));
}

#[test]
fn an_evicted_lock_of_a_plain_client_passes_to_the_waiter() {
    let server = Server::builder().arg("maxmemory-policy", "volatile-ttl").start();
    let (mut plain, mut waiter) = (server.connect(), server.connect());
    assert_eq!(plain.call_strs("SET k theirs NX PX 600000"), Answer::ok());
    queued(&mut waiter, "ACQUIRE k a 60000 WAIT 1 600000 me");
    assert_eq!(plain.call_strs("CONFIG SET maxmemory 1"), Answer::ok());
    let refused = plain.call_strs("SET other value");
    assert!(matches!(refused, Answer::Error(_)), "the server is out of memory: {refused:?}");
    until(&server, "handoffs", 1);
    assert_eq!(plain.call_strs("CONFIG SET maxmemory 0"), Answer::ok());
}

#[test]
fn a_plain_clients_lock_that_a_module_command_finds_expired_passes_to_the_waiter() {
    for look in ["REDLOCK.INSPECT k", "REDLOCK.EXTEND k other 1000", "REDLOCK.RELEASE k other"] {
        let server = Server::builder().debug_commands().start();
        let (mut plain, mut waiter) = (server.connect(), server.connect());
        // Only an access to the key finds it expired.
        assert_eq!(plain.call_strs("DEBUG SET-ACTIVE-EXPIRE 0"), Answer::ok());
        assert_eq!(plain.call_strs("SET k theirs NX PX 600000"), Answer::ok());
        queued(&mut waiter, "ACQUIRE k a 60000 WAIT 1 600000 me");
        assert_eq!(plain.call_strs("PEXPIRE k 1"), Answer::Int(1));
        eventually(&format!("{look} finds the key expired"), SOON, || {
            plain.call_strs(look);
            (number(&server, "handoffs") == 1).then_some(())
        });
    }
}

#[test]
fn a_hand_off_that_could_not_be_stored_is_retried() {
    let all = tempfile::tempdir().expect("a folder");
    let (folder, hidden) = (all.path().join("state"), all.path().join("hidden"));
    fs::create_dir(&folder).expect("a subfolder");
    let file = folder.join("mine.state").display().to_string();
    let server = Server::builder().module_args(["state-file", &file]).start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    for key in ["k", "usual"] {
        assert!(granted(&holder.call_strs(&format!("REDLOCK.ACQUIRE {key} first 600000"))) > 0);
    }
    // This fence is above the high-water mark.
    queued(&mut waiter, "ACQUIRE k a 600000 FENCE 9000000 WAIT 1 600000 me");
    queued(&mut waiter, "ACQUIRE usual a 600000 WAIT 1 600000 me");
    fs::rename(&folder, &hidden).expect("the folder can be renamed");
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    assert_eq!(holder.call_strs("EXISTS k"), Answer::Int(0), "the node grants no lock that it cannot store");
    // Nor may another client overtake the waiter, however often it tries.
    for _ in 0..100 {
        assert_eq!(holder.call_strs("REDLOCK.ACQUIRE k newcomer 1000"), Answer::Nil);
    }
    // A hand-off that needs no store still works.
    assert_eq!(holder.call_strs("REDLOCK.RELEASE usual first"), Answer::Int(1));
    assert_eq!(next_message(&mut pushes), "grant 1 2 usual");
    fs::rename(&hidden, &folder).expect("the folder can be renamed");
    assert_eq!(next_message(&mut pushes), "grant 1 9000000 k");
}

#[test]
fn a_handed_off_lock_that_is_released_counts_as_claimed() {
    let server = with_long_claim_window();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    for key in ["one", "two"] {
        assert!(granted(&holder.call_strs(&format!("REDLOCK.ACQUIRE {key} first 60000"))) > 0);
    }
    queued(&mut waiter, "MACQUIRE 2 one two a 60000 WAIT 1 60000 me");
    assert_eq!(holder.call_strs("REDLOCK.MRELEASE 2 one two first"), Answer::Int(1));
    next_message(&mut pushes);
    // The waiter releases the lock at once: it yields, or no longer needs the lock.
    assert_eq!(waiter.call_strs("REDLOCK.MRELEASE 2 one two a"), Answer::Int(1));
    assert_eq!((number(&server, "handoffs"), number(&server, "unclaimed")), (1, 0));
}

#[test]
fn an_owner_that_requests_more_keys_keeps_its_position() {
    let (server, clock) = Server::start_frozen();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE x first 600000")) > 0);
    queued(&mut waiter, "ACQUIRE x a 60000 WAIT 5 1000 me");
    queued(&mut waiter, "ACQUIRE x b 60000 WAIT 6 600000 other");
    queued(&mut waiter, "MACQUIRE 2 y x a 60000 WAIT 5 600000 me");
    assert_eq!(number(&server, "waiters"), 2, "an owner is queued once per key");
    clock.advance_module(Duration::from_millis(1_001));
    server.wait_for_cron();
    assert_eq!(holder.call_strs("REDLOCK.RELEASE x first"), Answer::Int(1));
    assert_eq!(next_message(&mut pushes), "grant 5 2 y");
    assert_eq!(waiter.call_strs("REDLOCK.MEXTEND 2 y x a 60000"), Answer::Int(2));
}

#[test]
fn a_waiter_for_several_keys_counts_once_per_key() {
    for setting in ["max-waiters", "max-waiters-per-connection"] {
        let server = Server::start();
        let (mut holder, mut waiter) = (server.connect(), server.connect());
        assert_eq!(holder.call_strs(&format!("CONFIG SET redlock.{setting} 3")), Answer::ok());
        assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
        let none = number(&server, "memory_bytes");
        queued(&mut waiter, "MACQUIRE 2 k l a 60000 WAIT 1 60000 me");
        let refused = waiter.call_strs("REDLOCK.MACQUIRE 2 k l b 60000 WAIT 2 60000 me");
        assert_eq!(refused.error_word(), Some("REDLOCKWAITERS"), "{setting}: {refused:?}");
        queued(&mut waiter, "MACQUIRE 3 k l m a 60000 WAIT 1 60000 me");
        let small = number(&server, "memory_bytes");
        assert!(small > none, "{setting}");
        let long = "n".repeat(4_096);
        queued(&mut waiter, &format!("MACQUIRE 3 k l {long} a 60000 WAIT 1 60000 me"));
        assert!(number(&server, "memory_bytes") > small + 4_096, "{setting}");
        assert_eq!(waiter.call_strs("REDLOCK.RELEASE k a"), Answer::Int(0));
        assert_eq!((number(&server, "waiters"), number(&server, "memory_bytes")), (0, none), "{setting}");
    }
}

#[test]
fn all_waiters_of_a_closed_connection_leave_the_queue() {
    let server = Server::start();
    let (mut holder, mut crowd, mut patient) = (server.connect(), server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 600000")) > 0);
    let lines: Vec<Vec<String>> = (1..=2_000)
        .map(|number| {
            let line = format!("REDLOCK.ACQUIRE k c{number} 60000 WAIT {number} 600000 crowd");
            line.split(' ').map(str::to_owned).collect()
        })
        .collect();
    crowd.pipeline(lines);
    assert_eq!(queued(&mut patient, "ACQUIRE k a 60000 WAIT 9999 600000 me"), 2_001);
    drop(crowd);
    until(&server, "waiters", 1);
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    assert_eq!(next_message(&mut pushes), "grant 9999 2 k");
    assert_eq!(number(&server, "handoffs"), 1, "no waiter of the crowd got the lock");
}

#[test]
fn a_handed_off_lock_has_the_label_of_its_waiter() {
    let server = with_long_claim_window();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000 LABEL before")) > 0);
    queued(&mut waiter, "ACQUIRE k a 60000 LABEL after WAIT 1 60000 me");
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    next_message(&mut pushes);
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("label"), Some(&Answer::text("after")));
    assert_eq!(waiter.call_strs("REDLOCK.EXTEND k a 60000"), Answer::Int(2));
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("label"), Some(&Answer::text("after")), "claimed");
}

#[test]
fn a_wait_queue_moves_with_its_key_by_swapdb() {
    let server = with_long_claim_window();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    queued(&mut waiter, "ACQUIRE k a 60000 WAIT 1 60000 me");
    assert_eq!(holder.call_strs("SWAPDB 0 3"), Answer::ok());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k other 60000")) > 0, "k is free in database 0 now");
    assert_eq!(holder.call_strs("SELECT 3"), Answer::ok());
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("waiters"), Some(&Answer::Int(1)));
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    assert!(next_message(&mut pushes).ends_with(" k"));
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k a"), Answer::Int(1), "the waiter holds k in database 3");
    assert_eq!((number(&server, "handoffs"), number(&server, "waiters")), (1, 0));
}
