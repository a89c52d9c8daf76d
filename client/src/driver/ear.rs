//! A connection on which one only listens, beside a link that cannot carry what a node says unasked.
//!
//! The commands, and with them the place in line, belong to the link's connection: the node forgets who waits when
//! that one closes, and not when this one does. If this one breaks, the node goes on handing locks to those who do not
//! hear it. So it is opened anew, and when it is back everybody asks again: what was said meanwhile is in the answer.

use super::dial::{Backoff, Dial, LONGEST_PAUSE, Patience};
use super::entry::Arrival;
use crate::connect::{self, ConnectFailure, Identity, Ready, Stream, Target};
use crate::wire::{self, Frame, Said};
use bytes::BytesMut;
use redlock_proto::Moment;
use redlock_proto::identity::{Accepted, judge};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::io::poll_read_buf;

/// News are short, and few at a time.
const READ_AHEAD: usize = 1024;

/// What an ear belongs to, and how it is opened.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) node: usize,
    pub(super) target: Arc<Target>,
    pub(super) channel: Arc<[u8]>,
    pub(super) patience: Patience,
}

/// A connection on which one only listens. Dropping it closes it.
pub(super) struct Ear {
    place: Place,
    /// Whom the link is connected to: nobody else has anything to say.
    whose: Identity,
    state: State,
    backoff: Backoff,
    /// Whether it was ever open.
    was_open: bool,
    /// Whether the last attempt to open it was in vain.
    is_deaf: bool,
}

enum State {
    Opening(Dial),
    Open {
        stream: Box<dyn Stream>,
        unread: BytesMut,
        since: Moment,
    },
    /// To be opened again at this moment.
    Shut(Moment),
    /// The node does not let us listen.
    Forbidden,
}

/// What can be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    /// Everything, or it will be asked for in a moment.
    Good,
    NotKnownYet,
    /// Nothing at present.
    Deaf,
    Forbidden,
}

impl Ear {
    /// Begins to listen to a node.
    pub(super) fn open(place: Place, whose: Identity) -> Self {
        let state = State::Opening(begin(&place));
        Self { place, whose, state, backoff: Backoff::default(), was_open: false, is_deaf: false }
    }

    /// What can be heard.
    pub(super) fn hearing(&self) -> Hearing {
        match &self.state {
            State::Open { .. } => Hearing::Good,
            State::Forbidden => Hearing::Forbidden,
            State::Opening(_) | State::Shut(_) if self.is_deaf => Hearing::Deaf,
            State::Opening(_) | State::Shut(_) if self.was_open => Hearing::Good,
            State::Opening(_) | State::Shut(_) => Hearing::NotKnownYet,
        }
    }

    /// Hears what there is to hear; true if anything happened.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Moment, arrivals: &mut Vec<Arrival>) -> bool {
        match &mut self.state {
            State::Forbidden => false,
            State::Shut(until) => {
                let is_time = now.has_reached(*until);
                if is_time {
                    self.state = State::Opening(begin(&self.place));
                }
                is_time
            }
            State::Opening(dial) => match dial.poll(cx) {
                Poll::Pending => false,
                Poll::Ready(outcome) => {
                    self.opened(outcome, now, arrivals);
                    true
                }
            },
            State::Open { stream, unread, since } => {
                let since = *since;
                match hear(stream, unread, cx, self.place.node, arrivals) {
                    Ok(happened) => happened,
                    Err(()) => {
                        // One that lasted is no sign of trouble.
                        if now.since(since) > LONGEST_PAUSE {
                            self.backoff.succeeded();
                        }
                        self.state = State::Shut(self.backoff.failed(now));
                        true
                    }
                }
            }
        }
    }

    fn opened(&mut self, outcome: Result<Ready, ConnectFailure>, now: Moment, arrivals: &mut Vec<Arrival>) {
        self.state = match outcome {
            Ok(ready) if self.is_the_right_one(&ready.identity) => {
                (self.was_open, self.is_deaf) = (true, false);
                arrivals.push(Arrival::Listening);
                State::Open { stream: ready.stream, unread: ready.leftover, since: now }
            }
            Err(ConnectFailure::MayNotListen) => {
                arrivals.push(Arrival::Unheard);
                State::Forbidden
            }
            // Nobody is there, or somebody else.
            Ok(_) | Err(_) => {
                self.is_deaf = true;
                arrivals.push(Arrival::Unheard);
                State::Shut(self.backoff.failed(now))
            }
        };
    }

    /// Whether this is whom the link is connected to, and no older copy of it. A cluster is asked for its masters anew, and those of a while ago
    /// may all have been replaced, while the link has stayed what it is: whoever is a master now tells what all say.
    fn is_the_right_one(&self, found: &Identity) -> bool {
        self.place.target.is_cluster() || judge(Some(&self.whose.node), &found.node) == Ok(Accepted::Same)
    }

    /// When to call [`Ear::poll`] next, if nothing comes.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        match &self.state {
            State::Shut(until) => Some(*until),
            _ => None,
        }
    }
}

