//! Detached locks: no driver tracks them; any process that knows the owner can extend and release them.

use crate::Error;
use crate::driver::{Message, NodeResponse, lock_reply};
use crate::guard::Detached;
use crate::keys::Keys;
use crate::lock_shared::LostReason;
use crate::manager::LockManager;
use crate::owner::Owner;
use crate::report::{NodeRelease, ReleaseReport};
use crate::wire::Frame;
use redlock_proto::{Ask, Ballot, NodeSet, Quorum, Request, Vote};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

impl LockManager {
    /// Returns a lock that another process has [detached](crate::Guard::detach), from its resource, owner
    /// and fence. The call does not ask the nodes whether the lock is still held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_client::Error> {
    /// # use redlock_client::{LockManager, Owner};
    /// # use std::time::Duration;
    /// # let locks = LockManager::in_memory(5);
    /// let given = locks.acquire("orders:42", Duration::from_secs(30)).await?.detach();
    /// let (owner, fence) = (given.owner.expose(), given.fence);
    ///
    /// // In another process, which got owner and fence from this one:
    /// let lock = locks.detached("orders:42", owner.parse()?, fence)?;
    /// locks.extend_detached(&lock, Duration::from_secs(30)).await?;
    /// let report = locks.release_detached(&lock).await?;
    /// assert!(report.is_free_on_a_majority());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if the resource is empty.
    pub fn detached(&self, resource: impl AsRef<[u8]>, owner: Owner, fence: u64) -> Result<Detached, Error> {
        let keys = self.key(resource.as_ref())?;
        let keys = keys.names().iter().map(|key| key.to_vec()).collect();
        Ok(Detached { keys, fence, owner, remaining: Duration::ZERO, is_shared: false })
    }

    /// Extends a detached lock to this time to live, from now. Returns its validity.
    ///
    /// An exclusive lock is held if a majority of the nodes holds it for this owner *under its fence*. A node that
    /// replies with another fence has granted the lock again, and another client may have held it in between.
    /// If the fence is the same, no other client has held the lock, even if its time to live had passed.
    ///
    /// For a shared lock, a larger fence counts as well, because other clients that share the lock raise its fence.
    /// So extend a shared lock before its time to live has passed: afterwards, a client may have held the exclusive
    /// lock in between, and a larger fence does not show it.
    ///
    /// Cancel safe: if the future is dropped, the extension may still happen.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes gave a usable answer, and [`Error::Rejected`] if they rejected the
    /// request: the lock keeps its validity.
    /// [`Error::Lost`] if no majority of the nodes can hold the lock any more.
    pub async fn extend_detached(&self, lock: &Detached, ttl: Duration) -> Result<Duration, Error> {
        let settings = &self.shared().settings;
        let ttl = settings.check_ttl(ttl)?;
        let begun = settings.clock.now();
        let request = Request { ask: Ask::Extend, ttl, sent: begun };
        let replies = self.broadcast(command(&request, lock)).await?;
        let mut ballot = Ballot::new(settings.quorum);
        for (node, reply) in replies.into_iter().enumerate() {
            ballot.enter(node, Vote::from(lock_reply(reply.frame, &request)));
        }
        let report = || Box::new(self.shared().report(&self.keys_of(lock), Some(&ballot)));
        match extension_outcome(settings.quorum, &ballot, lock) {
            ExtensionOutcome::Held => {
                let left = settings.clock.now().until(begun.plus(settings.drift.lease(ttl)));
                if left.is_zero() { Err(Error::Expired(report())) } else { Ok(left) }
            }
            ExtensionOutcome::Gone => Err(Error::Lost { reason: LostReason::Gone, report: report() }),
            ExtensionOutcome::Unknown => Err(Error::not_extended(*report())),
        }
    }

