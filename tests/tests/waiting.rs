//! Waiting in line at one node: who is served when, and who is not, on a real server.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Answer, SOON, Server, ServerBuilder, Wire, eventually, granted, without_proof};
use std::time::Duration;

/// A way to start servers that leave all the time in the world to claim what they hand on.
fn patient() -> ServerBuilder {
    Server::builder().module_args(["claim-window", "60000"])
}

/// A connection that listens on a channel.
fn listener(server: &Server, channel: &str) -> Wire {
    let mut wire = server.connect();
    let said = wire.call_strs(&format!("SUBSCRIBE redlock:grant:{channel}"));
    assert_eq!(said.list()[0], Answer::text("subscribe"));
    wire
}

/// The next message on a channel.
fn heard(listener: &mut Wire) -> String {
    let message = listener.receive().expect("a message");
    assert_eq!(message.list()[0], Answer::text("message"), "{message:?}");
    without_proof(&message.list()[2].string())
}

/// Asks for `k` and is queued; tells the position.
fn queue(wire: &mut Wire, owner: &str, ticket: u64, channel: &str) -> i64 {
    let said = wire.call_strs(&format!("REDLOCK.ACQUIRE k {owner} 60000 WAIT {ticket} 60000 {channel}"));
    assert_eq!(said.list().len(), 3, "{said:?}");
    said.list()[1].int()
}

/// Waits until so many wait.
fn until_waiting(server: &Server, count: &str) {
    let is_so = || (server.info("redlock", "redlock_waiters").as_deref() == Some(count)).then_some(());
    eventually(&format!("{count} wait"), SOON, is_so);
}

#[test]
fn a_release_hands_the_lock_on_in_order() {
    let server = patient().start();
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
    assert_eq!(heard(&mut listeners[1]), "grant 10 2 k");
    assert_eq!(waiters[1].call_strs("REDLOCK.EXTEND k b 60000"), Answer::Int(2));
    assert_eq!(waiters[1].call_strs("REDLOCK.RELEASE k b"), Answer::Int(1));
    assert_eq!(heard(&mut listeners[2]), "grant 20 3 k");
    assert_eq!(waiters[2].call_strs("REDLOCK.RELEASE k c"), Answer::Int(1), "a release claims it, too");
    assert_eq!(heard(&mut listeners[0]), "grant 30 4 k");
    assert_eq!(server.info("redlock", "redlock_handoffs").as_deref(), Some("3"));
}