fn begin(place: &Place) -> Dial {
    let (target, channel) = (Arc::clone(&place.target), Arc::clone(&place.channel));
    Dial::begin(async move { connect::listen(&target, &channel).await }, place.patience)
}

/// Reads what has come; true if there was anything, an error if no more will.
fn hear(
    stream: &mut Box<dyn Stream>,
    unread: &mut BytesMut,
    cx: &mut Context<'_>,
    node: usize,
    arrivals: &mut Vec<Arrival>,
) -> Result<bool, ()> {
    let mut came = false;
    loop {
        while let Some(frame) = wire::decode(unread).map_err(|_| ())? {
            came = true;
            if let Frame::Push(parts) | Frame::Array(parts) = frame
                && let Said::News(message) = wire::said(&parts)
            {
                arrivals.push(Arrival::News { node, message });
            }
        }
        unread.reserve(READ_AHEAD);
        match poll_read_buf(Pin::new(&mut *stream), cx, unread) {
            Poll::Ready(Ok(1..)) => {}
            Poll::Ready(_) => return Err(()),
            Poll::Pending => return Ok(came),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_proto::identity::NodeIdentity;
    use std::time::Duration;

    #[tokio::test]
    async fn only_the_node_of_the_link_is_listened_to() {
        let locks = crate::LockManager::builder().nodes(["redis://localhost"]).build().unwrap();
        let crate::settings::Places::Servers(targets) = &locks.settings().places else { panic!("a server") };
        let timeout = Duration::from_secs(1);
        let patience = Patience { node_timeout: timeout, connect_timeout: timeout };
        let (target, channel) = (Arc::clone(&targets[0]), Arc::from(&b"c"[..]));
        let identity = |id: &str, incarnation, high_water| {
            let node = NodeIdentity { id: id.to_owned(), incarnation, high_water, ..NodeIdentity::default() };
            Identity { node, version: "0.1.0".to_owned(), quarantine_ms: 0 }
        };
        let place = Place { node: 0, target, channel, patience };
        let of = |whose| Ear::open(place.clone(), whose);
        let ear = of(identity("a", Some(7), Some(100)));
        assert!(ear.is_the_right_one(&identity("a", Some(7), Some(120))));
        assert!(!ear.is_the_right_one(&identity("b", Some(7), Some(100))), "another node");
        assert!(!ear.is_the_right_one(&identity("a", Some(6), Some(100))), "an older copy");
        assert!(!ear.is_the_right_one(&identity("a", Some(7), Some(99))), "a restored disk");
        let ear = of(identity("a", None, None));
        assert!(ear.is_the_right_one(&identity("a", None, None)));
        assert!(!ear.is_the_right_one(&identity("b", None, None)), "another node of an older module");
    }
}
