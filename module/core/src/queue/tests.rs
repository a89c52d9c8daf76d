//! Tests with many waiters: what one step may cost.

use super::*;

fn waiter(owner: &str, ticket: u64, connection: u64, keys: &[&str]) -> Waiter {
    Waiter {
        database: 0,
        ticket,
        owner: owner.as_bytes().into(),
        keys: keys.iter().map(|key| key.as_bytes().into()).collect(),
        ttl_ms: 1_000,
        floor: 0,
        is_shared: false,
        label: Box::default(),
        channel: Box::default(),
        stamp: None,
        claim_ms: 0,
        connection,
        since: Millis(0),
        until: Millis(1_000),
    }
}

/// The waiter to serve next, if one step finds it.
fn next_of(queues: &mut WaitQueues) -> Option<WaiterId> {
    let mut keys_left = KEYS_PER_STEP;
    queues.next_ready(&mut keys_left)
}

/// Ten times as many waiters as one step removes on connection 1, and one waiter behind them on connection 2.
fn many_waiters() -> (WaitQueues, usize) {
    let (mut queues, many) = (WaitQueues::default(), 10 * KEYS_PER_STEP);
    for ticket in 1..=many as u64 {
        queues.enqueue(waiter(&format!("o{ticket}"), ticket, 1, &["k"])).unwrap();
    }
    assert_eq!(queues.enqueue(waiter("last", 1_000_000, 2, &["k"])), Ok(many));
    (queues, many + 1)
}

#[test]
fn many_waiters_of_a_closed_connection_are_removed_in_steps_and_never_served() {
    let (mut queues, all) = many_waiters();
    queues.connection_closed(1);
    assert_eq!(queues.len(), all - KEYS_PER_STEP);
    let mut served = None;
    while served.is_none() {
        let before = queues.len();
        queues.mark_ready(0, b"k");
        served = next_of(&mut queues);
        assert!(before - queues.len() <= KEYS_PER_STEP);
    }
    assert_eq!(served.and_then(|id| queues.waiter(id)).map(|waiter| waiter.connection), Some(2));
    assert!(!queues.has_closing());
    assert_eq!(queues.len(), 1);
}

#[test]
fn many_expired_waiters_are_removed_in_steps() {
    let (mut queues, mut before) = many_waiters();
    assert!(!queues.expire(Millis(999)));
    while queues.expire(Millis(1_000)) {
        assert!(before - queues.len() <= KEYS_PER_STEP);
        before = queues.len();
    }
    assert_eq!((queues.len(), queues.keys, queues.bytes()), (0, 0, 0));
    assert!(queues.by_connection.is_empty() && queues.queues.values().all(HashMap::is_empty));
}

#[test]
fn an_owner_has_one_waiter_for_a_key() {
    let mut queues = WaitQueues::default();
    queues.enqueue(waiter("o", 5, 1, &["x", "z"])).unwrap();
    queues.enqueue(waiter("o", 7, 2, &["y"])).unwrap();
    queues.enqueue(waiter("other", 9, 3, &["z"])).unwrap();
    assert!(!queues.has_ready());
    // It replaces both, and the waiter behind them is next.
    queues.enqueue(waiter("o", 6, 1, &["y", "x"])).unwrap();
    assert_eq!((queues.len(), queues.keys), (2, 3));
    let next = next_of(&mut queues).and_then(|id| queues.waiter(id));
    assert_eq!(next.map(|waiter| waiter.ticket), Some(9));
    assert!(queues.leave(0, b"x", b"o"));
    assert_eq!((queues.len(), queues.keys, queues.waiting_for(0, b"y")), (1, 1, 0));
}

#[test]
fn every_key_counts_towards_the_limits() {
    let mut queues = WaitQueues {
        limits: Limits { node: 4, key: 2, connection: 3, ..Limits::default() },
        ..WaitQueues::default()
    };
    let mut refused = |waiter| queues.enqueue(waiter).err().map(|fault| fault.to_string());
    assert_eq!(refused(waiter("a", 1, 1, &["x", "y"])), None);
    assert!(refused(waiter("b", 2, 1, &["x", "z"])).is_some_and(|why| why.contains("on this connection")));
    assert!(refused(waiter("b", 2, 2, &["x", "y", "z"])).is_some_and(|why| why.contains("on this node")));
    assert_eq!(refused(waiter("b", 2, 2, &["x", "y"])), None);
    assert_eq!(refused(waiter("b", 2, 1, &["x"])), None, "in place of its earlier waiter");
    assert!(refused(waiter("c", 3, 3, &["x"])).is_some_and(|why| why.contains("for this key")));
    // A replaced waiter makes room.
    assert_eq!(refused(waiter("a", 1, 1, &["y"])), None);
    assert_eq!((queues.len(), queues.keys), (2, 2));
}