    /// Releases a detached lock, and waits until every node has answered or timed out. A node that did not
    /// get the release holds the lock until it expires.
    ///
    /// If a node has lost some of several keys, the others are freed, and the lock counts as not held.
    ///
    /// [`was_held`](ReleaseReport::was_held) of the report says whether a majority held the lock. Cancel
    /// safe: if the future is dropped after the first poll, the release still happens. One exception: if a
    /// node has lost some keys of the lock, the other keys may stay held until they expire.
    ///
    /// # Errors
    /// [`Error::NoRuntime`].
    pub async fn release_detached(&self, lock: &Detached) -> Result<ReleaseReport, Error> {
        let settings = &self.shared().settings;
        let floor = (lock.fence > 0).then_some(lock.fence);
        let ask = Ask::Release { floor };
        let request = Request { ask, ttl: Duration::ZERO, sent: settings.clock.now() };
        let replies = self.broadcast(command(&request, lock)).await?;
        let has_freed_nothing = |reply: &NodeResponse| matches!(reply.frame, Ok(Frame::Integer(0)));
        let partly: NodeSet = replies
            .iter()
            .enumerate()
            .filter(|(_, reply)| has_freed_nothing(reply))
            .map(|(node, _)| node)
            .collect();
        if lock.keys.len() > 1 && !partly.is_empty() {
            // A node frees all keys of a command or none. If one is gone, release each on its own.
            let inbox = self.shared().inbox()?;
            let mut answers = Vec::with_capacity(lock.keys.len());
            for key in &lock.keys {
                let words = command(&request, &Detached { keys: vec![key.clone()], ..lock.clone() });
                let (answer, answered) = oneshot::channel();
                let _ = inbox.send(Message::Broadcast { words, to: partly, answer });
                answers.push(answered);
            }
            for answered in answers {
                let _ = answered.await;
            }
        }
        let nodes = settings.names.iter().zip(replies).map(|(name, reply)| NodeRelease {
            node: Arc::clone(name),
            outcome: lock_reply(reply.frame, &request).into(),
        });
        Ok(ReleaseReport::of_nodes(settings.quorum, nodes.collect()))
    }

    /// The keys of a lock, for error messages: without the prefix of this manager.
    fn keys_of(&self, lock: &Detached) -> Keys {
        Keys::of_names(&self.shared().settings.key_prefix, &lock.keys)
    }
}

fn command(request: &Request, lock: &Detached) -> Vec<Vec<u8>> {
    let copied = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    request.with_words(&lock.keys, lock.owner.as_bytes(), &[], copied)
}

/// The result of an extension.
#[derive(Debug, PartialEq, Eq)]
enum ExtensionOutcome {
    Held,
    /// No majority holds the lock, whatever the remaining nodes would reply.
    Gone,
    Unknown,
}

