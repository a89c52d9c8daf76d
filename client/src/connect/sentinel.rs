//! The master that Sentinel watches: found anew for every connection, and left when Sentinel names another.
//!
//! Nobody tells a master at once that a replica has taken its place. Until Sentinel comes round to it, which
//! takes about ten seconds, it goes on granting to those who are still connected, while the new master grants
//! to everybody else. So the sentinel that has led here is asked again and again.

mod minded;

use super::handshake::Handshake;
use super::target::{Login, Server, Watched};
use super::{Address, ConnectFailure, Ready, Stream, race, reach, stream};
use minded::Minded;
use std::sync::Arc;
use std::time::Duration;

/// How long it takes at most to notice that a sentinel names another master, and how long one may take to
/// say so.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Where a master is.
type Whereabouts = (String, u16);

/// Asks the sentinels in turn, and goes with the first that leads to a master.
pub(super) async fn connect(watched: &Watched) -> Result<Ready, ConnectFailure> {
    let watched = Arc::new(watched.clone());
    let ways = watched.sentinels.iter().cloned().map(|sentinel| {
        let watched = Arc::clone(&watched);
        async move { connect_through(&sentinel, &watched).await }
    });
    let (ready, guide, master) = race::first(ways).await?;
    let moved = until_moved(watched, guide, master);
    Ok(Ready { stream: Box::new(Minded::new(ready.stream, moved)), ..ready })
}

/// Asks one sentinel, and connects to the master that it names.
async fn connect_through(
    sentinel: &Server,
    watched: &Watched,
) -> Result<(Ready, Box<dyn Stream>, Whereabouts), ConnectFailure> {
    let (guide, master) = ask(sentinel, watched).await?;
    let (host, port) = master.clone();
    let address = Address::Tcp { host, port, tls: watched.tls.clone() };
    let server = Server { address, login: watched.login.clone() };
    let ready = reach(&server, Handshake::new(&server.login).ask_role().ask_identity()).await?;
    Ok((ready, guide, master))
}

/// Asks a sentinel where the master is. The connection is good for asking again.
async fn ask(sentinel: &Server, watched: &Watched) -> Result<(Box<dyn Stream>, Whereabouts), ConnectFailure> {
    let mut stream = stream::open(&sentinel.address).await?;
    let heard = Handshake::new(&sentinel.login).ask_master(&watched.master).hold(&mut stream).await?;
    match heard.master() {
        Some(master) => Ok((stream, master)),
        None => Err(ConnectFailure::Refused(format!(
            "SENTINEL: {} knows no master {:?}",
            sentinel.address, watched.master
        ))),
    }
}

/// Ends when a sentinel names another master. As long as none says anything, everything stays as it is.
async fn until_moved(watched: Arc<Watched>, guide: Box<dyn Stream>, master: Whereabouts) {
    let mut guide = Some(guide);
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let named = match guide.take() {
            Some(stream) => tokio::time::timeout(LOOK_AGAIN, ask_again(stream, &watched)).await,
            None => {
                let sentinels = watched.sentinels.iter().cloned().map(|sentinel| {
                    let watched = Arc::clone(&watched);
                    async move { ask(&sentinel, &watched).await }
                });
                tokio::time::timeout(LOOK_AGAIN, race::first(sentinels)).await
            }
        };
        if let Ok(Ok((stream, named))) = named {
            if named != master {
                return;
            }
            guide = Some(stream);
        }
    }
}

/// Asks a sentinel once more. It knows who is asking.
async fn ask_again(
    mut stream: Box<dyn Stream>,
    watched: &Watched,
) -> Result<(Box<dyn Stream>, Whereabouts), ConnectFailure> {
    let question = Handshake::new(&Login::default()).ask_master(&watched.master);
    let heard = question.hold(&mut stream).await?;
    let named = heard.master();
    named
        .map(|master| (stream, master))
        .ok_or_else(|| ConnectFailure::Unreachable("the sentinel has forgotten the master".to_owned()))
}
