//! Holding a lock on real nodes: keep-alive through faults, losses that are reported in time, and work that stops when
//! its lock is lost.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{Network, TTL, builder, until_all_answer};
use redlock_client::{Error, LockManager, LostReason};
use redlock_tests::{SOON, eventually_async, in_time};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

/// A time to live that is short enough to wait for its end, and long enough for extensions on a busy machine.
const SHORT: Duration = Duration::from_secs(3);

/// A client whose node timeout is shorter than [`SHORT`].
async fn impatient_manager(network: &Network) -> LockManager {
    let builder = builder().node_timeout(Duration::from_millis(500)).nodes(network.urls());
    let manager = builder.build().expect("addresses");
    until_all_answer(&manager).await;
    manager
}

/// How often the holder has extended the lock on a node.
fn extensions(network: &mut Network, node: usize) -> i64 {
    network.fleet.locks("lock")[node].as_ref().map_or(0, |lock| lock.extensions)
}

#[tokio::test]
async fn a_lock_is_kept_alive_while_a_minority_is_away_and_comes_back() {
    let mut network = Network::start(5);
    let manager = impatient_manager(&network).await;
    let mut guard = manager.try_acquire("lock", SHORT).await.expect("a free lock");
    guard.keep_alive(TTL).expect("a runtime");
    network.proxies[..2].iter().for_each(redlock_tests::Proxy::close_new_connections);
    let kept = async |network: &mut Network, times| {
        let enough = async || (extensions(network, 4) >= times).then_some(());
        eventually_async("the lock is extended", SOON, enough).await;
    };
    kept(&mut network, 2).await;
    network.proxies[..2].iter().for_each(redlock_tests::Proxy::clear_faults);
    until_all_answer(&manager).await;
    kept(&mut network, 4).await;
    assert!(guard.is_valid());
    guard.release().await;
    network.until_free("lock").await;
}

#[tokio::test]
async fn keep_alive_stops_at_its_limit() {
    let mut network = Network::start(3);
    let manager = impatient_manager(&network).await;
    let mut guard = manager.try_acquire("lock", SHORT / 3).await.expect("a free lock");
    guard.keep_alive(SHORT / 2).expect("a runtime");
    assert_eq!(in_time("the lock expires after the limit", SOON, guard.lost()).await, LostReason::Expired);
    assert!(!guard.is_valid());
    network.until_free("lock").await;
}

#[tokio::test]
async fn peers_15_a_loss_is_reported_even_if_no_node_answers() {
    let network = Network::start(3);
    // The node timeout is much longer than this test.
    let manager = builder().node_timeout(TTL).nodes(network.urls()).build().expect("addresses");
    until_all_answer(&manager).await;
    let mut guard = manager.try_acquire("lock", SHORT).await.expect("a free lock");
    guard.keep_alive(TTL).expect("a runtime");
    let token = guard.cancellation_token().expect("a runtime");
    network.fleet.iter().for_each(redlock_tests::Server::pause);
    assert_eq!(in_time("the guard reports the loss", SOON, guard.lost()).await, LostReason::Expired);
    in_time("the token is cancelled", SOON, token.cancelled()).await;
    assert!(!guard.is_valid());
    network.fleet.iter().for_each(redlock_tests::Server::resume);
    // Late replies do not make the lock valid again.
    until_all_answer(&manager).await;
    assert!(!guard.is_valid());
    let error = guard.extend().await.expect_err("the lock has expired");
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error:?}");
}

#[tokio::test]
async fn work_stops_when_its_lock_is_lost() {
    let mut network = Network::start(3);
    let manager = impatient_manager(&network).await;
    let inside = Arc::new(());
    let work = tokio::spawn({
        let (manager, inside) = (manager.clone(), Arc::clone(&inside));
        async move {
            let forever = async |_| {
                let _inside = inside;
                pending::<Result<(), Error>>().await
            };
            manager.with_lock("lock", SHORT, forever).await
        }
    });
    eventually_async("the work has begun", SOON, async || (!network.fleet.is_free("lock")).then_some(()))
        .await;
    network.fleet.iter().for_each(redlock_tests::Server::pause);
    let outcome = in_time("the work ends", SOON, work).await.expect("no panic");
    network.fleet.iter().for_each(redlock_tests::Server::resume);
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    assert_eq!(Arc::strong_count(&inside), 1, "the work has been dropped");
    network.until_free("lock").await;
}

