//! The servers on which contenders acquire locks.

use redlock_tests::Server;

use super::lock_client::LockClient;

/// Two sets of servers of the same size: plain ones, and ones with the module.
pub(crate) struct ServerSets {
    plain: Vec<Server>,
    with_module: Vec<Server>,
}

impl ServerSets {
    /// Starts `count` servers of each kind, all at once.
    pub(crate) fn start(count: usize) -> Self {
        std::thread::scope(|scope| {
            let start = |module: bool| {
                let builder = Server::builder().tcp();
                let builder = if module { builder } else { builder.without_module() };
                scope.spawn(|| builder.start())
            };
            let all = |module| (0..count).map(|_| start(module)).collect::<Vec<_>>();
            let (plain, with_module) = (all(false), all(true));
            let join = |started: Vec<std::thread::ScopedJoinHandle<'_, Server>>| {
                started.into_iter().map(|server| server.join().expect("a server that starts")).collect()
            };
            Self { plain: join(plain), with_module: join(with_module) }
        })
    }

    /// The servers of one contender.
    pub(crate) fn of<C: LockClient>(&self) -> &[Server] {
        if C::WITH_MODULE { &self.with_module } else { &self.plain }
    }

    /// The servers without the module.
    pub(crate) fn plain(&self) -> &[Server] {
        &self.plain
    }

    /// The servers with the module.
    pub(crate) fn with_module(&self) -> &[Server] {
        &self.with_module
    }

    /// The plain server of a node, and the one with the module.
    pub(crate) fn both(&mut self, number: usize) -> [&mut Server; 2] {
        [&mut self.plain[number], &mut self.with_module[number]]
    }

    /// The loopback ports of a node: of the plain server, and of the one with the module.
    pub(crate) fn ports(&self, number: usize) -> [u16; 2] {
        [&self.plain, &self.with_module].map(|servers| servers[number].port().expect("a server with a port"))
    }
}

/// The URL of a server on this machine.
pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}
