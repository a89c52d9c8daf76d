//! Replicas and failovers: a promoted replica does not vote until an operator admits it.
//!
//! Replication is asynchronous, so a promoted replica cannot know what its master granted last, nor whether the master
//! has stopped. A module that guessed both produced two holders, and fences that went back.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod traffic;

use redlock_tests::history::HistoryViolation;
use redlock_tests::{Answer, FakeClock, SOON, Server, ServerBuilder, Wire, admit, eventually, granted, seed};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use traffic::{Progress, Traffic};

/// A master and its replica, each with its own frozen clock.
struct Pair {
    master: Server,
    replica: Server,
    replica_clock: FakeClock,
}

fn frozen() -> FakeClock {
    let clock = FakeClock::new();
    clock.freeze_module();
    clock
}

/// One field of `REDLOCK.NODE`.
fn node(wire: &mut Wire, field: &str) -> Answer {
    let node = wire.call_strs("REDLOCK.NODE");
    node.field(field).unwrap_or_else(|| panic!("no {field} in {node:?}")).clone()
}

/// Asserts that the server does not vote: it grants and extends nothing, and its error names the remedy.
fn verify_non_voting(wire: &mut Wire, case: &str) {
    for line in [
        "REDLOCK.ACQUIRE fresh other 1000",
        "REDLOCK.ACQUIRE seen other 1000 WAIT 1 1000 channel",
        "REDLOCK.MACQUIRE 2 fresh new other 1000",
        "REDLOCK.EXTEND seen me 1000",
        "REDLOCK.MEXTEND 1 seen me 1000",
    ] {
        let answer = wire.call_strs(line);
        assert_eq!(answer.error_word(), Some("REDLOCKNOVOTE"), "{case}: {line}: {answer:?}");
        assert!(answer.string().contains("redlock admit"), "{case}: {answer:?}");
    }
    assert_eq!(node(wire, "voting"), Answer::Int(0), "{case}");
    assert_eq!(node(wire, "non-voting-reason"), Answer::text("replica"), "{case}");
}

impl Pair {
    fn start() -> Self {
        Self::with(Server::builder(), Server::builder())
    }

    fn with(master: ServerBuilder, replica: ServerBuilder) -> Self {
        let master = master.tcp().clock(&frozen()).start();
        let replica_clock = frozen();
        let replica = replica.replica_of(&master).clock(&replica_clock).start();
        replica.wait_for_replication(&master);
        Self { master, replica, replica_clock }
    }

    fn grant(&self, line: &str) -> i64 {
        granted(&self.master.connect().call_strs(line))
    }

    /// Breaks the replication for good: the replica gets no later write of the master.
    fn cut(&self) {
        self.replica.wait_for_replication(&self.master);
        self.replica.pause();
        assert_eq!(self.master.connect().call_strs("CLIENT KILL TYPE replica"), Answer::Int(1));
        eventually("the master has lost its replica", SOON, || {
            (self.master.info("replication", "connected_slaves")? == "0").then_some(())
        });
    }

