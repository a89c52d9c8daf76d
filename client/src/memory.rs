//! Nodes in memory: locks without a server, for examples and tests.
//!
//! They decide with the same code as the server module, and their time is the runtime's: a test that pauses
//! tokio's clock can let a lock run out without waiting for it. Two managers over the same [`Nodes`] compete
//! as two processes would.

use crate::wire::Frame;
use bytes::Bytes;
use redlock_core::reply::Value;
use redlock_core::{Fault, MemoryNode, Millis, Reply};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::Instant;

// What a client expects of a node that is raised is what a node does.
const _: () = assert!(redlock_proto::fence_reach::RAISE_CAP == redlock_core::fence::RAISE_CAP);
const _: () = assert!(redlock_proto::fence_reach::RAISE_STEP == redlock_core::fence::RAISE_STEP);
const _: () = assert!(redlock_proto::fence_reach::MAX_FENCE == redlock_core::fence::MAX_FENCE);

/// Some nodes in memory, to be shared by managers and told to misbehave.
#[derive(Clone)]
pub struct Nodes {
    shared: Arc<Shared>,
}

struct Shared {
    nodes: Vec<Mutex<MemoryHost>>,
    connections: AtomicU64,
    /// Where those listen who wait for locks, by their channels.
    push_queues: Mutex<HashMap<Vec<u8>, Weak<PushQueue>>>,
    /// A paused clock belongs to one runtime: time starts with the first command inside it.
    start: OnceLock<Instant>,
}

struct MemoryHost {
    node: MemoryNode,
    outage: Option<Outage>,
    /// Releases that wait until the node can be reached again, each with its connection.
    pending_releases: Vec<(Vec<Vec<u8>>, u64)>,
}

/// How a node does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// It cannot be reached, which shows at once.
    Unreachable,
    /// It can be reached and says nothing.
    Hung,
}

