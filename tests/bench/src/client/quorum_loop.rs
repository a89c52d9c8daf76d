//! The loop that a user would write by hand with the `redis` crate, and would write well.
//!
//! `SET NX PX` to all nodes at once, on at a majority, release by `EVALSHA` in the same way. Several forms
//! were tried, and this is the fastest of them: the futures of one command are polled in place, by the task
//! that waits, and only what is left at a majority is handed to a task of its own. A task for every node
//! and command, in a `JoinSet`, had half the throughput with many tasks; a timeout for every single command
//! instead of one for all made no difference beyond a few per cent, for the worse.

use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, RedisResult, Value};
use tokio::time::timeout;

use super::lock_client::{LockClient, TTL, TTL_MS};
use crate::module::SCRIPT;

/// What a node may take to answer.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

type Asked = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// A multiplexed connection to each node, and the name of the script that every node has loaded.
pub(crate) struct QuorumLoop {
    nodes: Vec<MultiplexedConnection>,
    script: String,
}

impl LockClient for QuorumLoop {
    const NAME: &'static str = "the loop";
    const WITH_MODULE: bool = false;
    const ACQUIRES: &'static [&'static str] = &["set"];
    const RELEASES: &'static str = "evalsha";

    async fn connect(urls: Vec<String>) -> Self {
        let mut nodes = Vec::new();
        let mut script = String::new();
        // One timeout stands for all nodes of a command, instead of one for each; and the crate's queue of
        // 50 commands would hold 64 tasks up.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1024);
        for url in urls {
            let address = url.into_connection_info().expect("an address of the bench itself");
            let address = address.set_tcp_settings(TcpSettings::default().set_nodelay(true));
            let client = Client::open(address).expect("an address of the bench itself");
            let node = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut node = node.expect("a node that takes connections");
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut node).await;
            script = load.expect("a node that takes scripts");
            nodes.push(node);
        }
        Self { nodes, script }
    }

    async fn cycle(&self, key: &str) -> bool {
        let start = Instant::now();
        let owner = owner();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&owner).arg("NX").arg("PX").arg(TTL_MS);
        let granted = self.majority(set, |answer| matches!(answer, Value::Okay)).await;
        let drift = TTL / 100 + Duration::from_millis(2);
        let valid = TTL.checked_sub(start.elapsed() + drift).is_some();
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.script).arg(1).arg(key).arg(&owner);
        let freed = self.majority(delete, |answer| matches!(answer, Value::Int(1))).await;
        granted && valid && freed
    }
}

impl QuorumLoop {
    /// Sends a command to all nodes, and tells whether a majority agrees as soon as that is settled.
    async fn majority(&self, command: Cmd, agrees: fn(&Value) -> bool) -> bool {
        let command = Arc::new(command);
        let ask = |node: &MultiplexedConnection| -> Asked {
            let (mut node, command) = (node.clone(), Arc::clone(&command));
            Box::pin(async move { node.send_packed_command(&command).await })
        };
        let mut asked: Vec<Asked> = self.nodes.iter().map(ask).collect();
        let enough = asked.len() / 2 + 1;
        let mut agreed = 0;
        let settled = std::future::poll_fn(|context| {
            asked.retain_mut(|answer| match answer.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(answer) => {
                    agreed += usize::from(answer.is_ok_and(|answer| agrees(&answer)));
                    false
                }
            });
            let settled = agreed >= enough || agreed + asked.len() < enough;
            if settled { Poll::Ready(()) } else { Poll::Pending }
        });
        let in_time = timeout(NODE_TIMEOUT, settled).await.is_ok();
        if !asked.is_empty() {
            // The crate does not send what nobody waits for, so the rest must not be dropped: a node that
            // was left out of a release would keep the lock.
            let rest = std::future::poll_fn(move |context| {
                asked.retain_mut(|answer| answer.as_mut().poll(context).is_pending());
                if asked.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::spawn(timeout(NODE_TIMEOUT, rest));
        }
        in_time && agreed >= enough
    }
}

/// 32 digits that no other has.
fn owner() -> String {
    let mut owner = String::with_capacity(32);
    write!(owner, "{:032x}", fastrand::u128(..)).expect("a string grows");
    owner
}
