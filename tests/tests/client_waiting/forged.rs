//! Forged messages on the channel of a waiter.

use super::{connected, served, wait_for};
use crate::client::{Network, TTL, until_waiting};
use redlock_tests::{Answer, SOON, Server, Wire, in_time};

/// What a user with access to a node learns of a waiter. The tests do not use the owner.
struct VisibleWaiter {
    ticket: String,
    channel: String,
    stamp: String,
}

/// Reads the commands that the server gets until one of them queues, and returns what it shows of the waiter.
fn next_waiter(monitor: &mut Wire) -> VisibleWaiter {
    loop {
        let line = monitor.receive().expect("a line of MONITOR").string();
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

/// The test plays a user that can read the channel on one node and publish on the others.
#[tokio::test]
async fn the_grant_of_one_node_counts_for_no_other_node() {
    let network = Network::start(3);
    let (holder, waiter) = (connected(&network).await, connected(&network).await);
    let held = holder.acquire("job", TTL).await.expect("free");
    let mut monitor = network.fleet[0].connect();
    assert_eq!(monitor.call_strs("MONITOR"), Answer::ok());
    let waiting = wait_for(&waiter, "job");
    until_waiting(&network.fleet, 1).await;
    let channel = format!("redlock:grant:{}", next_waiter(&mut monitor).channel);
    let mut reader = network.fleet[0].connect();
    assert_eq!(reader.call(&["SUBSCRIBE", &channel]).list().len(), 3);
    // The operator deletes the lock on one node, and that node hands it to the waiter.
    assert_eq!(network.fleet[0].connect().call_strs("DEL job"), Answer::Int(1));
    let genuine = reader.receive().expect("the push of the node").list()[2].string();
    assert!(genuine.starts_with("stamped "), "{genuine}");
    for server in network.fleet.iter().skip(1) {
        let published = server.connect().call(&["PUBLISH", &channel, &genuine]);
        assert_eq!(published, Answer::Int(1), "the waiter is subscribed");
    }
    let health = in_time("all nodes answer", SOON, waiter.health()).await.expect("a runtime");
    assert!(health.can_grant());
    assert!(!waiting.is_finished(), "one node of three has granted the lock");
    assert!(held.is_valid());
    held.release().await;
    assert!(served(waiting).await.is_valid());
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
    let VisibleWaiter { ticket, channel, stamp } = next_waiter(&mut monitor);
    let channel = format!("redlock:grant:{channel}");
    let head = format!("stamped {ticket} 99 {stamp} 0 60000");
    for proof in ["", "00000000000000000000000000000000 "] {
        let message = format!("{head} {proof}job");
        let publish = |server: &Server| server.connect().call(&["PUBLISH", &channel, &message]);
        for server in network.fleet.iter() {
            assert_eq!(publish(server), Answer::Int(1), "the waiter is subscribed");
        }
    }
    // The reply of each node follows the messages that were published there.
    let health = in_time("all nodes answer", SOON, waiter.health()).await.expect("a runtime");
    assert!(health.can_grant());
    assert!(!waiting.is_finished(), "another client holds the lock");
    let before = held.fence();
    held.release().await;
    let guard = served(waiting).await;
    assert!(guard.is_valid() && guard.fence() == before + 1, "fence {} after {before}", guard.fence());
}
