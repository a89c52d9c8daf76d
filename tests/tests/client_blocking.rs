//! The blocking client on real servers: when the program ends, the locks that it released are free.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod client;

use client::{TTL, builder};
use redlock_client::blocking::LockManager;
use redlock_client::{Error, LostReason};
use redlock_tests::{Fleet, SOON, eventually};
use std::sync::mpsc;
use std::thread;

fn manager(fleet: &Fleet) -> LockManager {
    builder().nodes(fleet.urls()).build_blocking().expect("addresses of nodes")
}

#[test]
fn a_lock_is_acquired_extended_and_released() {
    let mut fleet = Fleet::start(3);
    let (alice, bob) = (manager(&fleet), manager(&fleet));
    let guard = alice.acquire("lock", TTL).expect("a free lock");
    assert!(matches!(bob.try_acquire("lock", TTL), Err(Error::Contended(_))));
    guard.extend().expect("held");
    assert_eq!(
        alice.inspect("lock").expect("answers of the nodes").lock().map(|lock| lock.fence),
        Some(guard.fence())
    );
    assert!(bob.health().expect("answers of the nodes").can_grant());
    assert!(guard.release().is_free_on_a_majority());
    let fence = bob.with_lock("lock", TTL, |held| Ok::<_, Error>(held.fence())).expect("a free lock");
    bob.flush();
    assert!(fence > 1 && fleet.is_free("lock"));
}

#[test]
fn a_program_that_ends_leaves_no_lock_behind() {
    let mut fleet = Fleet::start(5);
    for _ in 0..20 {
        let locks = manager(&fleet);
        let guard = locks.acquire("lock", TTL).expect("a free lock");
        // As at the end of a program: first the guard is dropped, then the manager, which waits for the releases.
        drop((guard, locks));
        assert!(fleet.is_free("lock"));
    }
}

#[test]
fn a_guard_that_is_dropped_last_releases_its_lock_in_the_background() {
    let mut fleet = Fleet::start(3);
    let locks = manager(&fleet);
    let guard = locks.acquire("lock", TTL).expect("a free lock");
    drop(locks);
    guard.extend().expect("the guard works without its manager");
    drop(guard);
    eventually("every node has released the lock", SOON, || fleet.is_free("lock").then_some(()));
}

#[test]
fn a_hung_node_does_not_keep_a_program_from_ending() {
    let mut fleet = Fleet::start(3);
    let locks = manager(&fleet);
    let guard = locks.acquire("lock", TTL).expect("a free lock");
    // Every node holds the lock, and the third will not receive the release in time.
    eventually("all three nodes hold the lock", SOON, || {
        fleet.locks("lock").iter().all(Option::is_some).then_some(())
    });
    fleet[2].pause();
    let (gone, is_gone) = mpsc::channel();
    thread::spawn(move || {
        drop(guard);
        drop(locks);
        gone.send(()).expect("the test waits for this message");
    });
    is_gone.recv_timeout(SOON).expect("the manager stops waiting after its node timeout");
    fleet[2].resume();
    assert!(
        (0..2).all(|node| fleet[node].connect().inspect("lock").is_none()),
        "the lock is free on the nodes that answer"
    );
    eventually("the release arrives at the resumed node", SOON, || fleet.is_free("lock").then_some(()));
}

#[test]
fn a_lock_that_an_administrator_deletes_is_lost() {
    let fleet = Fleet::start(3);
    let locks = manager(&fleet);
    let guard = locks.acquire("lock", TTL).expect("a free lock");
    for node in fleet.iter() {
        node.connect().call_strs("DEL lock");
    }
    let error = guard.extend().expect_err("the lock is gone");
    assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{error}");
    assert!(!guard.is_valid() && !guard.release().was_held());
}
