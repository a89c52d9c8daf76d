//! Breaking a lock without its owner.

use crate::Error;
use crate::keys::Keys;
use crate::manager::LockManager;
use redlock_contract::commands::{Verb, option};
use redlock_proto::{Failure, NodeSet};

impl LockManager {
    /// Breaks a lock on one node (`REDLOCK.BREAK`), if it has this fence there. `node` is its index in the
    /// order in which the nodes were configured. Returns whether the node broke the lock: `false` if the lock
    /// is free there by now, or has another fence.
    ///
    /// **The holder does not stop.** It finds out at its next extension, or when its validity ends, and may
    /// write until then. Only a storage that compares fences rejects its late writes. The first waiter gets the
    /// lock at once. To break a lock, call this for every node; [`inspect`](Self::inspect) returns the fences.
    /// The program `redlock break` does both.
    ///
    /// The user needs `+redlock.break`. Cancel safe; a dropped call may still break the lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node, or the resource is not valid. [`Error::NoRuntime`]. The
    /// inner result is the node's: a failure of the kind
    /// [`FailureKind::Rejected`](crate::FailureKind::Rejected) if the node refused, and of another kind if the
    /// client does not know its reply.
    pub async fn break_on_node(
        &self,
        node: usize,
        resource: &str,
        fence: u64,
    ) -> Result<Result<bool, Failure>, Error> {
        let settings = &self.shared().settings;
        if node >= settings.names.len() {
            return Err(Error::invalid("there is no such node"));
        }
        let keys = Keys::one(&settings.key_prefix, resource.as_bytes()).map_err(Error::invalid)?;
        let mut words = vec![Verb::Break.name().as_bytes().to_vec()];
        words.extend(keys.names().iter().map(|key| key.to_vec()));
        words.extend([option::FENCE.as_bytes().to_vec(), fence.to_string().into_bytes()]);
        let replies = self.send_to(words, NodeSet::one(node)).await?;
        let frame = replies.into_iter().next().ok_or(Error::NoRuntime)?.frame;
        Ok(frame.map(|reply| reply.as_integer().is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_lock_is_broken_only_with_its_own_fence() {
        let locks = LockManager::in_memory(3);
        let guard = locks.acquire("job", Duration::from_secs(60)).await.expect("a free lock");
        assert!(matches!(locks.break_on_node(3, "job", guard.fence()).await, Err(Error::Invalid(_))));
        for node in 0..3 {
            assert_eq!(
                locks.break_on_node(node, "job", guard.fence() + 1).await.expect("a runtime"),
                Ok(false)
            );
            assert_eq!(locks.break_on_node(node, "job", guard.fence()).await.expect("a runtime"), Ok(true));
            assert_eq!(locks.break_on_node(node, "job", guard.fence()).await.expect("a runtime"), Ok(false));
        }
        assert!(guard.extend().await.is_err(), "the holder has lost the lock");
        let next = locks.acquire("job", Duration::from_secs(60)).await.expect("a free lock");
        assert!(next.fence() > guard.fence());
    }
}
