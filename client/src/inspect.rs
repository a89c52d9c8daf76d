//! Inspecting a lock: what each node knows about it.

use crate::Error;
use crate::driver::NodeResponse;
use crate::manager::LockManager;
use crate::query::Query;
use crate::wire::Frame;
use redlock_contract::fields::lock as fields;
use redlock_proto::inspection::{HolderInfo, LockInfo, LockStatus, NodeStatus, lock_status};
use redlock_proto::{Failure, FailureKind, Quorum};
use std::fmt;
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
    /// How many nodes are a majority.
    pub quorum: Quorum,
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
    /// Whether a majority of the nodes holds the lock, for one owner or shared, or has a plain key.
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

/// The status, then one line per node.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        self.nodes.iter().try_for_each(|node| write!(f, "\n  {node}"))
    }
}

impl fmt::Display for NodeInspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        match (&self.lock, &self.is_foreign) {
            (Ok(Some(info)), _) => write!(f, "held: {info}"),
            (Ok(None), Ok(true)) => f.write_str("held: a plain key, as SET NX PX makes it"),
            (Ok(None), Ok(false)) => f.write_str("free"),
            (Ok(None), Err(failure)) => {
                write!(f, "free; the client could not look for a plain key: {failure}")
            }
            (Err(failure), _) => failure.fmt(f),
        }
    }
}

impl LockManager {
    /// Asks every node whether a lock is held, under which label and for how long. Read-only. If some node
    /// holds no lock, the client also asks for a plain key, as `SET NX PX` creates it, which counts as held.
    ///
    /// The result may be out of date when it is returned: do not write because of it. Cancel safe.
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
        let quorum = settings.quorum;
        Ok(Inspection { status: lock_status(quorum, &statuses), nodes, quorum })
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
    let number = |name| reply.field(name)?.as_count();
    let milliseconds = |name| number(name).map(Duration::from_millis);
    let label = reply.field(fields::LABEL).and_then(Frame::as_bytes).unwrap_or_default();
    let label = String::from_utf8_lossy(label).into_owned();
    let mut info = LockInfo::new(number(fields::FENCE)?, label, milliseconds(fields::TIME_LEFT_MS)?);
    info.held = milliseconds(fields::HELD_MS).unwrap_or_default();
    info.extensions = number(fields::EXTENSIONS).unwrap_or_default();
    info.waiters = number(fields::WAITERS).unwrap_or_default();
    // An older module reports neither.
    info.is_shared = reply.field(fields::MODE).and_then(Frame::as_bytes) == Some(fields::SHARED.as_bytes());
    if let Some(Frame::Array(holders)) = reply.field(fields::HOLDERS) {
        info.holders = holders.iter().filter_map(read_holder).collect();
    }
    Some(info)
}

/// Reads one holder of a shared lock; `None` if its time left is missing.
fn read_holder(holder: &Frame) -> Option<HolderInfo> {
    let number = |name| holder.field(name)?.as_count();
    let label = holder.field(fields::LABEL).and_then(Frame::as_bytes).unwrap_or_default();
    let left = Duration::from_millis(number(fields::TIME_LEFT_MS)?);
    let held = Duration::from_millis(number(fields::HELD_MS).unwrap_or_default());
    let extensions = number(fields::EXTENSIONS).unwrap_or_default();
    Some(HolderInfo::new(String::from_utf8_lossy(label).into_owned(), left, held, extensions))
}
