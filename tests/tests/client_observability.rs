//! What the client tells `metrics` and `tracing`: the right numbers at the right moment, and never an owner.
//!
//! Nodes in memory and a clock that stands still until somebody waits: every figure is exact.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod observability;

use observability::Metric::{Count, Seconds};
use observability::{Metrics, Recorder};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Builder, Error, LockManager, LostReason, Retry, WaitPolicy};
use redlock_tests::{Fleet, SOON, eventually_async, older_module};
use std::time::Duration;
use tokio::time::{advance, sleep, timeout};
use tracing::{Instrument, Level, info_span};
use tracing_subscriber::filter::LevelFilter;

const TTL: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const AN_HOUR: Duration = Duration::from_secs(3600);

fn manager(nodes: &MemoryNodes) -> LockManager {
    builder(nodes).build().expect("nodes in memory are enough")
}

/// One that asks again for what it waits for.
fn polling(nodes: &MemoryNodes) -> LockManager {
    builder(nodes).wait_policy(WaitPolicy::Poll).build().expect("nodes in memory are enough")
}

fn builder(nodes: &MemoryNodes) -> Builder {
    // Without jitter, so that every pause is known.
    LockManager::builder().memory(nodes).retry(Retry::fixed(SECOND).jitter(0.0).max_attempts(3))
}

fn figures<const N: usize>(expected: [(&str, observability::Metric); N]) -> Metrics {
    expected.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect()
}

/// Deletes a lock on a majority of three, as an administrator would.
fn break_open(nodes: &MemoryNodes, key: &str) {
    (0..2).for_each(|node| assert!(nodes.delete(node, key)));
}

