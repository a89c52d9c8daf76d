//! A quorum loop on the `redis` crate, as a user would write it by hand and write it well.
//!
//! It sends `SET NX PX` to all nodes at once, continues at a majority, and releases with `EVALSHA` in the same way.
//! This is the fastest of several variants: the waiting task polls the futures of a command in place, and a new task
//! gets only the futures that are pending at a majority. A task for every node and command, in a `JoinSet`, had half
//! the throughput with many tasks. A timeout for each node instead of one for a command was a few per cent slower.

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

/// How long a command waits for the nodes.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

type Asked = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// A multiplexed connection to each node, and the SHA-1 of the release script that every node has loaded.
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
        // The loop has one timeout for all nodes of a command. The crate's default queue of 50 commands would
        // delay 64 tasks.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1024);
        for url in urls {
            let address = url.into_connection_info().expect("an address of the bench itself");
            let address = address.set_tcp_settings(TcpSettings::default().set_nodelay(true));
            let client = Client::open(address).expect("an address of the bench itself");
            let node = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut node = node.expect("the node accepts connections");
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut node).await;
            script = load.expect("the node loads the script");
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
    /// Sends a command to all nodes. Returns whether a majority agrees, as soon as that is certain.
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
            // The crate does not send a command whose future was dropped, so a task polls the rest: a node that
            // gets no release would keep the lock.
            let rest = std::future::poll_fn(move |context| {
                asked.retain_mut(|answer| answer.as_mut().poll(context).is_pending());
                if asked.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::spawn(timeout(NODE_TIMEOUT, rest));
        }
        in_time && agreed >= enough
    }
}

/// A unique owner of 32 hexadecimal digits.
fn owner() -> String {
    let mut owner = String::with_capacity(32);
    write!(owner, "{:032x}", fastrand::u128(..)).expect("writing to a string succeeds");
    owner
}
