//! Replication: a replica has the locks of its master. The master sends effects, never the requests themselves.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{Answer, FakeClock, SOON, Server, Wire, admit, eventually};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A master and its replica, each on a frozen clock of its own.
struct Pair {
    master: Server,
    replica: Server,
    master_clock: FakeClock,
    replica_clock: FakeClock,
}

impl Pair {
    fn start() -> Self {
        let (master, master_clock) = start_master();
        let (replica, replica_clock) = start_replica(&master);
        Self { master, replica, master_clock, replica_clock }
    }

    /// Runs a command on the master and waits until the replica has its effect.
    fn run(&self, line: &str) -> Answer {
        let answer = self.master.connect().call_strs(line);
        self.replica.wait_for_replication(&self.master);
        answer
    }

    fn grant(&self, line: &str) -> i64 {
        let answer = self.run(line);
        assert!(matches!(answer, Answer::Int(1..)), "{line} answered {answer:?}");
        answer.int()
    }

    fn promote(&self) -> Wire {
        let mut wire = self.replica.connect();
        assert_eq!(wire.call_strs("REPLICAOF NO ONE"), Answer::ok());
        wire
    }
}

fn frozen() -> FakeClock {
    let clock = FakeClock::new();
    clock.freeze_module();
    clock
}

fn start_master() -> (Server, FakeClock) {
    let clock = frozen();
    (Server::builder().tcp().clock(&clock).start(), clock)
}

/// A replica that grants at once after its promotion and admission; `failover.rs` tests replicas in quarantine.
fn start_replica(master: &Server) -> (Server, FakeClock) {
    let clock = frozen();
    let builder = Server::builder().module_args(["restart-grace", "off"]);
    let replica = builder.replica_of(master).clock(&clock).start();
    replica.wait_for_replication(master);
    (replica, clock)
}

/// How often a server has run a command, from any sender.
fn calls(server: &Server, command: &str) -> u64 {
    // The server shows a name in the case in which the module registered it.
    let stats = server.connect().call_strs("INFO commandstats").string().to_lowercase();
    let begin = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(begin.as_str()));
    line.map_or(0, |rest| {
        rest.split(',').next().and_then(|digits| digits.parse().ok()).expect("a number of calls")
    })
}

#[test]
fn a_replica_shows_the_same_lock() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 60000 FENCE 41 LABEL nightly");
    pair.master_clock.advance_module(Duration::from_secs(5));
    pair.replica_clock.advance_module(Duration::from_secs(5));
    pair.grant("REDLOCK.EXTEND lock me 60000");
    let (mut master, mut replica) = (pair.master.connect(), pair.replica.connect());
    assert_eq!(replica.call_strs("TYPE lock"), master.call_strs("TYPE lock"));
    let lock = master.inspect("lock").expect("the master has the lock");
    assert_eq!((lock.fence, lock.pttl, lock.held_ms, lock.extensions), (41, 60_000, 5_000, 1));
    assert_eq!(replica.inspect("lock"), Some(lock));
    assert_eq!(pair.replica.info("redlock", "redlock_locks"), Some("1".into()));
}

/// A replica that cut a lock to its own limit would lose it early when it is promoted and admitted.
#[test]
fn a_replica_keeps_a_lock_that_is_longer_than_its_own_limit() {
    let (master, _clock) = start_master();
    let (replica, _clock) = start_replica(&master);
    assert_eq!(replica.connect().call_strs("CONFIG SET redlock.max-ttl 60000"), Answer::ok());
    let answer = master.connect().call_strs("REDLOCK.ACQUIRE lock me 3600000");
    assert_eq!(answer, Answer::Int(1));
    replica.wait_for_replication(&master);
    let lock = replica.connect().inspect("lock").expect("the replica has the lock");
    assert_eq!((lock.fence, lock.pttl), (1, 3_600_000));
}

