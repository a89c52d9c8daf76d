//! A replica that takes its master's place: it may lack the last grants, and nobody gets those locks early.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod traffic;

use redlock_tests::history::Breach;
use redlock_tests::{Answer, Brand, Builder, Clock, SOON, Server, Wire, eventually, granted, seed, skip};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use traffic::{Progress, Traffic};

/// A master and its replica, each on a frozen clock of its own.
struct Pair {
    master: Server,
    replica: Server,
    replica_clock: Clock,
}

fn frozen() -> Clock {
    let clock = Clock::new();
    clock.freeze_module();
    clock
}

fn left_ms(wire: &mut Wire) -> i64 {
    let node = wire.call_strs("REDLOCK.NODE");
    node.field("quarantine-ms").unwrap_or_else(|| panic!("no quarantine-ms in {node:?}")).int()
}

fn refused(wire: &mut Wire, line: &str) {
    let answer = wire.call_strs(line);
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{line}: {answer:?}");
}

/// Lets time pass until just before the old deadline, and then until just after the wait.
fn wait_out(wire: &mut Wire, clock: &Clock, ttl_ms: u64, key: &str) -> i64 {
    let left = left_ms(wire).unsigned_abs();
    let longest = ttl_ms + ttl_ms / 100 + 2;
    assert!((longest..=ttl_ms * 9 / 8).contains(&left), "the longest time and the drift: {left} ms");
    let line = format!("REDLOCK.ACQUIRE {key} another 1000");
    refused(wire, &line);
    clock.advance_module(Duration::from_millis(left - 1));
    refused(wire, &line);
    clock.advance_module(Duration::from_millis(2));
    granted(&wire.call_strs(&line))
}

impl Pair {
    fn start() -> Self {
        Self::with(Server::builder(), Server::builder())
    }

    fn with(master: Builder, replica: Builder) -> Self {
        let master = master.tcp().clock(&frozen()).start();
        Self::join(master, replica)
    }

    fn join(master: Server, replica: Builder) -> Self {
        let replica_clock = frozen();
        let replica = replica.replica_of(&master).clock(&replica_clock).start();
        replica.catch_up(&master);
        Self { master, replica, replica_clock }
    }

    fn grant(&self, line: &str) -> i64 {
        granted(&self.master.connect().call_strs(line))
    }

    /// Whatever the master does from now on never reaches the replica.
    fn cut(&self) {
        self.replica.catch_up(&self.master);
        self.replica.pause();
        assert_eq!(self.master.connect().call_strs("CLIENT KILL TYPE replica"), Answer::Int(1));
        eventually("the master has lost its replica", SOON, || {
            (self.master.info("replication", "connected_slaves")? == "0").then_some(())
        });
    }

    /// The master crashes and a replica that was cut off takes its place.
    fn fail_over(&mut self) -> Wire {
        self.master.kill();
        self.replica.resume();
        self.promote()
    }

    fn promote(&self) -> Wire {
        let mut wire = self.replica.connect();
        assert_eq!(wire.call_strs("REPLICAOF NO ONE"), Answer::ok());
        wire
    }
}

#[test]
fn a_grant_that_never_arrived_is_not_given_away() {
    let mut pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE seen me 10000 FENCE 3000000");
    pair.cut();
    // Numbers up to those that the master has put aside.
    let unseen = [
        pair.grant("REDLOCK.ACQUIRE unseen me 10000"),
        pair.grant("REDLOCK.ACQUIRE high me 10000 FENCE 4000000"),
        pair.grant("REDLOCK.EXTEND seen me 10000 FENCE 4000000"),
    ];
    let mut promoted = pair.fail_over();
    assert_eq!(promoted.call_strs("EXISTS unseen high"), Answer::Int(0), "or this would show nothing");
    assert_eq!(promoted.call_strs("REDLOCK.ACQUIRE seen other 10000"), Answer::Nil, "what arrived is held");
    assert_eq!(promoted.call_strs("REDLOCK.INSPECT unseen"), Answer::Nil);
    assert_eq!(promoted.call_strs("REDLOCK.RELEASE unseen me"), Answer::Int(0));
    refused(&mut promoted, "REDLOCK.ACQUIRE unseen other 10000");
    refused(&mut promoted, "REDLOCK.MACQUIRE 2 unseen high other 10000");

    assert!(wait_out(&mut promoted, &pair.replica_clock, 10_000, "unseen") > unseen[0]);
    assert!(granted(&promoted.call_strs("REDLOCK.ACQUIRE high another 1000")) > unseen[1]);
    assert!(granted(&promoted.call_strs("REDLOCK.ACQUIRE seen another 1000")) > unseen[2]);
    assert_eq!(pair.replica.info("redlock", "redlock_quarantines"), Some("1".into()));
    assert!(pair.replica.log().lines().any(|line| line.contains("redlock") && line.contains("quarantine")));
}

