//! What a server decides when it starts: which node it is, whether that node votes, and how long it is in quarantine.
//!
//! The order of a start: the server finds its state file ([`Start::new`]), begins a quarantine
//! ([`Start::quarantine_ms`]), and loads its data. A data set of another node takes its vote away
//! ([`DurableState::reason_not_to_vote`]); the locks that it had at its end end the quarantine ([`ExpectedLocks`]).

use redlock_contract::NonVoting;
use redlock_contract::drift::with_drift;

use crate::durable::{DurableState, LocksDigest};

/// The state file that a server finds when it starts.
#[derive(Clone, Debug)]
pub enum FoundFile {
    /// None.
    Nothing,
    /// The file to which this state was written.
    Own(DurableState),
    /// A copy of such a file.
    Copy(DurableState),
    /// More than one: the server cannot tell which is its own.
    Several,
}

/// When a node is in quarantine after a start: `redlock.restart-grace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grace {
    /// Unless the node certainly has forgotten no lock.
    #[default]
    Auto,
    /// Always; a new node for `redlock.max-ttl`.
    Always,
    /// Never: after a crash, two clients may hold the same lock.
    Off,
}

impl Grace {
    /// The names of the variants, in their order.
    pub const NAMES: [&'static str; 3] = ["auto", "always", "off"];

    /// The variant at this position of [`NAMES`](Self::NAMES); [`Grace::Auto`] for any other number.
    #[must_use]
    pub fn from_number(number: usize) -> Self {
        [Self::Auto, Self::Always, Self::Off].get(number).copied().unwrap_or_default()
    }
}

/// The node that a server is when it starts.
#[derive(Clone, Debug)]
pub struct Start {
    /// The durable state with which the server starts.
    pub state: DurableState,
    /// Whether the server continues as a node that voted. Only that node may have forgotten locks.
    pub continues: bool,
}

impl Start {
    /// Decides which node the server is. It continues a node only with that node's own state file, and only as a
    /// master. `new_id` and `new_dataset_id` are random; a node that begins here takes them.
    #[must_use]
    pub fn new(
        found: FoundFile,
        is_replica: bool,
        is_asked_not_to_vote: bool,
        new_id: String,
        new_dataset_id: u64,
    ) -> Self {
        let begin = |reason| {
            let mut state = DurableState::new(new_id.clone(), new_dataset_id);
            state.non_voting = reason;
            Self { state, continues: false }
        };
        let (mut state, is_copy) = match found {
            FoundFile::Nothing if is_replica => return begin(Some(NonVoting::Replica)),
            FoundFile::Nothing if is_asked_not_to_vote => return begin(Some(NonVoting::Asked)),
            FoundFile::Nothing => return begin(None),
            FoundFile::Several => return begin(Some(NonVoting::SeveralStates)),
            FoundFile::Own(state) => (state, false),
            FoundFile::Copy(state) => (state, true),
        };
        // Format 1 had no id of the data set.
        if state.dataset_id == 0 {
            state.dataset_id = new_dataset_id;
        }
        let lost_vote = match (state.non_voting, is_copy, is_replica) {
            (_, true, _) => Some(NonVoting::CopiedState),
            (None, false, true) => Some(NonVoting::Replica),
            _ => None,
        };
        let state = lost_vote.map_or_else(|| state.clone(), |reason| state.without_vote(reason, new_id));
        Self { continues: state.non_voting.is_none(), state }
    }

    /// How long the node is in quarantine, in ms.
    #[must_use]
    pub fn quarantine_ms(&self, grace: Grace, max_ttl_ms: u64) -> u64 {
        match (grace, self.continues) {
            (Grace::Off, _) | (Grace::Auto, false) => 0,
            (Grace::Auto, true) => self.state.quarantine_ms(),
            (Grace::Always, false) => with_drift(max_ttl_ms),
            (Grace::Always, true) => self.state.quarantine_ms().max(1),
        }
    }

    /// The locks that end the quarantine, if there is one and they can.
    #[must_use]
    pub fn expected_locks(&self, grace: Grace) -> Option<ExpectedLocks> {
        let can_end = self.continues && grace == Grace::Auto && self.state.quarantine_ms() > 0;
        self.state.locks_at_shutdown.filter(|_| can_end).map(ExpectedLocks::AtShutdown)
    }
}

/// The locks that prove, once they are loaded, that the node has forgotten no lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedLocks {
    /// The locks at the orderly shutdown.
    AtShutdown(LocksDigest),
    /// The locks before a flush: `DEBUG RELOAD` flushes and loads them again.
    BeforeFlush(LocksDigest),
}

