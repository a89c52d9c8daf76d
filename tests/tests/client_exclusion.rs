//! One holder at a time, and numbers in the order of holding: checked by the holders themselves, while nodes
//! crash under them.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{builder, manager, until_all_answer};
use redlock_client::{Error, Guard, LockHandle, LockManager, Retry};
use redlock_tests::{Fleet, SOON, eventually_async, in_time};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Where every holder of one lock enters and finds the others.
#[derive(Default)]
struct CriticalSection {
    visits: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Everybody who may still believe to hold the lock.
    inside: Vec<LockHandle>,
    fences: Vec<u64>,
    breaches: Vec<String>,
}

impl CriticalSection {
    /// A holder enters. Only a lock that is valid now counts: whoever was held up on the way here knows that
    /// it comes too late.
    fn enter(&self, guard: &Guard) {
        let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let visits = &mut *visits;
        if !guard.is_valid() {
            return;
        }
        // One who is valid now was valid a moment ago, too: together with this one.
        visits.inside.retain(LockHandle::is_valid);
        for other in &visits.inside {
            visits.breaches.push(format!("{} and {} hold it both", other.fence(), guard.fence()));
        }
        if let Some(last) = visits.fences.last().filter(|last| **last >= guard.fence()) {
            visits.breaches.push(format!("{} after {last}", guard.fence()));
        }
        visits.inside.push(guard.held());
        visits.fences.push(guard.fence());
    }

    fn entries(&self) -> usize {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner).fences.len()
    }

    fn violations(&self) -> Vec<String> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner).breaches.clone()
    }
}

/// Tasks that want one lock all the time, until they are told to stop.
struct Workers {
    section: Arc<CriticalSection>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Workers {
    fn of(managers: &[LockManager], tasks: usize, ttl: Duration) -> Self {
        let (section, stop) = (Arc::<CriticalSection>::default(), Arc::<AtomicBool>::default());
        let task = |number: usize| {
            let manager = managers[number % managers.len()].clone();
            let (section, stop) = (Arc::clone(&section), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    match manager.acquire("lock", ttl).await {
                        Ok(guard) => hold_section(&section, guard, number).await,
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { section, stop, tasks }
    }

    async fn until_entries(&self, more: usize) {
        let goal = self.section.entries() + more;
        let what = format!("{more} more have held the lock");
        eventually_async(&what, SOON * 3, async || (self.section.entries() >= goal).then_some(())).await;
    }

    async fn leave(self) -> Arc<CriticalSection> {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            in_time("a task ends", SOON * 3, task).await.expect("no panic");
        }
        self.section
    }
}

/// What a holder does: some stay for a while, some extend, some let the lock run out, some just drop it.
async fn hold_section(section: &CriticalSection, guard: Guard, number: usize) {
    section.enter(&guard);
    match number % 4 {
        0 => drop(guard),
        1 => {
            // A lock may be lost while nodes crash; that is for its holder to know.
            match guard.extend().await {
                Ok(_) | Err(Error::NoQuorum(_) | Error::Lost { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            guard.release().await;
        }
        2 if section.entries().is_multiple_of(16) => {
            guard.lost().await;
            drop(guard);
        }
        _ => {
            tokio::task::yield_now().await;
            guard.release().await;
        }
    }
}

fn eager(fleet: &Fleet) -> LockManager {
    let retry =
        Retry::exponential(Duration::from_millis(1), Duration::from_millis(30)).give_up_after(SOON * 3);
    let timeout = Duration::from_millis(200);
    builder().nodes(fleet.urls()).node_timeout(timeout).retry(retry).build().expect("addresses")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_and_two_managers_hold_one_lock_one_after_the_other() {
    let fleet = Fleet::start(5);
    let workers = Workers::of(&[eager(&fleet), eager(&fleet)], 16, Duration::from_millis(500));
    workers.until_entries(200).await;
    let section = workers.leave().await;
    assert_eq!(section.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nodes_crash_and_come_back() {
    let mut fleet = Fleet::start(5);
    let workers = Workers::of(&[eager(&fleet), eager(&fleet)], 8, Duration::from_millis(300));
    workers.until_entries(20).await;
    // One after the other, then two at once, then a majority: then nobody is granted anything for a while.
    for nodes in [&[0][..], &[1], &[2, 3], &[4], &[0, 1, 2]] {
        for node in nodes {
            fleet[*node].kill();
        }
        if nodes.len() < 3 {
            workers.until_entries(10).await;
        }
        for node in nodes {
            fleet[*node].restart();
        }
        workers.until_entries(10).await;
    }
    let section = workers.leave().await;
    assert_eq!(section.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nodes_hang_and_go_on() {
    let fleet = Fleet::start(5);
    let workers = Workers::of(&[eager(&fleet), eager(&fleet)], 8, Duration::from_millis(300));
    workers.until_entries(20).await;
    for nodes in [[0, 1], [2, 3], [4, 0]] {
        nodes.iter().for_each(|node| fleet[*node].pause());
        workers.until_entries(20).await;
        nodes.iter().for_each(|node| fleet[*node].resume());
        workers.until_entries(20).await;
    }
    let section = workers.leave().await;
    assert_eq!(section.violations(), Vec::<String>::new());
}

/// Crashes every node while somebody holds a lock, and lets another one ask for it at once.
async fn crash_all_nodes_under_a_holder(
    fleet: &mut Fleet,
    ttl: Duration,
) -> (Arc<CriticalSection>, Result<(), Error>) {
    let section = Arc::<CriticalSection>::default();
    let (holder, other) = (manager(fleet.urls()), manager(fleet.urls()));
    let held = holder.try_acquire("lock", ttl).await.expect("a free lock");
    section.enter(&held);
    for node in 0..5 {
        fleet[node].kill();
        fleet[node].restart();
    }
    until_all_answer(&other).await;
    assert!(held.is_valid(), "its time is not up");
    let outcome = other.try_acquire("lock", ttl).await.map(|second| section.enter(&second));
    (section, outcome)
}

#[tokio::test]
async fn a_crash_of_every_node_lets_nobody_in_too_early() {
    let mut fleet = Fleet::start(5);
    let (section, outcome) = crash_all_nodes_under_a_holder(&mut fleet, Duration::from_secs(60)).await;
    assert!(matches!(outcome, Err(Error::Quarantined { .. })), "{outcome:?}");
    assert_eq!(section.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn control_without_the_quarantine_there_are_two_holders() {
    let mut fleet = Fleet::start_with(5, |_, node| node.module_args(["restart-grace", "off"]));
    let (section, outcome) = crash_all_nodes_under_a_holder(&mut fleet, Duration::from_secs(60)).await;
    outcome.expect("nobody remembers the first holder");
    assert_eq!(section.violations().len(), 1, "{:?}", section.violations());
}