#[test]
fn a_replica_receives_effects_and_no_requests() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 60000");
    pair.grant("REDLOCK.EXTEND lock me 60000");
    pair.grant("REDLOCK.MACQUIRE 2 a b me 60000");
    pair.grant("REDLOCK.MEXTEND 2 a b me 60000");
    assert_eq!(calls(&pair.replica, "redlock.apply"), 6);
    for request in ["acquire", "extend", "macquire", "mextend"] {
        assert_eq!(calls(&pair.replica, &format!("redlock.{request}")), 0, "{request}");
    }
    let mut script = pair.master.connect();
    let body = "redis.call('REDLOCK.ACQUIRE', KEYS[1], 'me', 60000)";
    assert_eq!(script.call(&["EVAL", body, "1", "scripted"]), Answer::Nil);
    pair.replica.wait_for_replication(&pair.master);
    assert_eq!((calls(&pair.replica, "redlock.apply"), calls(&pair.replica, "redlock.acquire")), (7, 0));
    assert_eq!(calls(&pair.replica, "eval"), 0);
}

#[test]
fn refusals_are_not_replicated() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 60000");
    let applied = calls(&pair.replica, "redlock.apply");
    assert_eq!(pair.run("REDLOCK.ACQUIRE lock other 60000"), Answer::Nil);
    assert_eq!(pair.run("REDLOCK.EXTEND lock other 60000"), Answer::Nil);
    assert_eq!(pair.run("REDLOCK.RELEASE lock other"), Answer::Int(0));
    assert_eq!(pair.run("REDLOCK.MACQUIRE 2 free lock other 60000"), Answer::Nil);
    assert_eq!(calls(&pair.replica, "redlock.apply"), applied);
    assert_eq!(calls(&pair.replica, "redlock.release"), 0);
    assert_eq!(pair.replica.connect().call_strs("DBSIZE"), Answer::Int(1));
}

#[test]
fn a_replica_receives_releases() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 60000");
    pair.grant("REDLOCK.MACQUIRE 2 a b me 60000");
    assert_eq!(pair.replica.connect().call_strs("DBSIZE"), Answer::Int(3));
    assert_eq!(pair.run("REDLOCK.RELEASE lock me"), Answer::Int(1));
    assert_eq!(pair.run("REDLOCK.MRELEASE 2 a b me"), Answer::Int(1));
    assert_eq!(pair.replica.connect().call_strs("DBSIZE"), Answer::Int(0));
    assert_eq!(pair.replica.info("redlock", "redlock_locks"), Some("0".into()));
}

#[test]
fn a_replica_receives_a_break() {
    let pair = Pair::start();
    let fence = pair.grant("REDLOCK.ACQUIRE lock me 60000");
    assert_eq!(pair.run(&format!("REDLOCK.BREAK lock FENCE {}", fence + 1)), Answer::Nil);
    assert_eq!(calls(&pair.replica, "redlock.break"), 0, "a break that changed nothing");
    assert_eq!(pair.run("REDLOCK.BREAK lock"), Answer::Int(fence));
    assert_eq!(pair.replica.connect().call_strs("DBSIZE"), Answer::Int(0));
    assert_eq!(pair.replica.info("redlock", "redlock_locks"), Some("0".into()));
    assert_eq!(pair.replica.connect().call_strs("REDLOCK.BREAK lock").error_word(), Some("READONLY"));
    assert_eq!(pair.master.info("redlock", "redlock_broken"), Some("1".into()));
}

#[test]
fn a_replica_receives_an_owner_of_any_bytes() {
    let pair = Pair::start();
    let owner = b"\0\r\n\"\\ \xff\xfe$9*3\t'\x80\x01";
    assert_eq!(owner.len(), 16);
    let granted = pair.master.connect().call(&[&b"REDLOCK.ACQUIRE"[..], b"job", owner, b"60000"]);
    assert!(matches!(granted, Answer::Int(1..)), "{granted:?}");
    pair.replica.wait_for_replication(&pair.master);
    let mut promoted = pair.promote();
    let mut release = |owner: &[u8]| promoted.call(&[&b"REDLOCK.RELEASE"[..], b"job", owner]);
    assert_eq!(release(&owner[..15]), Answer::Int(0));
    assert_eq!(release(b"\0\r\n\"\\ \xff\xfe$9*3\t'\x80\x02"), Answer::Int(0));
    assert_eq!(release(owner), Answer::Int(1));
}

