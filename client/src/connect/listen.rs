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
                Frame::Error(_) => return Err(refusal(&frame.complaint().unwrap_or_default())),
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

/// What a server means that does not let us subscribe. Only a lack of rights is for good: it may be busy, or loading.
fn refusal(complaint: &str) -> ConnectFailure {
    if complaint.starts_with("NOPERM") {
        ConnectFailure::MayNotListen
    } else {
        ConnectFailure::Refused(format!("SUBSCRIBE: {complaint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_rights_is_for_good() {
        for complaint in [
            "NOPERM this user has no permissions to access one of the channels used as arguments",
            "NOPERM User app has no permissions to run the 'subscribe' command",
        ] {
            assert_eq!(refusal(complaint), ConnectFailure::MayNotListen, "{complaint}");
        }
        for complaint in
            ["LOADING Redis is loading the dataset in memory", "BUSY a script is running", "ERR NOPERM", ""]
        {
            assert!(matches!(refusal(complaint), ConnectFailure::Refused(_)), "{complaint}");
        }
    }
}