#[tokio::test(start_paused = true)]
async fn a_lock_taken_held_and_released() {
    let told = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let expected = [
        ("redlock_attempts_total", Count(1)),
        ("redlock_acquired_total", Count(1)),
        ("redlock_acquire_seconds", Seconds(vec![0.0])),
    ];
    assert_eq!(told.figures(), figures(expected));
    advance(3 * SECOND).await;
    assert_eq!(told.figures(), figures([]), "nothing is told while nothing happens");
    guard.release().await;
    assert_eq!(
        told.figures(),
        figures([("redlock_hold_seconds", Seconds(vec![3.0]))]),
        "and it was not lost"
    );

    let [span] = &told.spans("redlock.acquire")[..] else { panic!("one call, one span: {}", told.log()) };
    assert_eq!((span.field("resource"), span.field("fence")), (Some("job"), Some("1")));
    assert_eq!((span.field("attempts"), span.field("outcome")), (Some("1"), Some("acquired")));
    let [event] = &told.events("acquired a lock")[..] else { panic!("one lock, one event: {}", told.log()) };
    assert_eq!((event.field("resource"), event.field("fence")), (Some("job"), Some("1")));
    assert_eq!(event.within, ["redlock.acquire"]);
    let [event] = &told.events("releasing a lock")[..] else { panic!("one release: {}", told.log()) };
    assert_eq!((event.field("resource"), event.field("held")), (Some("job"), Some("3s")));
    assert_eq!(event.within, [""; 0], "the acquire is long over");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_has_held_its_lock_too() {
    let told = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    told.figures();
    advance(2 * SECOND).await;
    drop(guard);
    assert_eq!(told.figures(), figures([("redlock_hold_seconds", Seconds(vec![2.0]))]));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_line_is_one_attempt() {
    let told = Recorder::new();
    let locks = manager(&MemoryNodes::new(3));
    let guard = locks.acquire("job", TTL).await.expect("free");
    told.figures();
    tokio::spawn(async move {
        sleep(SECOND * 3 / 2).await;
        drop(guard);
    });
    let _guard = locks.acquire("job", TTL).await.expect("handed on");
    let expected = [
        ("redlock_attempts_total", Count(1)),
        ("redlock_acquired_total", Count(1)),
        ("redlock_acquire_seconds", Seconds(vec![1.5])),
        ("redlock_wait_seconds", Seconds(vec![1.5])),
        ("redlock_hold_seconds", Seconds(vec![1.5])),
    ];
    assert_eq!(told.figures(), figures(expected));
}

#[tokio::test(start_paused = true)]
async fn retries_are_part_of_one_acquire() {
    let told = Recorder::new();
    let locks = polling(&MemoryNodes::new(3));
    let guard = locks.acquire("job", TTL).await.expect("free");
    told.figures();
    tokio::spawn(async move {
        sleep(SECOND * 3 / 2).await;
        drop(guard);
    });
    let _guard = locks.acquire("job", TTL).await.expect("had in the end");
    let expected = [
        ("redlock_attempts_total", Count(3)),
        ("redlock_acquired_total", Count(1)),
        ("redlock_acquire_seconds", Seconds(vec![2.0])),
        ("redlock_wait_seconds", Seconds(vec![2.0])),
        ("redlock_hold_seconds", Seconds(vec![1.5])),
    ];
    assert_eq!(told.figures(), figures(expected));
    let spans = told.spans("redlock.acquire");
    assert_eq!(spans.len(), 2, "{}", told.log());
    assert_eq!((spans[1].field("attempts"), spans[1].field("fence")), (Some("3"), Some("2")));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_says_why() {
    let told = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let locks = polling(&nodes);
    let _guard = locks.acquire("job", TTL).await.expect("free");
    told.figures();

    let error = locks.acquire("job", TTL).await.expect_err("held");
    assert!(matches!(error, Error::Contended(_)));
    let expected =
        [("redlock_attempts_total", Count(3)), ("redlock_failed_total{reason=contended}", Count(1))];
    assert_eq!(told.figures(), figures(expected));

    let error = locks.acquire_timeout("job", TTL, SECOND * 3 / 2).await.expect_err("held");
    assert!(matches!(error, Error::Timeout { .. }));
    let expected = [("redlock_attempts_total", Count(2)), ("redlock_failed_total{reason=timeout}", Count(1))];
    assert_eq!(told.figures(), figures(expected));

    (0..2).for_each(|node| nodes.silence(node));
    let error = locks.try_acquire("other", TTL).await.expect_err("no majority");
    assert!(matches!(error, Error::NoQuorum(_)));
    let expected =
        [("redlock_attempts_total", Count(1)), ("redlock_failed_total{reason=no_quorum}", Count(1))];
    assert_eq!(told.figures(), figures(expected));

    let spans = told.spans("redlock.acquire");
    let outcomes: Vec<_> = spans.iter().map(|span| (span.field("outcome"), span.field("attempts"))).collect();
    let expected = [("acquired", "1"), ("contended", "3"), ("timeout", "2"), ("no_quorum", "1")];
    assert_eq!(outcomes, expected.map(|(outcome, attempts)| (Some(outcome), Some(attempts))));
    // Waiting in vain is part of the day; an outage is not.
    let events = told.events("did not acquire a lock");
    let levels: Vec<_> = events.iter().map(|event| event.level).collect();
    assert_eq!(levels, [Level::DEBUG, Level::DEBUG, Level::WARN]);
    assert!(events.iter().all(|event| event.within == ["redlock.acquire"]), "{}", told.log());
    let report = events[2].field("error").unwrap_or_default();
    assert!(report.contains("other") && report.contains("memory-0"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_has_no_outcome() {
    let told = Recorder::new();
    let locks = manager(&MemoryNodes::new(3));
    let _guard = locks.acquire("job", TTL).await.expect("free");
    told.figures();
    let cancelled = timeout(SECOND / 2, locks.acquire("job", TTL)).await;
    assert!(cancelled.is_err());
    assert_eq!(told.figures(), figures([("redlock_attempts_total", Count(1))]));
    let spans = told.spans("redlock.acquire");
    assert_eq!((spans.len(), spans[1].field("outcome")), (2, None), "{}", told.log());
}

#[tokio::test(start_paused = true)]
async fn extensions_are_counted_by_their_outcome() {
    let told = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    told.figures();
    guard.extend().await.expect("held");
    guard.extend_to(2 * TTL).await.expect("held");
    assert_eq!(told.figures(), figures([("redlock_extensions_total{outcome=extended}", Count(2))]));
    (0..2).for_each(|node| nodes.silence(node));
    guard.extend().await.expect_err("no majority");
    assert_eq!(
        told.figures(),
        figures([("redlock_extensions_total{outcome=failed}", Count(1))]),
        "not lost yet"
    );
    let [event] = &told.events("could not extend a lock")[..] else { panic!("{}", told.log()) };
    assert_eq!((event.field("resource"), event.level), (Some("job"), Level::WARN));
}

#[tokio::test(start_paused = true)]
async fn keeping_alive_is_told_like_any_extension() {
    let told = Recorder::new();
    let mut guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    told.figures();
    guard.keep_alive(AN_HOUR).expect("a runtime");
    sleep(TTL).await;
    let extended = told.figures().remove("redlock_extensions_total{outcome=extended}");
    assert!(matches!(extended, Some(Count(count)) if count >= 2), "{extended:?}");
}

/// That a loss was told once, and how.
fn assert_lost_once(told: &Recorder, how: &str, reason: LostReason) {
    let counted = told.figures().remove(&format!("redlock_lost_total{{reason={how}}}"));
    assert_eq!(counted, Some(Count(1)));
    let [event] = &told.events("lost a lock")[..] else { panic!("one loss, one event: {}", told.log()) };
    assert_eq!(
        (event.level, event.field("resource"), event.field("fence")),
        (Level::WARN, Some("job"), Some("1"))
    );
    assert_eq!(event.field("reason"), Some(reason.to_string().as_str()));
}

/// That the end of the guard, seconds later, does not count the loss again.
async fn assert_end_tells_nothing_new(told: &Recorder, end: impl AsyncFnOnce(), seconds: f64) {
    end().await;
    assert_eq!(told.figures(), figures([("redlock_hold_seconds", Seconds(vec![seconds]))]));
    assert_eq!(told.events("lost a lock").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_when_its_time_comes_to_whoever_waits() {
    let told = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let held = guard.held();
    let watching = tokio::spawn(async move { held.lost().await });
    advance(TTL / 2).await;
    assert!(told.events("lost a lock").is_empty(), "it is still held");
    told.figures();
    assert_eq!(watching.await.expect("no panic"), LostReason::Expired);
    assert_eq!(guard.lost().await, LostReason::Expired, "however many wait for it");
    assert_lost_once(&told, "expired", LostReason::Expired);
    // Told a little before the lease of 9,898 ms was over; the guard lives on until its twelfth second.
    advance(TTL / 2).await;
    guard.release().await;
    let Some(Seconds(held)) = told.figures().remove("redlock_hold_seconds") else { panic!("it was held") };
    assert!(held.len() == 1 && held[0] > 10.0, "{held:?}");
    assert_eq!(told.events("lost a lock").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_when_a_token_is_cancelled() {
    let told = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let token = guard.cancellation_token().expect("a runtime");
    token.cancelled().await;
    assert_lost_once(&told, "expired", LostReason::Expired);
    drop(guard);
    assert_eq!(told.events("lost a lock").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_when_an_extension_finds_it() {
    let told = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(2 * SECOND).await;
    break_open(&nodes, "job");
    assert!(told.events("lost a lock").is_empty(), "nobody knows yet");
    let error = guard.extend().await.expect_err("it is gone");
    assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{error}");
    assert_lost_once(&told, "gone", LostReason::Gone);
    advance(SECOND).await;
    assert_end_tells_nothing_new(&told, async || drop(guard.release().await), 3.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_when_an_extension_comes_too_late() {
    let told = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    advance(TTL).await;
    let error = guard.extend().await.expect_err("its time is up");
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error}");
    assert_lost_once(&told, "expired", LostReason::Expired);
    assert_end_tells_nothing_new(&told, async || drop(guard), 10.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_while_a_lock_is_kept_alive() {
    let told = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(AN_HOUR).expect("a runtime");
    break_open(&nodes, "job");
    // Nobody waits for the loss; the guard is not touched.
    sleep(TTL / 2).await;
    assert_lost_once(&told, "gone", LostReason::Gone);
    assert_end_tells_nothing_new(&told, async || drop(guard), 5.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_nobody_noticed_is_told_in_the_end() {
    let told = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    advance(TTL).await;
    assert!(told.events("lost a lock").is_empty(), "nobody has looked");
    drop(guard);
    assert_lost_once(&told, "expired", LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_span_of_the_caller_is_around_ours() {
    let told = Recorder::new();
    let locks = manager(&MemoryNodes::new(3));
    let work = async {
        drop(locks.acquire("job", TTL).await.expect("free"));
        tracing::info!("after the lock");
    };
    work.instrument(info_span!("request")).await;
    let [span] = &told.spans("redlock.acquire")[..] else { panic!("{}", told.log()) };
    assert_eq!(span.within, ["request"]);
    assert_eq!(told.events("acquired a lock")[0].within, ["request", "redlock.acquire"]);
    assert_eq!(told.events("after the lock")[0].within, ["request"], "ours has ended with the acquire");
}

#[tokio::test(start_paused = true)]
async fn a_span_of_the_caller_is_never_written_to() {
    // Our spans are below this level, so the caller's is the current one all the time.
    let told = Recorder::with_level(LevelFilter::INFO);
    let locks = manager(&MemoryNodes::new(3));
    let empty = tracing::field::Empty;
    let request = info_span!("request", fence = empty, attempts = empty, outcome = empty);
    let _guard = locks.acquire("job", TTL).instrument(request.clone()).await.expect("free");
    locks.try_acquire("job", TTL).instrument(request).await.expect_err("held");
    assert!(told.spans("redlock.acquire").is_empty());
    assert!(told.spans("request")[0].fields.is_empty(), "{}", told.log());
}

/// Lets everything happen that is told anywhere.
async fn let_everything_happen(nodes: &MemoryNodes) -> Vec<String> {
    let locks = manager(nodes);
    let mut owners = Vec::new();
    let mut guard = locks.acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL).expect("a runtime");
    guard.extend().await.expect("held");
    locks.try_acquire("job", TTL).await.expect_err("held");
    locks.acquire_timeout("job", TTL, SECOND).await.expect_err("held");
    (0..2).for_each(|node| nodes.silence(node));
    guard.extend().await.expect_err("no majority");
    locks.try_acquire("job", TTL).await.expect_err("no majority");
    (0..2).for_each(|node| nodes.revive(node));
    break_open(nodes, "job");
    guard.extend().await.expect_err("gone");
    owners.push(guard.detach().owner.expose());
    nodes.delete(2, "job");
    let guard = locks.acquire_many(["job", "job:2"], TTL).await.expect("free");
    assert_eq!(guard.lost().await, LostReason::Expired);
    owners.push(guard.detach().owner.expose());
    sleep(TTL).await;
    let guard = locks.acquire("job", TTL).await.expect("free");
    tokio::spawn(async move {
        sleep(SECOND / 2).await;
        drop(guard);
    });
    drop(locks.acquire("job", TTL).await.expect("had in the end"));
    locks.flush().await;
    owners
}

#[tokio::test(start_paused = true)]
async fn the_resource_is_always_told_and_the_owner_never() {
    let told = Recorder::new();
    let owners = let_everything_happen(&MemoryNodes::new(3)).await;
    let log = told.log();
    assert!(log.events.len() > 10 && log.spans.len() > 4, "{log}");
    for told in log.spans.iter().chain(&log.events) {
        assert!(told.field("resource").is_some_and(|resource| resource.starts_with("job")), "{told:?}");
    }
    for owner in owners {
        assert_eq!(owner.len(), 32, "a secret to look for");
        assert!(!log.to_string().contains(&owner), "{log}");
    }
    let figures = told.figures();
    assert!(!format!("{figures:?}").contains("job"), "resources are not for metrics: {figures:?}");
}

#[tokio::test(start_paused = true)]
async fn every_metric_of_the_table_is_there_and_no_other() {
    let told = Recorder::new();
    let_everything_happen(&MemoryNodes::new(3)).await;
    let table = include_str!("../../client/OBSERVING.md");
    let mut documented: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|row| row.0).collect();
    documented.sort_unstable();
    assert_eq!(documented.len(), 8);
    // Without the values of the labels, as the table has them.
    let seen = told.figures();
    let mut seen: Vec<_> = seen
        .keys()
        .map(|name| match name.split_once('=') {
            Some((name, _)) => format!("{name}}}"),
            None => name.clone(),
        })
        .collect();
    seen.dedup();
    seen.sort_unstable();
    assert_eq!(seen, documented);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_no_wait() {
    let told = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    (0..2).for_each(|node| nodes.silence(node));
    tokio::spawn({
        let nodes = nodes.clone();
        async move {
            sleep(SECOND * 3 / 2).await;
            (0..2).for_each(|node| nodes.revive(node));
        }
    });
    let _guard = locks.acquire("job", TTL).await.expect("had in the end");
    let mut figures = told.figures();
    assert_eq!(figures.remove("redlock_acquire_seconds"), Some(Seconds(vec![2.0])));
    assert_eq!(figures.remove("redlock_wait_seconds"), None, "nobody held it");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_out_of_hand_is_not_lost() {
    let told = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let token = guard.cancellation_token().expect("a runtime");
    told.figures();
    advance(2 * SECOND).await;
    let _detached = guard.detach();
    assert_eq!(told.figures(), figures([("redlock_hold_seconds", Seconds(vec![2.0]))]));
    token.cancelled().await;
    assert_eq!(told.figures(), figures([]));
    assert!(told.events("lost a lock").is_empty(), "{}", told.log());
}

const POLLS: &str = "this client polls for held locks, because it cannot queue on a node";

#[tokio::test]
async fn a_client_reports_once_why_it_polls() {
    let told = Recorder::new();
    let rules = "on >secret ~* resetchannels -@all +redlock.acquire +redlock.release +redlock.node";
    let fleet = Fleet::start_with(3, |_, node| node.user("app", rules));
    for (managers, protocol, reason) in [(1, "2", "RESP2"), (2, "3", "SUBSCRIBE")] {
        let url = |url: String| format!("{}?protocol={protocol}", url.replace("://", "://app:secret@"));
        let urls = fleet.urls().into_iter().map(url);
        let locks = LockManager::builder().nodes(urls).build().expect("addresses");
        let guard = locks.acquire("job", TTL).await.expect("free");
        let wait = async || {
            let wait = Duration::from_millis(50);
            locks.acquire_timeout("job", TTL, wait).await.expect_err("it is held");
        };
        eventually_async("it is said", SOON, async || {
            wait().await;
            (told.events(POLLS).len() >= managers).then_some(())
        })
        .await;
        for _ in 0..3 {
            wait().await;
        }
        guard.release().await;
        let said = told.events(POLLS);
        assert_eq!(said.len(), managers, "each says it once: {}", told.log());
        let event = &said[managers - 1];
        let (node, why) =
            (event.field("node").unwrap_or_default(), event.field("reason").unwrap_or_default());
        assert_eq!((event.level, node.starts_with("127.0.0.1:")), (Level::WARN, true), "{node}");
        assert!(why.contains(reason), "{why}");
    }
}

/// Nodes of a module that knows no `WAIT` are asked again until the lock is free.
#[tokio::test]
async fn that_older_nodes_know_no_waiting_is_said_once() {
    let Some(older) = older_module() else { return };
    let told = Recorder::new();
    let fleet = Fleet::start_with(3, |_, node| node.module_file(&older));
    let locks = LockManager::builder().nodes(fleet.urls()).build().expect("addresses");
    for _ in 0..3 {
        let first = locks.acquire("job", TTL).await.expect("free");
        let number = first.fence();
        fleet.reset_calls();
        let holder = async {
            eventually_async("it was refused, and asks again", SOON, async || {
                fleet.calls("redlock.acquire").iter().all(|count| *count > 2).then_some(())
            })
            .await;
            first.release().await;
        };
        let (second, ()) = tokio::join!(locks.acquire("job", TTL), holder);
        let second = second.expect("asked for until it was free");
        assert!(second.fence() > number, "numbers grow");
        second.release().await;
    }
    assert_eq!(told.events(POLLS).len(), 1, "{}", told.log());
    assert_eq!(fleet.calls("subscribe"), [0; 3], "nobody listens for news that will not come");
}
