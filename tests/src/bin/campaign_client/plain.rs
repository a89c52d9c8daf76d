//! A lock without the module: `SET NX PX` on several servers.
//!
//! This is the well-known Redlock algorithm, implemented with care. With it, the controls show that a campaign can
//! break locks.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script, cmd};
use redlock_tests::campaign::{Validity, key_name, now_ns};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Deletes a key if it has this owner.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// How many attempts a call makes, with a short pause after each.
const TRIES: u32 = 20;

/// The variants of the algorithm.
pub(crate) struct PlainOptions {
    /// How many nodes must grant the lock.
    pub(crate) votes: usize,
    pub(crate) validity: Validity,
    /// Whether keys expire.
    pub(crate) expires: bool,
    /// Whether a second key per lock counts fences. Otherwise the fence is the time in nanoseconds, which grows from
    /// holder to holder as long as there is one holder at a time.
    pub(crate) counts_fences: bool,
}

impl PlainOptions {
    pub(crate) fn standard(votes: usize) -> Self {
        Self { votes, validity: Validity::FromRequest, expires: true, counts_fences: false }
    }
}

pub(crate) struct PlainLocks {
    nodes: Arc<Vec<PlainNode>>,
    options: PlainOptions,
}

struct PlainNode {
    url: String,
    connection: Mutex<Option<MultiplexedConnection>>,
    timeout: Duration,
}

pub(crate) struct PlainGuard {
    nodes: Arc<Vec<PlainNode>>,
    names: Vec<String>,
    owner: String,
    fence: u64,
    until: Instant,
}

impl PlainLocks {
    pub(crate) fn new(nodes: &[String], options: PlainOptions, timeout: Duration) -> Self {
        let timeout = match options.validity {
            Validity::FromRequest => timeout,
            Validity::FromAnswer => Duration::from_secs(10),
        };
        let node = |url: &String| PlainNode { url: url.clone(), connection: Mutex::new(None), timeout };
        Self { nodes: Arc::new(nodes.iter().map(node).collect()), options }
    }

    pub(crate) async fn acquire(&self, keys: &[usize], ttl: Duration) -> Option<PlainGuard> {
        // Several keys would need a transaction. One is enough to break.
        let name = key_name(*keys.first()?);
        for _ in 0..TRIES {
            if let Some(hold) = self.attempt(&name, ttl).await {
                return Some(hold);
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..30))).await;
        }
        None
    }

    async fn attempt(&self, name: &str, ttl: Duration) -> Option<PlainGuard> {
        let owner = format!("{:032x}", fastrand::u128(..));
        let asked = Instant::now();
        let mut set = cmd("SET");
        set.arg(name).arg(&owner).arg("NX");
        if self.options.expires {
            set.arg("PX").arg(ttl.as_millis().to_string());
        }
        let granted = ask_all(&self.nodes, |node, nodes| {
            let set = set.clone();
            async move { nodes[node].ask::<Option<String>>(&set).await.flatten() }
        })
        .await;
        let since = if self.options.validity == Validity::FromRequest { asked } else { Instant::now() };
        let mut hold = PlainGuard {
            nodes: Arc::clone(&self.nodes),
            names: vec![name.to_owned()],
            owner,
            fence: now_ns(),
            until: since + (ttl - ttl / 100 - Duration::from_millis(2)),
        };
        if granted.len() >= self.options.votes && self.options.counts_fences {
            hold.fence = self.increment_fence(name).await;
        }
        if granted.len() >= self.options.votes && !hold.remaining().is_zero() {
            return Some(hold);
        }
        hold.release().await;
        None
    }

    /// Increments the fence counter on every node. Returns the largest count, that of a node that has missed none.
    async fn increment_fence(&self, name: &str) -> u64 {
        let mut increment = cmd("INCR");
        increment.arg(format!("fence:{name}"));
        let counts = ask_all(&self.nodes, |node, nodes| {
            let increment = increment.clone();
            async move { nodes[node].ask::<u64>(&increment).await }
        });
        counts.await.into_iter().max().unwrap_or_default()
    }
}

impl PlainGuard {
    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(crate) fn release(self) -> impl Future<Output = ()> + Send {
        let Self { nodes, names, owner, .. } = self;
        async move {
            ask_all(&nodes, |node, nodes| {
                let (names, owner) = (names.clone(), owner.clone());
                async move {
                    for name in names {
                        nodes[node].release(&name, &owner).await;
                    }
                    Some(())
                }
            })
            .await;
        }
    }
}

/// Sends a request to all nodes in parallel. Returns the replies that arrived.
async fn ask_all<T: Send + 'static, F: Future<Output = Option<T>> + Send + 'static>(
    nodes: &Arc<Vec<PlainNode>>,
    ask: impl Fn(usize, Arc<Vec<PlainNode>>) -> F,
) -> Vec<T> {
    let asked: Vec<_> = (0..nodes.len()).map(|node| tokio::spawn(ask(node, Arc::clone(nodes)))).collect();
    let mut replies = Vec::new();
    for answer in asked {
        replies.extend(answer.await.ok().flatten());
    }
    replies
}

impl PlainNode {
    /// Sends a command. `None` on an error or a timeout.
    async fn ask<T: redis::FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        self.with(|mut connection| async move { command.query_async(&mut connection).await }).await
    }

    async fn release(&self, name: &str, owner: &str) -> Option<u8> {
        let script = Script::new(RELEASE);
        let mut call = script.key(name);
        call.arg(owner);
        self.with(|mut connection| async move { call.invoke_async(&mut connection).await }).await
    }

    async fn with<T, F: Future<Output = redis::RedisResult<T>>>(
        &self,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Option<T> {
        let answer = tokio::time::timeout(self.timeout, async {
            let connection = {
                let mut connection = self.connection.lock().await;
                if connection.is_none() {
                    let client = redis::Client::open(self.url.as_str()).ok()?;
                    *connection = client.get_multiplexed_async_connection().await.ok();
                }
                connection.clone()?
            };
            Some(ask(connection).await)
        })
        .await;
        match answer {
            Ok(Some(Ok(answer))) => Some(answer),
            Ok(Some(Err(error))) if error.is_io_error() || error.is_connection_dropped() => {
                *self.connection.lock().await = None;
                None
            }
            _ => None,
        }
    }
}
