//! Nodes in memory: locks without a server, for examples and tests.
//!
//! They decide with the same code as the server module. Their clock is the runtime's: a test that pauses
//! tokio's clock can let a lock expire without waiting. Managers that share [`MemoryNodes`] compete as processes
//! do.
//!
//! ```
//! use redlock_client::{Error, LockManager};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Error> {
//! // In a test: #[tokio::test(start_paused = true)]
//! let (locks, ttl) = (LockManager::in_memory(5), Duration::from_secs(30));
//! let guard = locks.try_acquire("orders:42", ttl).await?;
//! assert!(locks.try_acquire("orders:42", ttl).await.is_err());
//!
//! tokio::time::advance(2 * ttl).await; // takes no time at all
//! assert!(!guard.is_valid());
//! assert!(locks.try_acquire("orders:42", ttl).await.is_ok());
//! # Ok(())
//! # }
//! ```

use crate::wire::Frame;
use bytes::Bytes;
use redlock_core::reply::{Fields, Value};
use redlock_core::{CommandError, MemoryNode, Millis, Reply};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Nodes in memory. Managers can share them, and tests can make them fail.
#[derive(Clone)]
pub struct MemoryNodes {
    shared: Arc<MemoryShared>,
}

struct MemoryShared {
    nodes: Vec<Mutex<MemoryHost>>,
    connections: AtomicU64,
    /// The subscribers, by channel.
    push_queues: Mutex<HashMap<Vec<u8>, Weak<PushQueue>>>,
    /// When time starts: at the first command, because a paused clock belongs to one runtime.
    start: OnceLock<Instant>,
}

struct MemoryHost {
    node: MemoryNode,
    outage: Option<Outage>,
    /// Releases that the node gets when it is revived, each with its connection.
    pending_releases: Vec<(Vec<Vec<u8>>, u64)>,
}

/// How a node fails to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// A command fails at once.
    Unreachable,
    /// A command gets no reply.
    Hung,
}

