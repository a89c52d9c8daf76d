//! Inspecting a lock: what each node knows about it.

use crate::Error;
use crate::driver::NodeResponse;
use crate::manager::LockManager;
use crate::query::Query;
use crate::wire::Frame;
use redlock_contract::fields::lock as fields;
use redlock_proto::inspection::{LockInfo, LockStatus, NodeStatus, lock_status};
use redlock_proto::{Failure, FailureKind};
use std::sync::Arc;
use std::time::Duration;

/// The type of a plain key, which counts as held. A node replies with an error for keys of other types.
const FOREIGN_TYPE: &str = "string";

/// What the nodes know about one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The status of the lock, as a majority of the nodes sees it.
    pub status: LockStatus,
    /// What each node knows, in the order in which the nodes were configured.
    pub nodes: Vec<NodeInspection>,
}

/// What one node knows about a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeInspection {
    /// The node's address.
    pub node: Arc<str>,
    /// The lock as the node holds it, `None` if the node holds none, or why the node did not answer.
    pub lock: Result<Option<LockInfo>, Failure>,
    /// Whether the node has a plain key, as `SET NX PX` creates it. Such a key counts as held. The client
    /// looks for plain keys only if some node holds no lock, and this is `false` otherwise. The failure says
    /// why the client could not look: the user needs permission to run `TYPE`.
    pub is_foreign: Result<bool, Failure>,
}

impl Inspection {
    /// Whether a majority of the nodes holds the lock for one owner, or has a plain key.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.status, LockStatus::Held(_) | LockStatus::Foreign)
    }

    /// The lock as a majority holds it; `None` for a plain key.
    #[must_use]
    pub fn lock(&self) -> Option<&LockInfo> {
        match &self.status {
            LockStatus::Held(info) => Some(info),
            _ => None,
        }
    }
}

impl LockManager {
    /// Asks every node whether a lock is held, under which label and for how long. Read-only. If some node
    /// holds no lock, the client also asks for a plain key, as `SET NX PX` creates it, which counts as held.
    ///
    /// The result may be out of date when it is returned: never a reason to write. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the resource is empty. A node that does not answer is a failure in
    /// [`Inspection::nodes`].
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
            (Ok(Some(info)), _) => NodeStatus::Held(info.clone()),
            (Ok(None), Ok(true)) => NodeStatus::Foreign,
            // A user who may not run TYPE sees locks only.
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
    read_lock_info(&frame).map(Some).ok_or_else(|| {
        Failure::new(FailureKind::Rejected, "the reply to REDLOCK.INSPECT lacks the fence or the time left")
    })
}

/// Reads the reply to `REDLOCK.INSPECT`; `None` if it lacks the fence or the time left.
pub(crate) fn read_lock_info(reply: &Frame) -> Option<LockInfo> {
    let number = |name| u64::try_from(reply.field(name)?.as_integer()?).ok();
    let milliseconds = |name| number(name).map(Duration::from_millis);
    let label = reply.field(fields::LABEL).and_then(Frame::as_bytes).unwrap_or_default();
    let label = String::from_utf8_lossy(label).into_owned();
    let mut info = LockInfo::new(number(fields::FENCE)?, label, milliseconds(fields::TIME_LEFT_MS)?);
    info.held = milliseconds(fields::HELD_MS).unwrap_or_default();
    info.extensions = number(fields::EXTENSIONS).unwrap_or_default();
    info.waiters = number(fields::WAITERS).unwrap_or_default();
    Some(info)
}
