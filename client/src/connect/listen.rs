//! A second connection to a node, on which it tells of the locks that it gives to those who wait.

use super::handshake::write_all;
use super::{ConnectFailure, Ready, Target, connect};
use crate::wire::{self, Frame, Said};
use bytes::BytesMut;

/// Connects to a node as for commands, with the same login and the same certificates, and subscribes to a channel. Of a
/// cluster any one master will do.
/// From then on the node says nothing on this connection but what is said there.
pub(crate) async fn listen(target: &Target, channel: &[u8]) -> Result<Ready, ConnectFailure> {
    let mut ready = match target {
        #[cfg(feature = "cluster")]
        Target::Cluster(seeds) => super::cluster::connect_to_one(seeds).await?,
        _ => connect(target).await?,
    };
    let mut command = BytesMut::new();
    wire::command(&mut command, &[b"SUBSCRIBE", channel]);
    let written = write_all(&mut ready.stream, &mut command).await;
    written.map_err(|error| ConnectFailure::of_stream(&error))?;
    loop {
        while let Some(frame) = wire::decode(&mut ready.leftover).map_err(ConnectFailure::Foreign)? {
            match frame {
                Frame::Push(parts) | Frame::Array(parts) if wire::said(&parts) == Said::Subscribed => {
                    return Ok(ready);
                }
                Frame::Error(_) => return Err(ConnectFailure::MayNotListen),
                _ => {}
            }
        }
        match tokio_util::io::read_buf(&mut ready.stream, &mut ready.leftover).await {
            Ok(0) => return Err(ConnectFailure::Unreachable("the server hung up at once".to_owned())),
            Ok(_) => {}
            Err(error) => return Err(ConnectFailure::of_stream(&error)),
        }
    }
}
