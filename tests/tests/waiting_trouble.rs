//! Waiting in line when something is in the way: keys that go away unseen, a disk that is full, owners that ask for
//! this and for that, and crowds.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Answer, SOON, Server, Wire, eventually, granted, without_proof};
use std::fs;
use std::time::Duration;

/// A server that leaves all the time in the world to claim what it hands on.
fn patient() -> Server {
    Server::builder().module_args(["claim-window", "60000"]).start()
}

fn listener(server: &Server, channel: &str) -> Wire {
    let mut wire = server.connect();
    let said = wire.call_strs(&format!("SUBSCRIBE redlock:grant:{channel}"));
    assert_eq!(said.list()[0], Answer::text("subscribe"));
    wire
}

fn heard(listener: &mut Wire) -> String {
    let message = listener.receive().expect("a message");
    without_proof(&message.list()[2].string())
}

/// Sends a request that is queued; tells the position.
fn queued(wire: &mut Wire, line: &str) -> i64 {
    let said = wire.call_strs(&format!("REDLOCK.{line}"));
    assert_eq!(said.list().len(), 3, "{line}: {said:?}");
    said.list()[1].int()
}

fn number(server: &Server, field: &str) -> u64 {
    let value = server.info("redlock", &format!("redlock_{field}")).expect(field);
    value.parse().expect("a number")
}

fn until(server: &Server, field: &str, value: u64) {
    eventually(&format!("{field} is {value}"), SOON, || (number(server, field) == value).then_some(()));
}

#[test]
fn a_plain_clients_lock_that_is_evicted_wakes_the_next() {
    let server = Server::builder().arg("maxmemory-policy", "volatile-ttl").start();
    let (mut plain, mut waiter) = (server.connect(), server.connect());
    assert_eq!(plain.call_strs("SET k theirs NX PX 600000"), Answer::ok());
    queued(&mut waiter, "ACQUIRE k a 60000 WAIT 1 600000 me");
    assert_eq!(plain.call_strs("CONFIG SET maxmemory 1"), Answer::ok());
    let refused = plain.call_strs("SET other value");
    assert!(matches!(refused, Answer::Error(_)), "there is no room: {refused:?}");
    until(&server, "handoffs", 1);
    assert_eq!(plain.call_strs("CONFIG SET maxmemory 0"), Answer::ok());
}

#[test]
fn a_plain_clients_lock_that_our_own_command_finds_expired_wakes_the_next() {
    for look in ["REDLOCK.INSPECT k", "REDLOCK.EXTEND k other 1000", "REDLOCK.RELEASE k other"] {
        let server = Server::builder().debug_commands().start();
        let (mut plain, mut waiter) = (server.connect(), server.connect());
        // Nobody finds it but whoever looks at the key.
        assert_eq!(plain.call_strs("DEBUG SET-ACTIVE-EXPIRE 0"), Answer::ok());
        assert_eq!(plain.call_strs("SET k theirs NX PX 600000"), Answer::ok());
        queued(&mut waiter, "ACQUIRE k a 60000 WAIT 1 600000 me");
        assert_eq!(plain.call_strs("PEXPIRE k 1"), Answer::Int(1));
        eventually(&format!("{look} finds it"), SOON, || {
            plain.call_strs(look);
            (number(&server, "handoffs") == 1).then_some(())
        });
    }
}

#[test]
fn what_could_not_be_stored_is_handed_on_when_it_can() {
    let all = tempfile::tempdir().expect("a folder");
    let (folder, hidden) = (all.path().join("state"), all.path().join("hidden"));
    fs::create_dir(&folder).expect("a folder in a folder");
    let file = folder.join("mine").display().to_string();
    let server = Server::builder().module_args(["state-file", &file]).start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    for key in ["k", "usual"] {
        assert!(granted(&holder.call_strs(&format!("REDLOCK.ACQUIRE {key} first 600000"))) > 0);
    }
    // A fence above all that the node has reserved.
    queued(&mut waiter, "ACQUIRE k a 600000 FENCE 9000000 WAIT 1 600000 me");
    queued(&mut waiter, "ACQUIRE usual a 600000 WAIT 1 600000 me");
    fs::rename(&folder, &hidden).expect("a folder can be renamed");
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    assert_eq!(holder.call_strs("EXISTS k"), Answer::Int(0), "nothing is granted that cannot be remembered");
    // Nor does anybody overtake, however often it asks.
    for _ in 0..100 {
        assert_eq!(holder.call_strs("REDLOCK.ACQUIRE k newcomer 1000"), Answer::Nil);
    }
    // Where nothing has to be remembered, the work goes on.
    assert_eq!(holder.call_strs("REDLOCK.RELEASE usual first"), Answer::Int(1));
    assert_eq!(heard(&mut news), "grant 1 2 usual");
    fs::rename(&hidden, &folder).expect("a folder can be renamed");
    assert_eq!(heard(&mut news), "grant 1 9000000 k");
}

