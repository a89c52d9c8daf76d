//! What must be true of every history, whoever makes it.
//!
//! Nothing here knows how locks are taken. It is told what clients and the storage saw, in true order.

use std::collections::{HashMap, HashSet};
use std::fmt;

/// One attempt to hold a lock.
pub type SessionId = u64;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two clients believed in one lock at the same time, though all clocks kept their rates.
    Overlap {
        /// Which key.
        key: usize,
        /// Who held it.
        holder: SessionId,
        /// Who held it too.
        newcomer: SessionId,
    },
    /// Two holders of one key had the same number.
    FenceRepeated {
        /// Which key.
        key: usize,
        /// The number in question.
        fence: u64,
    },
    /// A holder that asked after another one held had a number that is not larger.
    FenceNotLarger {
        /// Which key.
        key: usize,
        /// The number in question.
        fence: u64,
        /// The number that was held before.
        before: u64,
    },
    /// The storage took a write with a smaller number than one it had taken before.
    StaleWrite {
        /// Which key.
        key: usize,
        /// The number in question.
        fence: u64,
        /// The newest number that the storage had.
        newest: u64,
    },
    /// The storage turned a holder away that was valid at that moment.
    ValidWriteRefused {
        /// Which key.
        key: usize,
        /// The number in question.
        fence: u64,
        /// The newest number that the storage had.
        newest: u64,
    },
    /// A holder relied on its lock until it was over already, though it did not sleep: nobody told it in time.
    LossToldLate {
        /// Which session.
        session: SessionId,
    },
    /// A session that was over came back.
    Revived {
        /// Which session.
        session: SessionId,
    },
    /// A node had a lock for longer than any lasts after the last request for it.
    Ghost {
        /// Which node.
        node: usize,
        /// Which key.
        key: usize,
    },
    /// A node could not read its own state file when it started.
    CannotStart {
        /// Which node.
        node: usize,
    },
    /// When all was well again, a lock could not be had.
    NotFreeAgain {
        /// Which key.
        key: usize,
    },
    /// Somebody was served before one who waited longer, at every node, although nothing was wrong.
    Overtaken {
        /// Who waited longer.
        session: SessionId,
        /// Who was served.
        by: SessionId,
    },
    /// It took more than one request to each node although nothing was wrong.
    MoreThanOneRound {
        /// How many requests it took.
        requests: usize,
        /// How many nodes there are.
        nodes: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Reads a history as it happens.
#[derive(Debug, Default)]
pub struct Checks {
    /// The largest number that was held under each key.
    largest: HashMap<usize, u64>,
    held: HashSet<(usize, u64)>,
    /// What the largest number of each key was when a session began.
    began_above: HashMap<(SessionId, usize), u64>,
    newest_write: HashMap<usize, u64>,
    over: HashSet<SessionId>,
    /// Those who wait for one key at every node, with their tickets.
    in_line: HashMap<SessionId, (usize, u64)>,
    /// Those who were in line, with a smaller ticket, for the key when a session began to ask for it.
    comes_after: HashMap<SessionId, Vec<SessionId>>,
    /// Whether validity can be relied on in this history.
    clocks_hold: bool,
    /// How many sessions were seen to wait until those before them had their turn.
    pub turns: u64,
    /// What was found.
    pub violations: Vec<Violation>,
}

impl Checks {
    /// The checks of a history in which clocks keep their rates, or do not.
    #[must_use]
    pub fn new(clocks_hold: bool) -> Self {
        Self { clocks_hold, ..Self::default() }
    }

    /// A session begins to ask for some keys.
    pub fn began(&mut self, session: SessionId, keys: &[usize]) {
        for key in keys {
            let above = self.largest.get(key).copied().unwrap_or(0);
            self.began_above.insert((session, *key), above);
        }
    }

    /// A session holds its keys. `believers` tells who else believes to hold one of them at this moment.
    pub fn held(&mut self, session: SessionId, keys: &[usize], fence: u64, believers: &[(SessionId, usize)]) {
        if self.over.contains(&session) {
            self.violations.push(Violation::Revived { session });
        }
        for key in keys {
            let before = self.began_above.get(&(session, *key)).copied().unwrap_or(0);
            if fence <= before {
                self.violations.push(Violation::FenceNotLarger { key: *key, fence, before });
            }
            if !self.held.insert((*key, fence)) {
                self.violations.push(Violation::FenceRepeated { key: *key, fence });
            }
            let largest = self.largest.entry(*key).or_default();
            *largest = fence.max(*largest);
        }
        if self.clocks_hold {
            for (holder, key) in believers {
                let (holder, newcomer) = (*holder, session);
                self.violations.push(Violation::Overlap { key: *key, holder, newcomer });
            }
        }
    }

    /// A session begins to hold its keys at this very moment. Where clocks keep their rates, whoever does so later has
    /// the larger number, and not only if it began to ask later.
    pub fn holds_from_now(&mut self, keys: &[usize], fence: u64) {
        for key in keys.iter().filter(|_| self.clocks_hold) {
            let before = self.largest.get(key).copied().unwrap_or(0);
            if fence <= before {
                self.violations.push(Violation::FenceNotLarger { key: *key, fence, before });
            }
        }
    }

    /// A session waits in line at every node for a key, and for no other.
    pub fn queued(&mut self, session: SessionId, key: usize, ticket: u64) {
        self.in_line.insert(session, (key, ticket));
    }

    /// A session begins to wait its turn for a key: it comes after those who are in line.
    pub fn takes_its_turn(&mut self, session: SessionId, key: usize, ticket: u64) {
        let before =
            self.in_line.iter().filter(|(_, (waited_for, older))| *waited_for == key && *older < ticket);
        self.comes_after.insert(session, before.map(|(session, _)| *session).collect());
    }

    /// A session does not wait any longer, or may be held for one that does not.
    pub fn leaves_line(&mut self, session: SessionId) {
        self.in_line.remove(&session);
    }

    /// A session that waited its turn holds its key.
    pub fn held_in_turn(&mut self, session: SessionId) {
        self.in_line.remove(&session);
        let before = self.comes_after.remove(&session).unwrap_or_default();
        self.turns += u64::from(!before.is_empty());
        for longer in before {
            if self.in_line.contains_key(&longer) {
                self.violations.push(Violation::Overtaken { session: longer, by: session });
            }
        }
    }

    /// A holder stops to rely on its lock, whatever for: told that its time is up, let go, or gone. By then its
    /// time was over (`has_lapsed`) or was not. Nobody can be told in time while he is asleep.
    pub fn stopped(&mut self, session: SessionId, has_lapsed: bool, was_asleep: bool) {
        if has_lapsed && !was_asleep && self.clocks_hold {
            self.violations.push(Violation::LossToldLate { session });
        }
    }

    /// All is quiet, and for longer than any lock lasts nobody has asked a node for this key; it holds a lock, or
    /// does not.
    pub fn after_its_time(&mut self, node: usize, key: usize, is_held: bool) {
        if is_held {
            self.violations.push(Violation::Ghost { node, key });
        }
    }

    /// A node cannot read its own state file, which no operator has changed.
    pub fn cannot_start(&mut self, node: usize) {
        self.violations.push(Violation::CannotStart { node });
    }

    /// All is well again, and somebody has asked for a key: in so many requests, or in vain. From the second time
    /// on the nodes agree on its number.
    pub fn asked_in_peace(&mut self, key: usize, requests: Option<usize>, nodes: usize, is_first: bool) {
        match requests {
            None => self.violations.push(Violation::NotFreeAgain { key }),
            Some(requests) if requests > nodes && !is_first => {
                self.violations.push(Violation::MoreThanOneRound { requests, nodes });
            }
            Some(_) => {}
        }
    }

    /// A session is over: released, lost or given up.
    pub fn ended(&mut self, session: SessionId) {
        self.in_line.remove(&session);
        self.over.insert(session);
    }

    /// A session was extended.
    pub fn extended(&mut self, session: SessionId) {
        if self.over.contains(&session) {
            self.violations.push(Violation::Revived { session });
        }
    }

    /// The storage was asked to write, by a holder that was valid at that moment or was not.
    pub fn wrote(&mut self, key: usize, fence: u64, was_taken: bool, was_valid: bool) {
        let newest = self.newest_write.entry(key).or_default();
        if was_taken && fence < *newest {
            self.violations.push(Violation::StaleWrite { key, fence, newest: *newest });
        }
        if !was_taken && was_valid && self.clocks_hold {
            self.violations.push(Violation::ValidWriteRefused { key, fence, newest: *newest });
        }
        if was_taken {
            *newest = fence.max(*newest);
        }
    }
}

#[cfg(test)]
mod tests;
