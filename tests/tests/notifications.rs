//! Keyspace notifications: a master and its replica report the same events of locks, in the same order, if and only if
//! the server is configured to.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, FakeClock, SOON, Server, Wire, eventually};
use std::time::Duration;

const OVER: Duration = Duration::from_millis(10_001);

fn start(clock: &FakeClock, events: &str) -> Server {
    clock.freeze_module();
    Server::builder().tcp().clock(clock).arg("notify-keyspace-events", events).start()
}

/// Subscribes to the events of all keys in all databases.
fn subscribe(server: &Server, pattern: &str) -> Wire {
    let mut wire = server.connect();
    assert_eq!(wire.call(&["PSUBSCRIBE", pattern]).list()[0].string(), "psubscribe");
    wire
}

/// The next message: its channel and its content, separated by a blank.
fn next(listener: &mut Wire) -> String {
    let message = listener.receive().expect("a message");
    let [kind, _, channel, content] = message.list() else { panic!("{message:?}") };
    assert_eq!(kind.string(), "pmessage");
    format!("{} {}", channel.string(), content.string())
}

fn granted(wire: &mut Wire, line: &str) {
    let answer = wire.call_strs(line);
    assert!(matches!(answer, Answer::Int(1..)), "{line}: {answer:?}");
}

/// Runs commands that have every event, and returns the events that a subscriber must receive.
fn every_event(master: &Server, clock: &FakeClock) -> Vec<String> {
    let (mut wire, mut waiter) = (master.connect(), master.connect());
    let mut expected = Vec::new();
    let mut expect = |database: u8, events: &[&str]| {
        let line = |event: &&str| format!("__keyevent@{database}__:redlock.{event}");
        expected.extend(events.iter().map(line));
    };
    granted(&mut wire, "REDLOCK.ACQUIRE lock a 60000 LABEL text");
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock b 60000"), Answer::Nil);
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock b 60000"), Answer::Nil);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock b"), Answer::Int(0));
    granted(&mut wire, "REDLOCK.EXTEND lock a 60000");
    granted(&mut wire, "REDLOCK.ACQUIRE lock a 60000");
    granted(&mut wire, "REDLOCK.RELEASE lock a");
    expect(0, &["acquired lock", "extended lock", "extended lock", "released lock"]);

    granted(&mut wire, "REDLOCK.ACQUIRE lock a 60000");
    waiter.call_strs("REDLOCK.ACQUIRE lock c 60000 WAIT 1 600000 channel");
    granted(&mut wire, "REDLOCK.RELEASE lock a");
    granted(&mut waiter, "REDLOCK.EXTEND lock c 10000");
    expect(0, &["acquired lock", "released lock", "handed-off lock", "extended lock"]);

    waiter.call_strs("REDLOCK.ACQUIRE lock d 60000 LABEL next WAIT 2 600000 channel");
    clock.advance_module(OVER);
    eventually("the sweep hands the lock on", SOON, || {
        matches!(waiter.call_strs("REDLOCK.EXTEND lock d 10000"), Answer::Int(1..)).then_some(())
    });
    expect(0, &["expired lock", "handed-off lock", "extended lock"]);

    clock.advance_module(OVER);
    // The sweep deletes the expired lock, or this command finds it first.
    granted(&mut wire, "REDLOCK.ACQUIRE lock e 60000");
    granted(&mut wire, "REDLOCK.RELEASE lock e");
    expect(0, &["expired lock", "acquired lock", "released lock"]);

    granted(&mut wire, "REDLOCK.MACQUIRE 2 x y a 60000");
    granted(&mut wire, "REDLOCK.MEXTEND 2 x y a 60000");
    granted(&mut wire, "REDLOCK.MRELEASE 2 x y a");
    for event in ["acquired", "extended", "released"] {
        expect(0, &[&format!("{event} x"), &format!("{event} y")]);
    }

    // An operator breaks a lock.
    granted(&mut wire, "REDLOCK.ACQUIRE lock a 60000");
    granted(&mut wire, "REDLOCK.BREAK lock");
    assert_eq!(wire.call_strs("REDLOCK.BREAK lock"), Answer::Nil);
    expect(0, &["acquired lock", "released lock"]);

    assert_eq!(wire.call_strs("SELECT 3"), Answer::ok());
    granted(&mut wire, "REDLOCK.ACQUIRE swept a 10000");
    clock.advance_module(OVER);
    expect(3, &["acquired swept", "expired swept"]);
    expected
}

#[test]
fn a_master_and_its_replica_report_every_event_in_order() {
    let (clock, other) = (FakeClock::new(), FakeClock::new());
    let master = start(&clock, "AKE");
    other.freeze_module();
    let replica = Server::builder().replica_of(&master).clock(&other).arg("notify-keyspace-events", "Ed");
    let replica = replica.start();
    replica.wait_for_replication(&master);
    let mut listeners = [&master, &replica].map(|server| subscribe(server, "__keyevent@*__:redlock.*"));
    let expected = every_event(&master, &clock);
    for (listener, name) in listeners.iter_mut().zip(["master", "replica"]) {
        let received: Vec<String> = expected.iter().map(|_| next(listener)).collect();
        assert_eq!(received, expected, "{name}");
    }
}

#[test]
fn a_keyspace_channel_has_the_names_of_the_events() {
    let master = start(&FakeClock::new(), "Kd");
    let mut listener = subscribe(&master, "__key*__:*");
    let mut wire = master.connect();
    granted(&mut wire, "REDLOCK.ACQUIRE lock a 60000");
    granted(&mut wire, "REDLOCK.RELEASE lock a");
    assert_eq!(next(&mut listener), "__keyspace@0__:lock redlock.acquired");
    assert_eq!(next(&mut listener), "__keyspace@0__:lock redlock.released");
}

#[test]
fn without_the_class_of_modules_there_is_no_event() {
    for events in ["", "KEg$lshzxet", "d"] {
        let master = start(&FakeClock::new(), events);
        let mut listener = subscribe(&master, "*");
        let mut wire = master.connect();
        granted(&mut wire, "REDLOCK.ACQUIRE lock a 60000");
        granted(&mut wire, "REDLOCK.EXTEND lock a 60000");
        granted(&mut wire, "REDLOCK.RELEASE lock a");
        assert_eq!(wire.call_strs("PUBLISH after everything"), Answer::Int(1));
        assert_eq!(next(&mut listener), "after everything", "{events}");
    }
}
