//! How a connection to a node comes to be: reach it, log in, ask who it is.
//!
//! | file | subject |
//! |---|---|
//! | `target.rs` | where a node is and how one logs in there |
//! | `stream.rs` | TCP, Unix sockets and TLS as one kind of stream |
//! | `tls.rs`, `without_tls.rs` | certificates; what stands in for them without the feature `tls` |
//! | `handshake.rs` | what is said first, and what the answers mean |
//! | `sentinel.rs` | finding the master that Sentinel watches |
//! | `race.rs` | several ways to one node |
//! | `failure.rs` | why it did not work |
//!
//! Nothing here has a time limit: whoever calls has one, and dropping the future gives everything up.

mod failure;
mod handshake;
#[cfg(feature = "sentinel")]
mod race;
#[cfg(feature = "sentinel")]
mod sentinel;
mod stream;
mod target;
#[cfg_attr(not(feature = "tls"), path = "without_tls.rs")]
mod tls;

pub(crate) use failure::ConnectFailure;
pub(crate) use handshake::{NodeGreeting, node_identity};
pub(crate) use stream::Stream;
#[cfg(feature = "sentinel")]
pub(crate) use target::Watched;
pub(crate) use target::{Address, Login, Protocol, ServerAddress, Target};
#[cfg(not(feature = "tls"))]
pub(crate) use tls::Tls;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub(crate) use tls::{TlsSettings, settings as tls_settings};

use crate::queue_support::NoQueue;
use bytes::BytesMut;
use handshake::Handshake;

/// A connection that is logged in, to a node that has the module.
pub(crate) struct Ready {
    /// Where commands go and replies come from.
    pub(crate) stream: Box<dyn Stream>,
    /// Which node this is.
    pub(crate) identity: NodeGreeting,
    /// Why this client cannot queue on the node, if it cannot.
    pub(crate) no_queue: Option<NoQueue>,
    /// What was read beyond the handshake; it comes before anything that the stream still gives.
    pub(crate) leftover: BytesMut,
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
    }
}

async fn reach(server: &ServerAddress, handshake: Handshake) -> Result<Ready, ConnectFailure> {
    let mut stream = stream::open(&server.address).await?;
    let heard = handshake.hold(&mut stream).await?;
    let identity = heard.identity()?;
    let no_queue = match (heard.queues_clients(), server.login.protocol) {
        (false, _) => Some(NoQueue::OldModule),
        (true, Protocol::Resp2) => Some(NoQueue::Resp2),
        (true, Protocol::Resp3) => None,
    };
    Ok(Ready { stream, identity, no_queue, leftover: heard.leftover })
}
