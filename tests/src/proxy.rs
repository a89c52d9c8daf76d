//! A TCP proxy in front of one server, which injects network faults.
//!
//! The proxy parses commands and replies, so that a fault can hit a certain command: before it, in its middle, or
//! after it, in place of its reply. Nothing is random: a rule is in force from when its method returns until another
//! call changes it.

mod connection;
mod frames;
mod rules;
mod state;

pub use rules::{CommandFault, Direction};

use crate::port::Port;
use crate::{SOON, Server, eventually, eventually_async, in_time};
use rules::{AcceptMode, Rules};
use state::{Observed, ProxyState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A TCP proxy on its own loopback port. Dropping the proxy ends every connection through it.
///
/// The proxy has its own thread: a test that blocks its runtime does not block the proxy.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    state: Arc<ProxyState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of a server's TCP port. It passes everything.
    ///
    /// # Panics
    /// When the server has no TCP port.
    #[must_use]
    pub fn to(server: &Server) -> Self {
        Self::to_port(server.port().expect("a server that was started with .tcp()"))
    }

    /// Starts a proxy in front of a server's TLS port. The proxy cannot decrypt the traffic, so rules for certain
    /// commands have no effect.
    ///
    /// # Panics
    /// When the server has no such port.
    #[must_use]
    pub fn to_tls(server: &Server) -> Self {
        Self::to_port(server.tls_port().expect("a server that was started with .tls()"))
    }

    fn to_port(server: u16) -> Self {
        let (port, state) = (Port::reserve(), Arc::new(ProxyState::new()));
        let (stop, stopped) = oneshot::channel();
        let (here, shared) = (loopback(port.number()), Arc::clone(&state));
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime for the proxy").block_on(async {
                tokio::select! {
                    () = accept_loop(here, loopback(server), shared) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name("proxy".into()).spawn(run).expect("a thread for the proxy");
        let proxy = Self { port, state, stop: Some(stop), thread: Some(thread) };
        proxy.wait_for_accept_mode(AcceptMode::Accept);
        proxy
    }

    /// The address of the proxy, for a client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The port of the proxy, for a client.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Ends every fault: the proxy forwards held bytes and accepts new connections.
    ///
    /// # Panics
    /// When the proxy hangs.
    pub fn clear_faults(&self) {
        self.change(Rules::clear);
        self.wait_for_accept_mode(AcceptMode::Accept);
    }

    /// Delays all bytes in one direction by `delay`.
    pub fn delay(&self, way: Direction, delay: Duration) {
        self.change(|rules| rules.direction_mut(way).delay = delay);
    }

    /// Holds all further bytes in one direction, until [`Proxy::release_held`].
    pub fn hold(&self, way: Direction) {
        self.change(|rules| rules.direction_mut(way).hold = true);
    }

    /// Discards all further bytes in one direction, and keeps the connections open. A connection that has lost bytes
    /// loses all that follow too, also after [`Proxy::clear_faults`]: TCP delivers no byte after a lost one.
    pub fn drop_bytes(&self, way: Direction) {
        self.change(|rules| rules.direction_mut(way).drop = true);
    }

    /// Forwards all bytes that [`Proxy::hold`] and the faults of commands hold, even if the sender has disconnected.
    pub fn release_held(&self) {
        self.change(|rules| {
            rules.to_server.hold = false;
            rules.to_client.hold = false;
            rules.releases += 1;
        });
    }

    /// Cuts all connections and discards the bytes that are held in them. New connections work.
    ///
    /// # Panics
    /// When the proxy hangs.
    pub fn cut(&self) {
        self.change(|rules| rules.cuts += 1);
        let cuts = self.state.rules.borrow().cuts;
        self.wait_until("old connections are cut", |observed| {
            observed.cuts >= cuts && observed.live.iter().all(|born| *born >= cuts)
        });
    }

    /// Cuts the connection that carries them, after this many more bytes in one direction.
    pub fn cut_after(&self, way: Direction, bytes: usize) {
        self.change(|rules| rules.direction_mut(way).cut_after = Some(bytes));
    }

    /// Cuts all connections. The proxy accepts new ones and closes them at once.
    ///
    /// # Panics
    /// When the proxy hangs.
    pub fn close_new_connections(&self) {
        self.set_accept_mode(AcceptMode::AcceptThenClose);
    }

    /// Cuts all connections and stops listening: the kernel refuses new ones.
    ///
    /// # Panics
    /// When the proxy hangs.
    pub fn refuse_connections(&self) {
        self.set_accept_mode(AcceptMode::Refuse);
        let refused = || std::net::TcpStream::connect(loopback(self.port())).is_err().then_some(());
        eventually("the proxy has stopped listening", SOON, refused);
    }

    /// Applies a fault once, to the next command of this name.
    pub fn inject(&self, command: &str, fault: CommandFault) {
        self.change(|rules| rules.fault = Some((command.to_uppercase(), fault)));
    }

    /// Replaces every reply to commands of this name by these bytes. The server still gets the commands.
    pub fn forge_reply(&self, command: &str, reply: impl Into<Vec<u8>>) {
        let reply = reply.into();
        self.change(|rules| rules.forged_reply = Some((command.to_uppercase(), reply)));
    }

    /// Discards the pushes of the server: the messages of a subscription.
    pub fn drop_pushes(&self) {
        self.change(|rules| rules.drop_pushes = true);
    }

    /// How many commands of this name have reached the proxy, forwarded or not.
    #[must_use]
    pub fn command_count(&self, command: &str) -> usize {
        self.state.observed.borrow().commands.get(&command.to_uppercase()).copied().unwrap_or_default()
    }

    /// How many commands and replies [`Proxy::drop_bytes`] has discarded.
    #[must_use]
    pub fn dropped(&self) -> usize {
        self.state.observed.borrow().dropped
    }

    /// How many connections the proxy has accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state.observed.borrow().accepted
    }

    /// Waits until `times` commands of this name have reached the proxy since its start.
    ///
    /// # Panics
    /// At the deadline.
    pub async fn until_command_count(&self, command: &str, times: usize) {
        let name = command.to_uppercase();
        let mut observed = self.state.observed.subscribe();
        let enough = |observed: &Observed| observed.commands.get(&name).is_some_and(|count| *count >= times);
        let what = format!("{times} of {name} have reached the proxy");
        in_time(&what, SOON, observed.wait_for(enough)).await.expect("the proxy runs");
    }

    /// Waits until the injected fault has hit a command.
    ///
    /// # Panics
    /// At the deadline.
    pub async fn until_hit(&self) {
        let mut rules = self.state.rules.subscribe();
        let over = |rules: &Rules| rules.fault.is_none();
        in_time("the fault has hit", SOON, rules.wait_for(over)).await.expect("the proxy runs");
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        self.state.rules.send_modify(change);
    }

    fn set_accept_mode(&self, mode: AcceptMode) {
        self.change(|rules| rules.accept_mode = mode);
        self.wait_for_accept_mode(mode);
        self.cut();
    }

    fn wait_for_accept_mode(&self, mode: AcceptMode) {
        self.wait_until("the proxy accepts connections as set", |observed| {
            observed.accept_mode == Some(mode)
        });
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Observed) -> bool) {
        eventually(what, SOON, || is_so(&self.state.observed.borrow()).then_some(()));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the proxy was already printed, by its own thread.
            let _ = thread.join();
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Accepts, closes or refuses new connections, as the rules say.
async fn accept_loop(here: SocketAddr, server: SocketAddr, state: Arc<ProxyState>) {
    let mut rules = state.rules.subscribe();
    let mut listener = None;
    let mut cuts = 0;
    loop {
        let (mode, cut_now) = {
            let rules = rules.borrow_and_update();
            (rules.accept_mode, rules.cuts)
        };
        match (&listener, mode) {
            (_, AcceptMode::Refuse) => listener = None,
            (None, _) => listener = Some(Listener::open(here).await),
            // A cut also closes connections that the proxy has not accepted yet.
            (Some(listener), _) if cut_now != cuts => listener.refuse(),
            (Some(_), _) => {}
        }
        cuts = cut_now;
        state.observed.send_modify(|observed| (observed.accept_mode, observed.cuts) = (Some(mode), cuts));
        tokio::select! {
            Some(client) = accept(listener.as_ref()) => {
                state.observed.send_modify(|observed| observed.accepted += 1);
                if mode == AcceptMode::Accept {
                    state.observed.send_modify(|observed| observed.live.push(cuts));
                    tokio::spawn(forward(client, server, cuts, Arc::clone(&state)));
                }
            }
            _ = rules.changed() => {}
        }
    }
}

/// The next connection; `None` if there is no listener.
async fn accept(listener: Option<&Listener>) -> Option<TcpStream> {
    listener?.waiting.accept().await.ok().map(|(client, _)| client)
}

/// One listening socket, with an asynchronous and a non-blocking handle.
struct Listener {
    waiting: TcpListener,
    looking: std::net::TcpListener,
}

impl Listener {
    async fn open(here: SocketAddr) -> Self {
        let bind = async || std::net::TcpListener::bind(here).ok();
        // Between fork and exec, a server that is being started has a copy of every open socket, also of a listener
        // that was just closed.
        let looking = eventually_async("the proxy can listen on its own port", SOON, bind).await;
        looking.set_nonblocking(true).expect("a socket can be made non-blocking");
        let copy = looking.try_clone().expect("a socket can be shared");
        Self { waiting: TcpListener::from_std(copy).expect("a runtime for the proxy"), looking }
    }

    /// Closes the connections that the proxy has not accepted yet.
    fn refuse(&self) {
        while self.looking.accept().is_ok() {}
    }
}

async fn forward(client: TcpStream, server: SocketAddr, born: u64, state: Arc<ProxyState>) {
    // If the server is not reachable, the client's connection closes.
    if let Ok(server) = TcpStream::connect(server).await {
        connection::serve(client, server, born, &state).await;
    }
    state.observed.send_modify(|observed| {
        let own = observed.live.iter().position(|other| *other == born);
        own.map(|index| observed.live.swap_remove(index));
    });
}
