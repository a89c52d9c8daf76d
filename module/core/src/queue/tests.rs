//! Crowds: what many who wait may cost at once.

use super::*;

fn waiter(owner: &str, ticket: u64, connection: u64, keys: &[&str]) -> Waiter {
    Waiter {
        database: 0,
        ticket,
        owner: owner.as_bytes().into(),
        keys: keys.iter().map(|key| key.as_bytes().into()).collect(),
        ttl_ms: 1_000,
        floor: 0,
        label: Box::default(),
        channel: Box::default(),
        stamp: None,
        claim_ms: 0,
        connection,
        since: Millis(0),
        until: Millis(1_000),
    }
}

/// Ten times as many as may be let go at once wait on connection 1, and after them one on connection 2.
fn crowd() -> (Queues, usize) {
    let (mut queues, many) = (Queues::default(), 10 * KEYS_AT_ONCE);
    for ticket in 1..=many as u64 {
        queues.enter(waiter(&format!("o{ticket}"), ticket, 1, &["k"])).unwrap();
    }
    assert_eq!(queues.enter(waiter("last", 1_000_000, 2, &["k"])), Ok(many));
    (queues, many + 1)
}

#[test]
fn a_crowd_whose_connection_closes_is_let_go_little_by_little_and_never_served() {
    let (mut queues, all) = crowd();
    queues.closed(1);
    assert_eq!(queues.len(), all - KEYS_AT_ONCE);
    let mut served = None;
    while served.is_none() {
        let before = queues.len();
        queues.note_free(0, b"k");
        served = queues.next_due();
        assert!(before - queues.len() <= KEYS_AT_ONCE);
    }
    assert_eq!(served.and_then(|id| queues.waiter(id)).map(|waiter| waiter.connection), Some(2));
    assert!(!queues.is_closing());
    assert_eq!(queues.len(), 1);
}

#[test]
fn a_crowd_that_has_waited_long_enough_is_let_go_little_by_little() {
    let (mut queues, mut before) = crowd();
    assert!(!queues.let_go(Millis(999)));
    while queues.let_go(Millis(1_000)) {
        assert!(before - queues.len() <= KEYS_AT_ONCE);
        before = queues.len();
    }
    assert_eq!((queues.len(), queues.keys, queues.bytes()), (0, 0, 0));
    assert!(queues.by_connection.is_empty() && queues.lines.values().all(HashMap::is_empty));
}

#[test]
fn one_owner_waits_once_for_a_key() {
    let mut queues = Queues::default();
    queues.enter(waiter("o", 5, 1, &["x", "z"])).unwrap();
    queues.enter(waiter("o", 7, 2, &["y"])).unwrap();
    queues.enter(waiter("other", 9, 3, &["z"])).unwrap();
    assert!(!queues.is_due());
    // Takes the place of both, and whoever waited behind them is next.
    queues.enter(waiter("o", 6, 1, &["y", "x"])).unwrap();
    assert_eq!((queues.len(), queues.keys), (2, 3));
    let next = queues.next_due().and_then(|id| queues.waiter(id));
    assert_eq!(next.map(|waiter| waiter.ticket), Some(9));
    assert!(queues.leave(0, b"x", b"o"));
    assert_eq!((queues.len(), queues.keys, queues.waiting_for(0, b"y")), (1, 1, 0));
}

#[test]
fn every_key_counts() {
    let mut queues = Queues { limits: Limits { node: 4, key: 2, connection: 3 }, ..Queues::default() };
    let mut refused = |waiter| queues.enter(waiter).err().map(|fault| fault.to_string());
    assert_eq!(refused(waiter("a", 1, 1, &["x", "y"])), None);
    assert!(refused(waiter("b", 2, 1, &["x", "z"])).is_some_and(|why| why.contains("on this connection")));
    assert!(refused(waiter("b", 2, 2, &["x", "y", "z"])).is_some_and(|why| why.contains("on this node")));
    assert_eq!(refused(waiter("b", 2, 2, &["x", "y"])), None);
    assert_eq!(refused(waiter("b", 2, 1, &["x"])), None, "in place of what it waited for");
    assert!(refused(waiter("c", 3, 3, &["x"])).is_some_and(|why| why.contains("for this key")));
    // What is given up makes room.
    assert_eq!(refused(waiter("a", 1, 1, &["y"])), None);
    assert_eq!((queues.len(), queues.keys), (2, 2));
}

#[test]
fn what_is_postponed_is_looked_at_once_and_last() {
    let mut queues = Queues::default();
    queues.enter(waiter("a", 1, 1, &["x"])).unwrap();
    queues.enter(waiter("b", 2, 1, &["y"])).unwrap();
    queues.note_free(0, b"x");
    queues.note_free(0, b"y");
    let ticket = |queues: &mut Queues| {
        let id = queues.next_due()?;
        queues.waiter(id).map(|waiter| waiter.ticket)
    };
    let first = queues.next_due().unwrap();
    queues.postpone(first, Millis(10));
    for _ in 0..3 {
        queues.note_free(0, b"x");
        assert!(!queues.is_due());
    }
    queues.retry(Millis(9));
    assert_eq!((ticket(&mut queues), queues.retries_at()), (None, Some(Millis(10))));
    queues.retry(Millis(10));
    assert_eq!([ticket(&mut queues), ticket(&mut queues), ticket(&mut queues)], [Some(2), Some(1), None]);
    assert_eq!(queues.retries_at(), None);
}
