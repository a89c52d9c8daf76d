//! A master that Sentinel watches: the client asks the sentinels for its address before every connection.
//!
//! Sentinel is discovery, not failover: a promoted replica does not vote before an operator admits it. A
//! client that stays connected to the old master therefore stays with the node that votes. The client asks
//! the sentinels again when the connection ends, or when the server replies that it is a replica now.
//!
//! This module does not use the Sentinel client of the `redis` crate, for two reasons:
//!
//! - That client connects to the master by itself and needs `ROLE` or `INFO` there. A user with permissions
//!   for locks only may run neither.
//! - Its TLS needs a crypto provider for the whole process.

use super::handshake::Handshake;
use super::target::{ServerAddress, Watched};
use super::{Address, ConnectFailure, Ready, race, reach, stream};

/// Asks the sentinels in order, and uses the first one through which the client reaches the master.
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
        let why = format!(
            "SENTINEL: {} knows no master {:?}: check the master's name in the settings",
            sentinel.address, watched.master
        );
        return Err(ConnectFailure::Refused { why, code: None });
    };
    let address = Address::Tcp { host, port, tls: watched.tls.clone() };
    let server = ServerAddress { address, login: watched.login.clone() };
    reach(&server, Handshake::new(&server.login).ask_role().ask_identity()).await
}
