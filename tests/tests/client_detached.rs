//! Detached locks, which no client looks after, and nodes that bring an old state of theirs back.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{TTL, manager, until_all_answer, until_held};
use redlock_client::{Detached, Guard, LockManager};
use redlock_tests::{Answer, FakeClock, Fleet};
use std::time::Duration;

/// Three nodes with snapshots, their clocks frozen.
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

    /// A lock that all nodes hold and no client looks after, in the snapshots of these nodes.
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

    /// Some nodes crash and come back with their snapshots, in which the old lock is held.
    async fn crash(&mut self, which: &[usize], old: &Detached) {
        self.fleet.crash(which);
        until_all_answer(&self.locks).await;
        for node in which {
            let lock = self.fleet[*node].connect().inspect("lock").expect("the lock of the snapshot");
            assert_eq!(u64::try_from(lock.fence), Ok(old.fence));
        }
    }

    /// The old lock must not be confirmed beside its next holder, under a smaller fence.
    async fn verify_over(&self, old: &Detached, next: Guard) {
        let outcome = self.locks.extend_detached(old, TTL).await;
        assert!(next.is_valid(), "the next holder still counts on the lock");
        let (old, next) = (old.fence, next.fence());
        assert!(outcome.is_err(), "fence {old} is confirmed while fence {next} is valid: {outcome:?}");
    }
}

/// The release has not reached the third node, and the first has forgotten it.
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

/// The lock has expired on every node, and a majority has forgotten that.
#[tokio::test]
async fn an_expired_lock_that_a_majority_brings_back_is_not_confirmed() {
    let mut scene = Fixture::start().await;
    let old = scene.detached(&[0, 1]).await;
    scene.clocks.iter().for_each(|clock| clock.advance_module(TTL + Duration::from_secs(1)));
    let next = scene.next_holder(&old).await;
    scene.crash(&[0, 1], &old).await;
    scene.verify_over(&old, next).await;
}
