//! A Redis Cluster as a node: one vote, whichever of its masters a key belongs to and wherever it goes.
//!
//! | file | subject |
//! |---|---|
//! | `votes.rs` | what a cluster does beside other nodes, and alone |
//! | `moves.rs` | slots that move, and masters that are replaced |
//! | `faults.rs` | masters that hang or die, connections that break |
//! | `lines.rs` | waiting in line |
//! | `access.rs` | how a cluster is found, and how one gets in |

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod access;
#[path = "../client/mod.rs"]
mod client;
mod faults;
mod lines;
mod moves;
mod votes;

use client::{builder, until_all_answer};
use redlock_client::{Error, FailureKind, LockManager, Node, Vote};
use redlock_tests::{Answer, Cluster, Fleet, SOON, Server, eventually_async};

/// A manager whose only node is this one: what the node does not grant, nobody does.
pub(crate) async fn alone(node: Node) -> LockManager {
    let manager = builder().nodes([node]).build().expect("an address");
    until_all_answer(&manager).await;
    manager
}

/// A manager of a cluster and two servers beside it.
pub(crate) async fn beside(cluster: &Cluster, fleet: &Fleet) -> LockManager {
    let nodes = [Node::cluster(cluster.urls())].into_iter().chain(fleet.urls().into_iter().map(Node::from));
    let manager = builder().nodes(nodes).build().expect("addresses");
    until_all_answer(&manager).await;
    manager
}

/// The masters of a cluster that hold a key.
pub(crate) fn holders(cluster: &Cluster, key: &str) -> Vec<usize> {
    let holds = |member: &Server| {
        let answer = member.connect().call(&["REDLOCK.INSPECT", key]);
        !matches!(answer, Answer::Nil | Answer::Error(_))
    };
    cluster.iter().enumerate().filter(|(_, member)| holds(member)).map(|(index, _)| index).collect()
}

/// Waits until no master has any lock.
pub(crate) async fn until_nothing_is_held(cluster: &Cluster) {
    eventually_async("no master holds a lock", SOON, async || {
        let locks = |member: &Server| member.connect().call_strs("REDLOCK.NODE").field("locks").cloned();
        cluster.iter().all(|member| locks(member) == Some(Answer::Int(0))).then_some(())
    })
    .await;
}

/// Why the first node gave no usable answer.
pub(crate) fn first_failure(error: &Error) -> (FailureKind, String) {
    match error.nodes().first().map(|answer| &answer.vote) {
        Some(Vote::Failed(failure)) => (failure.kind, failure.detail.to_string()),
        _ => panic!("the first node did not fail: {error}"),
    }
}

/// What the first node says against itself.
pub(crate) async fn complaint(manager: &LockManager) -> String {
    let health = manager.health().await.expect("a runtime");
    let failure = health.nodes[0].state.as_ref().expect_err("a node that is not fit");
    failure.detail.to_string()
}