    /// Kills the master and promotes its replica, which was cut off before.
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
fn a_promoted_replica_does_not_vote() {
    for grace in ["auto", "off"] {
        let replica = Server::builder().module_args(["restart-grace", grace]);
        let mut pair = Pair::with(Server::builder(), replica);
        let seen = pair.grant("REDLOCK.ACQUIRE seen me 600000");
        pair.cut();
        // A lock of one hour that is not replicated.
        pair.grant("REDLOCK.ACQUIRE fresh me 3600000");
        let mut promoted = pair.fail_over();
        verify_non_voting(&mut promoted, grace);
        pair.replica_clock.advance_module(Duration::from_secs(599));
        verify_non_voting(&mut promoted, &format!("{grace}, later"));
        assert_eq!(
            promoted.inspect("seen").map(|lock| lock.fence),
            Some(seen),
            "the promoted replica answers INSPECT"
        );
        assert_eq!(
            promoted.call_strs("REDLOCK.RELEASE seen me"),
            Answer::Int(1),
            "the promoted replica answers RELEASE"
        );
        assert_eq!(pair.replica.info("redlock", "redlock_voting"), Some("0".into()));
        assert_eq!(pair.replica.info("redlock", "redlock_non_voting_reason"), Some("replica".into()));
        assert!(pair.replica.log().contains("does not vote"), "{}", pair.replica.log());
    }
}

#[test]
fn a_replica_that_heard_of_no_lock_does_not_vote_either() {
    let mut pair = Pair::start();
    pair.cut();
    pair.grant("REDLOCK.ACQUIRE fresh me 60000");
    verify_non_voting(&mut pair.fail_over(), "a replica without any lock");
}

#[test]
fn a_master_that_lives_on_is_the_only_one_that_votes() {
    let pair = Pair::start();
    let mut promoted = pair.promote();
    let mut old = pair.master.connect();
    for round in 0..20 {
        let line = format!("REDLOCK.ACQUIRE key:{round} me 60000");
        granted(&old.call_strs(&line));
        assert_eq!(promoted.call_strs(&line).error_word(), Some("REDLOCKNOVOTE"), "{line}");
    }
    assert_eq!(old.call_strs("REPLICAOF NO ONE"), Answer::ok());
    assert_eq!(node(&mut old, "voting"), Answer::Int(1), "it was always a master");
}

#[test]
fn a_replica_started_as_a_master_does_not_vote() {
    for end in ["shutdown", "crash"] {
        for keep in ["", "3600 1"] {
            let mut pair = Pair::with(Server::builder(), Server::builder().arg("save", keep));
            pair.grant("REDLOCK.ACQUIRE seen me 60000");
            pair.cut();
            pair.grant("REDLOCK.ACQUIRE fresh me 60000");
            pair.replica.resume();
            pair.master.kill();
            let mut wire = pair.replica.connect();
            // The next start has no master to follow.
            assert_eq!(wire.call_strs("CONFIG SET replica-read-only yes"), Answer::ok());
            let folder = pair.replica.data_dir().to_path_buf();
            if end == "crash" {
                pair.replica.kill();
            } else {
                pair.replica.shutdown();
            }
            let server = Server::builder().arg("save", keep).data_dir(&folder).clock(&frozen()).start();
            verify_non_voting(&mut server.connect(), &format!("{end}, save {keep:?}"));
        }
    }
}

#[test]
fn a_demoted_master_that_is_promoted_again_does_not_vote() {
    let pair = Pair::start();
    pair.grant("REDLOCK.ACQUIRE seen me 60000");
    pair.replica.wait_for_replication(&pair.master);
    let port = pair.replica.port().expect("a replica listens on TCP").to_string();
    let mut old = pair.master.connect();
    let id = node(&mut old, "node-id");
    pair.promote();
    assert_eq!(old.call(&["REPLICAOF", "127.0.0.1", &port]), Answer::ok());
    assert_eq!(old.call_strs("REDLOCK.ACQUIRE third me 10000").error_word(), Some("READONLY"));
    pair.master.wait_for_replication(&pair.replica);
    assert_eq!(old.call_strs("REPLICAOF NO ONE"), Answer::ok());
    verify_non_voting(&mut old, "a master that was a replica for a while");
    assert_ne!(node(&mut old, "node-id"), id, "a promoted replica gets a new node id");
}

#[test]
fn a_promoted_replica_stays_without_a_vote_over_restarts() {
    let mut pair = Pair::with(Server::builder(), Server::builder().arg("save", "3600 1"));
    pair.grant("REDLOCK.ACQUIRE seen me 60000");
    pair.cut();
    let mut promoted = pair.fail_over();
    assert_eq!(promoted.call_strs("CONFIG REWRITE"), Answer::ok(), "it stays a master");
    let id = node(&mut promoted, "node-id");
    for end in ["shutdown", "crash", "shutdown"] {
        if end == "crash" {
            pair.replica.kill();
        }
        pair.replica.restart();
        let mut wire = pair.replica.connect();
        verify_non_voting(&mut wire, end);
        assert_eq!(node(&mut wire, "node-id"), id, "{end}: the node id stays the same");
    }
}

#[test]
fn an_admitted_replica_votes_after_the_wait_with_fences_above_the_floor() {
    for end in ["none", "crash", "shutdown"] {
        let mut pair = Pair::start();
        let seen = pair.grant("REDLOCK.ACQUIRE seen me 10000 FENCE 3000000");
        pair.cut();
        // A client raises the fence here because its other nodes are ahead. The raise is not replicated.
        let unseen = pair.grant(&format!("REDLOCK.EXTEND seen me 10000 FENCE {}", 1_i64 << 41));
        let floor = node(&mut pair.master.connect(), "high-water").int();
        let mut promoted = pair.fail_over();
        admit(&mut promoted, floor, 10_000);
        assert_eq!(promoted.call_strs("CONFIG REWRITE"), Answer::ok(), "it stays a master");
        if end == "crash" {
            pair.replica.kill();
        }
        if end != "none" {
            // The wait starts again.
            pair.replica.restart();
            promoted = pair.replica.connect();
        }
        let line = "REDLOCK.ACQUIRE seen other 1000";
        pair.replica_clock.advance_module(Duration::from_millis(10_099));
        let answer = promoted.call_strs(line);
        let refused = answer == Answer::Nil || answer.error_word() == Some("REDLOCKQUARANTINE");
        assert!(refused, "{end}: {answer:?}");
        pair.replica_clock.advance_module(Duration::from_secs(2));
        let fence = granted(&promoted.call_strs(line));
        assert!(fence > floor && fence > unseen && fence > seen, "{end}: {fence}");
        assert_eq!(node(&mut promoted, "origin"), Answer::text("admitted"));
    }
}

#[test]
fn whatever_the_floor_an_admitted_replica_starts_above_all_that_has_arrived() {
    let pair = Pair::start();
    let released = pair.grant("REDLOCK.ACQUIRE released me 10000 FENCE 5000000");
    assert_eq!(pair.master.connect().call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
    let far = pair.grant(&format!("REDLOCK.ACQUIRE far me 10000 FENCE {}", 1_i64 << 50));
    pair.replica.wait_for_replication(&pair.master);
    let mut promoted = pair.promote();
    admit(&mut promoted, 0, 0);
    assert!(granted(&promoted.call_strs("REDLOCK.ACQUIRE released other 1000")) > released);
    assert_eq!(promoted.call_strs("REDLOCK.RELEASE far me"), Answer::Int(1));
    assert!(granted(&promoted.call_strs("REDLOCK.ACQUIRE far other 1000")) > far);
}

#[test]
fn only_the_named_node_is_admitted_and_never_a_replica() {
    let pair = Pair::start();
    let id = node(&mut pair.replica.connect(), "node-id").string();
    let admit =
        |wire: &mut Wire, id: &str, floor: &str, wait: &str| wire.call(&["REDLOCK.ADMIT", id, floor, wait]);
    let mut replica = pair.replica.connect();
    assert_eq!(admit(&mut replica, &id, "0", "0").error_word(), Some("READONLY"));
    let mut promoted = pair.promote();
    let other = "0".repeat(40);
    for (id, floor, wait) in [
        (other.as_str(), "0", "0"),
        (&id, "-1", "0"),
        (&id, "9223372036854775807", "0"),
        (&id, "0", "x"),
        (&id, "0", "31536000001"),
    ] {
        let answer = admit(&mut promoted, id, floor, wait);
        assert_eq!(answer.error_word(), Some("REDLOCKARG"), "{floor} {wait}: {answer:?}");
        assert_eq!(node(&mut promoted, "voting"), Answer::Int(0));
    }
    assert_eq!(admit(&mut promoted, &id, "0", "0"), Answer::Int(1));
    assert_eq!(node(&mut promoted, "voting"), Answer::Int(1));
}

/// How many failovers the test makes: 3, or 50 with `scripts/test --long`.
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
        replica.wait_for_replication(&master);
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
        // The operator has stopped the master, and passes the largest fence and the longest lease of the test.
        let floor = traffic.history().largest_fence();
        let mut promoted = replica.connect();
        assert_eq!(promoted.call_strs("REPLICAOF NO ONE"), Answer::ok());
        admit(&mut promoted, floor, traffic::LONGEST_MS);
        let before = traffic.history().grants();
        work(&mut traffic, &mut replica, 200, |_| {});
        assert!(traffic.history().grants() > before);
        let breaches = traffic.history().violations();
        let told: Vec<String> = breaches.iter().map(HistoryViolation::to_string).collect();
        assert!(breaches.is_empty(), "seed {seed}, round {round}, cut off {is_cut}: {}", told.join("; "));
    }
    assert!(held > 0, "no lock was held at any failover, so the test shows nothing");
    println!(
        "{grants} grants before, {held} locks held at a failover, {missing} failovers with grants not replicated"
    );
}

/// Runs clients on a server until it has granted `goal` locks, calls `half`, waits for `goal` more grants,
/// and kills the server.
fn work(traffic: &mut Traffic, server: &mut Server, goal: u64, half: impl FnOnce(&Server)) {
    let progress = Progress::default();
    let mut wire = server.connect();
    thread::scope(|scope| {
        let clients = scope.spawn(|| traffic.run(&mut wire, &progress));
        let reach = |goal: u64| {
            eventually("the clients hold locks", SOON, || {
                (progress.grants.load(Relaxed) >= goal || clients.is_finished()).then_some(())
            });
        };
        reach(goal);
        half(server);
        reach(2 * goal);
        server.kill();
    });
}
