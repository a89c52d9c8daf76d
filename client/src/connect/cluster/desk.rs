//! Who is asked what, and in which order the driver hears of it. Neither sockets nor clocks are here.
//!
//! The driver has been promised a node: replies in the order of its commands, and commands on one key carried
//! out in that order too, so that a release cannot overtake the acquire that it undoes. A cluster promises
//! neither, because a command may be sent from one master to the next before somebody carries it out. So
//! commands with the same first key go one by one, each after the reply to the one before; those with
//! different keys do not wait for each other.

use super::command::{Advice, Aim, Command};
use super::slots::{Place, SlotMap};
use super::summary;
use crate::wire::Frame;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};

/// How often a command is sent on at once. While a slot moves it takes one step, seldom two.
const MOST_STEPS: u32 = 2;
/// How often it starts from the beginning. After that the driver is told what the last member said.
const MOST_ROUNDS: u32 = 8;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Send something to a member, and bring what it says to [`Desk::answered`].
    Send { to: Place, message: Message },
    /// Wait a little, then call [`Desk::woken`].
    Pause(Serial),
}

/// What is sent to a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) content: Content,
    /// What the reply is for.
    pub(super) about: About,
}

/// What a message says.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Content {
    Command(Bytes),
    /// A command for a slot that is not the member's yet: it has to be told that this is known.
    CommandAskedFor(Bytes),
    /// Who serves what?
    Slots,
}

/// Shows no command: it carries an owner.
impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Command(_) => "Command",
            Self::CommandAskedFor(_) => "CommandAskedFor",
            Self::Slots => "Slots",
        })
    }
}

/// What a reply is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Errand(Serial),
    /// A part of an errand to all masters.
    Part(Serial),
    Slots,
}

/// Commands are numbered as they come.
pub(super) type Serial = u64;

/// A command until the driver has its reply.
struct Errand {
    command: Command,
    rounds: u32,
    /// How often it was sent in this round.
    steps: u32,
    /// Whether a member has it now.
    is_out: bool,
    /// Of an errand to all masters: what they said so far, and how many have not.
    parts: Vec<Frame>,
    missing: usize,
    reply: Option<Frame>,
}

/// All commands that the driver has no reply to.
pub(super) struct Desk {
    map: SlotMap,
    errands: VecDeque<Errand>,
    /// The number of the first of them.
    first: Serial,
    /// By first key: the errand that is under way, and those that wait for it.
    queues: HashMap<Bytes, VecDeque<Serial>>,
    /// Errands to all masters that wait to be told who these are.
    surveys: Vec<Serial>,
    is_asking_for_slots: bool,
}

impl Desk {
    pub(super) fn new(map: SlotMap) -> Self {
        Self {
            map,
            errands: VecDeque::new(),
            first: 0,
            queues: HashMap::new(),
            surveys: Vec::new(),
            is_asking_for_slots: false,
        }
    }

    /// Takes a command in.
    pub(super) fn take(&mut self, command: Command, deeds: &mut Vec<Deed>) {
        let serial = self.first + self.errands.len() as u64;
        let key = match &command.aim {
            Aim::Masters => None,
            Aim::Key { key, .. } => Some(key.clone()),
        };
        let (parts, reply) = (Vec::new(), None);
        self.errands.push_back(Errand {
            command,
            rounds: 0,
            steps: 0,
            is_out: false,
            parts,
            missing: 0,
            reply,
        });
        match key {
            None => {
                self.surveys.push(serial);
                let anyone = self.map.master_of(0).cloned();
                self.ask_for_slots(anyone, deeds);
            }
            Some(key) => {
                let queue = self.queues.entry(key).or_default();
                queue.push_back(serial);
                if queue.len() == 1 {
                    self.send(serial, deeds);
                }
            }
        }
    }

    /// Takes in what a member has said.
    pub(super) fn answered(&mut self, by: &Place, about: About, reply: Frame, deeds: &mut Vec<Deed>) {
        match about {
            About::Errand(serial) => self.errand_answered(serial, by, reply, deeds),
            About::Part(serial) => self.part_answered(serial, reply),
            About::Slots => {
                self.is_asking_for_slots = false;
                // A member that does not know is no reason to forget what is known.
                if let Some(map) = SlotMap::read(&reply, Some(&by.host)) {
                    self.map = map;
                }
                for serial in std::mem::take(&mut self.surveys) {
                    self.ask_all(serial, deeds);
                }
            }
        }
    }

    /// Sends a command again that was to wait a little.
    pub(super) fn woken(&mut self, serial: Serial, deeds: &mut Vec<Deed>) {
        if self.errand(serial).is_some_and(|errand| !errand.is_out) {
            self.send(serial, deeds);
        }
    }

    /// The next reply that the driver may hear.
    pub(super) fn next_reply(&mut self) -> Option<Frame> {
        self.errands.front()?.reply.as_ref()?;
        self.first += 1;
        self.errands.pop_front()?.reply
    }

