//! The wait queue of one real server: which waiter gets the lock, and when.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Answer, SOON, Server, ServerBuilder, Wire, eventually, granted, without_proof};
use std::time::Duration;

/// A server with a claim window that is longer than any test.
fn with_long_claim_window() -> ServerBuilder {
    Server::builder().module_args(["claim-window", "60000"])
}

/// Connects and subscribes to the grants of a channel.
fn listener(server: &Server, channel: &str) -> Wire {
    let mut wire = server.connect();
    let reply = wire.call_strs(&format!("SUBSCRIBE redlock:grant:{channel}"));
    assert_eq!(reply.list()[0], Answer::text("subscribe"));
    wire
}

/// The next push on the channel, without its proof.
fn next_message(listener: &mut Wire) -> String {
    let message = listener.receive().expect("a message");
    assert_eq!(message.list()[0], Answer::text("message"), "{message:?}");
    without_proof(&message.list()[2].string())
}

/// Requests `k`, asserts that the node queues the request, and returns the position.
fn queue(wire: &mut Wire, owner: &str, ticket: u64, channel: &str) -> i64 {
    let reply = wire.call_strs(&format!("REDLOCK.ACQUIRE k {owner} 60000 WAIT {ticket} 60000 {channel}"));
    assert_eq!(reply.list().len(), 3, "{reply:?}");
    reply.list()[1].int()
}

/// Waits until the node has `count` waiters.
fn until_waiting(server: &Server, count: &str) {
    let is_so = || (server.info("redlock", "redlock_waiters").as_deref() == Some(count)).then_some(());
    eventually(&format!("{count} waiters"), SOON, is_so);
}

#[test]
fn releases_hand_the_lock_to_the_waiters_in_the_order_of_their_tickets() {
    let server = with_long_claim_window().start();
    let mut holder = server.connect();
    let mut waiters = [server.connect(), server.connect(), server.connect()];
    let mut listeners = ["late", "early", "middle"].map(|channel| listener(&server, channel));
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    assert_eq!(queue(&mut waiters[0], "a", 30, "late"), 1);
    assert_eq!(queue(&mut waiters[1], "b", 10, "early"), 1);
    assert_eq!(queue(&mut waiters[2], "c", 20, "middle"), 2);
    let seen = holder.call_strs("REDLOCK.INSPECT k");
    assert_eq!(seen.field("waiters"), Some(&Answer::Int(3)));
    assert_eq!(holder.call_strs("REDLOCK.NODE").field("waiters"), Some(&Answer::Int(3)));

    assert_eq!(holder.call_strs("REDLOCK.RELEASE k first"), Answer::Int(1));
    assert_eq!(next_message(&mut listeners[1]), "grant 10 2 k");
    assert_eq!(waiters[1].call_strs("REDLOCK.EXTEND k b 60000"), Answer::Int(2));
    assert_eq!(waiters[1].call_strs("REDLOCK.RELEASE k b"), Answer::Int(1));
    assert_eq!(next_message(&mut listeners[2]), "grant 20 3 k");
    assert_eq!(waiters[2].call_strs("REDLOCK.RELEASE k c"), Answer::Int(1), "a release also claims the lock");
    assert_eq!(next_message(&mut listeners[0]), "grant 30 4 k");
    assert_eq!(server.info("redlock", "redlock_handoffs").as_deref(), Some("3"));
}

