//! The task between the driver and a cluster.
//!
//! To the driver it is a node: bytes of commands go in, bytes of replies come out. What becomes of a command
//! is decided at the [`Desk`]; here are the connections.

use super::Door;
use super::command::Command;
use super::desk::{Deed, Desk, Serial};
use super::member::{self, Event};
use super::pipe::FarEnd;
use super::reply;
use super::slots::Place;
use crate::connect::Ready;
use crate::wire;
use bytes::BytesMut;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// How many events are worked off before the driver is told.
const AT_ONCE: usize = 256;
/// How long a command waits while the members are not of one mind.
const PAUSE: Duration = Duration::from_millis(10);

/// The connections of one cluster.
pub(super) struct Relay {
    driver: FarEnd,
    desk: Desk,
    door: Door,
    members: HashMap<Place, Member>,
    /// Every connection has a task, and none outlives the relay.
    tasks: JoinSet<()>,
    events: UnboundedSender<Event>,
    inbox: UnboundedReceiver<Event>,
    deeds: Vec<Deed>,
    unread: BytesMut,
}

struct Member {
    messages: UnboundedSender<super::desk::Message>,
    /// Messages without a reply.
    unanswered: usize,
}

/// There is nothing left to do for the driver.
enum End {
    /// It is gone.
    Dropped,
    /// It has to be told that something went wrong: nobody knows what became of its last commands.
    Broken,
}

impl Relay {
    pub(super) fn new(driver: FarEnd, desk: Desk, door: Door) -> Self {
        let (events, inbox) = unbounded_channel();
        Self {
            driver,
            desk,
            door,
            members: HashMap::new(),
            tasks: JoinSet::new(),
            events,
            inbox,
            deeds: Vec::new(),
            unread: BytesMut::new(),
        }
    }

    /// Talks to a member, over this connection or else over one of its own.
    pub(super) fn admit(&mut self, place: Place, connection: Option<Ready>) {
        let (messages, mailbox) = unbounded_channel();
        let (door, events) = (self.door.clone(), self.events.clone());
        self.tasks.spawn(member::attend(place.clone(), connection, door, mailbox, events));
        self.members.insert(place, Member { messages, unanswered: 0 });
    }

    /// Serves the driver until it is gone, or until a member that is needed is.
    pub(super) async fn run(mut self) {
        let mut events = Vec::new();
        let end = loop {
            let happened = tokio::select! {
                bytes = self.driver.commands.recv() => match bytes {
                    Some(bytes) => self.take_commands(&bytes),
                    None => Err(End::Dropped),
                },
                _ = self.inbox.recv_many(&mut events, AT_ONCE) => {
                    events.drain(..).try_for_each(|event| self.happened(event))
                }
            };
            if let Err(end) = happened {
                break end;
            }
            self.carry_out();
            self.report();
        };
        self.report();
        // Dropping the relay closes the driver's connection.
        if matches!(end, End::Dropped) {
            self.desk.last_words(&mut self.deeds);
            self.carry_out();
            // The tasks end by themselves, once they have said what is left to say.
            self.tasks.detach_all();
        }
    }

    fn take_commands(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.unread.extend_from_slice(bytes);
        loop {
            match wire::decode(&mut self.unread) {
                Ok(None) => return Ok(()),
                Ok(Some(frame)) => {
                    // A command that cannot be sent anywhere could not be answered in its turn either.
                    let command = Command::read(&frame).ok_or(End::Broken)?;
                    self.desk.take(command, &mut self.deeds);
                }
                Err(_) => return Err(End::Broken),
            }
        }
    }

    fn happened(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Answered { by, about, reply } => {
                if let Some(member) = self.members.get_mut(&by) {
                    member.unanswered = member.unanswered.saturating_sub(1);
                }
                self.desk.answered(&by, about, reply, &mut self.deeds);
            }
            Event::Ended { member: place } => {
                let owes_replies = self.members.remove(&place).is_some_and(|member| member.unanswered > 0);
                // One that has nothing to serve any more may go.
                if owes_replies || self.desk.needs(&place) {
                    return Err(End::Broken);
                }
            }
            Event::Woken(serial) => self.desk.woken(serial, &mut self.deeds),
        }
        Ok(())
    }

    fn carry_out(&mut self) {
        for deed in std::mem::take(&mut self.deeds) {
            match deed {
                Deed::Send { to, message } => {
                    if !self.members.contains_key(&to) {
                        self.admit(to.clone(), None);
                    }
                    if let Some(member) = self.members.get_mut(&to) {
                        member.unanswered += 1;
                        // A member that is gone has said so, or is about to.
                        let _ = member.messages.send(message);
                    }
                }
                Deed::Pause(serial) => self.pause(serial),
            }
        }
    }

    fn pause(&self, serial: Serial) {
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            let _ = events.send(Event::Woken(serial));
        });
    }

    /// Tells the driver what it may hear now.
    fn report(&mut self) {
        let mut replies = BytesMut::new();
        while let Some(frame) = self.desk.next_reply() {
            reply::encode(&mut replies, &frame);
        }
        if !replies.is_empty() {
            // If the driver is gone, there are no more commands, and that is how one knows.
            let _ = self.driver.replies.send(replies.freeze());
        }
    }
}
