//! The configuration of a manager.

use crate::Error;
use crate::clock::Clock;
use crate::manager::LockManager;
use crate::memory::MemoryNodes;
use crate::node::Node;
use crate::queue_support::WaitPolicy;
use crate::settings::{Places, Settings};
use redlock_contract::limits::MAX_LABEL_BYTES;
use redlock_proto::{Drift, MAX_NODES, Quorum, Retry};
use std::sync::Arc;
use std::time::Duration;

/// Configures and builds a [`LockManager`].
///
/// ```
/// use redlock_client::{LockManager, Retry};
/// use std::time::Duration;
///
/// let locks = LockManager::builder()
///     .nodes(["redis://one:6379", "redis://two:6379", "redis://three:6379"])
///     .retry(Retry::exponential(Duration::from_millis(10), Duration::from_millis(500)))
///     .key_prefix("shop:")
///     .label("checkout on web-3")
///     .build()?;
/// # Ok::<(), redlock_client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "the builder does nothing until `build` is called"]
pub struct Builder {
    nodes: Vec<Node>,
    memory: Option<MemoryNodes>,
    node_timeout: Duration,
    connect_timeout: Duration,
    retry: Retry,
    drift: Drift,
    max_hold: Duration,
    key_prefix: Vec<u8>,
    label: Vec<u8>,
    wait_policy: WaitPolicy,
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            memory: None,
            node_timeout: Duration::from_millis(250),
            connect_timeout: Duration::from_secs(1),
            retry: Retry::default(),
            drift: Drift::default(),
            max_hold: Duration::from_secs(3600),
            key_prefix: Vec::new(),
            label: Vec::new(),
            wait_policy: WaitPolicy::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Adds nodes: independent masters, an odd number of them, best three or five. A lock needs a majority of
    /// all configured nodes, whether the client can reach them or not.
    ///
    /// Accepts everything that converts into a [`Node`], such as a URL.
    pub fn nodes<N: Into<Node>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.nodes.extend(nodes.into_iter().map(Into::into));
        self
    }

    /// Uses nodes in memory instead of servers, for tests.
    pub fn memory(mut self, nodes: &MemoryNodes) -> Self {
        self.memory = Some(nodes.clone());
        self
    }

    /// Sets how long a node may take to answer a request. A slower node has not voted, and the client does
    /// not wait for it again until it answers. Default: 250 ms.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Sets how long connecting to a node may take, with TLS and login. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets when the client retries an acquire that failed. Default: after 5 ms, then twice as long each time
    /// up to 250 ms, with jitter, for at most 10 s.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets how far the clocks of this machine and of the nodes may drift apart while a lock is held. The
    /// client subtracts this allowance from every validity. Default: 1 % of the time to live plus 2 ms.
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// Sets how long [`LockManager::with_lock`] extends a lock. Default: one hour.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = max_hold;
        self
    }

    /// Sets the prefix of every key on the nodes. Default: empty.
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Sets the text that `inspect` shows for the locks of this client, at most 256 bytes. Default: empty.
    pub fn label(mut self, label: impl Into<Vec<u8>>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets how a call waits for a lock that another client holds. Default: [`WaitPolicy::Queue`].
    ///
    /// After a hand-off the client holds the lock for the claim window of the nodes (`redlock.claim-window`,
    /// 100 ms by default). The client claims the lock at once, and one round trip later holds it for the full
    /// time to live. Until then [`Guard::remaining`](crate::Guard::remaining) shows the claim window.
    pub fn wait_policy(mut self, policy: WaitPolicy) -> Self {
        self.wait_policy = policy;
        self
    }

    /// Sets the certificates for every `rediss://` node without certificates of its own. Default: the
    /// certificate authorities that the system trusts, and no client certificate.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Builds the manager. Needs no runtime and opens no connection: the first call connects.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid address, no node, more than 63 nodes, the same address twice, a label
    /// that is too long, or a timeout of zero.
    pub fn build(self) -> Result<LockManager, Error> {
        let config = |what: String| Error::Config(what.into());
        if self.node_timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(config("timeouts must be greater than zero".into()));
        }
        if self.label.len() > MAX_LABEL_BYTES {
            return Err(config(format!("the label is longer than {MAX_LABEL_BYTES} bytes")));
        }
        let (places, names, clock) = match &self.memory {
            Some(_) if !self.nodes.is_empty() => {
                return Err(config("servers and nodes in memory cannot be in one manager".into()));
            }
            Some(nodes) => (Places::Memory(nodes.clone()), memory_names(nodes), memory_clock()),
            None => {
                let (places, names) = self.servers().map_err(config)?;
                (places, names, Clock::System)
            }
        };
        let quorum = match names.len() {
            0 => Err("no nodes are configured".to_owned()),
            count if count > MAX_NODES => {
                Err(format!("{count} nodes are configured; the limit is {MAX_NODES}"))
            }
            count => Quorum::of(count).ok_or_else(String::new),
        };
        Ok(self.assemble(quorum.map_err(config)?, places, names, clock))
    }

    fn assemble(self, quorum: Quorum, places: Places, names: Vec<Arc<str>>, clock: Clock) -> LockManager {
        LockManager::new(Settings {
            quorum,
            places,
            names,
            node_timeout: self.node_timeout,
            connect_timeout: self.connect_timeout,
            retry: self.retry,
            drift: self.drift,
            max_hold: self.max_hold,
            key_prefix: self.key_prefix,
            label: self.label,
            clock,
            wait_policy: self.wait_policy,
        })
    }

    fn servers(&self) -> Result<(Places, Vec<Arc<str>>), String> {
        #[cfg(feature = "tls")]
        let tls = self.tls.as_ref();
        #[cfg(not(feature = "tls"))]
        let tls = None;
        let mut targets = Vec::with_capacity(self.nodes.len());
        let mut names: Vec<Arc<str>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let name: Arc<str> = node.to_string().into();
            let target = node.target(tls).map_err(|why| format!("{name}: {why}"))?;
            if names.contains(&name) {
                return Err(format!("{name} is listed twice: one node has one vote"));
            }
            targets.push(Arc::new(target));
            names.push(name);
        }
        Ok((Places::Servers(targets), names))
    }

    /// Builds a manager over nodes in memory. The caller has checked their number.
    pub(crate) fn over_memory(self, nodes: &MemoryNodes) -> LockManager {
        let quorum = Quorum::of(nodes.len()).unwrap_or(Quorum::SINGLE);
        self.assemble(quorum, Places::Memory(nodes.clone()), memory_names(nodes), memory_clock())
    }
}

fn memory_names(nodes: &MemoryNodes) -> Vec<Arc<str>> {
    (0..nodes.len()).map(|node| format!("memory-{node}").into()).collect()
}

/// Nodes in memory use the runtime's clock, and so do the locks on them.
fn memory_clock() -> Clock {
    Clock::Runtime(tokio::time::Instant::now())
}