#[test]
fn an_expired_lock_reaches_the_replica_as_an_effect() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 10000");
    pair.master_clock.advance_module(Duration::from_secs(11));
    let mut replica = pair.replica.connect();
    eventually("the replica has deleted the lock", SOON, || {
        (replica.call_strs("DBSIZE") == Answer::Int(0)).then_some(())
    });
    assert_eq!(calls(&pair.replica, "redlock.apply"), 2);
    assert_eq!(pair.replica.info("redlock", "redlock_locks"), Some("0".into()));
}

#[test]
fn an_expired_lock_and_its_new_holder_reach_the_replica_as_one_lock() {
    let pair = Pair::start();
    let first = pair.grant("REDLOCK.ACQUIRE lock me 10000");
    pair.master_clock.advance_module(Duration::from_millis(10_001));
    let second = pair.grant("REDLOCK.ACQUIRE lock other 60000");
    assert!(second > first);
    assert_eq!(pair.replica.connect().inspect("lock").map(|lock| lock.fence), Some(second));
    let mut promoted = pair.promote();
    assert_eq!(promoted.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(0));
    assert_eq!(promoted.call_strs("REDLOCK.RELEASE lock other"), Answer::Int(1));
}

#[test]
fn an_expired_lock_that_its_owner_takes_again_is_a_new_lock_on_the_replica() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 10000 LABEL old");
    pair.grant("REDLOCK.EXTEND lock me 10000");
    pair.master_clock.advance_module(Duration::from_millis(10_001));
    pair.replica_clock.advance_module(Duration::from_millis(10_001));
    pair.grant("REDLOCK.ACQUIRE lock me 10000");
    let lock = pair.master.connect().inspect("lock").expect("the master has the lock");
    assert_eq!((lock.label.as_slice(), lock.extensions, lock.held_ms), (&b""[..], 0, 0));
    assert_eq!(pair.replica.connect().inspect("lock"), Some(lock));
}

#[test]
fn a_replica_deletes_nothing_by_itself() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 10000");
    pair.replica_clock.advance_module(Duration::from_secs(3600));
    pair.replica.wait_for_cron();
    assert_eq!(
        pair.replica.connect().call_strs("DBSIZE"),
        Answer::Int(1),
        "only the master deletes an expired lock"
    );
}

#[test]
fn a_replica_refuses_to_grant() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 60000");
    let mut replica = pair.replica.connect();
    for line in [
        "REDLOCK.ACQUIRE free me 60000",
        "REDLOCK.EXTEND lock me 60000",
        "REDLOCK.RELEASE lock me",
        "REDLOCK.MACQUIRE 1 free me 60000",
        "REDLOCK.MEXTEND 1 lock me 60000",
        "REDLOCK.MRELEASE 1 lock me",
    ] {
        assert_eq!(replica.call_strs(line).error_word(), Some("READONLY"), "{line}");
    }
    assert_eq!(replica.call_strs("DBSIZE"), Answer::Int(1));
}

#[test]
fn clients_cannot_apply_effects() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 60000");
    let forged = ["REDLOCK.APPLY", "lock", "thief", "1000000", "60000"];
    for server in [&pair.master, &pair.replica] {
        let mut wire = server.connect();
        let before = wire.inspect("lock");
        assert!(matches!(wire.call(&forged), Answer::Error(_)));
        assert_eq!(wire.inspect("lock"), before);
    }
    let mut wire = pair.master.connect();
    let script = "return redis.call('REDLOCK.APPLY', KEYS[1], 'thief', 1000000, 60000)";
    assert!(matches!(wire.call(&["EVAL", script, "1", "lock"]), Answer::Error(_)), "in a script");
    assert_eq!(wire.call_strs("MULTI"), Answer::ok());
    wire.call(&forged);
    let outcome = wire.call_strs("EXEC");
    let refused = match &outcome {
        Answer::List(replies) => matches!(replies[..], [Answer::Error(_)]),
        other => matches!(other, Answer::Error(_)),
    };
    assert!(refused, "in a transaction: {outcome:?}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    assert!(
        wire.call_strs("REDLOCK.ACQUIRE lock me 60000").int() < 1_000_000,
        "the forged effect has not raised the fence"
    );
}