#[test]
fn without_the_wait_a_promoted_replica_gives_a_held_lock_away_but_no_number_twice() {
    let off = Server::builder().module_args(["restart-grace", "off"]);
    let mut pair = Pair::with(Server::builder(), off);
    pair.grant("REDLOCK.ACQUIRE seen me 10000");
    pair.cut();
    let fence = pair.grant("REDLOCK.ACQUIRE unseen me 10000");
    let mut promoted = pair.fail_over();
    assert!(granted(&promoted.call_strs("REDLOCK.ACQUIRE unseen other 10000")) > fence);
}

#[test]
fn a_replica_that_saw_no_grant_knows_the_numbers_and_the_time_of_its_master() {
    let mut master = Server::builder().tcp().module_args(["restart-grace", "off"]).clock(&frozen()).start();
    granted(&master.connect().call_strs("REDLOCK.ACQUIRE lock me 10000 FENCE 3000000"));
    // All of this was before the replica: neither the lock nor the number is in the data set any more.
    master.kill();
    master.restart();
    let mut pair = Pair::join(master, Server::builder());
    pair.cut();
    let fence = pair.grant("REDLOCK.ACQUIRE lock me 10000");
    assert!(fence > 3_000_000);
    let mut promoted = pair.fail_over();
    assert!(wait_out(&mut promoted, &pair.replica_clock, 10_000, "lock") > fence);
}

#[test]
fn a_replica_knows_the_time_of_an_extension() {
    let mut pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 1000");
    pair.grant("REDLOCK.EXTEND lock me 10000");
    pair.cut();
    let fence = pair.grant("REDLOCK.ACQUIRE unseen me 10000");
    let mut promoted = pair.fail_over();
    assert!(wait_out(&mut promoted, &pair.replica_clock, 10_000, "unseen") > fence);
}

#[test]
fn numbers_far_above_those_put_aside_are_not_given_out_again() {
    let mut pair = Pair::start();
    let mut fence = pair.grant("REDLOCK.ACQUIRE lock me 10000");
    pair.cut();
    for _ in 0..16 {
        // As far as one wish may lift a number; each time the master has to put new ones aside.
        fence = pair.grant(&format!("REDLOCK.EXTEND lock me 10000 FENCE {}", fence + (1_i64 << 32)));
    }
    let mut promoted = pair.fail_over();
    pair.replica_clock.advance_module(Duration::from_secs(12));
    assert!(granted(&promoted.call_strs("REDLOCK.ACQUIRE lock other 10000")) > fence);
}

