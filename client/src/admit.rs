//! Letting a node vote.

use crate::Error;
use crate::manager::LockManager;
use redlock_proto::admission::Terms;
use redlock_proto::{Failure, NodeSet};

impl LockManager {
    /// Lets one node vote (`REDLOCK.ADMIT`): with fences above `terms.floor`, after a wait of `terms.wait_ms`
    /// milliseconds. `node` is its place among the nodes that were configured, and `node_id` the id that it reports:
    /// a node with another id refuses.
    ///
    /// A node that cannot prove who it is does not vote: a replacement, a promoted replica, a restored backup.
    /// [`admission::terms`](redlock_proto::admission::terms) counts the terms from the answers of the other nodes;
    /// wrong terms let two clients hold one lock. The caller makes sure that the server which this node replaces is
    /// stopped. The program `redlock admit` does all of it.
    ///
    /// The user needs `+redlock.admit`. Cancel safe; a request whose future is dropped may still be carried out.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node, and for want of a runtime. The inner result is the node's: of the
    /// kind [`FailureKind::Rejected`](crate::FailureKind::Rejected) if it refused, and of another kind if its answer is not known.
    pub async fn admit_node(
        &self,
        node: usize,
        node_id: &str,
        terms: &Terms,
    ) -> Result<Result<(), Failure>, Error> {
        if node >= self.shared().settings.names.len() {
            return Err(Error::invalid("there is no such node"));
        }
        let words = ["REDLOCK.ADMIT", node_id, &terms.floor.to_string(), &terms.wait_ms.to_string()];
        let words = words.map(|word| word.as_bytes().to_vec()).to_vec();
        let replies = self.send_to(words, NodeSet::one(node)).await?;
        Ok(replies.into_iter().next().ok_or(Error::NoRuntime)?.frame.map(|_| ()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Query;
    use redlock_proto::FailureKind;
    use std::time::Duration;

    #[tokio::test]
    async fn there_must_be_such_a_node() {
        let locks = LockManager::in_memory(3);
        let terms = Terms { floor: 7, wait_ms: 0, answers: 2 };
        assert!(matches!(locks.admit_node(3, "id", &terms).await, Err(Error::Invalid(_))));
    }

    #[tokio::test]
    async fn the_node_counts_on_above_the_floor() {
        let locks = LockManager::in_memory(1);
        let terms = Terms { floor: 1_000, wait_ms: 0, answers: 0 };
        let refused = locks.admit_node(0, "another", &terms).await.expect("a runtime");
        assert_eq!(refused.map_err(|failure| failure.kind), Err(FailureKind::Rejected));
        let node = locks.ask_node(0, &Query::node()).await.expect("a runtime").response.expect("an answer");
        let id = node.field("node-id").and_then(|id| id.text().map(str::to_owned)).expect("an id");
        assert_eq!(locks.admit_node(0, &id, &terms).await.expect("a runtime"), Ok(()));
        let lock = locks.acquire("job", Duration::from_secs(1)).await.expect("a free lock");
        assert!(lock.fence() > 1_000);
    }
}
