//! A fleet with a proxy in front of each node, and clients that connect directly or through the proxies.

#![allow(clippy::expect_used, clippy::panic, dead_code, reason = "helpers of tests, not all used by each")]

use redlock_client::{Builder, LockManager, Retry, WaitPolicy};
use redlock_tests::{Direction, Fleet, Proxy, SOON, Server, eventually_async};
use std::time::Duration;

/// Longer than any test: a lock that becomes free during a test was released and did not expire.
pub(crate) const TTL: Duration = Duration::from_secs(600);

/// Long enough for a healthy node on a busy machine, and short enough for a test that waits for it a few times.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(1500);

/// A client builder with the timeouts of these tests.
pub(crate) fn builder() -> Builder {
    LockManager::builder()
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(SOON)
        .retry(Retry::fixed(Duration::from_millis(20)).give_up_after(SOON))
}

/// A client of the nodes at these addresses.
pub(crate) fn manager<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> LockManager {
    let urls = urls.into_iter().map(|url| url.as_ref().to_string());
    builder().nodes(urls).build().expect("addresses of nodes")
}

/// A fleet with a proxy in front of each node.
pub(crate) struct Network {
    pub(crate) fleet: Fleet,
    pub(crate) proxies: Vec<Proxy>,
}

impl Network {
    pub(crate) fn start(size: usize) -> Self {
        Self::with_proxies(Fleet::start(size))
    }

    /// Nodes that grant again at once after a crash, without a quarantine. For tests that are about forgotten locks,
    /// and for tests in which no lock is held when a node crashes.
    pub(crate) fn without_grace(size: usize) -> Self {
        Self::with_proxies(Fleet::start_with(size, |_, node| node.module_args(["restart-grace", "off"])))
    }

    pub(crate) fn with_proxies(fleet: Fleet) -> Self {
        let proxies = fleet.iter().map(Proxy::to).collect();
        Self { fleet, proxies }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// A client that is connected to every node.
    pub(crate) async fn manager(&self) -> LockManager {
        let manager = manager(self.urls());
        until_all_answer(&manager).await;
        manager
    }

    /// A client that is connected to every node, and polls for a held lock.
    pub(crate) async fn polling_manager(&self) -> LockManager {
        let manager =
            builder().wait_policy(WaitPolicy::Poll).nodes(self.urls()).build().expect("addresses of nodes");
        until_all_answer(&manager).await;
        manager
    }

    pub(crate) fn hold(&self, way: Direction) {
        self.proxies.iter().for_each(|proxy| proxy.hold(way));
    }

    pub(crate) fn let_go(&self) {
        self.proxies.iter().for_each(Proxy::release_held);
    }

    /// Waits until every proxy has seen a command this many times.
    pub(crate) async fn until_all_seen(&self, command: &str, times: usize) {
        for proxy in &self.proxies {
            proxy.until_command_count(command, times).await;
        }
    }

    /// Waits until every node has received a release for each acquire, and no node holds the lock.
    ///
    /// A lock is also free before its acquire arrives; the counts distinguish that from a released lock.
    pub(crate) async fn until_given_back(&mut self, key: &str) {
        eventually_async(
            "every node has received a release for each acquire and holds no lock",
            SOON,
            async || {
                let acquired = self.fleet.calls("redlock.acquire");
                let released = self.fleet.calls("redlock.release");
                let settled = acquired.iter().zip(released).all(|(acquired, released)| *acquired <= released);
                (settled && self.fleet.is_free(key)).then_some(())
            },
        )
        .await;
    }

    /// Waits until no running node holds the lock.
    pub(crate) async fn until_free(&mut self, key: &str) {
        until_free(&mut self.fleet, key).await;
    }
}

/// The number of waiters on a node.
pub(crate) fn waiters_at(node: &Server) -> u64 {
    node.info("redlock", "redlock_waiters").expect("a count").parse().expect("a number")
}

/// The number of waiters on each node.
pub(crate) fn waiters(fleet: &Fleet) -> Vec<u64> {
    fleet.iter().map(waiters_at).collect()
}

/// Waits until every node has this many waiters.
pub(crate) async fn until_waiting(fleet: &Fleet, count: u64) {
    let what = format!("every node has {count} waiters");
    let is_so = async || waiters(fleet).iter().all(|here| *here == count).then_some(());
    eventually_async(&what, SOON, is_so).await;
}

/// Waits until each of these nodes holds the lock. The acquire returns as soon as a majority has granted, and another
/// client could then still get the lock on a slow node.
pub(crate) async fn until_held<'a>(nodes: impl Iterator<Item = &'a Server>, key: &str) {
    let nodes: Vec<&Server> = nodes.collect();
    let what = format!("every node holds {key}");
    let is_so = async || nodes.iter().all(|node| node.connect().inspect(key).is_some()).then_some(());
    eventually_async(&what, SOON, is_so).await;
}

/// Waits until no running node holds the lock.
pub(crate) async fn until_free(fleet: &mut Fleet, key: &str) {
    let what = format!("no node holds {key}");
    eventually_async(&what, SOON, async || fleet.is_free(key).then_some(())).await;
}

/// Waits until every node answers the client, so that the next call finds all connections open.
pub(crate) async fn until_all_answer(manager: &LockManager) {
    eventually_async("every node answers", SOON, async || {
        let health = manager.health().await.expect("a runtime");
        health.nodes.iter().all(|node| node.state.is_ok()).then_some(())
    })
    .await;
}