#[test]
fn a_promoted_replica_keeps_locks_and_grants_larger_fences() {
    let pair = Pair::start();
    let held = pair.grant("REDLOCK.ACQUIRE held me 60000 FENCE 500");
    let released = pair.grant("REDLOCK.ACQUIRE released me 60000 FENCE 700");
    assert_eq!(pair.run("REDLOCK.RELEASE released me"), Answer::Int(1));
    let mut promoted = pair.promote();
    admit(&mut promoted, 0, 0);
    assert_eq!(promoted.call_strs("REDLOCK.ACQUIRE held other 1000"), Answer::Nil);
    assert_eq!(promoted.call_strs("REDLOCK.EXTEND held me 60000"), Answer::Int(held));
    assert_eq!(promoted.call_strs("REDLOCK.RELEASE held me"), Answer::Int(1));
    assert!(promoted.call_strs("REDLOCK.ACQUIRE held other 60000").int() > held);
    assert!(promoted.call_strs("REDLOCK.ACQUIRE released other 60000").int() > released);
}

#[test]
fn a_promoted_replica_sweeps_expired_locks() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 10000");
    let mut promoted = pair.promote();
    pair.replica_clock.advance_module(Duration::from_secs(11));
    eventually("the promoted replica sweeps", SOON, || {
        (promoted.call_strs("DBSIZE") == Answer::Int(0)).then_some(())
    });
}

#[test]
fn a_replica_that_connects_later_gets_all_locks_and_fences() {
    let (master, clock) = start_master();
    let mut wire = master.connect();
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000 FENCE 41 LABEL nightly"), Answer::Int(41));
    clock.advance_module(Duration::from_secs(5));
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 60000"), Answer::Int(41));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE released me 60000 FENCE 700"), Answer::Int(700));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
    let before = wire.inspect("lock").expect("the master has the lock");

    let (replica, _clock) = start_replica(&master);
    let mut promoted = replica.connect();
    assert_eq!(promoted.inspect("lock"), Some(before));
    assert_eq!(promoted.call_strs("REPLICAOF NO ONE"), Answer::ok());
    admit(&mut promoted, 0, 0);
    assert_eq!(
        promoted.call_strs("REDLOCK.EXTEND lock me 60000"),
        Answer::Int(41),
        "the lock still has its owner"
    );
    assert!(promoted.call_strs("REDLOCK.ACQUIRE released other 60000").int() > 700);
}

#[test]
fn a_replica_that_reconnects_gets_what_it_missed() {
    let pair = Pair::start();
    let kept = pair.grant("REDLOCK.ACQUIRE kept me 60000");
    pair.replica.pause();
    let mut master = pair.master.connect();
    assert_eq!(master.call_strs("CLIENT KILL TYPE replica"), Answer::Int(1));
    eventually("the master has lost its replica", SOON, || {
        (pair.master.info("replication", "connected_slaves")? == "0").then_some(())
    });
    pair.master.wait_for_cron();
    let missed = master.call_strs("REDLOCK.ACQUIRE missed me 60000 FENCE 40");
    assert_eq!(missed, Answer::Int(40));
    assert!(matches!(master.call_strs("REDLOCK.EXTEND kept me 60000"), Answer::Int(1..)));
    pair.replica.resume();
    pair.replica.wait_for_replication(&pair.master);
    let mut replica = pair.replica.connect();
    assert_eq!(replica.inspect("missed").map(|lock| lock.fence), Some(40));
    let lock = replica.inspect("kept").expect("the lock from before the disconnect");
    assert_eq!((lock.fence, lock.extensions), (kept, 1));
    // A full resynchronization would make this test pointless.
    assert_eq!(pair.master.info("stats", "sync_partial_ok"), Some("1".into()));
}

#[test]
fn no_lock_is_lost_while_a_replica_connects() {
    let (master, _clock) = start_master();
    // After a cron, the master knows that it has no replica.
    master.wait_for_cron();
    let mut wire = master.connect();
    let clock = frozen();
    let stop = AtomicBool::new(false);
    let (replica, granted) = thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut granted = 0;
            while !stop.load(Relaxed) {
                let answer = wire.call(&["REDLOCK.ACQUIRE", &format!("lock:{granted}"), "me", "60000"]);
                assert!(matches!(answer, Answer::Int(1..)), "{answer:?}");
                granted += 1;
            }
            granted
        });
        let replica = Server::builder().replica_of(&master).clock(&clock).start();
        replica.wait_for_replication(&master);
        stop.store(true, Relaxed);
        (replica, traffic.join().expect("the traffic thread does not panic"))
    });
    replica.wait_for_replication(&master);
    assert!(granted > 0);
    assert_eq!(replica.connect().call_strs("DBSIZE"), Answer::Int(granted));
}

