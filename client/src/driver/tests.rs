//! The loop, driven by hand: what is hard to meet from outside.

#![allow(clippy::expect_used, reason = "tests")]

use super::*;
use crate::LockManager;
use crate::hold::Hold;
use crate::memory::Nodes;
use redlock_core::proof::{GrantMessage, Stamped};
use redlock_proto::{Failure, FailureKind};

const TTL: Duration = Duration::from_secs(60);

/// A driver of which one call is in line for a lock that somebody else holds, since `now`.
async fn in_line(now: Moment) -> (Driver, EntryId, oneshot::Receiver<Acquired>) {
    let locks = LockManager::builder().memory(&Nodes::new(3)).build().expect("nodes in memory are enough");
    let _held = locks.acquire("job", TTL).await.expect("a free lock").detach();
    let settings = Arc::clone(&locks.shared().settings);
    let (_, calls) = mpsc::unbounded_channel();
    let mut driver = Driver::new(Arc::clone(&settings), calls);
    let hold = Arc::new(Hold::new(locks.key(b"job").expect("a name"), TTL, &settings));
    let wait = Some(WaitPlan { ticket: 7, queue_until: Some(now.plus(TTL)), yields: 0 });
    let (answer, answered) = oneshot::channel();
    driver.handle_message(Message::Acquire { hold, ttl: TTL, wait, answer }, now);
    driver.handle_events(now);
    let id = driver.by_ticket.get(&7).copied().expect("it waits");
    (driver, id, answered)
}

/// Clocks are read one after the other, and one of them gains on the other: a moment that was put together of both may
/// have come while the one that a session wants to be woken at has not.
#[tokio::test]
async fn a_plan_that_comes_too_early_is_not_made_again_for_the_same_moment() {
    let (mut driver, id, _answered) = in_line(Moment::new(100_000_000_000, 50_000_000_000)).await;
    let entry = driver.entry(id).expect("it waits");
    let (first, second) = entry.state.poll_timeout().expect("it asks again some time").nanoseconds();
    let woken = Moment::new(first - 49_000, second - 59_000);
    entry.not_before = woken.plus(MIN_TIMER_PAUSE);
    entry.planned = None;
    driver.timers = Timers::default();
    driver.set_timer(id);
    // It ends: one clock is past the plan, none is at what the session wants.
    assert!(!driver.tick(Moment::new(first - 100, second - 8_900)));
    let at = driver.timers.next().expect("it is planned for later");
    assert_eq!(at.nanoseconds(), (first, second));
}

/// Channel, ticket and stamp are no secrets to a user who may subscribe; the owner is one.
#[tokio::test]
async fn only_a_message_that_is_signed_with_the_owner_is_a_grant() {
    let now = Moment::new(100_000_000_000, 50_000_000_000);
    let (mut driver, id, mut answered) = in_line(now).await;
    let line = driver.queue_request(7);
    let owner = driver.entry(id).expect("it waits").hold.owner;
    let stamped = Some(Stamped { stamp: line.stamp, waited_ms: 0, claim_ms: 60_000 });
    let grant = GrantMessage { ticket: 7, fence: 2, stamped, key: b"job" };
    let genuine = grant.sign(owner.as_bytes());
    let unsigned = format!("stamped 7 2 {} 0 60000 job", line.stamp).into_bytes();
    let mut changed = GrantMessage { fence: 3, ..grant }.sign(owner.as_bytes());
    let digit = changed.iter().position(|byte| *byte == b'3').expect("the fence");
    changed[digit] = b'2';
    for forged in [unsigned, grant.sign(b"a guess"), grant.sign(b""), changed] {
        for node in 0..3 {
            driver.handle_push(node, &forged, now);
            driver.handle_events(now);
        }
        let entry = driver.entry(id).expect("it waits");
        assert_eq!((entry.state.ballot().granted(), entry.state.fence()), (0, None));
        assert!(answered.try_recv().is_err(), "{}", String::from_utf8_lossy(&forged));
    }
    for node in 0..2 {
        driver.handle_push(node, &genuine, now);
    }
    assert!(matches!(answered.try_recv(), Ok(Ok(_))), "what the nodes have signed counts");
}

#[tokio::test]
async fn plans_that_are_replaced_do_not_pile_up() {
    let at = |ms: u64| Moment::on_one_clock(1_000_000_000_000 + ms * 1_000_000);
    let (mut driver, _, _answered) = in_line(at(0)).await;
    for step in 0..3_000 {
        // Twice a second, the connection to a node breaks.
        if step % 50 == 0 {
            driver.handle_disconnect(0, &Failure::new(FailureKind::Cut, "cut"), at(step * 10));
        }
        driver.tick(at(step * 10));
        driver.handle_events(at(step * 10));
    }
    assert_eq!(driver.locks.len(), 1, "it still waits");
    let mut left = 0;
    while driver.timers.due(at(3_600_000)).is_some() {
        left += 1;
    }
    assert!(left < 10, "{left} plans for one lock");
}