impl Nodes {
    /// So many nodes that hold nothing.
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
        Self { shared: Arc::new(Shared { nodes, connections, push_queues, start }) }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.nodes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.nodes.is_empty()
    }

    /// Whether these are the same nodes, not only as many.
    pub(crate) fn are(&self, others: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &others.shared)
    }

    /// Cuts a node off, until [`Nodes::revive`]: whoever asks it learns at once that it is down. Its locks run on, as
    /// they do on a server that cannot be reached.
    pub fn silence(&self, node: usize) {
        self.with(node, |host| host.outage = Some(Outage::Unreachable));
    }

    /// Lets a node hang, until [`Nodes::revive`]: it answers nothing, and whoever asks it waits for as long as the
    /// manager waits for a node. What it was asked meanwhile is lost, but for releases, which reach it when it is revived; its locks run on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redlock_client::Error> {
    /// use redlock_client::{LockManager, Loss, memory::Nodes};
    /// use std::time::Duration;
    ///
    /// let nodes = Nodes::new(3);
    /// let locks = LockManager::builder().memory(&nodes).build()?;
    /// let mut guard = locks.acquire("orders:42", Duration::from_secs(10)).await?;
    /// guard.keep_alive(Duration::from_secs(60))?;
    /// (0..3).for_each(|node| nodes.hang(node));
    /// // Nobody answers, and the holder is told all the same.
    /// assert_eq!(guard.lost().await, Loss::Expired);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hang(&self, node: usize) {
        self.with(node, |host| host.outage = Some(Outage::Hung));
    }

    /// Makes a node answer again. Releases that it has missed reach it first, as they do over a new connection.
    pub fn revive(&self, node: usize) {
        let now = self.now();
        self.with(node, |host| {
            host.outage = None;
            for (words, connection) in std::mem::take(&mut host.pending_releases) {
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                // What it says is of no interest: nobody waits for it.
                let _ = host.node.execute(&words, connection, now);
            }
        });
    }

    /// Keeps a release for when a node can be reached again.
    pub(crate) fn queue_release(&self, node: usize, words: &[&[u8]], connection: u64) {
        let words = words.iter().map(|word| word.to_vec()).collect();
        self.with(node, |host| host.pending_releases.push((words, connection)));
    }

    /// Deletes a key on a node, as an administrator's `DEL` does; true if there was one.
    pub fn delete(&self, node: usize, key: impl AsRef<[u8]>) -> bool {
        self.with(node, |host| host.node.delete(key.as_ref())).unwrap_or(false)
    }

    /// Whether a node holds a lock on a key now.
    #[must_use]
    pub fn holds(&self, node: usize, key: impl AsRef<[u8]>) -> bool {
        let now = self.now();
        self.with(node, |host| host.node.exists(key.as_ref(), now)).unwrap_or(false)
    }

    /// A connection's number: a node tells the requests of two connections apart.
    pub(crate) fn connect(&self) -> u64 {
        self.shared.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs a command on a node, if that answers.
    pub(crate) fn execute(&self, node: usize, words: &[&[u8]], connection: u64) -> Result<Frame, Outage> {
        let now = self.now();
        let said = self.with(node, |host| match host.outage {
            None => Ok(frame(host.node.execute(words, connection, now))),
            Some(outage) => Err(outage),
        });
        self.deliver(node);
        said.unwrap_or(Err(Outage::Unreachable))
    }

    /// Where the news of a channel is found.
    pub(crate) fn subscribe(&self, channel: &[u8]) -> Arc<PushQueue> {
        let push_queue = Arc::new(PushQueue::default());
        let mut push_queues = self.shared.push_queues.lock().unwrap_or_else(PoisonError::into_inner);
        push_queues.retain(|_, push_queue| push_queue.strong_count() > 0);
        push_queues.insert(channel.to_vec(), Arc::downgrade(&push_queue));
        push_queue
    }

    /// Brings what a node has announced to those who listen, unless it is silent.
    fn deliver(&self, node: usize) {
        let take = |host: &mut MemoryHost| {
            let pushes = host.node.take_announcements();
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

    /// How long until a node has something to do for those who wait; `None` while nobody does.
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

    /// Lets locks run out, and hands them on to those who wait.
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
        // A panic in a user's test does not spoil the node: its state changes in whole steps.
        let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
        Some(run(&mut host))
    }
}

/// Pushes for one driver.
#[derive(Default)]
pub(crate) struct PushQueue {
    queued: Mutex<QueuedPushes>,
}

#[derive(Default)]
struct QueuedPushes {
    /// Each with the node that it is from.
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

    /// Takes what has come, and asks to be woken when more does.
    pub(crate) fn take(&self, cx: &Context<'_>) -> Vec<(usize, Bytes)> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.reader = Some(cx.waker().clone());
        std::mem::take(&mut queued.unread)
    }
}

/// What the nodes hold is not printed: owners are part of it.
impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// What the node said, as a server would have sent it.
fn frame(said: Result<Reply, Fault>) -> Frame {
    match said {
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
    };
    (Frame::Bulk(Bytes::from_static(name.as_bytes())), value)
}

fn integer(number: u64) -> Frame {
    Frame::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waits asks a node more than once. What is still on its way when its runtime ends comes after the release.
    #[test]
    fn a_request_that_outlives_its_runtime_is_not_granted() {
        let nodes = Nodes::new(3);
        let locks = crate::LockManager::builder().memory(&nodes).build().unwrap();
        let build = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (build(), build());
        let guard = first.block_on(locks.acquire("job", Duration::from_secs(60))).unwrap();
        let owner = guard.extender.hold.owner;
        drop(first);
        second.block_on(async {
            drop(guard);
            locks.close().await;
            // The driver of the first runtime had the first connection.
            let late: [&[u8]; 4] = [b"REDLOCK.ACQUIRE", b"job", owner.as_bytes(), b"60000"];
            let said = nodes.execute(0, &late, 0);
            assert!(!nodes.holds(0, "job"), "{said:?}");
        });
    }
}