/// What the waiters use of each limit, counted one by one.
fn counted(queues: &WaitQueues) -> LimitUse {
    let lengths = queues.queues.values().flat_map(HashMap::values).map(WaitQueue::len);
    LimitUse {
        node: queues.waiters.values().map(|waiter| waiter.keys.len() as u64).sum(),
        key: lengths.max().unwrap_or(0) as u64,
        connection: queues.by_connection.values().map(|here| here.keys).max().unwrap_or(0) as u64,
        bytes: queues.waiters.values().map(|waiter| waiter.bytes() as u64).sum(),
    }
}

#[test]
fn the_usage_of_every_limit_follows_each_change() {
    let mut queues = WaitQueues::default();
    let of = |queues: &WaitQueues| {
        assert_eq!(queues.usage(), counted(queues));
        let LimitUse { node, key, connection, .. } = queues.usage();
        (node, key, connection)
    };
    queues.enqueue(waiter("a", 1, 1, &["x", "y", "z"])).unwrap();
    assert_eq!(of(&queues), (3, 1, 3));
    queues.enqueue(waiter("b", 2, 2, &["x"])).unwrap();
    queues.enqueue(waiter("c", 3, 2, &["x", "z"])).unwrap();
    queues.enqueue(Waiter { database: 1, ..waiter("d", 4, 3, &["x"]) }).unwrap();
    assert_eq!(of(&queues), (7, 3, 3));
    // In place of its earlier waiter, on another connection.
    queues.enqueue(waiter("a", 1, 2, &["z"])).unwrap();
    assert_eq!(of(&queues), (5, 2, 4));
    queues.mark_ready(0, b"x");
    let served = next_of(&mut queues).unwrap();
    queues.served(served, []);
    assert_eq!(of(&queues), (4, 2, 3));
    queues.moved_away(0, b"z");
    assert_eq!(of(&queues), (1, 1, 1));
    queues.connection_closed(3);
    assert_eq!((of(&queues), queues.usage().bytes), ((0, 0, 0), 0));
    queues.enqueue(waiter("e", 5, 1, &["x"])).unwrap();
    queues.clear();
    assert_eq!(of(&queues), (0, 0, 0));
}

#[test]
fn a_postponed_key_is_ready_once_and_last() {
    let mut queues = WaitQueues::default();
    queues.enqueue(waiter("a", 1, 1, &["x"])).unwrap();
    queues.enqueue(waiter("b", 2, 1, &["y"])).unwrap();
    queues.mark_ready(0, b"x");
    queues.mark_ready(0, b"y");
    let ticket = |queues: &mut WaitQueues| {
        let id = next_of(queues)?;
        queues.waiter(id).map(|waiter| waiter.ticket)
    };
    let first = next_of(&mut queues).unwrap();
    queues.postpone(first, Millis(10));
    for _ in 0..3 {
        queues.mark_ready(0, b"x");
        assert!(!queues.has_ready());
    }
    queues.retry(Millis(9));
    assert_eq!((ticket(&mut queues), queues.next_retry()), (None, Some(Millis(10))));
    queues.retry(Millis(10));
    assert_eq!([ticket(&mut queues), ticket(&mut queues), ticket(&mut queues)], [Some(2), Some(1), None]);
    assert_eq!(queues.next_retry(), None);
}

/// Queues for ten steps of a scan, each with two waiters.
fn many_queues() -> (WaitQueues, usize) {
    let (mut queues, count) = (WaitQueues::default(), 5 * KEYS_PER_STEP);
    for ticket in 1..=2 {
        for number in 0..count {
            let (owner, key) = (format!("o{ticket}-{number}"), format!("k{number}"));
            queues.enqueue(waiter(&owner, ticket, 1, &[&key])).unwrap();
        }
    }
    (queues, count)
}

/// The keys of all waiters to serve. Only a few keys are ready at a time.
fn all_ready(queues: &mut WaitQueues) -> Vec<(Database, Box<[u8]>)> {
    let mut keys = Vec::new();
    while queues.has_ready() {
        let Some(id) = next_of(queues) else { continue };
        assert!(queues.ready.len() < KEYS_PER_STEP);
        let found = queues.waiter(id).unwrap();
        assert_eq!(found.ticket, 1, "the first waiter of the queue");
        keys.push((queues.database_of(found), found.keys[0].clone()));
    }
    keys
}

#[test]
fn a_scan_of_all_keys_visits_each_queue_once_and_a_few_at_a_time() {
    let (mut queues, count) = many_queues();
    queues.mark_all_ready();
    let mut keys = all_ready(&mut queues);
    assert_eq!(keys.len(), count, "no queue twice");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count, "no queue is left out");
    assert!(all_ready(&mut queues).is_empty(), "the scan has ended");
    // A second call halfway restarts the scan.
    queues.mark_all_ready();
    for _ in 0..count / 2 {
        next_of(&mut queues);
    }
    queues.mark_all_ready();
    assert!(all_ready(&mut queues).len() >= count);
    let mut empty = WaitQueues::default();
    empty.mark_all_ready();
    assert!(!empty.has_ready());
}

