//! Who holds a lock, as the nodes see it.

use crate::Error;
use crate::driver::NodeResponse;
use crate::manager::LockManager;
use crate::query::Query;
use crate::wire::Frame;
use redlock_proto::inspection::{LockInfo, LockStatus, NodeStatus, lock_status};
use redlock_proto::{Failure, FailureKind};
use std::sync::Arc;
use std::time::Duration;

/// The type of keys that count as held without being locks. Other types are an error to a node, as to everybody else.
const FOREIGN_TYPE: &str = "string";

/// What the nodes know of one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// What a majority makes of it.
    pub status: LockStatus,
    /// What every node said, in the order in which they were configured.
    pub nodes: Vec<NodeInspection>,
}

/// What one node knows of a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeInspection {
    /// The node's address.
    pub node: Arc<str>,
    /// The lock as it is held there, `None` if there is none; or why the node did not say.
    pub lock: Result<Option<LockInfo>, Failure>,
    /// Whether a plain key is there, as `SET NX PX` makes one. It counts as held. `false` also where nobody looked,
    /// because no node was without a lock. Why it could not be seen, if it could not: the user needs
    /// permission to run `TYPE`.
    pub is_foreign: Result<bool, Failure>,
}

impl Inspection {
    /// Whether somebody has it: a majority of the nodes holds the lock for one owner, or a majority has a plain key
    /// there.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.status, LockStatus::Held(_) | LockStatus::Foreign)
    }

    /// The lock as a majority holds it; a plain key is none.
    #[must_use]
    pub fn lock(&self) -> Option<&LockInfo> {
        match &self.status {
            LockStatus::Held(record) => Some(record),
            _ => None,
        }
    }
}

impl LockManager {
    /// Asks every node about a lock: whether it is held, under which label, for how long. Where there is none, asks
    /// also whether somebody has locked it with `SET NX PX`, which counts as held. Changes nothing.
    ///
    /// What it says may be over by the time it is read: it is for people, never a reason to write. Cancel
    /// safe.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a resource without a name. Nodes that do not answer are part of the report.
    pub async fn inspect(&self, resource: impl AsRef<[u8]>) -> Result<Inspection, Error> {
        let keys = self.key(resource.as_ref())?;
        let key = keys.names().first().cloned().unwrap_or_default();
        let replies = self.broadcast(Query::inspect(key.clone()).into_words()).await?;
        let locks: Vec<_> = replies.into_iter().map(lock_info).collect();
        let is_foreign = if locks.iter().any(|lock| matches!(lock, Ok(None))) {
            let types = self.ask(&Query::key_type(key)).await?;
            types
                .into_iter()
                .map(|reply| reply.response.map(|response| response.text() == Some(FOREIGN_TYPE)))
                .collect()
        } else {
            vec![Ok(false); locks.len()]
        };
        let settings = &self.shared().settings;
        let named = settings.names.iter().zip(locks).zip(is_foreign);
        let nodes: Vec<NodeInspection> = named
            .map(|((name, lock), is_foreign)| NodeInspection { node: Arc::clone(name), lock, is_foreign })
            .collect();
        let statuses: Vec<NodeStatus> = nodes.iter().map(NodeInspection::status).collect();
        Ok(Inspection { status: lock_status(settings.quorum, &statuses), nodes })
    }
}

impl NodeInspection {
    fn status(&self) -> NodeStatus {
        match (&self.lock, &self.is_foreign) {
            (Ok(Some(record)), _) => NodeStatus::Held(record.clone()),
            (Ok(None), Ok(true)) => NodeStatus::Foreign,
            // Who may not look for plain keys sees what there is to see.
            (Ok(None), _) => NodeStatus::Free,
            (Err(_), _) => NodeStatus::Unknown,
        }
    }
}

fn lock_info(reply: NodeResponse) -> Result<Option<LockInfo>, Failure> {
    let frame = reply.frame?;
    if matches!(frame, Frame::Nil) {
        return Ok(None);
    }
    let number = |name| u64::try_from(frame.field(name)?.as_integer()?).ok();
    let milliseconds = |name| number(name).map(Duration::from_millis);
    let record = || {
        let label = frame.field("label").and_then(Frame::as_bytes).unwrap_or_default();
        let label = String::from_utf8_lossy(label).into_owned();
        let mut record = LockInfo::new(number("fence")?, label, milliseconds("pttl")?);
        record.held = milliseconds("held-ms").unwrap_or_default();
        record.extensions = number("extensions").unwrap_or_default();
        record.waiters = number("waiters").unwrap_or_default();
        Some(record)
    };
    record().map(Some).ok_or_else(|| Failure::new(FailureKind::Rejected, "a reply that makes no sense"))
}
