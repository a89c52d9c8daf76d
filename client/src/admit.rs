//! Letting a node vote.

use crate::Error;
use crate::manager::LockManager;
use redlock_contract::commands::{Verb, option};
use redlock_proto::admission::Terms;
use redlock_proto::{Failure, NodeSet};

impl LockManager {
    /// Lets one node vote (`REDLOCK.ADMIT`), with fences above `terms.floor`, after a wait of `terms.wait_ms`
    /// milliseconds. `node` is its index in the order in which the nodes were configured. `node_id` is the id
    /// that it reports; a node with another id refuses.
    ///
    /// A node that cannot prove its identity does not vote: a replacement, a promoted replica, a restored
    /// backup. [`admission::terms`](redlock_proto::admission::terms) computes the terms from the replies of
    /// the other nodes. Wrong terms let two clients hold one lock. The caller has to make sure that the
    /// replaced server is stopped. The program `redlock admit` does all of this.
    ///
    /// The user needs `+redlock.admit`. Cancel safe; a dropped call may still admit the node.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node. [`Error::NoRuntime`]. The inner result is the node's: a
    /// failure of the kind [`FailureKind::Rejected`](crate::FailureKind::Rejected) if the node refused, and
    /// of another kind if the client does not know its reply.
    pub async fn admit_node(
        &self,
        node: usize,
        node_id: &str,
        terms: &Terms,
    ) -> Result<Result<(), Failure>, Error> {
        if node >= self.shared().settings.names.len() {
            return Err(Error::invalid("no node has this index"));
        }
        let (floor, far) = (terms.floor.common().to_string(), terms.floor.far_text());
        let words = [Verb::Admit.name(), node_id, &floor, &terms.wait_ms.to_string(), option::FAR, &far];
        let words = words.map(|word| word.as_bytes().to_vec()).to_vec();
        let replies = self.send_to(words, NodeSet::one(node)).await?;
        Ok(replies.into_iter().next().ok_or(Error::NoRuntime)?.frame.map(|_| ()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Query;
    use redlock_contract::HighWater;
    use redlock_proto::FailureKind;
    use std::time::Duration;

    #[tokio::test]
    async fn the_node_must_exist() {
        let locks = LockManager::in_memory(3);
        let terms = Terms { floor: HighWater::new(7), wait_ms: 0, answers: 2 };
        assert!(matches!(locks.admit_node(3, "id", &terms).await, Err(Error::Invalid(_))));
    }

    #[tokio::test]
    async fn the_node_grants_fences_above_the_floor() {
        let locks = LockManager::in_memory(1);
        let terms = Terms { floor: HighWater::new(1_000), wait_ms: 0, answers: 0 };
        let refused = locks.admit_node(0, "another", &terms).await.expect("a runtime");
        assert_eq!(refused.map_err(|failure| failure.kind), Err(FailureKind::Rejected));
        let node = locks.ask_node(0, &Query::node()).await.expect("a runtime").response.expect("an answer");
        let id = node.field("node-id").and_then(|id| id.text().map(str::to_owned)).expect("an id");
        assert_eq!(locks.admit_node(0, &id, &terms).await.expect("a runtime"), Ok(()));
        let lock = locks.acquire("job", Duration::from_secs(1)).await.expect("a free lock");
        assert!(lock.fence() > 1_000);
    }
}
