//! Locks that expire during `CLIENT PAUSE` or `FAILOVER`. While writes are paused, the module must not delete a key:
//! the server would abort. The sweep deletes the expired lock when the pause ends.

use redlock_tests::{Answer, FakeClock, SOON, Server, Wire, eventually};
use std::time::Duration;

const OVER: Duration = Duration::from_millis(10_001);

fn frozen() -> FakeClock {
    let clock = FakeClock::new();
    clock.freeze_module();
    clock
}

/// A server that writes its deletions to an append-only file.
fn start_with_aof() -> (Server, FakeClock) {
    let clock = frozen();
    (Server::builder().arg("appendonly", "yes").clock(&clock).start(), clock)
}

/// A master and its replica, each on a frozen clock of its own.
fn start_pair() -> ((Server, FakeClock), (Server, FakeClock)) {
    let (master_clock, replica_clock) = (frozen(), frozen());
    let master = Server::builder().tcp().clock(&master_clock).start();
    let replica = Server::builder().replica_of(&master).clock(&replica_clock).start();
    replica.wait_for_replication(&master);
    ((master, master_clock), (replica, replica_clock))
}

fn acquire(wire: &mut Wire, line: &str) {
    let answer = wire.call_strs(&format!("REDLOCK.ACQUIRE {line}"));
    assert!(matches!(answer, Answer::Int(1..)), "ACQUIRE {line} answered {answer:?}");
}

/// Waits with DBSIZE, which accesses no key.
fn wait_for_no_keys(server: &Server) {
    let mut wire = server.connect();
    eventually("the lock is swept", SOON, || (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(()));
}

/// Asserts that the process of the server still runs and answers.
fn assert_alive(server: &mut Server) {
    assert!(server.is_running(), "the server has ended:\n{}", server.log());
    assert_eq!(server.connect().call_strs("PING"), Answer::Status("PONG".into()));
    assert_eq!(server.info("server", "process_id"), Some(server.pid().to_string()));
}

#[test]
fn a_lock_that_expires_in_a_pause_is_swept_after_it() {
    let (mut server, clock) = start_with_aof();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 10000");
    // The pause is longer than the test, which ends it with CLIENT UNPAUSE.
    assert_eq!(wire.call_strs("CLIENT PAUSE 600000 WRITE"), Answer::ok());
    clock.advance_module(OVER);
    server.wait_for_cron();
    assert_alive(&mut server);
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(1), "the sweep deletes nothing in a pause");
    assert_eq!(wire.inspect("lock"), None, "the lock has expired");
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(1), "INSPECT deletes nothing either");
    assert_eq!(wire.call_strs("CLIENT UNPAUSE"), Answer::ok());
    wait_for_no_keys(&server);
    assert_alive(&mut server);
    acquire(&mut wire, "lock other 10000");
}

#[test]
fn an_expired_lock_is_swept_when_a_pause_times_out() {
    // In mode ALL the server answers no client, so the first answer shows that the pause has ended.
    for mode in ["WRITE", "ALL"] {
        let (mut server, clock) = start_with_aof();
        let mut wire = server.connect();
        acquire(&mut wire, "lock me 10000");
        assert_eq!(wire.call_strs(&format!("CLIENT PAUSE 3000 {mode}")), Answer::ok());
        clock.advance_module(OVER);
        wait_for_no_keys(&server);
        assert_alive(&mut server);
    }
}

#[test]
fn a_lock_that_expires_in_a_pause_is_swept_after_it_on_real_time() {
    // In real time the module's timer sweeps first; on a frozen clock it is the server's cron.
    let mut server = Server::builder().arg("appendonly", "yes").start();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 300");
    assert_eq!(wire.call_strs("CLIENT PAUSE 3000 WRITE"), Answer::ok());
    wait_for_no_keys(&server);
    assert_alive(&mut server);
}

#[test]
fn an_acquire_sent_during_a_pause_finds_the_expired_lock_free() {
    let (mut server, clock) = start_with_aof();
    let (mut wire, mut waiting) = (server.connect(), server.connect());
    acquire(&mut wire, "lock me 10000");
    assert_eq!(wire.call_strs("CLIENT PAUSE 600000 WRITE"), Answer::ok());
    waiting.send(&["REDLOCK.ACQUIRE", "lock", "other", "10000"]).expect("the server reads");
    clock.advance_module(OVER);
    server.wait_for_cron();
    assert_eq!(wire.call_strs("CLIENT UNPAUSE"), Answer::ok());
    let answer = waiting.receive().expect("an answer after the pause");
    assert!(matches!(answer, Answer::Int(1..)), "{answer:?}");
    assert_alive(&mut server);
}

#[test]
fn a_paused_master_sends_no_deletion_to_its_replica() {
    let ((mut master, clock), (replica, _clock)) = start_pair();
    let mut wire = master.connect();
    acquire(&mut wire, "lock me 10000");
    replica.wait_for_replication(&master);
    assert_eq!(wire.call_strs("CLIENT PAUSE 600000 WRITE"), Answer::ok());
    clock.advance_module(OVER);
    master.wait_for_cron();
    assert_alive(&mut master);
    assert_eq!(replica.connect().call_strs("DBSIZE"), Answer::Int(1));
    assert_eq!(wire.call_strs("CLIENT UNPAUSE"), Answer::ok());
    wait_for_no_keys(&replica);
    wait_for_no_keys(&master);
    assert_alive(&mut master);
}

#[test]
fn a_lock_may_expire_during_a_failover() {
    let ((mut master, master_clock), (mut replica, replica_clock)) = start_pair();
    let mut wire = master.connect();
    acquire(&mut wire, "lock me 10000");
    replica.wait_for_replication(&master);
    // The replica lags: the master pauses all writes until the replica has caught up.
    replica.pause();
    assert_eq!(wire.call_strs("SET unseen value PX 600000"), Answer::ok());
    assert_eq!(wire.call_strs("FAILOVER TIMEOUT 600000"), Answer::ok());
    assert_eq!(master.info("replication", "master_failover_state"), Some("waiting-for-sync".into()));
    master_clock.advance_module(OVER);
    master.wait_for_cron();
    assert_alive(&mut master);
    replica.resume();
    eventually("master and replica have exchanged roles", SOON, || {
        let role = |server: &Server| server.info("replication", "role");
        (role(&replica)? == "master" && role(&master)? == "slave").then_some(())
    });
    eventually("the failover is over", SOON, || {
        (master.info("replication", "master_failover_state")? == "no-failover").then_some(())
    });
    assert_eq!(replica.connect().call_strs("DEL unseen"), Answer::Int(1));
    // By the clock of the new master the lock has its full time left. When it expires there, the new master deletes it
    // on both servers.
    assert_eq!(replica.connect().call_strs("DBSIZE"), Answer::Int(1));
    replica_clock.advance_module(OVER);
    wait_for_no_keys(&replica);
    wait_for_no_keys(&master);
    assert_alive(&mut master);
    assert_alive(&mut replica);
}
