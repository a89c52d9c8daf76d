//! Connecting to a node: open a stream, log in, ask for the node's identity.
//!
//! | file | subject |
//! |---|---|
//! | `target.rs` | the address of a node, and its credentials |
//! | `stream.rs` | TCP, Unix sockets and TLS as one kind of stream |
//! | `tls.rs`, `without_tls.rs` | TLS; its replacement without the feature `tls` |
//! | `handshake.rs` | the first commands, and the meaning of their replies |
//! | `sentinel.rs` | finding the master that Sentinel watches |
//! | `race.rs` | parallel connection attempts |
//! | `failure.rs` | why connecting failed |
//!
//! This module sets no timeout. The caller sets one: dropping the future aborts the attempt.

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
pub(crate) use handshake::node_identity;
pub(crate) use stream::{DetachedStream, Stream};
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
use redlock_proto::identity::NodeIdentity;

/// A connection after the handshake.
pub(crate) struct Ready {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) identity: NodeIdentity,
    /// Why this client cannot queue on the node, if it cannot.
    pub(crate) no_queue: Option<NoQueue>,
    /// Bytes that the client read after the last reply. They precede the next bytes of the stream.
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
