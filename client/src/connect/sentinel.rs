//! A master that Sentinel watches: the client asks the sentinels for its address before every connection.
//!
//! Sentinel is discovery, not failover: a promoted replica does not vote before an operator admits it, so a client that
//! stays connected to the old master stays with the node that has the vote. The client asks again when the connection
//! ends, or when the server says that it is a replica now.
//!
//! The `redis` crate's own Sentinel client is not used: it connects to the master by itself and needs `ROLE` or `INFO`
//! there, which a user for locks has no permission for, and its TLS needs a crypto provider for the whole process.

use super::handshake::Handshake;
use super::target::{ServerAddress, Watched};
use super::{Address, ConnectFailure, Ready, race, reach, stream};

/// Asks the sentinels in turn, and uses the first that leads to a master.
pub(super) async fn connect(watched: &Watched) -> Result<Ready, ConnectFailure> {
    let attempts = watched.sentinels.iter().cloned().map(|sentinel| {
        let watched = watched.clone();
        async move { connect_through(&sentinel, &watched).await }
    });
    race::first(attempts).await
}

/// Asks one sentinel, and connects to the master that it names.
async fn connect_through(sentinel: &ServerAddress, watched: &Watched) -> Result<Ready, ConnectFailure> {
    let mut stream = stream::open(&sentinel.address).await?;
    let reply = Handshake::new(&sentinel.login).ask_master(&watched.master).hold(&mut stream).await?;
    let Some((host, port)) = reply.master() else {
        let why = format!("SENTINEL: {} knows no master {:?}", sentinel.address, watched.master);
        return Err(ConnectFailure::Refused { why, code: None });
    };
    let address = Address::Tcp { host, port, tls: watched.tls.clone() };
    let server = ServerAddress { address, login: watched.login.clone() };
    reach(&server, Handshake::new(&server.login).ask_role().ask_identity()).await
}
