//! A Redis Cluster as one node.
//!
//! A cluster has one vote, however many masters it has: which of them a key belongs to is its own affair. To
//! the driver it is a stream of bytes like any other; behind it a task sends every command to the master that
//! serves its key and follows it when the cluster moves the key elsewhere.
//!
//! | file | subject |
//! |---|---|
//! | `slots.rs` | which master serves which key |
//! | `command.rs` | where a command belongs, and what a member advises |
//! | `desk.rs` | who is asked what, and in which order the driver hears of it |
//! | `relay.rs` | the task between the driver and the members |
//! | `pipe.rs` | the driver's stream |
//! | `member.rs` | the connection to one member |
//! | `summary.rs` | many masters as one node |
//! | `reply.rs` | frames to bytes |
//!
//! Nothing is sent twice, unless a member has said that it did not carry it out. When a connection breaks, it
//! is not known what became of the commands on it; then the driver's stream is closed, and the driver treats
//! it as it treats any node that is cut off. A copy of an acquire on a second connection could arrive after
//! the release of the first, and lock a key for nobody.

mod command;
mod desk;
mod member;
mod pipe;
mod relay;
mod reply;
mod slots;
mod summary;

use super::handshake::Handshake;
use super::target::{Login, Server};
use super::{Address, ConnectFailure, Ready, Settings, Telling, race, reach, stream};
use crate::owner::random;
use bytes::BytesMut;
use desk::Desk;
use relay::Relay;
use slots::{Place, SlotMap};
use tokio::task::JoinSet;

/// The question who serves what. Every cluster that has the module knows it.
pub(super) const ASK_SLOTS: [&[u8]; 2] = [b"CLUSTER", b"SLOTS"];

/// How one gets in at every member: as at the address through which the cluster was found.
#[derive(Clone)]
struct Door {
    login: Login,
    tls: Option<Settings>,
}

impl Door {
    /// Connects to a member, and makes sure that it has the module.
    async fn enter(&self, place: &Place) -> Result<Ready, ConnectFailure> {
        let address = Address::Tcp { host: place.host.to_string(), port: place.port, tls: self.tls.clone() };
        let server = Server { address, login: self.login.clone() };
        reach(&server, Handshake::new(&self.login).ask_identity()).await
    }
}

/// Finds the masters of a cluster through any of its members, and connects to all of them.
pub(super) async fn connect(seeds: &[Server]) -> Result<Ready, ConnectFailure> {
    let ways = seeds.iter().cloned().map(|seed| async move { connect_through(&seed).await });
    let (door, map, masters) = race::first(ways).await?;
    // Every key has its own master, and the news come from any of them: commands are no place for that. One that has no
    // lines speaks for all.
    let has_lines = masters.iter().all(|(_, ready)| ready.telling != Telling::Never);
    let telling = if has_lines { Telling::Apart } else { Telling::Never };
    let identities: Vec<_> = masters.iter().map(|(_, ready)| ready.identity.clone()).collect();
    let (driver, far_end) = pipe::new();
    let mut relay = Relay::new(far_end, Desk::new(map), door);
    for (place, ready) in masters {
        relay.admit(place, Some(ready));
    }
    tokio::spawn(relay.run());
    Ok(Ready {
        stream: Box::new(driver),
        identity: summary::identity(&identities),
        telling,
        leftover: BytesMut::new(),
    })
}

/// Connects to any one of the masters. What one member publishes all of them tell.
pub(super) async fn connect_to_one(seeds: &[Server]) -> Result<Ready, ConnectFailure> {
    let ways = seeds.iter().cloned().map(|seed| async move { look_through(&seed).await });
    let (door, map) = race::first(ways).await?;
    let mut masters = map.all_masters();
    // Not all clients at the same one.
    masters.sort_by_cached_key(|_| random());
    let ways = masters.into_iter().map(|place| {
        let door = door.clone();
        async move { door.enter(&place).await }
    });
    race::first(ways).await
}

/// Asks one member who the masters are.
async fn look_through(seed: &Server) -> Result<(Door, SlotMap), ConnectFailure> {
    let (host, tls) = match &seed.address {
        Address::Tcp { host, tls, .. } => (Some(host.as_str()), tls.clone()),
        Address::Unix(_) => (None, None),
    };
    let mut stream = stream::open(&seed.address).await?;
    let heard = Handshake::new(&seed.login).ask_slots().hold(&mut stream).await?;
    drop(stream);
    let map = SlotMap::read(heard.last(), host).ok_or_else(|| {
        ConnectFailure::Refused(format!("CLUSTER: {} does not say who the masters are", seed.address))
    })?;
    Ok((Door { login: seed.login.clone(), tls }, map))
}

/// Asks one member who the masters are, and connects to them.
///
/// All of them have to be there: a node that could answer for some keys only would be a voter for some locks
/// only.
async fn connect_through(seed: &Server) -> Result<(Door, SlotMap, Vec<(Place, Ready)>), ConnectFailure> {
    let (door, map) = look_through(seed).await?;
    let mut connecting = JoinSet::new();
    for place in map.all_masters() {
        let door = door.clone();
        connecting.spawn(async move {
            match door.enter(&place).await {
                Ok(ready) => Ok((place, ready)),
                Err(ConnectFailure::Unreachable(why)) => {
                    Err(ConnectFailure::Unreachable(format!("{place}: {why}")))
                }
                Err(why) => Err(why),
            }
        });
    }
    let mut masters = Vec::new();
    while let Some(connected) = connecting.join_next().await {
        let connected =
            connected.map_err(|_| ConnectFailure::Unreachable("the runtime is shutting down".to_owned()))?;
        masters.push(connected?);
    }
    Ok((door, map, masters))
}
