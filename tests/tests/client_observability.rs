//! What the client reports to `metrics` and `tracing`: exact values at the right moment, and never an owner.
//!
//! The nodes are in memory, and the paused clock advances only when every task sleeps, so every value is exact.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod observability;

use observability::Metric::{Count, Gauge, Seconds};
use observability::{Metrics, Recorder};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Builder, Error, LockManager, LostReason, Retry, WaitPolicy};
use redlock_tests::{Fleet, SOON, Server, admit, eventually_async, older_module};
use std::collections::BTreeSet;
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

/// A client that polls for a held lock.
fn polling(nodes: &MemoryNodes) -> LockManager {
    builder(nodes).wait_policy(WaitPolicy::Poll).build().expect("nodes in memory are enough")
}

fn builder(nodes: &MemoryNodes) -> Builder {
    // Without jitter, every pause is known.
    LockManager::builder().memory(nodes).retry(Retry::fixed(SECOND).jitter(0.0).max_attempts(3))
}

fn figures<const N: usize>(expected: [(&str, observability::Metric); N]) -> Metrics {
    expected.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect()
}

/// Deletes a lock on two of three nodes, as an administrator would.
fn delete_on_majority(nodes: &MemoryNodes, key: &str) {
    (0..2).for_each(|node| assert!(nodes.delete(node, key)));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_a_hold_and_a_release_are_recorded() {
    let recorder = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let expected = [
        ("redlock_attempts_total", Count(1)),
        ("redlock_acquired_total", Count(1)),
        ("redlock_acquire_seconds", Seconds(vec![0.0])),
    ];
    assert_eq!(recorder.figures(), figures(expected));
    advance(3 * SECOND).await;
    assert_eq!(recorder.figures(), figures([]), "the client records nothing while nothing happens");
    guard.release().await;
    assert_eq!(
        recorder.figures(),
        figures([("redlock_hold_seconds", Seconds(vec![3.0]))]),
        "the client records no loss"
    );

    let [span] = &recorder.spans("redlock.acquire")[..] else {
        panic!("one call, one span: {}", recorder.log())
    };
    assert_eq!((span.field("resource"), span.field("fence")), (Some("job"), Some("1")));
    assert_eq!((span.field("attempts"), span.field("outcome")), (Some("1"), Some("acquired")));
    let [event] = &recorder.events("acquired a lock")[..] else {
        panic!("one lock, one event: {}", recorder.log())
    };
    assert_eq!((event.field("resource"), event.field("fence")), (Some("job"), Some("1")));
    assert_eq!(event.within, ["redlock.acquire"]);
    let [event] = &recorder.events("releasing a lock")[..] else { panic!("one release: {}", recorder.log()) };
    assert_eq!((event.field("resource"), event.field("held")), (Some("job"), Some("3s")));
    assert_eq!(event.within, [""; 0], "the span of the acquire has ended");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_records_its_hold_time() {
    let recorder = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    recorder.figures();
    advance(2 * SECOND).await;
    drop(guard);
    assert_eq!(recorder.figures(), figures([("redlock_hold_seconds", Seconds(vec![2.0]))]));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_queue_is_one_attempt() {
    let recorder = Recorder::new();
    let locks = manager(&MemoryNodes::new(3));
    let guard = locks.acquire("job", TTL).await.expect("free");
    recorder.figures();
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
    assert_eq!(recorder.figures(), figures(expected));
}

#[tokio::test(start_paused = true)]
async fn retries_are_part_of_one_acquire() {
    let recorder = Recorder::new();
    let locks = polling(&MemoryNodes::new(3));
    let guard = locks.acquire("job", TTL).await.expect("free");
    recorder.figures();
    tokio::spawn(async move {
        sleep(SECOND * 3 / 2).await;
        drop(guard);
    });
    let _guard = locks.acquire("job", TTL).await.expect("the lock, after a wait");
    let expected = [
        ("redlock_attempts_total", Count(3)),
        ("redlock_acquired_total", Count(1)),
        ("redlock_acquire_seconds", Seconds(vec![2.0])),
        ("redlock_wait_seconds", Seconds(vec![2.0])),
        ("redlock_hold_seconds", Seconds(vec![1.5])),
    ];
    assert_eq!(recorder.figures(), figures(expected));
    let spans = recorder.spans("redlock.acquire");
    assert_eq!(spans.len(), 2, "{}", recorder.log());
    assert_eq!((spans[1].field("attempts"), spans[1].field("fence")), (Some("3"), Some("2")));
}

#[tokio::test(start_paused = true)]
async fn a_failed_acquire_records_its_reason() {
    let recorder = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let locks = polling(&nodes);
    let _guard = locks.acquire("job", TTL).await.expect("free");
    recorder.figures();

    let error = locks.acquire("job", TTL).await.expect_err("held");
    assert!(matches!(error, Error::Contended(_)));
    let expected =
        [("redlock_attempts_total", Count(3)), ("redlock_failed_total{reason=contended}", Count(1))];
    assert_eq!(recorder.figures(), figures(expected));

    let error = locks.acquire_timeout("job", TTL, SECOND * 3 / 2).await.expect_err("held");
    assert!(matches!(error, Error::Timeout { .. }));
    let expected = [("redlock_attempts_total", Count(2)), ("redlock_failed_total{reason=timeout}", Count(1))];
    assert_eq!(recorder.figures(), figures(expected));

    (0..2).for_each(|node| nodes.silence(node));
    let error = locks.try_acquire("other", TTL).await.expect_err("no majority");
    assert!(matches!(error, Error::NoQuorum(_)));
    let expected =
        [("redlock_attempts_total", Count(1)), ("redlock_failed_total{reason=no_quorum}", Count(1))];
    assert_eq!(recorder.figures(), figures(expected));

    let spans = recorder.spans("redlock.acquire");
    let outcomes: Vec<_> = spans.iter().map(|span| (span.field("outcome"), span.field("attempts"))).collect();
    let expected = [("acquired", "1"), ("contended", "3"), ("timeout", "2"), ("no_quorum", "1")];
    assert_eq!(outcomes, expected.map(|(outcome, attempts)| (Some(outcome), Some(attempts))));
    // A held lock is normal and logged at DEBUG; an outage is logged at WARN.
    let events = recorder.events("did not acquire a lock");
    let levels: Vec<_> = events.iter().map(|event| event.level).collect();
    assert_eq!(levels, [Level::DEBUG, Level::DEBUG, Level::WARN]);
    assert!(events.iter().all(|event| event.within == ["redlock.acquire"]), "{}", recorder.log());
    let report = events[2].field("error").unwrap_or_default();
    assert!(report.contains("other") && report.contains("memory-0"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_has_no_outcome() {
    let recorder = Recorder::new();
    let locks = manager(&MemoryNodes::new(3));
    let _guard = locks.acquire("job", TTL).await.expect("free");
    recorder.figures();
    let cancelled = timeout(SECOND / 2, locks.acquire("job", TTL)).await;
    assert!(cancelled.is_err());
    assert_eq!(recorder.figures(), figures([("redlock_attempts_total", Count(1))]));
    let spans = recorder.spans("redlock.acquire");
    assert_eq!((spans.len(), spans[1].field("outcome")), (2, None), "{}", recorder.log());
}

#[tokio::test(start_paused = true)]
async fn extensions_are_counted_by_their_outcome() {
    let recorder = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    recorder.figures();
    guard.extend().await.expect("held");
    guard.extend_to(2 * TTL).await.expect("held");
    assert_eq!(recorder.figures(), figures([("redlock_extensions_total{outcome=extended}", Count(2))]));
    (0..2).for_each(|node| nodes.silence(node));
    guard.extend().await.expect_err("no majority");
    assert_eq!(
        recorder.figures(),
        figures([
            ("redlock_extensions_total{outcome=failed}", Count(1)),
            ("redlock_extension_failures_total{reason=no_quorum}", Count(1)),
        ]),
        "not lost yet"
    );
    let [event] = &recorder.events("could not extend a lock")[..] else { panic!("{}", recorder.log()) };
    assert_eq!((event.field("resource"), event.level), (Some("job"), Level::WARN));
    assert_eq!(event.field("reason"), Some("no_quorum"));
    let error = event.field("error").unwrap_or_default();
    assert!((0..3).all(|node| error.contains(&format!("memory-{node}: "))), "{error}");
}

#[tokio::test(start_paused = true)]
async fn keep_alive_extensions_are_counted() {
    let recorder = Recorder::new();
    let mut guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    recorder.figures();
    guard.keep_alive(AN_HOUR).expect("a runtime");
    sleep(TTL).await;
    let extended = recorder.figures().remove("redlock_extensions_total{outcome=extended}");
    assert!(matches!(extended, Some(Count(count)) if count >= 2), "{extended:?}");
}

/// Asserts that a loss was counted and logged exactly once, with this reason.
fn assert_lost_once(recorder: &Recorder, label: &str, reason: LostReason) {
    let counted = recorder.figures().remove(&format!("redlock_lost_total{{reason={label}}}"));
    assert_eq!(counted, Some(Count(1)));
    let [event] = &recorder.events("lost a lock")[..] else {
        panic!("one loss, one event: {}", recorder.log())
    };
    assert_eq!(
        (event.level, event.field("resource"), event.field("fence")),
        (Level::WARN, Some("job"), Some("1"))
    );
    assert_eq!(event.field("reason"), Some(reason.to_string().as_str()));
}

/// Asserts that the end of the guard records a hold time of `seconds` and does not count the loss again.
async fn assert_end_records_no_second_loss(recorder: &Recorder, end: impl AsyncFnOnce(), seconds: f64) {
    end().await;
    assert_eq!(recorder.figures(), figures([("redlock_hold_seconds", Seconds(vec![seconds]))]));
    assert_eq!(recorder.events("lost a lock").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_recorded_when_a_task_waits_for_it() {
    let recorder = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let held = guard.held();
    let watching = tokio::spawn(async move { held.lost().await });
    advance(TTL / 2).await;
    assert!(recorder.events("lost a lock").is_empty(), "the lock is still held");
    recorder.figures();
    assert_eq!(watching.await.expect("no panic"), LostReason::Expired);
    assert_eq!(guard.lost().await, LostReason::Expired, "every waiter gets the same reason");
    assert_lost_once(&recorder, "expired", LostReason::Expired);
    // The client reported the loss a little before the lease of 9,898 ms ended. The guard lives a few seconds longer.
    advance(TTL / 2).await;
    guard.release().await;
    let Some(Seconds(held)) = recorder.figures().remove("redlock_hold_seconds") else {
        panic!("no hold time")
    };
    assert!(held.len() == 1 && held[0] > 10.0, "{held:?}");
    assert_eq!(recorder.events("lost a lock").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_recorded_when_a_token_is_cancelled() {
    let recorder = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let token = guard.cancellation_token().expect("a runtime");
    token.cancelled().await;
    assert_lost_once(&recorder, "expired", LostReason::Expired);
    drop(guard);
    assert_eq!(recorder.events("lost a lock").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_recorded_when_an_extension_finds_it() {
    let recorder = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(2 * SECOND).await;
    delete_on_majority(&nodes, "job");
    assert!(recorder.events("lost a lock").is_empty(), "the client has not noticed the loss yet");
    let error = guard.extend().await.expect_err("the lock was deleted");
    assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{error}");
    assert_lost_once(&recorder, "gone", LostReason::Gone);
    advance(SECOND).await;
    assert_end_records_no_second_loss(&recorder, async || drop(guard.release().await), 3.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_recorded_when_an_extension_comes_too_late() {
    let recorder = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    advance(TTL).await;
    let error = guard.extend().await.expect_err("the lock has expired");
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error}");
    assert_lost_once(&recorder, "expired", LostReason::Expired);
    assert_end_records_no_second_loss(&recorder, async || drop(guard), 10.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_recorded_while_a_lock_is_kept_alive() {
    let recorder = Recorder::new();
    let nodes = MemoryNodes::new(3);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(AN_HOUR).expect("a runtime");
    delete_on_majority(&nodes, "job");
    // No task waits for the loss, and no call uses the guard.
    sleep(TTL / 2).await;
    assert_lost_once(&recorder, "gone", LostReason::Gone);
    assert_end_records_no_second_loss(&recorder, async || drop(guard), 5.0).await;
}

#[tokio::test(start_paused = true)]
async fn an_unnoticed_loss_is_recorded_when_the_guard_is_dropped() {
    let recorder = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    advance(TTL).await;
    assert!(recorder.events("lost a lock").is_empty(), "no call has noticed the loss");
    drop(guard);
    assert_lost_once(&recorder, "expired", LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_span_of_the_caller_contains_the_span_of_the_client() {
    let recorder = Recorder::new();
    let locks = manager(&MemoryNodes::new(3));
    let work = async {
        drop(locks.acquire("job", TTL).await.expect("free"));
        tracing::info!("after the lock");
    };
    work.instrument(info_span!("request")).await;
    let [span] = &recorder.spans("redlock.acquire")[..] else { panic!("{}", recorder.log()) };
    assert_eq!(span.within, ["request"]);
    assert_eq!(recorder.events("acquired a lock")[0].within, ["request", "redlock.acquire"]);
    assert_eq!(
        recorder.events("after the lock")[0].within,
        ["request"],
        "the span of the client has ended with the acquire"
    );
}

#[tokio::test(start_paused = true)]
async fn a_span_of_the_caller_is_never_written_to() {
    // The spans of the client are below this level, so the span of the caller is always the current one.
    let recorder = Recorder::with_level(LevelFilter::INFO);
    let locks = manager(&MemoryNodes::new(3));
    let empty = tracing::field::Empty;
    let request = info_span!("request", fence = empty, attempts = empty, outcome = empty);
    let _guard = locks.acquire("job", TTL).instrument(request.clone()).await.expect("free");
    locks.try_acquire("job", TTL).instrument(request).await.expect_err("held");
    assert!(recorder.spans("redlock.acquire").is_empty());
    assert!(recorder.spans("request")[0].fields.is_empty(), "{}", recorder.log());
}

/// Causes every event that the client records. Returns the owners of its locks.
async fn cause_every_event(nodes: &MemoryNodes) -> Vec<String> {
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
    delete_on_majority(nodes, "job");
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
    drop(locks.acquire("job", TTL).await.expect("the lock, after a wait"));
    locks.flush().await;
    owners
}

#[tokio::test(start_paused = true)]
async fn every_span_and_event_names_the_resource_and_never_the_owner() {
    let recorder = Recorder::new();
    let owners = cause_every_event(&MemoryNodes::new(3)).await;
    let log = recorder.log();
    assert!(log.events.len() > 10 && log.spans.len() > 4, "{log}");
    for entry in log.spans.iter().chain(&log.events) {
        assert!(entry.field("resource").is_some_and(|resource| resource.starts_with("job")), "{entry:?}");
    }
    for owner in owners {
        assert_eq!(owner.len(), 32, "an owner has 32 hexadecimal digits");
        assert!(!log.to_string().contains(&owner), "{log}");
    }
    let figures = recorder.figures();
    assert!(!format!("{figures:?}").contains("job"), "no metric names a resource: {figures:?}");
}

/// Causes every event of nodes on real servers: a node that is paused, one that is killed and one in quarantine.
async fn cause_every_node_event() -> (Fleet, LockManager) {
    let mut fleet = Fleet::start_with(3, |_, node| node.password("hush"));
    let secret = |url: &String| url.replace("://", "://default:hush@");
    let builder = LockManager::builder().nodes(fleet.urls().iter().map(secret)).node_timeout(SECOND / 4);
    let locks = builder.connect_timeout(SOON).build().expect("addresses");
    let can_grant = async |wanted: usize| {
        eventually_async("the nodes answer", SOON, async || {
            let health = locks.health().await.expect("a runtime");
            (health.nodes.iter().filter(|node| node.can_grant()).count() == wanted).then_some(())
        })
        .await;
    };
    can_grant(3).await;
    fleet[0].pause();
    can_grant(2).await;
    fleet[0].resume();
    can_grant(3).await;
    let _held = locks.acquire("job", TTL).await.expect("free").detach();
    fleet[2].kill();
    can_grant(2).await;
    fleet[2].restart();
    eventually_async("the node is in quarantine", SOON, async || {
        let health = locks.health().await.expect("a runtime");
        health.nodes[2].state.as_ref().is_ok_and(|state| !state.quarantine.is_zero()).then_some(())
    })
    .await;
    locks.try_acquire("job:2", TTL).await.expect("two nodes are a majority").release().await;
    fleet[0].connect().call_strs("LPUSH list value");
    locks.try_acquire("list", TTL).await.expect_err("a list and a node in quarantine");
    (fleet, locks)
}

#[tokio::test]
async fn nodes_that_go_down_and_come_back_are_reported() {
    let recorder = Recorder::new();
    let (fleet, _locks) = cause_every_node_event().await;
    let names: Vec<_> =
        fleet.urls().iter().map(|url| url.trim_start_matches("redis://").to_owned()).collect();
    let figures = recorder.figures();
    let is_up = |node: usize| figures.get(&format!("redlock_client_node_up{{node={}}}", names[node]));
    assert_eq!([is_up(0), is_up(1), is_up(2)], [Some(&Gauge(1.0)); 3], "{figures:?}");
    let count = |node: usize, reason: &str| {
        let name = format!("redlock_client_node_failures_total{{node={},reason={reason}}}", names[node]);
        matches!(figures.get(&name), Some(Count(1..)))
    };
    assert!(count(0, "no_answer") && count(0, "rejected"), "{figures:?}");
    assert!(count(2, "connection_lost") && count(2, "quarantined"), "{figures:?}");
    let reconnects = figures.get(&format!("redlock_client_node_reconnects_total{{node={}}}", names[2]));
    assert!(matches!(reconnects, Some(Count(1..))), "{figures:?}");
    let round_trips = figures.get(&format!("redlock_client_node_round_trip_seconds{{node={}}}", names[1]));
    assert!(
        matches!(round_trips, Some(Seconds(times)) if times.iter().all(|time| *time < 20.0)),
        "{figures:?}"
    );
    for (what, node) in [
        ("a node is down", 0),
        ("a node answers again", 0),
        ("a node is down", 2),
        ("connected to a node again", 2),
        ("a node is in quarantine", 2),
        ("a node rejects requests", 0),
    ] {
        let events = recorder.events(what);
        let is_named = events.iter().any(|event| event.field("node") == Some(names[node].as_str()));
        assert!(is_named, "{what} {}: {}", names[node], recorder.log());
    }
    assert!(!format!("{figures:?} {}", recorder.log()).contains("hush"), "no password is shown");
}

/// Not as a lack of a quorum: an operator looks for another cause.
#[tokio::test]
async fn rejected_requests_have_a_reason_of_their_own() {
    let recorder = Recorder::new();
    let fleet = Fleet::start_with(3, |_, node| node.user("app", "on >hush ~app:* &* +@all"));
    let app = fleet.urls().into_iter().map(|url| url.replace("://", "://app:hush@"));
    let locks = LockManager::builder().nodes(app).connect_timeout(SOON).node_timeout(SOON).build();
    let locks = locks.expect("addresses");
    locks.try_acquire("other:1", TTL).await.expect_err("a key that this user may not use");
    let guard = locks.try_acquire("app:1", TTL).await.expect("a free lock");
    fleet.iter().for_each(|node| drop(node.connect().call_strs("CONFIG SET redlock.max-ttl 1000")));
    guard.extend().await.expect_err("the time to live is above the limit");
    let figures = recorder.figures();
    let count =
        |name: &str| figures.iter().filter(|(metric, _)| metric.starts_with(name)).collect::<Vec<_>>();
    for name in ["redlock_failed_total", "redlock_extension_failures_total"] {
        let expected = format!("{name}{{reason=rejected}}");
        assert_eq!(count(name), [(&expected, &Count(1))], "{figures:?}");
    }
    let spans = recorder.spans("redlock.acquire");
    assert_eq!(spans.first().and_then(|span| span.field("outcome")), Some("rejected"), "{}", recorder.log());
}

/// Nodes that the client cannot use, and one that does not vote before an operator has admitted it.
#[tokio::test]
async fn every_problem_of_a_node_has_a_reason_of_its_own() {
    let recorder = Recorder::new();
    let node = || Server::builder().tcp();
    let (good, closed) = (node().start(), node().password("hush").start());
    let plain = node().without_module().start();
    let newcomer = node().module_args(["new-node", "non-voting"]).start();
    let mut gone = node().start();
    gone.kill();
    let servers = [&good, &closed, &plain, &newcomer, &gone];
    let client = |urls: Vec<String>| {
        LockManager::builder().nodes(urls).connect_timeout(SOON).build().expect("addresses")
    };
    let locks = client(servers.iter().map(|server| server.url()).collect());
    let twice = client(vec![good.url(), good.url().replace("127.0.0.1", "localhost")]);
    let name = |server: &Server| server.url().trim_start_matches("redis://").to_owned();
    let expected = [
        (name(&closed), "login_refused"),
        (name(&plain), "no_module"),
        (name(&newcomer), "non_voting"),
        (name(&gone), "unreachable"),
        (name(&good).replace("127.0.0.1", "localhost"), "same_node"),
    ];
    let mut seen = BTreeSet::new();
    eventually_async("each problem is counted", SOON, async || {
        locks.try_acquire("job", TTL).await.expect_err("one of five nodes is no majority");
        twice.try_acquire("other", TTL).await.expect_err("one node has one vote");
        let figures = recorder.figures();
        let has_failed = |(node, reason): &&(String, &'static str)| {
            let name = format!("redlock_client_node_failures_total{{node={node},reason={reason}}}");
            matches!(figures.get(&name), Some(Count(1..)))
        };
        seen.extend(expected.iter().filter(has_failed).map(|(_, reason)| *reason));
        (seen.len() == expected.len()).then_some(())
    })
    .await;
    admit(&mut newcomer.connect(), 0, 0);
    eventually_async("the client reports the vote", SOON, async || {
        let _ = locks.try_acquire("job", TTL).await;
        let events = recorder.events("a node votes again");
        events.iter().any(|event| event.field("node") == Some(name(&newcomer).as_str())).then_some(())
    })
    .await;
}

#[tokio::test]
async fn exactly_the_documented_metrics_are_recorded_and_described() {
    let recorder = Recorder::new();
    let _connected = cause_every_node_event().await;
    let table = include_str!("../../client/OBSERVING.md");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `redlock_")?.split_once('`'));
    let mut documented: Vec<_> = rows.map(|(name, _)| format!("redlock_{name}")).collect();
    documented.sort_unstable();
    let mut figures: BTreeSet<String> = recorder.figures().into_keys().collect();
    tokio::time::pause();
    cause_every_event(&MemoryNodes::new(3)).await;
    assert_eq!(recorder.undescribed(), [""; 0]);
    cause_every_event(&MemoryNodes::new(3)).await;
    figures.extend(recorder.figures().into_keys());
    // The table has the labels without their values.
    let label = |label: &str| label.split('=').next().unwrap_or_default().to_owned();
    let mut seen: Vec<_> = figures
        .iter()
        .map(|name| match name.trim_end_matches('}').split_once('{') {
            Some((name, labels)) => {
                format!("{name}{{{}}}", labels.split(',').map(label).collect::<Vec<_>>().join(","))
            }
            None => name.clone(),
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, documented);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_not_counted_as_a_wait() {
    let recorder = Recorder::new();
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
    let _guard = locks.acquire("job", TTL).await.expect("the lock, after a wait");
    let mut figures = recorder.figures();
    assert_eq!(figures.remove("redlock_acquire_seconds"), Some(Seconds(vec![2.0])));
    assert_eq!(figures.remove("redlock_wait_seconds"), None, "no client held the lock");
}

#[tokio::test(start_paused = true)]
async fn a_detached_lock_is_not_recorded_as_lost() {
    let recorder = Recorder::new();
    let guard = manager(&MemoryNodes::new(3)).acquire("job", TTL).await.expect("free");
    let token = guard.cancellation_token().expect("a runtime");
    recorder.figures();
    advance(2 * SECOND).await;
    let _detached = guard.detach();
    assert_eq!(recorder.figures(), figures([("redlock_hold_seconds", Seconds(vec![2.0]))]));
    token.cancelled().await;
    assert_eq!(recorder.figures(), figures([]));
    assert!(recorder.events("lost a lock").is_empty(), "{}", recorder.log());
}

const POLLS: &str = "this client polls for held locks, because it cannot queue on a node";

#[tokio::test]
async fn a_client_reports_once_why_it_polls() {
    let recorder = Recorder::new();
    let rules = "on >secret ~* resetchannels -@all +redlock.acquire +redlock.release +redlock.node";
    let fleet = Fleet::start_with(3, |_, node| node.user("app", rules));
    for (managers, protocol, reason) in [(1, "2", "RESP2"), (2, "3", "SUBSCRIBE")] {
        let url = |url: String| format!("{}?protocol={protocol}", url.replace("://", "://app:secret@"));
        let urls = fleet.urls().into_iter().map(url);
        let locks = LockManager::builder().nodes(urls).build().expect("addresses");
        let guard = locks.acquire("job", TTL).await.expect("free");
        let wait = async || {
            let wait = Duration::from_millis(50);
            locks.acquire_timeout("job", TTL, wait).await.expect_err("the lock is held");
        };
        eventually_async("the client reports why it polls", SOON, async || {
            wait().await;
            (recorder.events(POLLS).len() >= managers).then_some(())
        })
        .await;
        for _ in 0..3 {
            wait().await;
        }
        guard.release().await;
        let events = recorder.events(POLLS);
        assert_eq!(events.len(), managers, "each client reports it once: {}", recorder.log());
        let event = &events[managers - 1];
        let (node, why) =
            (event.field("node").unwrap_or_default(), event.field("reason").unwrap_or_default());
        assert_eq!((event.level, node.starts_with("127.0.0.1:")), (Level::WARN, true), "{node}");
        assert!(why.contains(reason), "{why}");
    }
}

/// If the module does not know `WAIT`, the client polls until the lock is free.
#[tokio::test]
async fn a_client_reports_once_that_older_nodes_cannot_queue() {
    let Some(older) = older_module() else { return };
    let recorder = Recorder::new();
    let fleet = Fleet::start_with(3, |_, node| node.module_file(&older));
    let locks = LockManager::builder().nodes(fleet.urls()).build().expect("addresses");
    for _ in 0..3 {
        let first = locks.acquire("job", TTL).await.expect("free");
        let before = first.fence();
        fleet.reset_calls();
        let holder = async {
            eventually_async("the client polls", SOON, async || {
                fleet.calls("redlock.acquire").iter().all(|count| *count > 2).then_some(())
            })
            .await;
            first.release().await;
        };
        let (second, ()) = tokio::join!(locks.acquire("job", TTL), holder);
        let second = second.expect("the lock, after some polls");
        assert!(second.fence() > before, "fences grow");
        second.release().await;
    }
    assert_eq!(recorder.events(POLLS).len(), 1, "{}", recorder.log());
    assert_eq!(
        fleet.calls("subscribe"),
        [0; 3],
        "the client does not subscribe to grants that older nodes never send"
    );
}
