//! While writes are paused a server may not change its data by itself, and ends itself if it does. A lock
//! whose time runs out meanwhile waits with everything else, and goes when the pause is over.

use redlock_tests::{Answer, FakeClock, SOON, Server, Wire, eventually};
use std::time::Duration;

const OVER: Duration = Duration::from_millis(10_001);

fn frozen() -> FakeClock {
    let clock = FakeClock::new();
    clock.freeze_module();
    clock
}

/// A server with somebody to tell: what it deletes goes to its append only file.
fn start_with_aof() -> (Server, FakeClock) {
    let clock = frozen();
    (Server::builder().arg("appendonly", "yes").clock(&clock).start(), clock)
}

/// A master with somebody to tell, and its replica.
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

/// Waits on DBSIZE alone, which looks at no key.
fn wait_for_no_keys(server: &Server) {
    let mut wire = server.connect();
    eventually("the lock is swept", SOON, || (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(()));
}

/// The process that was started answers, and no other.
fn assert_alive(server: &mut Server) {
    assert!(server.is_running(), "the server has ended:\n{}", server.log());
    assert_eq!(server.connect().call_strs("PING"), Answer::Status("PONG".into()));
    assert_eq!(server.info("server", "process_id"), Some(server.pid().to_string()));
}

#[test]
fn a_lock_that_runs_out_in_a_pause_goes_after_it() {
    let (mut server, clock) = start_with_aof();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 10000");
    // Longer than the test: the pause ends when it is told to.
    assert_eq!(wire.call_strs("CLIENT PAUSE 600000 WRITE"), Answer::ok());
    clock.advance_module(OVER);
    server.wait_for_cron();
    assert_alive(&mut server);
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(1), "nothing is deleted in a pause");
    assert_eq!(wire.inspect("lock"), None, "but its time is over");
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(1), "nor by looking at it");
    assert_eq!(wire.call_strs("CLIENT UNPAUSE"), Answer::ok());
    wait_for_no_keys(&server);
    assert_alive(&mut server);
    acquire(&mut wire, "lock other 10000");
}

#[test]
fn a_pause_that_ends_by_itself_lets_the_lock_go() {
    // While everything is paused nobody is answered, so the first answer says that the pause is over.
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
fn on_true_time_too() {
    // Here the module's timer comes first; on a frozen clock it is the server's cron.
    let mut server = Server::builder().arg("appendonly", "yes").start();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 300");
    assert_eq!(wire.call_strs("CLIENT PAUSE 3000 WRITE"), Answer::ok());
    wait_for_no_keys(&server);
    assert_alive(&mut server);
}

#[test]
fn a_write_that_waits_for_the_end_of_a_pause_finds_the_lock_free() {
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
fn a_paused_master_tells_its_replica_nothing() {
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
fn a_lock_may_run_out_while_the_master_hands_over() {
    let ((mut master, master_clock), (mut replica, replica_clock)) = start_pair();
    let mut wire = master.connect();
    acquire(&mut wire, "lock me 10000");
    replica.wait_for_replication(&master);
    // A replica that lags: the master pauses all writes until it has caught up.
    replica.pause();
    assert_eq!(wire.call_strs("SET unseen value PX 600000"), Answer::ok());
    assert_eq!(wire.call_strs("FAILOVER TIMEOUT 600000"), Answer::ok());
    assert_eq!(master.info("replication", "master_failover_state"), Some("waiting-for-sync".into()));
    master_clock.advance_module(OVER);
    master.wait_for_cron();
    assert_alive(&mut master);
    replica.resume();
    eventually("the two have changed places", SOON, || {
        let role = |server: &Server| server.info("replication", "role");
        (role(&replica)? == "master" && role(&master)? == "slave").then_some(())
    });
    eventually("the failover is over", SOON, || {
        (master.info("replication", "master_failover_state")? == "no-failover").then_some(())
    });
    assert_eq!(replica.connect().call_strs("DEL unseen"), Answer::Int(1));
    // By its own clock the lock has its full time left; then the new master ends it, for both.
    assert_eq!(replica.connect().call_strs("DBSIZE"), Answer::Int(1));
    replica_clock.advance_module(OVER);
    wait_for_no_keys(&replica);
    wait_for_no_keys(&master);
    assert_alive(&mut master);
    assert_alive(&mut replica);
}
