//! The invariants of every history.
//!
//! The checks know nothing of how locks are acquired. A history reports what its clients and its storage saw,
//! in the order of true time.

use std::collections::{HashMap, HashSet};
use std::fmt;

/// Identifies one attempt to hold a lock.
pub type SessionId = u64;

/// An invariant that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two clients believed that they held one lock at the same time, although all clocks kept their rates, and
    /// not both shared it.
    Overlap {
        /// The index of the key.
        key: usize,
        /// The session that held the lock.
        holder: SessionId,
        /// The session that held it too.
        newcomer: SessionId,
    },
    /// Two holders of one key had the same fence, and not both shared it.
    FenceRepeated {
        /// The index of the key.
        key: usize,
        /// The repeated fence.
        fence: u64,
    },
    /// A holder that began after another one held had a fence that is not larger, and not both shared the lock.
    FenceNotLarger {
        /// The index of the key.
        key: usize,
        /// The fence of the later holder.
        fence: u64,
        /// The largest fence that was held before.
        before: u64,
    },
    /// The storage accepted a write, or a reader, with a smaller fence than an earlier write.
    StaleWrite {
        /// The index of the key.
        key: usize,
        /// The fence of the write.
        fence: u64,
        /// The largest fence that the storage had accepted.
        newest: u64,
    },
    /// The storage rejected a holder whose lock was valid at that moment.
    ValidWriteRefused {
        /// The index of the key.
        key: usize,
        /// The fence of the write.
        fence: u64,
        /// The largest fence that the storage had accepted.
        newest: u64,
    },
    /// A holder relied on its lock after the validity had ended, although it did not sleep: it was notified
    /// too late.
    LossToldLate {
        /// The session of the holder.
        session: SessionId,
    },
    /// A session that had ended held or extended its lock again.
    Revived {
        /// The session that ended.
        session: SessionId,
    },
    /// A node kept a lock longer than any lease lasts after the last request for it.
    Ghost {
        /// The index of the node.
        node: usize,
        /// The index of the key.
        key: usize,
    },
    /// A node could not read its own state file when it started.
    CannotStart {
        /// The index of the node.
        node: usize,
    },
    /// After all faults were over, a client could not acquire a lock.
    NotFreeAgain {
        /// The index of the key.
        key: usize,
    },
    /// A session was served before one that had waited longer on every node, although no fault was injected.
    Overtaken {
        /// The session that waited longer.
        session: SessionId,
        /// The session that was served.
        by: SessionId,
    },
    /// An acquire needed more than one request to each node, although no fault was injected.
    MoreThanOneRound {
        /// The number of requests.
        requests: usize,
        /// The number of nodes.
        nodes: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The largest fences of one key. A reader must exceed the fences of earlier writers, and a writer those of all
/// earlier holders.
#[derive(Clone, Copy, Debug, Default)]
struct Largest {
    of_writers: u64,
    of_all: u64,
}

/// Checks a history as it happens.
#[derive(Debug, Default)]
pub struct Checks {
    /// The sessions that ask for shared locks.
    readers: HashSet<SessionId>,
    /// The largest fences that were held under each key.
    largest: HashMap<usize, Largest>,
    /// The fences that were held under each key, each with whether its holders shared the lock.
    held: HashMap<(usize, u64), bool>,
    /// The fence of each key that a session must exceed, as known when it began.
    began_above: HashMap<(SessionId, usize), u64>,
    newest_write: HashMap<usize, u64>,
    over: HashSet<SessionId>,
    /// The sessions that wait for one key on every node, with the key and their tickets.
    queued: HashMap<SessionId, (usize, u64)>,
    /// For each session, those that waited for its key with a smaller ticket when it began.
    comes_after: HashMap<SessionId, Vec<SessionId>>,
    /// Whether clocks keep their rates in this history, so that validity can be relied on.
    clocks_hold: bool,
    /// The number of sessions that held their lock after every earlier waiter was served.
    pub turns: u64,
    /// The broken invariants.
    pub violations: Vec<Violation>,
}

impl Checks {
    /// The checks of a history whose clocks keep their rates (`clocks_hold`), or do not.
    #[must_use]
    pub fn new(clocks_hold: bool) -> Self {
        Self { clocks_hold, ..Self::default() }
    }

    /// A session asks for shared locks: it is a reader. The others are writers.
    pub fn shares(&mut self, session: SessionId) {
        self.readers.insert(session);
    }

    /// A session begins to acquire some keys.
    pub fn began(&mut self, session: SessionId, keys: &[usize]) {
        for key in keys {
            let above = self.must_exceed(session, *key);
            self.began_above.insert((session, *key), above);
        }
    }

    /// The largest fence of the earlier holders that a session excludes.
    fn must_exceed(&self, session: SessionId, key: usize) -> u64 {
        let largest = self.largest.get(&key).copied().unwrap_or_default();
        if self.readers.contains(&session) { largest.of_writers } else { largest.of_all }
    }

    /// Whether two sessions exclude each other.
    fn conflict(&self, one: SessionId, other: SessionId) -> bool {
        !(self.readers.contains(&one) && self.readers.contains(&other))
    }

    /// A session holds its keys. `believers` lists the other sessions that believe they hold one of them at
    /// this moment.
    pub fn held(&mut self, session: SessionId, keys: &[usize], fence: u64, believers: &[(SessionId, usize)]) {
        if self.over.contains(&session) {
            self.violations.push(Violation::Revived { session });
        }
        let is_shared = self.readers.contains(&session);
        for key in keys {
            let before = self.began_above.get(&(session, *key)).copied().unwrap_or(0);
            if fence <= before {
                self.violations.push(Violation::FenceNotLarger { key: *key, fence, before });
            }
            if self.held.insert((*key, fence), is_shared).is_some_and(|was_shared| !(was_shared && is_shared))
            {
                self.violations.push(Violation::FenceRepeated { key: *key, fence });
            }
            let largest = self.largest.entry(*key).or_default();
            largest.of_all = fence.max(largest.of_all);
            if !is_shared {
                largest.of_writers = fence.max(largest.of_writers);
            }
        }
        if self.clocks_hold {
            for (holder, key) in believers {
                if self.conflict(*holder, session) {
                    let (holder, newcomer) = (*holder, session);
                    self.violations.push(Violation::Overlap { key: *key, holder, newcomer });
                }
            }
        }
    }

    /// A session begins to hold its keys at this moment. If clocks keep their rates, a later holder has the
    /// larger fence, even if it did not begin later.
    pub fn holds_from_now(&mut self, session: SessionId, keys: &[usize], fence: u64) {
        for key in keys.iter().filter(|_| self.clocks_hold) {
            let before = self.must_exceed(session, *key);
            if fence <= before {
                self.violations.push(Violation::FenceNotLarger { key: *key, fence, before });
            }
        }
    }

    /// A session waits on every node for one key.
    pub fn queued(&mut self, session: SessionId, key: usize, ticket: u64) {
        self.queued.insert(session, (key, ticket));
    }

    /// A session begins to wait for a key: it must be served after the sessions that already wait.
    pub fn takes_its_turn(&mut self, session: SessionId, key: usize, ticket: u64) {
        // Readers that wait together get the lock together, in any order.
        let before = self.queued.iter().filter(|(other, (waited_for, older))| {
            *waited_for == key && *older < ticket && self.conflict(**other, session)
        });
        let before = before.map(|(session, _)| *session).collect();
        self.comes_after.insert(session, before);
    }

    /// A session no longer waits, or may have left the queue of some node.
    pub fn leaves_queue(&mut self, session: SessionId) {
        self.queued.remove(&session);
    }

    /// A session that waited holds its key.
    pub fn held_after_waiting(&mut self, session: SessionId) {
        self.queued.remove(&session);
        let before = self.comes_after.remove(&session).unwrap_or_default();
        self.turns += u64::from(!before.is_empty());
        for longer in before {
            if self.queued.contains_key(&longer) {
                self.violations.push(Violation::Overtaken { session: longer, by: session });
            }
        }
    }

    /// A holder stops relying on its lock: it was notified, released the lock, or ended. `has_lapsed`: its
    /// validity had ended by then. `was_asleep`: it slept, so no notice could reach it in time.
    pub fn stopped(&mut self, session: SessionId, has_lapsed: bool, was_asleep: bool) {
        if has_lapsed && !was_asleep && self.clocks_hold {
            self.violations.push(Violation::LossToldLate { session });
        }
    }

    /// No client has requested this key from a node for longer than any lease lasts. `is_held`: the node
    /// still holds a lock.
    pub fn after_its_time(&mut self, node: usize, key: usize, is_held: bool) {
        if is_held {
            self.violations.push(Violation::Ghost { node, key });
        }
    }

    /// A node cannot read its own state file, which no operator has changed.
    pub fn cannot_start(&mut self, node: usize) {
        self.violations.push(Violation::CannotStart { node });
    }

    /// After all faults, a client acquired a key with this number of requests, or failed (`None`). From the
    /// second acquire on, the nodes agree on the fence.
    pub fn asked_in_peace(&mut self, key: usize, requests: Option<usize>, nodes: usize, is_first: bool) {
        match requests {
            None => self.violations.push(Violation::NotFreeAgain { key }),
            Some(requests) if requests > nodes && !is_first => {
                self.violations.push(Violation::MoreThanOneRound { requests, nodes });
            }
            Some(_) => {}
        }
    }

    /// A session has ended: it released or lost its lock, or gave up.
    pub fn ended(&mut self, session: SessionId) {
        self.queued.remove(&session);
        self.over.insert(session);
    }

    /// A session was extended.
    pub fn extended(&mut self, session: SessionId) {
        if self.over.contains(&session) {
            self.violations.push(Violation::Revived { session });
        }
    }

    /// The storage accepted or rejected a write of a holder whose lock was valid at that moment, or was not.
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

    /// The storage accepted or rejected a reader, whose lock was valid at that moment, or was not.
    pub fn read(&mut self, key: usize, fence: u64, was_taken: bool, was_valid: bool) {
        let newest = self.newest_write.get(&key).copied().unwrap_or(0);
        if was_taken && fence < newest {
            self.violations.push(Violation::StaleWrite { key, fence, newest });
        }
        if !was_taken && was_valid && self.clocks_hold {
            self.violations.push(Violation::ValidWriteRefused { key, fence, newest });
        }
    }
}

#[cfg(test)]
mod tests;