#[test]
fn a_grant_of_several_keys_reaches_the_replica_in_one_transaction() {
    let pair = Pair::start();
    let fence = pair.grant("REDLOCK.MACQUIRE 3 a b c me 60000 FENCE 20 LABEL all");
    let ran = ["multi", "redlock.apply", "exec"].map(|command| calls(&pair.replica, command));
    assert_eq!(ran, [1, 3, 1], "a transaction around three effects");
    let mut replica = pair.replica.connect();
    for key in ["a", "b", "c"] {
        let lock = replica.inspect(key).expect("the replica has every key");
        assert_eq!((lock.fence, lock.label.as_slice()), (fence, &b"all"[..]), "{key}");
    }
}

#[test]
fn locks_extended_together_get_the_largest_fence_on_master_and_replica() {
    let pair = Pair::start();
    for (key, fence) in [("a", 10), ("b", 70), ("c", 30)] {
        assert_eq!(pair.grant(&format!("REDLOCK.ACQUIRE {key} me 60000 FENCE {fence}")), fence);
    }
    assert_eq!(pair.grant("REDLOCK.MEXTEND 3 a b c me 60000"), 70);
    for server in [&pair.master, &pair.replica] {
        let mut wire = server.connect();
        let fences = ["a", "b", "c"].map(|key| wire.inspect(key).map(|lock| lock.fence));
        assert_eq!(fences, [Some(70); 3]);
    }
    assert_eq!(pair.run("REDLOCK.MRELEASE 3 a b c me"), Answer::Int(1));
    let mut last = ["a", "b", "c"].map(|key| pair.grant(&format!("REDLOCK.ACQUIRE {key} other 60000")));
    assert!(last.iter().all(|fence| *fence > 70), "{last:?}");
    assert_eq!(pair.grant("REDLOCK.MEXTEND 2 a c other 60000 FENCE 200"), 200);
    (last[0], last[2]) = (200, 200);

    let mut promoted = pair.promote();
    admit(&mut promoted, 0, 0);
    for (key, last) in ["a", "b", "c"].into_iter().zip(last) {
        assert_eq!(promoted.call(&["REDLOCK.EXTEND", key, "other", "60000"]), Answer::Int(last), "{key}");
        assert_eq!(promoted.call(&["REDLOCK.RELEASE", key, "other"]), Answer::Int(1), "{key}");
        assert!(promoted.call(&["REDLOCK.ACQUIRE", key, "third", "60000"]).int() > last, "{key}");
    }
}

#[test]
fn master_and_replica_have_the_same_digest() {
    let (master, _clock) = {
        let clock = frozen();
        (Server::builder().tcp().debug_commands().clock(&clock).start(), clock)
    };
    let clock = frozen();
    let replica = Server::builder().replica_of(&master).debug_commands().clock(&clock).start();
    let mut wire = master.connect();
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000 FENCE 41 LABEL nightly"), Answer::Int(41));
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 60000"), Answer::Int(41));
    // By now the replication link has selected database 0. The digest covers the keys and values of all databases.
    replica.wait_for_replication(&master);
    assert_eq!(wire.call_strs("DEBUG DIGEST"), replica.connect().call_strs("DEBUG DIGEST"));
}

/// The server loads a data set in memory only if all modules can keep two data sets at once. This one cannot, so the
/// server uses a file.
#[test]
fn a_replica_with_diskless_load_swapdb_loads_from_a_file() {
    let (master, _clock) = start_master();
    assert!(matches!(master.connect().call_strs("REDLOCK.ACQUIRE k me 60000"), Answer::Int(1..)));
    let builder = Server::builder().arg("repl-diskless-load", "swapdb");
    let replica = builder.replica_of(&master).start();
    replica.wait_for_replication(&master);
    assert!(replica.connect().inspect("k").is_some());
    assert!(replica.log().contains("not aware of async replication"), "{}", replica.log());
}