#[test]
fn whatever_ends_a_lock_hands_it_on() {
    let ends: [(&str, &[&str]); 4] = [
        ("DEL", &["DEL k"]),
        ("UNLINK", &["UNLINK k"]),
        ("RENAME", &["RENAME k elsewhere"]),
        ("MOVE", &["MOVE k 3"]),
    ];
    for (name, commands) in ends {
        let server = Server::start();
        let (mut administrator, mut waiter) = (server.connect(), server.connect());
        let mut news = listener(&server, "me");
        assert!(granted(&administrator.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
        queue(&mut waiter, "a", 1, "me");
        for command in commands {
            administrator.call_strs(command);
        }
        assert!(heard(&mut news).starts_with("grant 1 "), "{name}");
    }
}

#[test]
fn a_plain_clients_lock_is_waited_for_as_well() {
    for end in ["DEL k", "PEXPIRE k 1"] {
        let server = Server::start();
        let (mut plain, mut waiter) = (server.connect(), server.connect());
        let mut news = listener(&server, "me");
        assert_eq!(plain.call_strs("SET k theirs NX PX 60000"), Answer::ok());
        let said = waiter.call_strs("REDLOCK.ACQUIRE k a 60000 WAIT 1 60000 me");
        assert_eq!(said, Answer::List(vec![Answer::Int(-1), Answer::Int(1), Answer::Int(0)]));
        assert_eq!(plain.call_strs(end), Answer::Int(1));
        assert_eq!(heard(&mut news), "grant 1 1 k", "{end}");
    }
}

#[test]
fn an_unclaimed_lock_goes_on() {
    let (server, clock) = Server::start_frozen();
    let (mut holder, mut first, mut second) = (server.connect(), server.connect(), server.connect());
    let mut listeners = ["one", "two"].map(|channel| listener(&server, channel));
    assert_eq!(holder.call_strs("CONFIG SET redlock.claim-window 500"), Answer::ok());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    queue(&mut first, "a", 1, "one");
    queue(&mut second, "b", 2, "two");
    holder.call_strs("REDLOCK.RELEASE k first");
    assert_eq!(heard(&mut listeners[0]), "grant 1 2 k");
    // Its connection closes: it may have heard all the same, so the lock stays its own for the window.
    drop(first);
    clock.advance_module(Duration::from_millis(500));
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k").field("fence"), Some(&Answer::Int(2)));
    clock.advance_module(Duration::from_millis(1));
    assert_eq!(heard(&mut listeners[1]), "grant 2 3 k");
    assert_eq!(server.info("redlock", "redlock_unclaimed").as_deref(), Some("1"));
}

#[test]
fn whoever_leaves_is_forgotten() {
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
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k"), Answer::Nil, "nobody was served");
}

#[test]
fn nobody_overtakes_those_who_wait_for_several_keys() {
    let server = patient().start();
    let (mut holder, mut waiter, mut newcomer) = (server.connect(), server.connect(), server.connect());
    let mut news = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE y first 60000")) > 0);
    let said = waiter.call_strs("REDLOCK.MACQUIRE 2 x y a 60000 WAIT 1 60000 me");
    assert_eq!(said.list()[1], Answer::Int(1));
    assert_eq!(newcomer.call_strs("REDLOCK.ACQUIRE x b 60000"), Answer::Nil, "x is free, and not its turn");
    holder.call_strs("REDLOCK.RELEASE y first");
    assert_eq!(heard(&mut news), "grant 1 2 x");
    assert_eq!(waiter.call_strs("REDLOCK.MEXTEND 2 x y a 60000"), Answer::Int(2));
}

#[test]
fn a_flush_makes_waiters_wait_for_what_was_forgotten() {
    let (server, clock) = Server::start_frozen();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 5000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    assert_eq!(holder.call_strs("FLUSHALL"), Answer::ok());
    clock.advance_module(Duration::from_millis(4_000));
    assert_eq!(holder.call_strs("REDLOCK.INSPECT k"), Answer::Nil);
    clock.advance_module(Duration::from_millis(1_001));
    assert_eq!(heard(&mut news), "grant 1 2 k");
}

#[test]
fn waiters_are_not_saved_and_a_replica_has_none() {
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
fn a_lock_that_was_handed_on_survives_like_any_other() {
    let mut server = patient().arg("appendonly", "yes").start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 600000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    holder.call_strs("REDLOCK.RELEASE k first");
    assert_eq!(heard(&mut news), "grant 1 2 k");
    assert_eq!(waiter.call_strs("REDLOCK.EXTEND k a 600000"), Answer::Int(2));
    server.restart();
    assert_eq!(server.connect().call_strs("REDLOCK.EXTEND k a 600000"), Answer::Int(2));
}

#[test]
fn the_lines_are_bounded() {
    for setting in ["max-waiters", "max-waiters-per-key", "max-waiters-per-connection"] {
        let server = Server::start();
        let (mut holder, mut waiter) = (server.connect(), server.connect());
        assert_eq!(holder.call_strs(&format!("CONFIG SET redlock.{setting} 2")), Answer::ok());
        assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
        queue(&mut waiter, "a", 1, "me");
        queue(&mut waiter, "b", 2, "me");
        let refused = waiter.call_strs("REDLOCK.ACQUIRE k c 60000 WAIT 3 60000 me");
        assert!(refused.string().starts_with("REDLOCKWAITERS "), "{setting}: {refused:?}");
        assert_eq!(queue(&mut waiter, "b", 2, "me"), 2, "whoever waits may ask again");
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
    assert!(refused.string().contains("WAIT needs a connection"), "{refused:?}");
    assert_eq!(server.info("redlock", "redlock_waiters").as_deref(), Some("0"));
}

#[test]
fn a_writer_that_is_held_back_serves_later() {
    let server = Server::start();
    let (mut administrator, mut waiter) = (server.connect(), server.connect());
    let mut news = listener(&server, "me");
    assert!(granted(&administrator.call_strs("REDLOCK.ACQUIRE k first 60000")) > 0);
    queue(&mut waiter, "a", 1, "me");
    // Two in one go: the key goes away, and before anybody is served writes are held back.
    let pause = vec![vec!["DEL", "k"], vec!["CLIENT", "PAUSE", "600000", "WRITE"]];
    assert_eq!(administrator.pipeline(pause), [Answer::Int(1), Answer::ok()]);
    assert_eq!(administrator.call_strs("REDLOCK.INSPECT k"), Answer::Nil);
    assert_eq!(administrator.call_strs("CLIENT UNPAUSE"), Answer::ok());
    assert_eq!(heard(&mut news), "grant 1 2 k");
}
