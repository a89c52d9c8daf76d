//! Mutual exclusion and fence order while nodes crash or hang: each holder records its entry, and the recorder checks
//! for overlaps.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{builder, manager, until_all_answer};
use redlock_client::{Error, Guard, LockHandle, LockManager, Retry};
use redlock_tests::{Fleet, SOON, eventually_async, in_time};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

struct Visitor {
    lock: LockHandle,
    is_reader: bool,
}

/// Records the holders of one lock, and detects two holders at a time and fences that do not grow. Readers, which share
/// the lock, may hold it at the same time, and their fences need not grow among themselves.
#[derive(Default)]
struct CriticalSection {
    visits: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// The holders whose lock may still be valid.
    inside: Vec<Visitor>,
    /// The fences, each with whether its holder shared the lock.
    fences: Vec<(u64, bool)>,
    /// How often a reader came while another reader was inside.
    shared: usize,
    breaches: Vec<String>,
}

impl CriticalSection {
    /// A holder enters. The recorder ignores a lock that is no longer valid: a holder that was delayed on its way here
    /// knows that it is too late.
    fn enter(&self, guard: &Guard) {
        self.enter_as(guard.held(), guard.is_shared());
    }

    fn enter_as(&self, lock: LockHandle, is_reader: bool) {
        let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let visits = &mut *visits;
        if !lock.is_valid() {
            return;
        }
        // A lock that is valid now was also valid a moment ago, at the same time as this one.
        visits.inside.retain(|other| other.lock.is_valid());
        let fence = lock.fence();
        for other in &visits.inside {
            if other.is_reader && is_reader {
                visits.shared += 1;
            } else {
                let other = other.lock.fence();
                visits.breaches.push(format!("fences {other} and {fence} are valid at the same time"));
            }
        }
        let earlier = visits.fences.iter().filter(|(_, was_reader)| !(*was_reader && is_reader));
        if let Some(last) = earlier.map(|(last, _)| *last).max().filter(|last| *last >= fence) {
            visits.breaches.push(format!("fence {fence} after {last}"));
        }
        visits.inside.push(Visitor { lock, is_reader });
        visits.fences.push((fence, is_reader));
    }

    fn entries(&self) -> usize {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner).fences.len()
    }

    fn shared(&self) -> usize {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner).shared
    }

    fn violations(&self) -> Vec<String> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner).breaches.clone()
    }
}

