//! A jump of the server's wall clock neither ends nor prolongs a lock. A plain key with `SET PX` is the control: it
//! shows that the jump was real.

use redlock_tests::{Answer, FakeClock, SOON, Server, Wire, eventually};
use std::time::Duration;

const HOUR: i64 = 3600;
const MILLISECOND: Duration = Duration::from_millis(1);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn granted(answer: &Answer) -> bool {
    matches!(answer, Answer::Int(fence) if *fence >= 1)
}

/// Waits until the server has run its timers and its cron: they remove the expired lock `witness`.
fn wait_for_sweep(wire: &mut Wire) {
    eventually("the witness is swept", SOON, || {
        (wire.call_strs("EXISTS witness") == Answer::Int(0)).then_some(())
    });
}

#[test]
fn an_hour_forward_does_not_end_a_lock() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SET plain me PX 1800000"), Answer::ok());
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1800000")));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE witness me 1000")));

    clock.jump_wall(HOUR);
    eventually("the plain key expires an hour early", SOON, || {
        (wire.call_strs("EXISTS plain") == Answer::Int(0)).then_some(())
    });
    assert_eq!(wire.inspect("lock").map(|lock| lock.pttl), Some(1_800_000));

    clock.advance_module(seconds(2));
    wait_for_sweep(&mut wire);
    assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(1), "the sweep ran and kept the lock");
    assert_eq!(wire.inspect("lock").map(|lock| lock.pttl), Some(1_798_000));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock other 1000"), Answer::Nil);
}

#[test]
fn an_hour_back_does_not_prolong_a_lock() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SET plain me PX 30000"), Answer::ok());
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 30000")));

    clock.jump_wall(-HOUR);
    eventually("the plain key is prolonged by an hour", SOON, || {
        (wire.call_strs("PTTL plain").int() > HOUR * 1000 - 10_000).then_some(())
    });
    assert_eq!(wire.inspect("lock").map(|lock| lock.pttl), Some(30_000));

    clock.advance_module(seconds(30) - MILLISECOND);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock other 1000"), Answer::Nil, "a millisecond is left");
    clock.advance_module(2 * MILLISECOND);
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 1000")), "the true deadline has passed");
    assert_eq!(wire.call_strs("EXISTS plain"), Answer::Int(1), "the plain key is still there");
}

#[test]
fn the_sweep_goes_on_after_a_jump_back() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE witness me 1000")));
    clock.jump_wall(-HOUR);
    clock.advance_module(seconds(2));
    wait_for_sweep(&mut wire);
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE witness other 1000")));
    clock.advance_module(seconds(2));
    wait_for_sweep(&mut wire);
}

#[test]
fn a_jump_between_stop_and_start_does_not_end_a_saved_lock() {
    let clock = FakeClock::new();
    clock.freeze_module();
    let mut server =
        Server::builder().clock(&clock).arg("appendonly", "yes").arg("appendfsync", "always").start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SET plain me PX 30000"), Answer::ok());
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 30000")));
    server.kill();
    clock.jump_wall(HOUR);
    server.restart();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("EXISTS plain"), Answer::Int(0), "the plain key is lost");
    assert_eq!(wire.inspect("lock").map(|lock| lock.pttl), Some(30_000));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock other 1000"), Answer::Nil);
}

#[test]
fn one_clock_running_ahead_does_not_end_a_lock() {
    for ahead in [FakeClock::advance_mono, FakeClock::advance_raw] {
        let (server, clock) = Server::start_frozen();
        let mut wire = server.connect();
        assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 10000")));
        ahead(&clock, seconds(3600));
        assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock other 1000"), Answer::Nil);
        assert_eq!(wire.inspect("lock").map(|lock| lock.pttl), Some(10_000));
        clock.advance_module(seconds(10) + MILLISECOND);
        assert_eq!(wire.inspect("lock"), None);
        assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 1000")), "both clocks agree now");
    }
}

#[test]
fn a_lock_ends_when_its_time_is_over_and_not_before() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 10000")));
    clock.advance_module(seconds(10) - MILLISECOND);
    assert_eq!(wire.inspect("lock").map(|lock| lock.pttl), Some(1));
    assert!(granted(&wire.call_strs("REDLOCK.EXTEND lock me 10000")));
    clock.advance_module(seconds(10) + MILLISECOND);
    assert_eq!(wire.inspect("lock"), None);
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 10000"), Answer::Nil);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(0));
}
