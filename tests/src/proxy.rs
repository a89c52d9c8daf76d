//! A bad network in front of one server, on command.
//!
//! The proxy knows commands and replies, so that a fault can be aimed: at the next acquire, at its reply,
//! in its middle. Nothing happens by chance and nothing by itself: a rule is in force from when its method
//! returns until the next one changes it.

mod frames;
mod link;
mod rules;
mod state;

pub use rules::{Deed, Way};

use crate::port::Port;
use crate::{SOON, Server, eventually, eventually_async, in_time};
use rules::{Door, Rules};
use state::{Sights, State};
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
    state: Arc<State>,
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
        let (port, state) = (Port::reserve(), Arc::new(State::new()));
        let (stop, stopped) = oneshot::channel();
        let (here, shared) = (loopback(port.number()), Arc::clone(&state));
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime for the proxy").block_on(async {
                tokio::select! {
                    () = keep_the_door(here, loopback(server), shared) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name("proxy".into()).spawn(run).expect("a thread for the proxy");
        let proxy = Self { port, state, stop: Some(stop), thread: Some(thread) };
        proxy.wait_for_door(Door::Open);
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
    pub fn pass(&self) {
        self.change(Rules::clear);
        self.wait_for_door(Door::Open);
    }

    /// Lets everything in one direction wait for so long.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.change(|rules| rules.lane_mut(way).delay = delay);
    }

    /// Keeps back what comes from now on in one direction, without end.
    pub fn hold(&self, way: Way) {
        self.change(|rules| rules.lane_mut(way).hold = true);
    }

    /// Throws away what comes from now on in one direction, and says nothing about it.
    pub fn lose(&self, way: Way) {
        self.change(|rules| rules.lane_mut(way).lose = true);
    }

    /// Lets what [`Proxy::hold`] and [`Deed::Hold`] keep back go on its way, even if its sender is gone.
    pub fn let_go(&self) {
        self.change(|rules| {
            rules.there.hold = false;
            rules.back.hold = false;
            rules.let_gos += 1;
        });
    }

    /// Ends all connections, with what is held in them; new ones come through.
    ///
    /// # Panics
    /// When the proxy itself is stuck.
    pub fn cut(&self) {
        self.change(|rules| rules.cuts += 1);
        let cuts = self.state.rules.borrow().cuts;
        self.wait_until("old connections are cut", |sights| {
            sights.cuts >= cuts && sights.live.iter().all(|born| *born >= cuts)
        });
    }

    /// Ends the connection that carries them after so many more bytes in one direction.
    pub fn cut_after(&self, way: Way, bytes: usize) {
        self.change(|rules| rules.lane_mut(way).fuse = Some(bytes));
    }

    /// Ends all connections, and lets in those who come only to throw them out.
    ///
    /// # Panics
    /// When the proxy itself is stuck.
    pub fn slam_door(&self) {
        self.set_door(Door::Slammed);
    }

    /// Ends all connections and stops listening: the kernel refuses those who come.
    ///
    /// # Panics
    /// When the proxy itself is stuck.
    pub fn close_door(&self) {
        self.set_door(Door::Closed);
        let refused = || std::net::TcpStream::connect(loopback(self.port())).is_err().then_some(());
        eventually("nobody listens any more", SOON, refused);
    }

    /// Lies in wait for the next command of a name.
    pub fn ambush(&self, command: &str, deed: Deed) {
        self.change(|rules| rules.ambush = Some((command.to_uppercase(), deed)));
    }

    /// Gives the client these bytes instead of every reply to commands of a name, which the server gets.
    pub fn forge(&self, command: &str, reply: impl Into<Vec<u8>>) {
        let reply = reply.into();
        self.change(|rules| rules.impostor = Some((command.to_uppercase(), reply)));
    }

    /// Throws away what the server says without being asked: the messages of a subscription.
    pub fn hush(&self) {
        self.change(|rules| rules.hush = true);
    }

    /// How many commands of a name have reached the proxy, passed on or not.
    #[must_use]
    pub fn seen(&self, command: &str) -> usize {
        self.state.sights.borrow().commands.get(&command.to_uppercase()).copied().unwrap_or_default()
    }

    /// How many commands and replies were thrown away because of [`Proxy::lose`].
    #[must_use]
    pub fn lost(&self) -> usize {
        self.state.sights.borrow().lost
    }

    /// How many connections have come so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state.sights.borrow().accepted
    }

    /// Waits until so many commands of a name have reached the proxy since it was started.
    ///
    /// # Panics
    /// When they do not come soon.
    pub async fn until_seen(&self, command: &str, times: usize) {
        let name = command.to_uppercase();
        let mut sights = self.state.sights.subscribe();
        let enough = |sights: &Sights| sights.commands.get(&name).is_some_and(|count| *count >= times);
        let what = format!("{times} of {name} have reached the proxy");
        in_time(&what, SOON, sights.wait_for(enough)).await.expect("the proxy lives as long as this");
    }

    /// Waits until the next [`Proxy::ambush`], or the one that waits now, has struck.
    ///
    /// # Panics
    /// When it does not strike soon.
    pub async fn until_struck(&self) {
        let mut rules = self.state.rules.subscribe();
        let over = |rules: &Rules| rules.ambush.is_none();
        in_time("the ambush has struck", SOON, rules.wait_for(over)).await.expect("the proxy lives");
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        self.state.rules.send_modify(change);
    }

    fn set_door(&self, door: Door) {
        self.change(|rules| rules.door = door);
        self.wait_for_door(door);
        self.cut();
    }

    fn wait_for_door(&self, door: Door) {
        self.wait_until("the proxy's door is as it should be", |sights| sights.door == Some(door));
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Sights) -> bool) {
        eventually(what, SOON, || is_so(&self.state.sights.borrow()).then_some(()));
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
async fn keep_the_door(here: SocketAddr, server: SocketAddr, state: Arc<State>) {
    let mut rules = state.rules.subscribe();
    let mut listener = None;
    let mut cuts = 0;
    loop {
        let (door, cut_now) = {
            let rules = rules.borrow_and_update();
            (rules.door, rules.cuts)
        };
        match (&listener, door) {
            (_, Door::Closed) => listener = None,
            (None, _) => listener = Some(Listener::open(here).await),
            // A cut meets those too who are connected and not let in yet.
            (Some(listener), _) if cut_now != cuts => listener.turn_away(),
            (Some(_), _) => {}
        }
        cuts = cut_now;
        state.sights.send_modify(|sights| (sights.door, sights.cuts) = (Some(door), cuts));
        tokio::select! {
            Some(client) = knock(listener.as_ref()) => {
                state.sights.send_modify(|sights| sights.accepted += 1);
                if door == Door::Open {
                    state.sights.send_modify(|sights| sights.live.push(cuts));
                    tokio::spawn(let_through(client, server, cuts, Arc::clone(&state)));
                }
            }
            _ = rules.changed() => {}
        }
    }
}

/// The next one who comes; nobody where nobody listens.
async fn knock(listener: Option<&Listener>) -> Option<TcpStream> {
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
    fn turn_away(&self) {
        while self.looking.accept().is_ok() {}
    }
}

async fn let_through(client: TcpStream, server: SocketAddr, born: u64, state: Arc<State>) {
    // Whoever cannot be let through finds its connection closed.
    if let Ok(server) = TcpStream::connect(server).await {
        link::serve(client, server, born, &state).await;
    }
    state.sights.send_modify(|sights| {
        let own = sights.live.iter().position(|other| *other == born);
        own.map(|index| sights.live.swap_remove(index));
    });
}
