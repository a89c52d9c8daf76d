//! The connection to one member of a cluster.

use super::desk::{About, Content, Message};
use super::slots::Place;
use super::{ASK_SLOTS, Door};
use crate::connect::handshake::write_all;
use crate::connect::{ConnectFailure, Ready, Stream};
use crate::wire::{self, Frame};
use bytes::BytesMut;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::io::read_buf;

/// How many messages are taken in before they are written.
const AT_ONCE: usize = 256;
/// How long a member may still take in what was said last, once nobody waits for its replies.
const PARTING: Duration = Duration::from_secs(1);

/// What a member, or a pause, has brought.
pub(super) enum Event {
    Answered {
        by: Place,
        about: About,
        reply: Frame,
    },
    /// The connection has ended. What was not answered may have been done or not.
    Ended {
        member: Place,
    },
    /// A pause is over.
    Woken(super::desk::Serial),
}

/// Talks to a member until the connection ends or there is nothing more to say.
///
/// Nothing is ever sent twice: if it is not known what became of a command, then that is what the driver has
/// to hear.
pub(super) async fn attend(
    place: Place,
    connection: Option<Ready>,
    door: Door,
    messages: UnboundedReceiver<Message>,
    events: UnboundedSender<Event>,
) {
    let connection = match connection {
        Some(ready) => Ok(ready),
        None => door.enter(&place).await,
    };
    if let Ok(ready) = connection {
        let member = Member {
            place: place.clone(),
            stream: ready.stream,
            unread: ready.leftover,
            unwritten: BytesMut::new(),
            waiting: VecDeque::new(),
            events: events.clone(),
        };
        // Why it ended is not told to anybody: the next connection finds out.
        let _ = member.converse(messages).await;
    }
    let _ = events.send(Event::Ended { member: place });
}

struct Member {
    place: Place,
    stream: Box<dyn Stream>,
    unread: BytesMut,
    unwritten: BytesMut,
    /// What the replies to come are about, the next one first; `None`: nobody wants to know.
    waiting: VecDeque<Option<About>>,
    events: UnboundedSender<Event>,
}

impl Member {
    async fn converse(mut self, mut messages: UnboundedReceiver<Message>) -> Result<(), ConnectFailure> {
        let mut taken = Vec::new();
        loop {
            self.deliver()?;
            tokio::select! {
                count = messages.recv_many(&mut taken, AT_ONCE) => {
                    if count == 0 {
                        return Ok(());
                    }
                    taken.drain(..).for_each(|message| self.put(message));
                    self.write().await?;
                }
                read = read_buf(&mut self.stream, &mut self.unread) => match read {
                    Ok(0) => return Err(ConnectFailure::Unreachable("the server hung up".to_owned())),
                    Ok(_) => {}
                    Err(error) => return Err(ConnectFailure::of_stream(&error)),
                },
            }
        }
    }

    fn put(&mut self, message: Message) {
        match message.content {
            Content::Command(bytes) => self.unwritten.extend_from_slice(&bytes),
            Content::CommandAskedFor(bytes) => {
                wire::command(&mut self.unwritten, &[b"ASKING"]);
                self.waiting.push_back(None);
                self.unwritten.extend_from_slice(&bytes);
            }
            Content::Slots => wire::command(&mut self.unwritten, &ASK_SLOTS),
        }
        self.waiting.push_back(Some(message.about));
    }

    async fn write(&mut self) -> Result<(), ConnectFailure> {
        tokio::select! {
            written = write_all(&mut self.stream, &mut self.unwritten) => written.map_err(|error| ConnectFailure::of_stream(&error)),
            () = abandoned(&self.events) => Ok(()),
        }
    }

    /// Hands over the replies that have come in full.
    fn deliver(&mut self) -> Result<(), ConnectFailure> {
        while let Some(reply) = wire::decode(&mut self.unread).map_err(ConnectFailure::Foreign)? {
            if matches!(reply, Frame::Push(_)) {
                continue;
            }
            let about = self.waiting.pop_front();
            let about = about.ok_or_else(|| ConnectFailure::Refused("a reply to nothing".to_owned()))?;
            if let Some(about) = about {
                let _ = self.events.send(Event::Answered { by: self.place.clone(), about, reply });
            }
        }
        Ok(())
    }
}

/// Ends some time after nobody waits for replies any more.
async fn abandoned(events: &UnboundedSender<Event>) {
    events.closed().await;
    tokio::time::sleep(PARTING).await;
}