#[test]
fn locks_that_arrived_can_be_kept_or_given_back_during_the_wait() {
    let pair = Pair::start();
    let fences =
        ["kept", "refreshed", "released"].map(|key| pair.grant(&format!("REDLOCK.ACQUIRE {key} me 10000")));
    pair.replica.catch_up(&pair.master);
    let mut promoted = pair.promote();
    assert!(left_ms(&mut promoted) > 0);
    assert_eq!(promoted.call_strs("REDLOCK.EXTEND kept me 10000"), Answer::Int(fences[0]));
    assert_eq!(promoted.call_strs("REDLOCK.ACQUIRE refreshed me 10000"), Answer::Int(fences[1]));
    assert_eq!(promoted.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
    refused(&mut promoted, "REDLOCK.ACQUIRE released other 10000");
    assert_eq!(promoted.inspect("kept").map(|lock| lock.fence), Some(fences[0]));
}

#[test]
fn an_end_of_the_new_master_during_the_wait_does_not_shorten_it() {
    let append_only = |fsync| Server::builder().arg("appendonly", "yes").arg("appendfsync", fsync);
    let keeps: [(&str, Builder); 4] = [
        ("nothing", Server::builder()),
        ("RDB", Server::builder().arg("save", "3600 1")),
        ("AOF everysec", append_only("everysec")),
        ("AOF always", append_only("always")),
    ];
    for (keep, builder) in keeps {
        for end in ["crash", "shutdown"] {
            let mut pair = Pair::with(Server::builder(), builder.clone());
            pair.grant("REDLOCK.ACQUIRE seen me 10000");
            pair.cut();
            let fence = pair.grant("REDLOCK.ACQUIRE unseen me 10000");
            let mut promoted = pair.fail_over();
            refused(&mut promoted, "REDLOCK.ACQUIRE unseen other 10000");
            assert_eq!(promoted.call_strs("CONFIG REWRITE"), Answer::ok(), "it stays a master");
            // A server that writes its first append only file after a copy does not let itself be shut down.
            eventually("the append only file is there", SOON, || {
                let field = |name| pair.replica.info("persistence", name);
                let busy = field("aof_rewrite_in_progress")? == "1" || field("aof_rewrite_scheduled")? == "1";
                (!busy).then_some(())
            });
            if end == "crash" {
                pair.replica.kill();
            }
            pair.replica.restart();
            let mut wire = pair.replica.connect();
            let line = "REDLOCK.ACQUIRE unseen other 10000";
            pair.replica_clock.advance_module(Duration::from_millis(9_999));
            let answer = wire.call_strs(line);
            assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "keeping {keep}, {end}: {answer:?}");
            pair.replica_clock.advance_module(Duration::from_secs(2));
            assert!(granted(&wire.call_strs(line)) > fence, "keeping {keep}, {end}");
        }
    }
}

#[test]
fn a_new_master_whose_file_is_not_there_yet_is_not_trusted() {
    // After a full copy the append only file is written anew; this server takes long over it.
    let slow = Server::builder().arg("appendonly", "yes").arg("appendfsync", "always");
    let slow = slow.arg("rdb-key-save-delay", "3000000");
    let master = Server::builder().tcp().clock(&frozen()).start();
    granted(&master.connect().call_strs("REDLOCK.ACQUIRE seen me 10000"));
    let mut pair = Pair::join(master, slow);
    let mut promoted = pair.promote();
    pair.replica_clock.advance_module(Duration::from_secs(12));
    let fence = granted(&promoted.call_strs("REDLOCK.ACQUIRE lost me 10000"));
    assert_eq!(promoted.call_strs("CONFIG REWRITE"), Answer::ok(), "it stays a master");
    if pair.replica.info("persistence", "aof_rewrite_in_progress") != Some("1".into()) {
        assert_eq!(pair.replica.flavor().brand, Brand::Valkey, "Redis is still writing its file");
        skip("this server makes the copy itself its file");
        return;
    }
    pair.replica.kill();
    pair.replica.restart();
    let mut wire = pair.replica.connect();
    let line = "REDLOCK.ACQUIRE lost other 10000";
    let answer = wire.call_strs(line);
    let refused = answer == Answer::Nil || answer.error_word() == Some("REDLOCKQUARANTINE");
    assert!(refused, "a second holder: {answer:?}");
    pair.replica_clock.advance_module(Duration::from_secs(12));
    assert!(granted(&wire.call_strs(line)) > fence);
}

#[test]
fn a_restarted_replica_waits_when_it_is_promoted_at_once() {
    for end in ["crash", "shutdown"] {
        let mut pair = Pair::with(Server::builder(), Server::builder().arg("save", "3600 1"));
        pair.grant("REDLOCK.ACQUIRE seen me 10000");
        pair.cut();
        pair.grant("REDLOCK.ACQUIRE unseen me 10000");
        pair.master.kill();
        pair.replica.resume();
        if end == "crash" {
            pair.replica.kill();
        }
        pair.replica.restart();
        let mut promoted = pair.promote();
        pair.replica_clock.advance_module(Duration::from_millis(9_999));
        refused(&mut promoted, "REDLOCK.ACQUIRE unseen other 10000");
    }
}