impl MemoryNodes {
    /// Creates `count` nodes that hold no locks.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let node = |place| {
            Mutex::new(MemoryHost {
                node: MemoryNode::new(&format!("memory-{place}")),
                outage: None,
                pending_releases: Vec::new(),
            })
        };
        let nodes = (0..count).map(node).collect();
        let connections = AtomicU64::new(0);
        let (push_queues, start) = (Mutex::default(), OnceLock::new());
        Self { shared: Arc::new(MemoryShared { nodes, connections, push_queues, start }) }
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.nodes.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.nodes.is_empty()
    }

    /// Whether `others` are the same nodes.
    pub(crate) fn are(&self, others: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &others.shared)
    }

    /// Makes a node unreachable until [`MemoryNodes::revive`]: commands fail at once. Its locks keep expiring.
    pub fn silence(&self, node: usize) {
        self.with(node, |host| host.outage = Some(Outage::Unreachable));
    }

    /// Makes a node hang until [`MemoryNodes::revive`]: commands get no reply, and a caller waits for the node
    /// timeout of its manager. Commands are lost, except releases, which the node gets when it is revived.
    /// Its locks keep expiring.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redlock_client::Error> {
    /// use redlock_client::{LockManager, LostReason, memory::MemoryNodes};
    /// use std::time::Duration;
    ///
    /// let nodes = MemoryNodes::new(3);
    /// let locks = LockManager::builder().memory(&nodes).build()?;
    /// let mut guard = locks.acquire("orders:42", Duration::from_secs(10)).await?;
    /// guard.keep_alive(Duration::from_secs(60))?;
    /// (0..3).for_each(|node| nodes.hang(node));
    /// // No node answers, and the holder is notified all the same.
    /// assert_eq!(guard.lost().await, LostReason::Expired);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hang(&self, node: usize) {
        self.with(node, |host| host.outage = Some(Outage::Hung));
    }

    /// Makes a node answer again. It first gets the releases that it has missed.
    pub fn revive(&self, node: usize) {
        let now = self.now();
        self.with(node, |host| {
            host.outage = None;
            for (words, connection) in std::mem::take(&mut host.pending_releases) {
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                // No caller waits for the reply.
                let _ = host.node.execute(&words, connection, now);
            }
        });
    }

    /// Keeps a release until the node is revived.
    pub(crate) fn queue_release(&self, node: usize, words: &[&[u8]], connection: u64) {
        let words = words.iter().map(|word| word.to_vec()).collect();
        self.with(node, |host| host.pending_releases.push((words, connection)));
    }

    /// Deletes a key on a node, as `DEL` does; true if the key existed.
    pub fn delete(&self, node: usize, key: impl AsRef<[u8]>) -> bool {
        self.with(node, |host| host.node.delete(key.as_ref())).unwrap_or(false)
    }

    /// Whether a node holds a lock on a key now.
    #[must_use]
    pub fn holds(&self, node: usize, key: impl AsRef<[u8]>) -> bool {
        let now = self.now();
        self.with(node, |host| host.node.exists(key.as_ref(), now)).unwrap_or(false)
    }

    /// The id of a node.
    pub(crate) fn node_id(&self, node: usize) -> Option<String> {
        self.with(node, |host| host.node.node().state().node_id.clone())
    }

    /// The number of a new connection. A node distinguishes the requests of two connections.
    pub(crate) fn connect(&self) -> u64 {
        self.shared.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs a command on a node.
    pub(crate) fn execute(&self, node: usize, words: &[&[u8]], connection: u64) -> Result<Frame, Outage> {
        let now = self.now();
        let reply = self.with(node, |host| match host.outage {
            None => Ok(frame(host.node.execute(words, connection, now))),
            Some(outage) => Err(outage),
        });
        self.deliver(node);
        reply.unwrap_or(Err(Outage::Unreachable))
    }

    /// Subscribes to a channel.
    pub(crate) fn subscribe(&self, channel: &[u8]) -> Arc<PushQueue> {
        let push_queue = Arc::new(PushQueue::default());
        let mut push_queues = self.shared.push_queues.lock().unwrap_or_else(PoisonError::into_inner);
        push_queues.retain(|_, push_queue| push_queue.strong_count() > 0);
        push_queues.insert(channel.to_vec(), Arc::downgrade(&push_queue));
        push_queue
    }

    /// Delivers the pushes of a node to the subscribers. They are lost if the node is down.
    fn deliver(&self, node: usize) {
        let take = |host: &mut MemoryHost| {
            let pushes = host.node.take_pushes();
            if host.outage.is_some() { Vec::new() } else { pushes }
        };
        let pushes = self.with(node, take).unwrap_or_default();
        if pushes.is_empty() {
            return;
        }
        let push_queues = self.shared.push_queues.lock().unwrap_or_else(PoisonError::into_inner);
        for push in pushes {
            if let Some(push_queue) = push_queues.get(&push.channel).and_then(Weak::upgrade) {
                push_queue.put(node, push.message.into());
            }
        }
    }

    /// The time until the next lock with waiters expires; `None` if there are no waiters.
    pub(crate) fn next_sweep(&self) -> Option<Duration> {
        let now = self.now();
        let next = |node| {
            self.with(node, |host| {
                let node = host.node.node();
                node.next_sweep().filter(|_| node.waiters() > 0)
            })?
        };
        let soonest = (0..self.len()).filter_map(next).min()?;
        Some(Duration::from_millis(soonest.since(now).max(1)))
    }

    /// Expires locks that have waiters, and grants them to the next waiter.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        for node in 0..self.len() {
            let waits = self.with(node, |host| {
                let waits = host.node.node().waiters() > 0;
                if waits {
                    host.node.sweep(now);
                }
                waits
            });
            if waits == Some(true) {
                self.deliver(node);
            }
        }
    }

    fn now(&self) -> Millis {
        let start = self.shared.start.get_or_init(Instant::now);
        Millis(Millis::START.0.saturating_add(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    fn with<T>(&self, node: usize, run: impl FnOnce(&mut MemoryHost) -> T) -> Option<T> {
        let host = self.shared.nodes.get(node)?;
        // A panic in a test leaves the node consistent: no step of the node panics halfway.
        let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
        Some(run(&mut host))
    }
}

/// The pushes to one driver.
#[derive(Default)]
pub(crate) struct PushQueue {
    queued: Mutex<QueuedPushes>,
}

#[derive(Default)]
struct QueuedPushes {
    /// Each with the node that sent it.
    unread: Vec<(usize, Bytes)>,
    reader: Option<Waker>,
}

impl PushQueue {
    fn put(&self, node: usize, message: Bytes) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.unread.push((node, message));
        if let Some(reader) = queued.reader.take() {
            reader.wake();
        }
    }

    /// Takes all pushes. The task is woken when the next push comes.
    pub(crate) fn take(&self, cx: &Context<'_>) -> Vec<(usize, Bytes)> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.reader = Some(cx.waker().clone());
        std::mem::take(&mut queued.unread)
    }
}

/// Leaves out the locks: they contain owners.
impl fmt::Debug for MemoryNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNodes").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A reply of a node, as a server encodes it.
fn frame(reply: Result<Reply, CommandError>) -> Frame {
    match reply {
        Ok(Reply::Integer(number)) => integer(number),
        Ok(Reply::Nil) => Frame::Nil,
        Ok(Reply::Queued { left_ms, position, ticket }) => {
            Frame::Array(vec![Frame::Integer(left_ms), integer(position), integer(ticket)])
        }
        Ok(Reply::Map(fields)) => Frame::Map(fields.into_iter().map(field).collect()),
        Err(fault) => Frame::Error(fault.to_string().into()),
    }
}

fn field((name, value): (&'static str, Value)) -> (Frame, Frame) {
    let value = match value {
        Value::Integer(number) => integer(number),
        Value::Bytes(bytes) => Frame::Bulk(bytes.into()),
        Value::Maps(maps) => {
            let map = |fields: Fields| Frame::Map(fields.into_iter().map(field).collect());
            Frame::Array(maps.into_iter().map(map).collect())
        }
    };
    (Frame::Bulk(Bytes::from_static(name.as_bytes())), value)
}

fn integer(number: u64) -> Frame {
    Frame::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that queues sends several requests to a node. One of them may arrive after the release.
    #[test]
    fn a_request_that_outlives_its_runtime_is_not_granted() {
        let nodes = MemoryNodes::new(3);
        let locks = crate::LockManager::builder().memory(&nodes).build().unwrap();
        let build = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (build(), build());
        let guard = first.block_on(locks.acquire("job", Duration::from_secs(60))).unwrap();
        let owner = guard.handle.shared.owner;
        drop(first);
        second.block_on(async {
            drop(guard);
            locks.flush().await;
            // The driver of the first runtime uses connection 0.
            let late: [&[u8]; 4] = [b"REDLOCK.ACQUIRE", b"job", owner.as_bytes(), b"60000"];
            let said = nodes.execute(0, &late, 0);
            assert!(!nodes.holds(0, "job"), "{said:?}");
        });
    }
}