#[tokio::test]
async fn with_lock_keeps_the_lock_alive_and_returns_the_error_of_the_work() {
    let mut network = Network::start(3);
    let manager = impatient_manager(&network).await;
    let connection = network.fleet[0].connect();
    let done = manager.with_lock("lock", SHORT, async |held| {
        let mut connection = connection;
        eventually_async("the lock is extended twice", SOON, async || {
            connection.inspect("lock").filter(|lock| lock.extensions >= 2)
        })
        .await;
        Ok::<_, Error>(held.fence())
    });
    assert_eq!(in_time("the work ends", SOON, done).await.expect("a lock that is kept"), 1);
    network.until_free("lock").await;

    let failed = manager.with_lock("lock", SHORT, async |_| Err::<(), _>(Failed::Work));
    assert!(matches!(in_time("the work ends", SOON, failed).await, Err(Failed::Work)));
    network.until_free("lock").await;
}

/// Waits until the holder has extended each of these locks twice on the first node.
async fn until_extended(network: &Network, keys: &[&str]) {
    let mut connection = network.fleet[0].connect();
    eventually_async("the locks are extended twice", SOON, async || {
        let mut locks = keys.iter().map(|key| connection.inspect(key));
        locks.all(|lock| lock.is_some_and(|lock| lock.extensions >= 2)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn try_with_lock_skips_work_that_another_client_does() {
    let mut network = Network::start(3);
    let (manager, other) = (impatient_manager(&network).await, network.manager().await);
    let ran = manager.try_with_lock("lock", SHORT, async |held| {
        until_extended(&network, &["lock"]).await;
        let skipped = other.try_with_lock("lock", SHORT, async |_| -> Result<(), Error> {
            panic!("the work ran although another client holds the lock")
        });
        assert_eq!(in_time("the other client skips the work", SOON, skipped).await?, None);
        Ok::<_, Error>(held.fence())
    });
    assert_eq!(in_time("the work ends", SOON * 2, ran).await.expect("a free lock"), Some(1));
    network.until_free("lock").await;
    network.fleet[0].kill();
    network.fleet[1].kill();
    let failed = manager.try_with_lock("lock", SHORT, async |_| Ok::<_, Failed>(()));
    let failed = in_time("the call ends", SOON, failed).await;
    assert!(matches!(failed, Err(Failed::Lock)), "a lack of a quorum is no reason to skip: {failed:?}");
}

#[tokio::test]
async fn with_lock_timeout_waits_for_the_lock_and_not_for_the_work() {
    let mut network = Network::start(3);
    let manager = impatient_manager(&network).await;
    let guard = manager.acquire("lock", TTL).await.expect("a free lock");
    let brief = Duration::from_millis(50);
    let late = manager.with_lock_timeout("lock", SHORT, brief, async |_| -> Result<(), Error> {
        panic!("the work ran although another client holds the lock")
    });
    let late = in_time("the wait ends", SOON, late).await;
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    guard.release().await;
    network.until_free("lock").await;
    // The work takes much longer than the wait may.
    let done = manager.with_lock_timeout("lock", SHORT, Duration::from_secs(1), async |held| {
        until_extended(&network, &["lock"]).await;
        Ok::<_, Error>(held.is_valid())
    });
    assert!(in_time("the work ends", SOON * 2, done).await.expect("a free lock"));
    network.until_free("lock").await;
}

#[tokio::test]
async fn with_lock_many_keeps_all_locks_alive() {
    let mut network = Network::start(3);
    let manager = impatient_manager(&network).await;
    let done = manager.with_lock_many(["b", "a", "c"], SHORT, async |held| {
        until_extended(&network, &["a", "b", "c"]).await;
        let other = manager.try_acquire("b", SHORT).await;
        assert!(matches!(other, Err(Error::Contended(_))), "{other:?}");
        Ok::<_, Error>(held.is_valid())
    });
    assert!(in_time("the work ends", SOON * 2, done).await.expect("free locks"));
    for key in ["a", "b", "c"] {
        network.until_free(key).await;
    }
}

/// An error of work under a lock.
#[derive(Debug)]
enum Failed {
    Work,
    Lock,
}

impl From<Error> for Failed {
    fn from(_: Error) -> Self {
        Self::Lock
    }
}
