//! Several independent servers: the nodes of one quorum.

use crate::{InspectReply, Server, ServerBuilder};
use std::ops::{Index, IndexMut};
use std::thread;

/// Independent masters with the module, which listen on TCP and on Unix sockets.
///
/// `fleet[2]` is the third [`Server`].
#[derive(Debug)]
pub struct Fleet {
    nodes: Vec<Server>,
}

impl Fleet {
    /// Starts `size` nodes with the default configuration.
    ///
    /// # Panics
    /// When one of them does not come up.
    #[must_use]
    pub fn start(size: usize) -> Self {
        Self::start_with(size, |_, node| node)
    }

    /// Starts `size` nodes. `describe` gets the index and the default configuration of each node, and may change it.
    ///
    /// # Panics
    /// When one of them does not come up.
    #[must_use]
    pub fn start_with(size: usize, describe: impl Fn(usize, ServerBuilder) -> ServerBuilder) -> Self {
        let nodes: Vec<ServerBuilder> =
            (0..size).map(|index| describe(index, Server::builder().tcp())).collect();
        // In parallel: a server spends most of its start waiting.
        let nodes = thread::scope(|scope| {
            let starting: Vec<_> = nodes.into_iter().map(|node| scope.spawn(|| node.start())).collect();
            starting.into_iter().map(|node| node.join().expect("a node that comes up")).collect()
        });
        Self { nodes }
    }

    /// The address of every node on TCP.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The address of every node's Unix socket.
    #[must_use]
    pub fn unix_urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::unix_url).collect()
    }

    /// The nodes in order.
    pub fn iter(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter()
    }

    /// Kills some nodes and then restarts them in parallel, with the data that they have stored.
    ///
    /// # Panics
    /// When one of them does not come up.
    pub fn crash(&mut self, which: &[usize]) {
        self.crash_and(which, |_| {});
    }

    /// As [`Fleet::crash`], and calls `meanwhile` for each of the nodes while it is down.
    ///
    /// # Panics
    /// As [`Fleet::crash`].
    pub fn crash_and(&mut self, which: &[usize], meanwhile: impl Fn(&Server) + Sync) {
        for node in which {
            self.nodes[*node].kill();
        }
        let meanwhile = &meanwhile;
        thread::scope(|scope| {
            let nodes = self.nodes.iter_mut().enumerate().filter(|(index, _)| which.contains(index));
            for (_, node) in nodes {
                scope.spawn(move || {
                    meanwhile(node);
                    node.restart();
                });
            }
        });
    }

    /// How often clients have called a command, for every node. All nodes must be running.
    #[must_use]
    pub fn calls(&self, command: &str) -> Vec<u64> {
        self.nodes.iter().map(|node| node.calls(command)).collect()
    }

    /// Resets the call counts of all nodes.
    pub fn reset_calls(&self) {
        for node in &self.nodes {
            node.connect().call_strs("CONFIG RESETSTAT");
        }
    }

    /// The lock on every node; `None` for a killed node.
    ///
    /// A paused node does not answer: resume it first.
    pub fn locks(&mut self, key: &str) -> Vec<Option<InspectReply>> {
        let look = |node: &mut Server| node.is_running().then(|| node.connect().inspect(key)).flatten();
        self.nodes.iter_mut().map(look).collect()
    }

    /// The fence of a lock on every node, as [`Fleet::locks`].
    pub fn fences(&mut self, key: &str) -> Vec<Option<i64>> {
        self.locks(key).into_iter().map(|lock| lock.map(|lock| lock.fence)).collect()
    }

    /// Whether no node holds a lock, as [`Fleet::locks`].
    pub fn is_free(&mut self, key: &str) -> bool {
        self.locks(key).iter().all(Option::is_none)
    }
}

impl Index<usize> for Fleet {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.nodes[index]
    }
}

impl IndexMut<usize> for Fleet {
    fn index_mut(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }
}