#[test]
fn a_waiter_that_leaves_during_a_scan_is_followed_by_the_next() {
    let (mut queues, count) = many_queues();
    queues.mark_all_ready();
    next_of(&mut queues).unwrap();
    for number in 0..count {
        let (owner, key) = (format!("o1-{number}"), format!("k{number}"));
        assert!(queues.leave(0, key.as_bytes(), owner.as_bytes()));
    }
    let mut keys = HashSet::new();
    while queues.has_ready() {
        let Some(id) = next_of(&mut queues) else { continue };
        keys.insert(queues.waiter(id).unwrap().keys[0].clone());
    }
    assert_eq!(keys.len(), count);
}

/// The number of waiters that the scan has visited.
fn visited(queues: &WaitQueues) -> usize {
    queues.scanned_to.map_or(queues.len(), |last| queues.deadlines.range(..=last).count())
}

#[test]
fn one_step_of_a_scan_visits_a_bounded_number_of_waiters() {
    // Few waiters are first in a queue, and many are behind them.
    let mut queues = WaitQueues::default();
    let all = 20 * KEYS_PER_STEP;
    for number in 0..all {
        let (owner, key) = (format!("o{number:04}"), format!("k{}", number / 50));
        queues.enqueue(waiter(&owner, 1, 1, &[&key])).unwrap();
    }
    queues.mark_all_ready();
    let (mut calls, mut served) = (0, 0);
    while queues.has_ready() {
        let before = visited(&queues);
        let mut keys_left = KEYS_PER_STEP;
        while queues.next_ready(&mut keys_left).is_some() {
            keys_left = keys_left.saturating_sub(1);
            served += 1;
        }
        let visits = visited(&queues) - before;
        assert!(visits <= KEYS_PER_STEP, "{visits} at once");
        calls += 1;
    }
    assert_eq!(served, all.div_ceil(50));
    assert!(calls <= 3 * all / KEYS_PER_STEP, "{calls} calls");
}

#[test]
fn one_step_of_a_scan_removes_a_bounded_number_of_waiters() {
    // The connection of every first waiter has closed, and the waiters are not yet removed.
    let (mut queues, count) = (WaitQueues::default(), 5 * KEYS_PER_STEP);
    for number in 0..count {
        queues.enqueue(waiter(&format!("gone{number}"), 1, 7, &[&format!("k{number}")])).unwrap();
    }
    for number in (0..count).filter(|number| number % 50 == 49) {
        queues.enqueue(waiter(&format!("there{number}"), 2, 1, &[&format!("k{number}")])).unwrap();
    }
    queues.mark_all_ready();
    queues.connection_closed(7);
    let mut served = 0;
    while queues.has_ready() {
        let (before, mut keys_left) = (queues.len(), KEYS_PER_STEP);
        while let Some(id) = queues.next_ready(&mut keys_left) {
            keys_left = keys_left.saturating_sub(1);
            queues.served(id, []);
            served += 1;
        }
        let removed = before - queues.len();
        assert!(removed <= KEYS_PER_STEP, "{removed} at once");
    }
    assert_eq!((served, queues.len()), (count / 50, 0));
}

#[test]
fn every_waiter_of_a_key_that_moved_away_is_removed() {
    let mut queues = WaitQueues::default();
    for number in 0..100 {
        queues.enqueue(waiter(&format!("o{number:02}"), number, 1, &["x"])).unwrap();
    }
    queues.enqueue(waiter("elsewhere", 100, 1, &["y"])).unwrap();
    queues.moved_away(0, b"x");
    assert_eq!((queues.waiting_for(0, b"x"), queues.waiting_for(0, b"y")), (0, 1));
    queues.moved_away(0, b"y");
    assert!(queues.is_empty());
}

#[test]
fn queues_are_swapped_with_their_databases() {
    let (mut queues, count) = many_queues();
    queues.enqueue(Waiter { database: 3, ..waiter("here", 1, 2, &["k0"]) }).unwrap();
    queues.databases_swapped(0, 3);
    assert_eq!((queues.waiting_for(3, b"k0"), queues.waiting_for(0, b"k0")), (2, 1));
    assert_eq!(queues.waiting_for(0, b"k1"), 0);
    let keys = all_ready(&mut queues);
    assert_eq!(keys.iter().filter(|(database, _)| *database == 3).count(), count);
    assert!(keys.contains(&(0, b"k0"[..].into())));
    // From then on every queue has its new database number.
    queues.enqueue(Waiter { database: 3, ..waiter("newcomer", 9, 2, &["k0"]) }).unwrap();
    assert_eq!(queues.waiting_for(3, b"k0"), 3);
    assert!(queues.is_preceded(3, b"k0", Some(2), b"z") && !queues.is_preceded(0, b"k1", None, b"z"));
    assert!(queues.leave(0, b"k0", b"here") && !queues.leave(0, b"k0", b"newcomer"));
    queues.mark_ready(3, b"k0");
    let next = next_of(&mut queues).and_then(|id| queues.waiter(id));
    assert_eq!(next.map(|next| (queues.database_of(next), next.ticket)), Some((3, 1)));
    queues.moved_away(3, b"k0");
    assert_eq!(queues.waiting_for(3, b"k0"), 0);
    queues.databases_swapped(3, 0);
    assert_eq!(queues.waiting_for(0, b"k1"), 2);
}
