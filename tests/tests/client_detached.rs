//! Detached locks, which have no guard, and nodes that restart from an old snapshot.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{TTL, manager, until_all_answer, until_held};
use redlock_client::{Detached, Guard, LockManager};
use redlock_tests::{Answer, FakeClock, Fleet, SOON, eventually};
use std::time::Duration;

/// Three nodes with snapshots and frozen clocks.
struct Fixture {
    fleet: Fleet,
    clocks: Vec<FakeClock>,
    locks: LockManager,
}

impl Fixture {
    async fn start() -> Self {
        let clocks: Vec<FakeClock> = (0..3).map(|_| FakeClock::new()).collect();
        clocks.iter().for_each(FakeClock::freeze_module);
        let fleet = Fleet::start_with(3, |index, node| node.clock(&clocks[index]).arg("save", "3600 100000"));
        let locks = manager(fleet.urls());
        until_all_answer(&locks).await;
        Self { fleet, clocks, locks }
    }

    /// Acquires and detaches a lock on all nodes, and saves it in the snapshots of some nodes.
    async fn detached(&self, saved_on: &[usize]) -> Detached {
        let old = self.locks.try_acquire("lock", TTL).await.expect("a free lock").detach();
        until_held(self.fleet.iter(), "lock").await;
        for node in saved_on {
            assert_eq!(self.fleet[*node].connect().call_strs("SAVE"), Answer::ok());
        }
        old
    }

    /// Another client gets the lock, with a larger fence.
    async fn next_holder(&self, old: &Detached) -> Guard {
        let guard = self.locks.try_acquire("lock", TTL).await.expect("a lock that is free on a majority");
        assert!(guard.fence() > old.fence, "{} and then {}", old.fence, guard.fence());
        guard
    }

    /// Crashes some nodes. They restart from their snapshots, which contain the old lock.
    async fn crash(&mut self, which: &[usize], old: &Detached) {
        self.fleet.crash(which);
        until_all_answer(&self.locks).await;
        for node in which {
            let lock = self.fleet[*node].connect().inspect("lock").expect("the lock of the snapshot");
            assert_eq!(u64::try_from(lock.fence), Ok(old.fence));
        }
    }

    /// Checks that the nodes do not extend the old lock, with its smaller fence, while the next holder is valid.
    async fn verify_over(&self, old: &Detached, next: Guard) {
        let outcome = self.locks.extend_detached(old, TTL).await;
        assert!(next.is_valid(), "the next holder still relies on the lock");
        let (old, next) = (old.fence, next.fence());
        assert!(outcome.is_err(), "the nodes extended fence {old} while fence {next} is valid: {outcome:?}");
    }
}

/// The release has not reached the third node, and the first node has forgotten the release.
#[tokio::test]
async fn a_released_lock_that_one_node_brings_back_is_not_confirmed() {
    let mut scene = Fixture::start().await;
    let old = scene.detached(&[0]).await;
    for node in 0..2 {
        let words = [&b"REDLOCK.RELEASE"[..], b"lock", old.owner.as_bytes()];
        let answer = scene.fleet[node].connect().call(&words);
        assert_eq!(answer, Answer::Int(1));
    }
    let next = scene.next_holder(&old).await;
    scene.crash(&[0], &old).await;
    scene.verify_over(&old, next).await;
}

/// A long lock is in the snapshots of a majority. It was released, and another client has held the lock since. The
/// nodes wait only for the leases that were still running when they crashed.
#[tokio::test]
async fn a_long_lock_from_an_older_snapshot_is_over_when_the_quarantine_is() {
    let mut scene = Fixture::start().await;
    let long = Duration::from_secs(600);
    let old = scene.locks.try_acquire("lock", long).await.expect("a free lock").detach();
    until_held(scene.fleet.iter(), "lock").await;
    for node in scene.fleet.iter() {
        assert_eq!(node.connect().call_strs("SAVE"), Answer::ok());
        let words = [&b"REDLOCK.RELEASE"[..], b"lock", old.owner.as_bytes()];
        assert_eq!(node.connect().call(&words), Answer::Int(1));
    }
    let next = scene.next_holder(&old).await;
    let last = next.fence();
    next.release().await;
    for (node, clock) in scene.fleet.iter().zip(&scene.clocks) {
        eventually("the longest lease is lowered", SOON, || {
            clock.advance_module(Duration::from_secs(61));
            let longest = node.info("redlock", "redlock_longest_lease_ms")?.parse::<u64>().ok()?;
            (longest < 100_000).then_some(())
        });
    }
    scene.crash(&[0, 1], &old).await;
    scene.clocks.iter().for_each(|clock| clock.advance_module(Duration::from_secs(75)));
    let outcome = scene.locks.extend_detached(&old, long).await;
    assert!(outcome.is_err(), "fence {} after fence {last}: {outcome:?}", old.fence);
    let guard = scene.locks.try_acquire("lock", TTL).await.expect("the quarantine is over");
    assert!(guard.fence() > last, "{} after {last}", guard.fence());
}

/// The lock has expired on every node, and a majority has forgotten its end.
#[tokio::test]
async fn an_expired_lock_that_a_majority_brings_back_is_not_confirmed() {
    let mut scene = Fixture::start().await;
    let old = scene.detached(&[0, 1]).await;
    scene.clocks.iter().for_each(|clock| clock.advance_module(TTL + Duration::from_secs(1)));
    let next = scene.next_holder(&old).await;
    scene.crash(&[0, 1], &old).await;
    scene.verify_over(&old, next).await;
}
