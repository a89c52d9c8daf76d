//! A bad network in front of one server, on command.
//!
//! The proxy knows commands and replies, so that a fault can be aimed: at the next acquire, at its reply,
//! in its middle. Nothing happens by chance and nothing by itself: a rule is in force from when its method
//! returns until the next one changes it.

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

/// A TCP proxy on a loopback port of its own. Dropping it ends every connection through it.
///
/// It runs in a thread of its own: a test that blocks its runtime does not stop the network.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    state: Arc<ProxyState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Stands in front of a server that listens on TCP, and passes everything.
    ///
    /// # Panics
    /// When the server has no TCP port.
    #[must_use]
    pub fn to(server: &Server) -> Self {
        Self::to_port(server.port().expect("a server behind a proxy is started with .tcp()"))
    }

    /// Stands in front of a server's port for TLS, inside of which it sees nothing: only rules that name no
    /// command apply.
    ///
    /// # Panics
    /// When the server has no such port.
    #[must_use]
    pub fn to_tls(server: &Server) -> Self {
        Self::to_port(server.tls_port().expect("a server behind a proxy for TLS is started with .tls()"))
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

    /// The address to give to a client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The port to give to a client.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Ends every fault: what was held goes on its way, new connections come through.
    ///
    /// # Panics
    /// When the proxy itself is stuck.
    pub fn clear_faults(&self) {
        self.change(Rules::clear);
        self.wait_for_accept_mode(AcceptMode::Accept);
    }

    /// Lets everything in one direction wait for so long.
    pub fn delay(&self, way: Direction, delay: Duration) {
        self.change(|rules| rules.direction_mut(way).delay = delay);
    }

    /// Keeps back what comes from now on in one direction, without end.
    pub fn hold(&self, way: Direction) {
        self.change(|rules| rules.direction_mut(way).hold = true);
    }

    /// Throws away what comes from now on in one direction, and says nothing about it.
    pub fn drop_bytes(&self, way: Direction) {
        self.change(|rules| rules.direction_mut(way).drop = true);
    }

    /// Lets what [`Proxy::hold`] and [`CommandFault::Hold`] keep back go on its way, even if its sender is gone.
    pub fn release_held(&self) {
        self.change(|rules| {
            rules.to_server.hold = false;
            rules.to_client.hold = false;
            rules.releases += 1;
        });
    }

    /// Ends all connections, with what is held in them; new ones come through.
    ///
    /// # Panics
    /// When the proxy itself is stuck.
    pub fn cut(&self) {
        self.change(|rules| rules.cuts += 1);
        let cuts = self.state.rules.borrow().cuts;
        self.wait_until("old connections are cut", |observed| {
            observed.cuts >= cuts && observed.live.iter().all(|born| *born >= cuts)
        });
    }

    /// Ends the connection that carries them after so many more bytes in one direction.
    pub fn cut_after(&self, way: Direction, bytes: usize) {
        self.change(|rules| rules.direction_mut(way).cut_after = Some(bytes));
    }

    /// Ends all connections, and lets in those who come only to throw them out.
    ///
    /// # Panics
    /// When the proxy itself is stuck.
    pub fn close_new_connections(&self) {
        self.set_accept_mode(AcceptMode::AcceptThenClose);
    }

    /// Ends all connections and stops listening: the kernel refuses those who come.
    ///
    /// # Panics
    /// When the proxy itself is stuck.
    pub fn refuse_connections(&self) {
        self.set_accept_mode(AcceptMode::Refuse);
        let refused = || std::net::TcpStream::connect(loopback(self.port())).is_err().then_some(());
        eventually("nobody listens any more", SOON, refused);
    }

    /// Applies a fault to the next command of a name, once.
    pub fn inject(&self, command: &str, fault: CommandFault) {
        self.change(|rules| rules.fault = Some((command.to_uppercase(), fault)));
    }

    /// Gives the client these bytes instead of every reply to commands of a name, which the server gets.
    pub fn forge_reply(&self, command: &str, reply: impl Into<Vec<u8>>) {
        let reply = reply.into();
        self.change(|rules| rules.forged_reply = Some((command.to_uppercase(), reply)));
    }

    /// Throws away what the server says without being asked: the messages of a subscription.
    pub fn drop_pushes(&self) {
        self.change(|rules| rules.drop_pushes = true);
    }

    /// How many commands of a name have reached the proxy, passed on or not.
    #[must_use]
    pub fn command_count(&self, command: &str) -> usize {
        self.state.observed.borrow().commands.get(&command.to_uppercase()).copied().unwrap_or_default()
    }

    /// How many commands and replies were thrown away because of [`Proxy::drop_bytes`].
    #[must_use]
    pub fn dropped(&self) -> usize {
        self.state.observed.borrow().dropped
    }

    /// How many connections have come so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state.observed.borrow().accepted
    }

    /// Waits until so many commands of a name have reached the proxy since it was started.
    ///
    /// # Panics
    /// When they do not come soon.
    pub async fn until_command_count(&self, command: &str, times: usize) {
        let name = command.to_uppercase();
        let mut observed = self.state.observed.subscribe();
        let enough = |observed: &Observed| observed.commands.get(&name).is_some_and(|count| *count >= times);
        let what = format!("{times} of {name} have reached the proxy");
        in_time(&what, SOON, observed.wait_for(enough)).await.expect("the proxy lives as long as this");
    }

    /// Waits until the next [`Proxy::inject`], or the one that waits now, has hit.
    ///
    /// # Panics
    /// When it does not hit soon.
    pub async fn until_hit(&self) {
        let mut rules = self.state.rules.subscribe();
        let over = |rules: &Rules| rules.fault.is_none();
        in_time("the fault has hit", SOON, rules.wait_for(over)).await.expect("the proxy lives");
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
            // A proxy that failed has said so already, on its own thread.
            let _ = thread.join();
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Lets in, throws out or stays away from those who come, as the rules say.
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
            // A cut meets those too who are connected and not let in yet.
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

/// The next one who comes; nobody where nobody listens.
async fn accept(listener: Option<&Listener>) -> Option<TcpStream> {
    listener?.waiting.accept().await.ok().map(|(client, _)| client)
}

/// One socket, to wait at and to look at.
struct Listener {
    waiting: TcpListener,
    looking: std::net::TcpListener,
}

impl Listener {
    async fn open(here: SocketAddr) -> Self {
        let bind = async || std::net::TcpListener::bind(here).ok();
        // A server that is being started has a copy of everything that is open here, for a moment: also of
        // a listener that was just closed.
        let looking = eventually_async("the proxy can listen on its own port", SOON, bind).await;
        looking.set_nonblocking(true).expect("a socket need not block");
        let copy = looking.try_clone().expect("a socket can be shared");
        Self { waiting: TcpListener::from_std(copy).expect("a runtime for the proxy"), looking }
    }

    /// Closes the connections of those who have come and were not let in yet.
    fn refuse(&self) {
        while self.looking.accept().is_ok() {}
    }
}

async fn forward(client: TcpStream, server: SocketAddr, born: u64, state: Arc<ProxyState>) {
    // Whoever cannot be let through finds its connection closed.
    if let Ok(server) = TcpStream::connect(server).await {
        connection::serve(client, server, born, &state).await;
    }
    state.observed.send_modify(|observed| {
        let own = observed.live.iter().position(|other| *other == born);
        own.map(|index| observed.live.swap_remove(index));
    });
}