    /// What must be said although nobody is left to hear the replies: what gives something back does not
    /// wait for its turn any more. On its way it comes after whatever was sent before.
    pub(super) fn last_words(&mut self, deeds: &mut Vec<Deed>) {
        for serial in self.first..self.first + self.errands.len() as u64 {
            let frees = |errand: &mut Errand| matches!(errand.command.aim, Aim::Key { frees: true, .. });
            let is_unsaid = |errand: &mut Errand| !errand.is_out && errand.reply.is_none() && frees(errand);
            if self.errand(serial).is_some_and(is_unsaid) {
                self.send(serial, deeds);
            }
        }
    }

    /// Whether nothing can go on without this member.
    pub(super) fn needs(&self, place: &Place) -> bool {
        self.map.has_master(place)
    }

    fn errand(&mut self, serial: Serial) -> Option<&mut Errand> {
        let index = usize::try_from(serial.checked_sub(self.first)?).ok()?;
        self.errands.get_mut(index)
    }

    /// Sends a command to whoever serves its key.
    fn send(&mut self, serial: Serial, deeds: &mut Vec<Deed>) {
        let Some(errand) = self.errand(serial) else { return };
        let Aim::Key { slot, .. } = errand.command.aim else { return };
        errand.rounds += 1;
        errand.steps = 0;
        let content = Content::Command(errand.command.bytes.clone());
        if let Some(to) = self.map.master_of(slot).cloned() {
            self.send_to(to, serial, content, deeds);
        }
    }

    fn send_to(&mut self, to: Place, serial: Serial, content: Content, deeds: &mut Vec<Deed>) {
        let Some(errand) = self.errand(serial) else { return };
        errand.is_out = true;
        errand.steps += 1;
        deeds.push(Deed::Send { to, message: Message { content, about: About::Errand(serial) } });
    }

    fn errand_answered(&mut self, serial: Serial, by: &Place, reply: Frame, deeds: &mut Vec<Deed>) {
        let advice = Advice::read(&reply, &by.host);
        // Who serves the slot is worth knowing for the next command as well.
        if let Some(Advice::Moved(slot, place)) = &advice {
            self.map.assign(*slot, place.clone());
            self.ask_for_slots(Some(place.clone()), deeds);
        }
        let Some(errand) = self.errand(serial) else { return };
        errand.is_out = false;
        let (rounds, steps, command) = (errand.rounds, errand.steps, errand.command.bytes.clone());
        match advice {
            None => self.finish(serial, reply, deeds),
            Some(Advice::Moved(_, to)) if steps <= MOST_STEPS => {
                self.send_to(to, serial, Content::Command(command), deeds);
            }
            Some(Advice::Ask(to)) if steps <= MOST_STEPS => {
                self.send_to(to, serial, Content::CommandAskedFor(command), deeds);
            }
            // The members are not of one mind yet. From the beginning, and not in haste.
            Some(_) if rounds < MOST_ROUNDS => deeds.push(Deed::Pause(serial)),
            Some(_) => self.finish(serial, reply, deeds),
        }
    }

    /// Keeps a reply until it is its turn, and lets the next command with the same key go.
    fn finish(&mut self, serial: Serial, reply: Frame, deeds: &mut Vec<Deed>) {
        let Some(errand) = self.errand(serial) else { return };
        errand.reply = Some(reply);
        let Aim::Key { key, .. } = &errand.command.aim else { return };
        let key = key.clone();
        let Some(queue) = self.queues.get_mut(&key) else { return };
        queue.pop_front();
        match queue.front().copied() {
            Some(next) => self.send(next, deeds),
            None => {
                self.queues.remove(&key);
            }
        }
    }

    /// Asks a member who serves what, unless one was asked already.
    fn ask_for_slots(&mut self, member: Option<Place>, deeds: &mut Vec<Deed>) {
        let Some(to) = member.filter(|_| !self.is_asking_for_slots) else { return };
        self.is_asking_for_slots = true;
        deeds.push(Deed::Send { to, message: Message { content: Content::Slots, about: About::Slots } });
    }

    fn ask_all(&mut self, serial: Serial, deeds: &mut Vec<Deed>) {
        let masters = self.map.all_masters();
        let Some(errand) = self.errand(serial) else { return };
        errand.missing = masters.len();
        for to in masters {
            let content = Content::Command(errand.command.bytes.clone());
            deeds.push(Deed::Send { to, message: Message { content, about: About::Part(serial) } });
        }
    }

    fn part_answered(&mut self, serial: Serial, reply: Frame) {
        let Some(errand) = self.errand(serial) else { return };
        errand.parts.push(reply);
        errand.missing = errand.missing.saturating_sub(1);
        if errand.missing == 0 {
            errand.reply = Some(summary::node(&errand.parts));
        }
    }
}

#[cfg(test)]
mod tests;
