//! The blocking client on real servers: what it frees, it has freed when its program ends.

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
fn a_lock_is_taken_extended_and_freed() {
    let mut fleet = Fleet::start(3);
    let (alice, bob) = (manager(&fleet), manager(&fleet));
    let guard = alice.acquire("lock", TTL).expect("a free lock");
    assert!(matches!(bob.try_acquire("lock", TTL), Err(Error::Contended(_))));
    guard.extend().expect("held");
    assert_eq!(alice.inspect("lock").expect("asked").lock().map(|lock| lock.fence), Some(guard.fence()));
    assert!(bob.health().expect("asked").can_grant());
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
        // As at the end of a program: first the guard is dropped, then the manager, which waits.
        drop((guard, locks));
        assert!(fleet.is_free("lock"));
    }
}

#[test]
fn a_guard_that_is_dropped_last_frees_its_lock_in_the_background() {
    let mut fleet = Fleet::start(3);
    let locks = manager(&fleet);
    let guard = locks.acquire("lock", TTL).expect("a free lock");
    drop(locks);
    guard.extend().expect("still served");
    drop(guard);
    eventually("every node is told", SOON, || fleet.is_free("lock").then_some(()));
}

#[test]
fn a_hung_node_does_not_keep_a_program_from_ending() {
    let mut fleet = Fleet::start(3);
    let locks = manager(&fleet);
    let guard = locks.acquire("lock", TTL).expect("a free lock");
    // Each node has the lock, and the third will not hear that it is free.
    eventually("all three hold it", SOON, || fleet.locks("lock").iter().all(Option::is_some).then_some(()));
    fleet[2].pause();
    let (gone, is_gone) = mpsc::channel();
    thread::spawn(move || {
        drop(guard);
        drop(locks);
        gone.send(()).expect("somebody listens");
    });
    is_gone.recv_timeout(SOON).expect("the manager gives up after its node timeout");
    fleet[2].resume();
    assert!((0..2).all(|node| fleet[node].connect().inspect("lock").is_none()), "those that answer are free");
    eventually("what was sent arrives", SOON, || fleet.is_free("lock").then_some(()));
}

#[test]
fn a_lock_that_an_administrator_deletes_is_lost() {
    let fleet = Fleet::start(3);
    let locks = manager(&fleet);
    let guard = locks.acquire("lock", TTL).expect("a free lock");
    for node in fleet.iter() {
        node.connect().call_strs("DEL lock");
    }
    let error = guard.extend().expect_err("it is gone");
    assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{error}");
    assert!(!guard.is_valid() && !guard.release().was_held());
}