impl ExpectedLocks {
    /// Whether the locks of the node are the expected ones. `has_loaded`: the server has just loaded a data set.
    #[must_use]
    pub fn are_here(self, locks: LocksDigest, has_loaded: bool) -> bool {
        match self {
            Self::AtShutdown(expected) => locks == expected,
            Self::BeforeFlush(expected) => has_loaded && locks == expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u64 = 7;

    fn stored(non_voting: Option<NonVoting>) -> DurableState {
        let mut state = DurableState::new("old".into(), OLD);
        state.longest_lease_ms = 60_000;
        state.locks_at_shutdown = Some(LocksDigest::default());
        state.non_voting = non_voting;
        state
    }

    fn start(found: FoundFile, is_replica: bool, asked: bool) -> Start {
        Start::new(found, is_replica, asked, "new".into(), 9)
    }

    #[test]
    fn only_a_master_with_its_own_state_continues() {
        let table = [
            (FoundFile::Nothing, false, false, "new", None),
            (FoundFile::Nothing, true, false, "new", Some(NonVoting::Replica)),
            (FoundFile::Nothing, false, true, "new", Some(NonVoting::Asked)),
            (FoundFile::Several, false, false, "new", Some(NonVoting::SeveralStates)),
            (FoundFile::Own(stored(None)), false, false, "old", None),
            // The argument is for new nodes.
            (FoundFile::Own(stored(None)), false, true, "old", None),
            (FoundFile::Own(stored(None)), true, false, "new", Some(NonVoting::Replica)),
            (FoundFile::Copy(stored(None)), false, false, "new", Some(NonVoting::CopiedState)),
            (FoundFile::Copy(stored(None)), true, false, "new", Some(NonVoting::CopiedState)),
            // A server that did not vote does not vote later, whatever its role is now.
            (FoundFile::Own(stored(Some(NonVoting::Replica))), false, false, "old", Some(NonVoting::Replica)),
        ];
        for (found, is_replica, asked, id, reason) in table {
            let case = format!("{found:?}, replica {is_replica}, asked {asked}");
            let continues = matches!(found, FoundFile::Own(_)) && reason.is_none();
            let start = start(found, is_replica, asked);
            assert_eq!((start.state.node_id.as_str(), start.state.non_voting), (id, reason), "{case}");
            assert_eq!(start.continues, continues, "{case}");
        }
    }

    #[test]
    fn a_state_without_an_id_of_the_data_set_gets_one() {
        let mut state = stored(None);
        assert_eq!(start(FoundFile::Own(state.clone()), false, false).state.dataset_id, OLD);
        state.dataset_id = 0;
        assert_eq!(start(FoundFile::Own(state), false, false).state.dataset_id, 9);
    }

    #[test]
    fn a_quarantine_lasts_as_long_as_a_forgotten_lock_and_the_drift() {
        let (new, old) =
            (start(FoundFile::Nothing, false, false), start(FoundFile::Own(stored(None)), false, false));
        for (grace, of_new, of_old) in [
            (Grace::Auto, 0, with_drift(60_000)),
            (Grace::Always, with_drift(5_000), with_drift(60_000)),
            (Grace::Off, 0, 0),
        ] {
            assert_eq!(new.quarantine_ms(grace, 5_000), of_new, "{grace:?}");
            assert_eq!(old.quarantine_ms(grace, 5_000), of_old, "{grace:?}");
            assert_eq!(new.expected_locks(grace), None);
            assert_eq!(old.expected_locks(grace).is_some(), grace == Grace::Auto, "{grace:?}");
        }
    }

    #[test]
    fn only_the_expected_locks_are_a_proof() {
        let (here, other) = (LocksDigest::default(), LocksDigest { locks: 1, ..LocksDigest::default() });
        assert!(ExpectedLocks::AtShutdown(here).are_here(here, false));
        assert!(!ExpectedLocks::AtShutdown(other).are_here(here, true));
        assert!(ExpectedLocks::BeforeFlush(here).are_here(here, true));
        assert!(
            !ExpectedLocks::BeforeFlush(here).are_here(here, false),
            "no data set was loaded after the flush"
        );
    }
}