#[test]
fn a_demoted_master_grants_nothing_and_a_master_that_stays_one_does_not_wait() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE lock me 10000");
    let mut old = pair.master.connect();
    assert_eq!(old.call_strs("REPLICAOF NO ONE"), Answer::ok());
    assert_eq!(left_ms(&mut old), 0, "it was the master all along");
    granted(&old.call_strs("REDLOCK.ACQUIRE another me 10000"));
    let port = pair.replica.port().expect("a replica listens on TCP").to_string();
    pair.replica.catch_up(&pair.master);
    let mut new = pair.promote();
    assert_eq!(old.call(&["REPLICAOF", "127.0.0.1", &port]), Answer::ok());
    assert_eq!(old.call_strs("REDLOCK.ACQUIRE third me 10000").error_word(), Some("READONLY"));
    assert_eq!(old.call_strs("REDLOCK.EXTEND lock me 10000").error_word(), Some("READONLY"));
    refused(&mut new, "REDLOCK.ACQUIRE third me 10000");
    pair.master.catch_up(&pair.replica);
    pair.replica_clock.advance_module(Duration::from_secs(12));
    let fence = granted(&new.call_strs("REDLOCK.ACQUIRE third me 10000"));
    pair.master.catch_up(&pair.replica);
    assert_eq!(old.inspect("third").map(|lock| lock.fence), Some(fence));
}

/// Failovers under load: a handful, or `scripts/test --long`.
fn rounds() -> u64 {
    if std::env::var_os("REDLOCK_LONG").is_some() { 50 } else { 3 }
}

#[test]
fn failovers_under_load() {
    let seed = seed(0x5eed_0005);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut grants, mut held, mut missing) = (0, 0, 0);
    for round in 0..rounds() {
        let mut master = Server::builder().tcp().start();
        let mut traffic = Traffic::new(seed.wrapping_add(round));
        traffic.take_for_longest(&mut master.connect());
        let mut replica = Server::builder().replica_of(&master).start();
        replica.catch_up(&master);
        let is_cut = random.bool();
        let before = traffic.history().grants();
        work(&mut traffic, &mut master, random.u64(1..1_000), |master| {
            if is_cut {
                replica.pause();
                assert_eq!(master.connect().call_strs("CLIENT KILL TYPE replica"), Answer::Int(1));
            }
        });
        grants += traffic.history().grants() - before;
        held += traffic.history().held_at(Instant::now());
        if is_cut {
            replica.resume();
            missing += 1;
        }
        assert_eq!(replica.connect().call_strs("REPLICAOF NO ONE"), Answer::ok());
        let before = traffic.history().grants();
        work(&mut traffic, &mut replica, 200, |_| {});
        assert!(traffic.history().grants() > before);
        let breaches = traffic.history().breaches();
        let told: Vec<String> = breaches.iter().map(Breach::to_string).collect();
        assert!(breaches.is_empty(), "seed {seed}, round {round}, cut off {is_cut}: {}", told.join("; "));
    }
    assert!(held > 0, "no lock was held at any failover, this shows nothing");
    println!("{grants} grants before, {held} held at a failover, {missing} of them with grants missing");
}

/// Lets clients work on a server until it has granted so many locks; after `half`, as many again, and then
/// it crashes.
fn work(traffic: &mut Traffic, server: &mut Server, goal: u64, half: impl FnOnce(&Server)) {
    let progress = Progress::default();
    let mut wire = server.connect();
    thread::scope(|scope| {
        let clients = scope.spawn(|| traffic.run(&mut wire, &progress));
        let reach = |goal: u64| {
            eventually("the clients have got some locks", SOON, || {
                (progress.grants.load(Relaxed) >= goal || clients.is_finished()).then_some(())
            });
        };
        reach(goal);
        half(server);
        reach(2 * goal);
        server.kill();
    });
}
