//! The driver without its loop: cases that a caller can hardly cause.

#![allow(clippy::expect_used, reason = "tests")]

use super::locks::MIN_TIMER_PAUSE;
use super::*;
use crate::LockManager;
use crate::lock_shared::LockShared;
use crate::memory::MemoryNodes;
use redlock_contract::grant::{GrantMessage, Stamped};
use redlock_proto::{Failure, FailureKind, LockMode};
use tokio::sync::oneshot;

const TTL: Duration = Duration::from_secs(60);

/// A driver with one call that has queued since `now` for a lock that another client holds.
async fn queued(now: Moment) -> (Driver, EntryId, oneshot::Receiver<Acquired>) {
    let locks = LockManager::builder().memory(&MemoryNodes::new(3)).build().expect("a manager");
    let _held = locks.acquire("job", TTL).await.expect("a free lock").detach();
    let settings = Arc::clone(&locks.shared().settings);
    let (_, calls) = mpsc::unbounded_channel();
    let mut driver = Driver::new(Arc::clone(&settings), Arc::default(), calls);
    let shared =
        Arc::new(LockShared::new(locks.key(b"job").expect("a name"), LockMode::Exclusive, TTL, &settings));
    let wait = Some(WaitPlan { ticket: 7, queue_until: Some(now.plus(TTL)), yields: 0 });
    let (answer, answered) = oneshot::channel();
    driver.handle_message(Message::Acquire(AcquireCall { shared, ttl: TTL, wait, answer }), now);
    driver.handle_events(now);
    let id = driver.by_ticket.get(&7).copied().expect("the lock is queued");
    (driver, id, answered)
}

/// A moment consists of two clocks that run at different rates. The later of two moments takes its parts from
/// both, so one clock can reach it before any clock reaches the moment at which the lock wants to be woken.
#[tokio::test]
async fn a_timer_that_fires_too_early_is_not_set_to_the_same_moment_again() {
    let (mut driver, id, _answered) = queued(Moment::new(100_000_000_000, 50_000_000_000)).await;
    let entry = driver.entry(id).expect("the lock is queued");
    let (first, second) = entry.state.poll_timeout().expect("a queued lock has a timeout").nanoseconds();
    let woken = Moment::new(first - 49_000, second - 59_000);
    entry.not_before = woken.plus(MIN_TIMER_PAUSE);
    entry.timer = None;
    driver.timers = Timers::default();
    driver.set_timer(id);
    // One clock has passed the timer, neither has reached the lock's timeout: nothing is woken.
    assert!(!driver.fire_timers(Moment::new(first - 100, second - 8_900)));
    let at = driver.timers.next().expect("the timer is set again");
    assert_eq!(at.nanoseconds(), (first, second));
}

/// A user who may subscribe can know the channel, the ticket and the stamp. The owner is secret.
#[tokio::test]
async fn only_a_push_that_is_signed_with_the_owner_is_a_grant() {
    let now = Moment::new(100_000_000_000, 50_000_000_000);
    let (mut driver, id, mut answered) = queued(now).await;
    let stamp = driver.queue_request(7).stamp;
    let owner = driver.entry(id).expect("the lock is queued").shared.owner;
    let stamped = Some(Stamped { stamp, waited_ms: 0, claim_ms: 60_000 });
    let grant = GrantMessage { ticket: 7, fence: 2, stamped, key: b"job" };
    let id_of = |driver: &Driver, node| driver.pool.node_id(node).expect("a node in memory");
    let ids = [0, 1, 2].map(|node| id_of(&driver, node));
    let genuine = ids.each_ref().map(|id| grant.sign(id, owner.as_bytes()));
    let unsigned = format!("stamped 7 2 {} 0 60000 job", stamp).into_bytes();
    let mut changed = GrantMessage { fence: 3, ..grant }.sign(&ids[0], owner.as_bytes());
    let digit = changed.iter().position(|byte| *byte == b'3').expect("the fence");
    changed[digit] = b'2';
    let guessed = |owner: &[u8]| grant.sign(&ids[0], owner);
    let of_no_node = grant.sign("another node", owner.as_bytes());
    for forged in [unsigned, guessed(b"a guess"), guessed(b""), changed, of_no_node] {
        for node in 0..3 {
            driver.handle_push(node, &forged, now);
            driver.handle_events(now);
        }
        let entry = driver.entry(id).expect("the lock is queued");
        assert_eq!((entry.state.ballot().granted(), entry.state.fence()), (0, None));
        assert!(answered.try_recv().is_err(), "{}", String::from_utf8_lossy(&forged));
    }
    for node in 0..3 {
        driver.handle_push(node, &genuine[0], now);
        driver.handle_events(now);
    }
    let granted = driver.entry(id).expect("the lock is queued").state.ballot().granted();
    assert_eq!(granted, 1, "the message of one node counts for no other node");
    driver.handle_push(1, &genuine[1], now);
    assert!(matches!(answered.try_recv(), Ok(Ok(_))), "two signed grants are a majority");
}

#[tokio::test]
async fn replaced_timers_do_not_accumulate() {
    let at = |ms: u64| Moment::on_one_clock(1_000_000_000_000 + ms * 1_000_000);
    let (mut driver, _, _answered) = queued(at(0)).await;
    for step in 0..3_000 {
        // The connection to a node is lost twice a second.
        if step % 50 == 0 {
            driver.handle_disconnect(0, &Failure::new(FailureKind::Cut, "cut"), at(step * 10));
        }
        driver.fire_timers(at(step * 10));
        driver.handle_events(at(step * 10));
    }
    assert_eq!(driver.locks.len(), 1, "the lock is still queued");
    let mut left = 0;
    while driver.timers.pop_fired(at(3_600_000)).is_some() {
        left += 1;
    }
    assert!(left < 10, "{left} timers for one lock");
}