fn extension_outcome(quorum: Quorum, ballot: &Ballot, lock: &Detached) -> ExtensionOutcome {
    let is_held = |vote: &Vote| match vote.fence() {
        Some(fence) if lock.is_shared => fence >= lock.fence,
        fence => fence == Some(lock.fence),
    };
    let is_silent = |vote: &Vote| matches!(vote, Vote::Pending | Vote::Failed(_) | Vote::Quarantined { .. });
    let same = ballot.votes().iter().filter(|vote| is_held(vote)).count();
    let silent = ballot.votes().iter().filter(|vote| is_silent(vote)).count();
    if quorum.is_reached_by(same) {
        ExtensionOutcome::Held
    } else if quorum.is_reached_by(same + silent) {
        ExtensionOutcome::Unknown
    } else {
        ExtensionOutcome::Gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryNodes;
    use redlock_proto::{Failure, FailureKind};

    const TTL: Duration = Duration::from_secs(30);

    #[test]
    fn only_votes_with_the_same_fence_count() {
        let quorum = Quorum::of(5).expect("five");
        let silent = || Vote::Failed(Failure::new(FailureKind::Down, ""));
        let held = |fence| Vote::Granted { fence };
        let table = [
            ([held(7), held(7), held(7), silent(), silent()], ExtensionOutcome::Held),
            ([held(7), held(7), held(8), silent(), Vote::Refused], ExtensionOutcome::Unknown),
            ([held(7), held(7), held(8), held(9), Vote::Refused], ExtensionOutcome::Gone),
            ([held(7), held(7), held(8), held(8), held(8)], ExtensionOutcome::Gone),
            ([silent(), silent(), silent(), Vote::Refused, Vote::Refused], ExtensionOutcome::Unknown),
            ([silent(), silent(), Vote::Refused, Vote::Refused, Vote::Refused], ExtensionOutcome::Gone),
        ];
        let exclusive = Detached {
            keys: vec![b"job".to_vec()],
            fence: 7,
            owner: Owner::random(),
            remaining: Duration::ZERO,
            is_shared: false,
        };
        let outcome = |votes: &[Vote], lock: &Detached| {
            let mut ballot = Ballot::new(quorum);
            votes.iter().cloned().enumerate().for_each(|(node, vote)| ballot.enter(node, vote));
            extension_outcome(quorum, &ballot, lock)
        };
        for (votes, expected) in &table {
            assert_eq!(outcome(votes, &exclusive), *expected, "{votes:?}");
        }
        let shared = Detached { is_shared: true, ..exclusive };
        let raised = [held(7), held(8), held(9), Vote::Refused, silent()];
        assert_eq!(outcome(&raised, &shared), ExtensionOutcome::Held, "another reader has raised two nodes");
        let older = [held(7), held(8), held(6), held(6), silent()];
        assert_eq!(outcome(&older, &shared), ExtensionOutcome::Unknown, "a smaller fence does not count");
    }

    #[tokio::test(start_paused = true)]
    async fn another_process_extends_and_releases() {
        let nodes = MemoryNodes::new(3);
        let build = || crate::Builder::new().key_prefix("app:").memory(&nodes).build().expect("a manager");
        let (here, there) = (build(), build());
        let given = here.acquire("job", TTL).await.expect("a free lock").detach();
        let lock = there.detached("job", given.owner, given.fence).expect("a name");
        assert_eq!(lock.keys, [b"app:job"]);

        tokio::time::advance(TTL - Duration::from_secs(1)).await;
        assert!(there.extend_detached(&lock, TTL).await.expect("still held") > TTL - Duration::from_secs(1));
        tokio::time::advance(TTL - Duration::from_secs(1)).await;
        assert!(here.try_acquire("job", TTL).await.is_err(), "the extension holds");

        let report = there.release_detached(&lock).await.expect("a runtime");
        assert!(report.was_held() && report.is_free_on_a_majority());
        assert!(!there.release_detached(&lock).await.expect("a runtime").was_held());
        let lost = there.extend_detached(&lock, TTL).await.expect_err("the lock is released");
        assert!(matches!(&lost, Error::Lost { reason: LostReason::Gone, .. }), "{lost}");
        assert_eq!(lost.resource(), "job");
    }

    #[tokio::test]
    async fn a_lock_of_another_owner_is_not_touched() {
        let locks = LockManager::in_memory(3);
        let guard = locks.acquire("job", TTL).await.expect("a free lock");
        let stranger = locks.detached("job", Owner::random(), guard.fence()).expect("a name");
        assert!(matches!(locks.extend_detached(&stranger, TTL).await, Err(Error::Lost { .. })));
        assert!(!locks.release_detached(&stranger).await.expect("a runtime").was_held());
        assert!(locks.inspect("job").await.expect("a runtime").is_held());
        guard.release().await;
    }

    #[tokio::test]
    async fn another_fence_is_another_lock() {
        let locks = LockManager::in_memory(3);
        let given = locks.acquire("job", TTL).await.expect("a free lock").detach();
        let other = locks.detached("job", given.owner, given.fence + 1).expect("a name");
        assert!(matches!(locks.extend_detached(&other, TTL).await, Err(Error::Lost { .. })));
    }

    #[tokio::test]
    async fn an_extension_without_a_quorum_changes_nothing() {
        let nodes = MemoryNodes::new(3);
        let locks = crate::Builder::new().memory(&nodes).build().expect("a manager");
        let given = locks.acquire("job", TTL).await.expect("a free lock").detach();
        nodes.silence(0);
        nodes.silence(1);
        assert!(matches!(locks.extend_detached(&given, TTL).await, Err(Error::NoQuorum(_))));
        nodes.revive(0);
        nodes.revive(1);
        assert!(locks.extend_detached(&given, TTL).await.is_ok());
    }

    #[tokio::test]
    async fn several_keys_are_one_lock() {
        let locks = LockManager::in_memory(3);
        let given = locks.acquire_many(["a", "b"], TTL).await.expect("two free locks").detach();
        assert!(locks.extend_detached(&given, TTL).await.is_ok());
        assert!(locks.release_detached(&given).await.expect("a runtime").is_free_on_a_majority());
        assert!(locks.try_acquire("b", TTL).await.is_ok());
    }

    #[tokio::test]
    async fn the_remaining_keys_of_several_are_released() {
        let nodes = MemoryNodes::new(3);
        let locks = crate::Builder::new().memory(&nodes).build().expect("a manager");
        let given = locks.acquire_many(["a", "b"], TTL).await.expect("two free locks").detach();
        (0..3).for_each(|node| assert!(nodes.delete(node, "a")));
        assert!(!locks.release_detached(&given).await.expect("a runtime").was_held());
        assert!((0..3).all(|node| !nodes.holds(node, "b")));
    }
}
