//! Messages on a waiter's channel that no node has written.

use super::{connected, served, wait_for};
use crate::client::{Network, TTL, until_waiting};
use redlock_tests::{Answer, SOON, Server, Wire, in_time};

/// What a user who may look at a node learns of a waiter; the owner is not used.
struct VisibleWaiter {
    ticket: String,
    channel: String,
    stamp: String,
}

/// Reads what the server is asked until somebody asks to wait.
fn spied(monitor: &mut Wire) -> VisibleWaiter {
    loop {
        let line = monitor.receive().expect("what the server is asked").string();
        let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('"')).collect();
        let after = |name: &str, by: usize| {
            let place = words.iter().position(|word| *word == name)?;
            words.get(place + by).map(|word| (*word).to_string())
        };
        if let (Some(ticket), Some(channel), Some(stamp)) =
            (after("WAIT", 1), after("WAIT", 3), after("STAMP", 1))
        {
            return VisibleWaiter { ticket, channel, stamp };
        }
    }
}

#[tokio::test]
async fn a_forged_grant_makes_no_holder() {
    let network = Network::start(3);
    let (holder, waiter) = (connected(&network).await, connected(&network).await);
    let held = holder.acquire("job", TTL).await.expect("free");
    let mut monitor = network.fleet[0].connect();
    assert_eq!(monitor.call_strs("MONITOR"), Answer::ok());
    let waiting = wait_for(&waiter, "job");
    until_waiting(&network.fleet, 1).await;
    let VisibleWaiter { ticket, channel, stamp } = spied(&mut monitor);
    let channel = format!("redlock:grant:{channel}");
    let head = format!("stamped {ticket} 99 {stamp} 0 60000");
    for proof in ["", "00000000000000000000000000000000 "] {
        let message = format!("{head} {proof}job");
        let publish = |server: &Server| server.connect().call(&["PUBLISH", &channel, &message]);
        for server in network.fleet.iter() {
            assert_eq!(publish(server), Answer::Int(1), "the waiter listens");
        }
    }
    // Each node answers after what was published there.
    let health = in_time("all nodes answer", SOON, waiter.health()).await.expect("a runtime");
    assert!(health.can_grant());
    assert!(!waiting.is_finished(), "somebody else holds the lock");
    let before = held.fence();
    held.release().await;
    let guard = served(waiting).await;
    assert!(guard.is_valid() && guard.fence() == before + 1, "{} after {before}", guard.fence());
}