/// Tasks that acquire one lock again and again until they are stopped.
struct Workers {
    section: Arc<CriticalSection>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Workers {
    fn of(managers: &[LockManager], tasks: usize, ttl: Duration) -> Self {
        Self::with_readers(managers, tasks, 0, ttl)
    }

    /// The first `readers` of the tasks share the lock.
    fn with_readers(managers: &[LockManager], tasks: usize, readers: usize, ttl: Duration) -> Self {
        let (section, stop) = (Arc::<CriticalSection>::default(), Arc::<AtomicBool>::default());
        let task = |number: usize| {
            let manager = managers[number % managers.len()].clone();
            let (section, stop) = (Arc::clone(&section), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    let acquired = if number < readers {
                        manager.acquire_shared("lock", ttl).await
                    } else {
                        manager.acquire("lock", ttl).await
                    };
                    match acquired {
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
        let what = format!("the lock was held {more} more times");
        eventually_async(&what, SOON * 3, async || (self.section.entries() >= goal).then_some(())).await;
    }

    async fn stop(self) -> Arc<CriticalSection> {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            in_time("a task ends", SOON * 3, task).await.expect("no panic");
        }
        self.section
    }
}

/// Ends a hold in one of several ways, by the number of the task: drop the guard, extend and release, wait until the
/// lock expires, or yield once and release.
async fn hold_section(section: &CriticalSection, guard: Guard, number: usize) {
    section.enter(&guard);
    match number % 4 {
        0 => drop(guard),
        1 => {
            // A lock may be lost while nodes crash; the extension then reports it.
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

fn impatient_manager(fleet: &Fleet) -> LockManager {
    let retry =
        Retry::exponential(Duration::from_millis(1), Duration::from_millis(30)).give_up_after(SOON * 3);
    let timeout = Duration::from_millis(200);
    builder().nodes(fleet.urls()).node_timeout(timeout).retry(retry).build().expect("addresses")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_and_two_managers_hold_one_lock_one_after_the_other() {
    let fleet = Fleet::start(5);
    let workers =
        Workers::of(&[impatient_manager(&fleet), impatient_manager(&fleet)], 16, Duration::from_millis(500));
    workers.until_entries(200).await;
    let section = workers.stop().await;
    assert_eq!(section.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_at_a_time_while_nodes_crash_and_restart() {
    let mut fleet = Fleet::start(5);
    let workers =
        Workers::of(&[impatient_manager(&fleet), impatient_manager(&fleet)], 8, Duration::from_millis(300));
    workers.until_entries(20).await;
    // One node after the other, then two at once, then a majority. Without a majority the nodes grant no lock.
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
    let section = workers.stop().await;
    assert_eq!(section.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_at_a_time_while_nodes_hang_and_resume() {
    let fleet = Fleet::start(5);
    let workers =
        Workers::of(&[impatient_manager(&fleet), impatient_manager(&fleet)], 8, Duration::from_millis(300));
    workers.until_entries(20).await;
    for nodes in [[0, 1], [2, 3], [4, 0]] {
        nodes.iter().for_each(|node| fleet[*node].pause());
        workers.until_entries(20).await;
        nodes.iter().for_each(|node| fleet[*node].resume());
        workers.until_entries(20).await;
    }
    let section = workers.stop().await;
    assert_eq!(section.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_exclude_each_other_while_nodes_crash_hang_and_return() {
    let mut fleet = Fleet::start(5);
    let managers = [impatient_manager(&fleet), impatient_manager(&fleet)];
    let workers = Workers::with_readers(&managers, 8, 6, Duration::from_millis(300));
    workers.until_entries(40).await;
    for nodes in [&[0][..], &[1, 2]] {
        nodes.iter().for_each(|node| fleet[*node].kill());
        workers.until_entries(20).await;
        nodes.iter().for_each(|node| fleet[*node].restart());
        workers.until_entries(20).await;
    }
    for nodes in [[3, 4], [0, 1]] {
        nodes.iter().for_each(|node| fleet[*node].pause());
        workers.until_entries(20).await;
        nodes.iter().for_each(|node| fleet[*node].resume());
        workers.until_entries(20).await;
    }
    let section = workers.stop().await;
    assert_eq!(section.violations(), Vec::<String>::new());
    assert!(section.shared() > 10, "readers met {} times", section.shared());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_at_a_time_while_nodes_crash_and_hang() {
    let mut fleet = Fleet::start(5);
    let (section, stop) = (Arc::<CriticalSection>::default(), Arc::<AtomicBool>::default());
    let candidate = |number: usize| {
        let election = impatient_manager(&fleet).election("lock").lease(Duration::from_millis(500));
        let (section, stop) = (Arc::clone(&section), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Relaxed) {
                let leadership = election.campaign(format!("candidate {number}")).await.expect("a term");
                section.enter_as(leadership.held(), false);
                if number == 0 {
                    drop(leadership);
                } else {
                    tokio::task::yield_now().await;
                    leadership.resign().await;
                }
            }
        })
    };
    let tasks = (0..4).map(candidate).collect();
    let workers = Workers { section, stop, tasks };
    workers.until_entries(40).await;
    for node in [0, 1, 2] {
        fleet[node].kill();
        workers.until_entries(20).await;
        fleet[node].restart();
    }
    fleet[3].pause();
    fleet[4].pause();
    workers.until_entries(20).await;
    fleet[3].resume();
    fleet[4].resume();
    let section = workers.stop().await;
    assert_eq!(section.violations(), Vec::<String>::new());
}

/// Crashes every node while a reader holds the lock. As soon as the nodes answer again, a writer tries to acquire it.
#[tokio::test]
async fn a_crash_of_every_node_under_a_reader_admits_no_writer() {
    let mut fleet = Fleet::start(5);
    let (reader, writer) = (manager(fleet.urls()), manager(fleet.urls()));
    let ttl = Duration::from_secs(60);
    let held = reader.try_acquire_shared("lock", ttl).await.expect("a free lock");
    for node in 0..5 {
        fleet[node].kill();
        fleet[node].restart();
    }
    until_all_answer(&writer).await;
    let refused = writer.try_acquire("lock", ttl).await.map(|guard| guard.fence());
    assert!(matches!(refused, Err(Error::Quarantined { .. })), "{refused:?}");
    let joined = writer.try_acquire_shared("lock", ttl).await.map(|guard| guard.fence());
    assert!(matches!(joined, Err(Error::Quarantined { .. })), "{joined:?}");
    assert!(held.is_valid());
}

/// Crashes every node while one client holds a lock. As soon as the nodes answer again, another client tries to
/// acquire it.
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
    assert!(held.is_valid(), "the first lock has not expired");
    let outcome = other.try_acquire("lock", ttl).await.map(|second| section.enter(&second));
    (section, outcome)
}

#[tokio::test]
async fn a_crash_of_every_node_admits_no_second_holder() {
    let mut fleet = Fleet::start(5);
    let (section, outcome) = crash_all_nodes_under_a_holder(&mut fleet, Duration::from_secs(60)).await;
    assert!(matches!(outcome, Err(Error::Quarantined { .. })), "{outcome:?}");
    assert_eq!(section.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn control_without_the_quarantine_there_are_two_holders() {
    let mut fleet = Fleet::start_with(5, |_, node| node.module_args(["restart-grace", "off"]));
    let (section, outcome) = crash_all_nodes_under_a_holder(&mut fleet, Duration::from_secs(60)).await;
    outcome.expect("the nodes have forgotten the first holder");
    assert_eq!(section.violations().len(), 1, "{:?}", section.violations());
}
