//! How a connection to a node comes to be: reach it, log in, ask who it is.
//!
//! | file | subject |
//! |---|---|
//! | `target.rs` | where a node is and how one logs in there |
//! | `stream.rs` | TCP, Unix sockets and TLS as one kind of stream |
//! | `tls.rs`, `without_tls.rs` | certificates; what stands in for them without the feature `tls` |
//! | `handshake.rs` | what is said first, and what the answers mean |
//! | `listen.rs` | a second connection, on which a node tells of what it hands on |
//! | `sentinel.rs`, `sentinel/` | finding the master that Sentinel watches |
//! | `cluster.rs`, `cluster/` | a Redis Cluster as one node |
//! | `race.rs` | several ways to one node |
//! | `failure.rs` | why it did not work |
//!
//! Nothing here has a time limit: whoever calls has one, and dropping the future gives everything up.

#[cfg(feature = "cluster")]
mod cluster;
mod failure;
mod handshake;
mod listen;
#[cfg(any(feature = "sentinel", feature = "cluster"))]
mod race;
#[cfg(feature = "sentinel")]
mod sentinel;
mod stream;
mod target;
#[cfg_attr(not(feature = "tls"), path = "without_tls.rs")]
mod tls;

pub(crate) use failure::ConnectFailure;
pub(crate) use handshake::{Identity, node_identity};
pub(crate) use listen::listen;
pub(crate) use stream::Stream;
#[cfg(feature = "sentinel")]
pub(crate) use target::Watched;
pub(crate) use target::{Address, Login, Protocol, Server, Target};
#[cfg(not(feature = "tls"))]
pub(crate) use tls::Tls;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub(crate) use tls::{Settings, settings as tls_settings};

use bytes::BytesMut;
use handshake::Handshake;

/// A connection that is logged in, to a node that has the module.
pub(crate) struct Ready {
    /// Where commands go and replies come from.
    pub(crate) stream: Box<dyn Stream>,
    /// Which node this is.
    pub(crate) identity: Identity,
    /// How it tells of locks that it gives to those who wait.
    pub(crate) telling: Telling,
    /// What was read beyond the handshake; it comes before anything that the stream still gives.
    pub(crate) leftover: BytesMut,
}

/// How a node tells of locks that it gives to those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// On the connection that carries the commands.
    Here,
    /// On a connection that is there for nothing else: RESP2 cannot do both on one, and a cluster has many.
    Apart,
    /// Not at all: its module is older.
    Never,
}

/// Connects to a node, logs in and asks for its identity.
pub(crate) async fn connect(target: &Target) -> Result<Ready, ConnectFailure> {
    match target {
        Target::Server(server) => {
            let handshake = Handshake::new(&server.login).ask_identity();
            reach(server, handshake).await
        }
        #[cfg(feature = "sentinel")]
        Target::Watched(watched) => sentinel::connect(watched).await,
        #[cfg(feature = "cluster")]
        Target::Cluster(seeds) => cluster::connect(seeds).await,
    }
}

async fn reach(server: &Server, handshake: Handshake) -> Result<Ready, ConnectFailure> {
    let mut stream = stream::open(&server.address).await?;
    let heard = handshake.hold(&mut stream).await?;
    let identity = heard.identity()?;
    let telling = match (heard.hands_locks_on(), server.login.protocol) {
        (false, _) => Telling::Never,
        (true, Protocol::Resp3) => Telling::Here,
        (true, Protocol::Resp2) => Telling::Apart,
    };
    Ok(Ready { stream, identity, telling, leftover: heard.leftover })
}