#[test]
fn what_is_released_was_claimed() {
    let server = patient();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    for key in ["one", "two"] {
        assert!(granted(&holder.call_strs(&format!("REDLOCK.ACQUIRE {key} first 60000"))) > 0);
    }
    queued(&mut waiter, "MACQUIRE 2 one two a 60000 WAIT 1 60000 me");
    assert_eq!(holder.call_strs("REDLOCK.MRELEASE 2 one two first"), Answer::Int(1));
    heard(&mut news);
    // It gives it back at once: it yields, or does not want it any more.
    assert_eq!(waiter.call_strs("REDLOCK.MRELEASE 2 one two a"), Answer::Int(1));
    assert_eq!((number(&server, "handoffs"), number(&server, "unclaimed")), (1, 0));
}

#[test]
fn an_owner_that_asks_for_more_keeps_its_turn() {
    let (server, clock) = Server::start_frozen();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE x first 600000")) > 0);
    queued(&mut waiter, "ACQUIRE x a 60000 WAIT 5 1000 me");
    queued(&mut waiter, "ACQUIRE x b 60000 WAIT 6 600000 other");
    queued(&mut waiter, "MACQUIRE 2 y x a 60000 WAIT 5 600000 me");
    assert_eq!(number(&server, "waiters"), 2, "one owner waits once for a key");
    clock.advance_module(Duration::from_millis(1_001));
    server.wait_for_cron();
    assert_eq!(holder.call_strs("REDLOCK.RELEASE x first"), Answer::Int(1));
    assert_eq!(heard(&mut news), "grant 5 2 y");
    assert_eq!(waiter.call_strs("REDLOCK.MEXTEND 2 y x a 60000"), Answer::Int(2));
}

#[test]
fn whoever_waits_for_several_keys_counts_for_each() {
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
fn a_crowd_on_one_connection_is_let_go() {
    let server = Server::start();
    let (mut holder, mut crowd, mut patient) = (server.connect(), server.connect(), server.connect());
    let mut news = listener(&server, "me");
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
    assert_eq!(heard(&mut news), "grant 9999 2 k");
    assert_eq!(number(&server, "handoffs"), 1, "nobody of the crowd was served");
}

#[test]
fn a_label_is_handed_on() {
    let server = patient();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000 LABEL before")) > 0);
    queued(&mut waiter, "ACQUIRE k a 60000 LABEL after WAIT 1 60000 me");
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    heard(&mut news);
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("label"), Some(&Answer::text("after")));
    assert_eq!(waiter.call_strs("REDLOCK.EXTEND k a 60000"), Answer::Int(2));
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("label"), Some(&Answer::text("after")), "claimed");
}

#[test]
fn a_line_goes_where_swapdb_takes_its_key() {
    let server = patient();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    queued(&mut waiter, "ACQUIRE k a 60000 WAIT 1 60000 me");
    assert_eq!(holder.call_strs("SWAPDB 0 3"), Answer::ok());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k other 60000")) > 0, "nobody holds it here");
    assert_eq!(holder.call_strs("SELECT 3"), Answer::ok());
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("waiters"), Some(&Answer::Int(1)));
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    assert!(heard(&mut news).ends_with(" k"));
    assert_eq!(holder.call_strs("REDLOCK.RELEASE k a"), Answer::Int(1), "it has it there");
    assert_eq!((number(&server, "handoffs"), number(&server, "waiters")), (1, 0));
}