#[test]
fn del_unlink_rename_and_move_hand_the_lock_to_the_waiter() {
    let ends: [(&str, &[&str]); 4] = [
        ("DEL", &["DEL k"]),
        ("UNLINK", &["UNLINK k"]),
        ("RENAME", &["RENAME k elsewhere"]),
        ("MOVE", &["MOVE k 3"]),
    ];
    for (name, commands) in ends {
        let server = Server::start();
        let (mut administrator, mut waiter) = (server.connect(), server.connect());
        let mut pushes = listener(&server, "me");
        assert!(granted(&administrator.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
        queue(&mut waiter, "a", 1, "me");
        for command in commands {
            administrator.call_strs(command);
        }
        assert!(next_message(&mut pushes).starts_with("grant 1 "), "{name}");
    }
}

#[test]
fn a_client_can_wait_for_the_lock_of_a_plain_client() {
    for end in ["DEL k", "PEXPIRE k 1"] {
        let server = Server::start();
        let (mut plain, mut waiter) = (server.connect(), server.connect());
        let mut pushes = listener(&server, "me");
        assert_eq!(plain.call_strs("SET k theirs NX PX 60000"), Answer::ok());
        let reply = waiter.call_strs("REDLOCK.ACQUIRE k a 60000 WAIT 1 60000 me");
        assert_eq!(reply, Answer::List(vec![Answer::Int(-1), Answer::Int(1), Answer::Int(0)]));
        assert_eq!(plain.call_strs(end), Answer::Int(1));
        assert_eq!(next_message(&mut pushes), "grant 1 1 k", "{end}");
    }
}

#[test]
fn an_unclaimed_lock_passes_to_the_next_waiter() {
    let (server, clock) = Server::start_frozen();
    let (mut holder, mut first, mut second) = (server.connect(), server.connect(), server.connect());
    let mut listeners = ["one", "two"].map(|channel| listener(&server, channel));
    assert_eq!(holder.call_strs("CONFIG SET redlock.claim-window 500"), Answer::ok());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    queue(&mut first, "a", 1, "one");
    queue(&mut second, "b", 2, "two");
    holder.call_strs("REDLOCK.RELEASE k first");
    assert_eq!(next_message(&mut listeners[0]), "grant 1 2 k");
    // The first waiter disconnects. It may have received the grant, so it keeps the lock for the claim window.
    drop(first);
    clock.advance_module(Duration::from_millis(500));
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("fence"), Some(&Answer::Int(2)));
    clock.advance_module(Duration::from_millis(1));
    assert_eq!(next_message(&mut listeners[1]), "grant 2 3 k");
    assert_eq!(server.info("redlock", "redlock_unclaimed").as_deref(), Some("1"));
}

#[test]
fn waiters_leave_the_queue_by_release_disconnect_or_timeout() {
    let (server, clock) = Server::start_frozen();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 600000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    until_waiting(&server, "1");
    assert_eq!(waiter.call_strs("REDLOCK.RELEASE k a"), Answer::Int(0));
    until_waiting(&server, "0");
    queue(&mut waiter, "b", 1, "me");
    drop(waiter);
    until_waiting(&server, "0");
    let mut waiter = server.connect();
    queue(&mut waiter, "c", 1, "me");
    clock.advance_module(Duration::from_millis(60_001));
    until_waiting(&server, "0");
    holder.call_strs("REDLOCK.RELEASE k first");
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k"), Answer::Nil, "no waiter got the lock");
}

#[test]
fn no_client_overtakes_a_waiter_for_several_keys() {
    let server = with_long_claim_window().start();
    let (mut holder, mut waiter, mut newcomer) = (server.connect(), server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE y first 60000")) > 0);
    let reply = waiter.call_strs("REDLOCK.MACQUIRE 2 x y a 60000 WAIT 1 60000 me");
    assert_eq!(reply.list()[1], Answer::Int(1));
    assert_eq!(
        newcomer.call_strs("REDLOCK.ACQUIRE x b 60000"),
        Answer::Nil,
        "x is free, but the waiter is first"
    );
    holder.call_strs("REDLOCK.RELEASE y first");
    assert_eq!(next_message(&mut pushes), "grant 1 2 x");
    assert_eq!(waiter.call_strs("REDLOCK.MEXTEND 2 x y a 60000"), Answer::Int(2));
}

#[test]
fn after_a_flush_waiters_wait_until_the_flushed_locks_have_expired() {
    let (server, clock) = Server::start_frozen();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 5000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    assert_eq!(holder.call_strs("FLUSHALL"), Answer::ok());
    clock.advance_module(Duration::from_millis(4_000));
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k"), Answer::Nil);
    clock.advance_module(Duration::from_millis(1_001));
    assert_eq!(next_message(&mut pushes), "grant 1 2 k");
}

#[test]
fn waiters_are_not_stored_and_a_replica_has_none() {
    let mut server = Server::builder().arg("appendonly", "yes").start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 600000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    server.restart();
    assert_eq!(server.info("redlock", "redlock_waiters").as_deref(), Some("0"));
    let (mut waiter, mut administrator) = (server.connect(), server.connect());
    queue(&mut waiter, "a", 1, "me");
    let master = Server::builder().tcp().start();
    let port = master.port().expect("a port").to_string();
    assert_eq!(administrator.call(&["REPLICAOF", "127.0.0.1", &port]), Answer::ok());
    until_waiting(&server, "0");
    let refused = waiter.call_strs("REDLOCK.ACQUIRE k b 60000 WAIT 1 60000 me");
    assert!(matches!(refused, Answer::Error(_)), "{refused:?}");
}

#[test]
fn a_handed_off_lock_survives_a_restart() {
    let mut server = with_long_claim_window().arg("appendonly", "yes").start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 600000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    holder.call_strs("REDLOCK.RELEASE k first");
    assert_eq!(next_message(&mut pushes), "grant 1 2 k");
    assert_eq!(waiter.call_strs("REDLOCK.EXTEND k a 600000"), Answer::Int(2));
    server.restart();
    assert_eq!(server.connect().call_strs("REDLOCK.EXTEND k a 600000"), Answer::Int(2));
}

#[test]
fn wait_queues_are_bounded() {
    for setting in ["max-waiters", "max-waiters-per-key", "max-waiters-per-connection"] {
        let server = Server::start();
        let (mut holder, mut waiter) = (server.connect(), server.connect());
        assert_eq!(holder.call_strs(&format!("CONFIG SET redlock.{setting} 2")), Answer::ok());
        assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
        queue(&mut waiter, "a", 1, "me");
        queue(&mut waiter, "b", 2, "me");
        let refused = waiter.call_strs("REDLOCK.ACQUIRE k c 60000 WAIT 3 60000 me");
        assert!(refused.string().starts_with("REDLOCKWAITERS "), "{setting}: {refused:?}");
        assert_eq!(queue(&mut waiter, "b", 2, "me"), 2, "a waiter may repeat its request");
        assert_eq!(server.info("redlock", "redlock_waiters").as_deref(), Some("2"), "{setting}");
    }
}

#[test]
fn a_script_cannot_wait() {
    let server = Server::start();
    let mut wire = server.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    let script = "return redis.call('REDLOCK.ACQUIRE', KEYS[1], 'me', 1000, 'WAIT', 1, 1000, 'c')";
    let refused = wire.call(&["EVAL", script, "1", "k"]);
    assert!(refused.string().contains("(WAIT) is not allowed in a script"), "{refused:?}");
    assert_eq!(server.info("redlock", "redlock_waiters").as_deref(), Some("0"));
}

#[test]
fn a_hand_off_during_a_pause_of_writes_follows_after_it() {
    let server = Server::start();
    let (mut administrator, mut waiter) = (server.connect(), server.connect());
    let mut pushes = listener(&server, "me");
    assert!(granted(&administrator.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    // Both commands in one pipeline: writes are paused before the node serves the waiter.
    let pause = vec![vec!["DEL", "k"], vec!["CLIENT", "PAUSE", "600000", "WRITE"]];
    assert_eq!(administrator.pipeline(pause), [Answer::Int(1), Answer::ok()]);
    assert_eq!(administrator.call_strs("REDLOCK.INSPECT k"), Answer::Nil);
    assert_eq!(administrator.call_strs("CLIENT UNPAUSE"), Answer::ok());
    assert_eq!(next_message(&mut pushes), "grant 1 2 k");
}
