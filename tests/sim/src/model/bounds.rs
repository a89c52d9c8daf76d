//! The bounds of an exploration, and which rule it disables.

use crate::Violation;
use std::fmt;

/// The bounds of one exploration. It visits every state within them.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The number of nodes, 1 to 3.
    pub nodes: usize,
    /// The number of attempts to hold the lock, 1 to 3, each by a client of its own. They begin at any time.
    pub clients: usize,
    /// The time to live of a lock, in clock ticks.
    pub ttl_ticks: u64,
    /// How often each node has granted the lock before. Where this differs, the fences of the nodes differ
    /// too.
    pub earlier: [u8; MOST],
    /// How many times nodes lose their memory, in total.
    pub crashes: u8,
    /// How many times each holder extends.
    pub extensions: u8,
    /// How many times a client counts a slow node as silent, in total.
    pub silences: u8,
    /// How many times connections break while requests in flight still arrive, in total.
    pub breaks: u8,
    /// How many requests arrive a second time, over another connection, in total.
    pub copies: u8,
    /// Whether a client may give up before it holds the lock or is refused.
    pub gives_up: bool,
    /// Whether clients may send fence hints to the nodes.
    pub hints: bool,
    /// The invariants that are checked.
    pub laws: Laws,
    /// A rule that a test disables on purpose.
    pub mistake: Mistake,
    /// The exploration stops after this number of states, complete or not.
    pub most_states: usize,
}

/// The invariants that are checked. A bug breaks several of them, some sooner than the one a test expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Laws {
    /// All invariants.
    All,
    /// No two clients believe that they hold the lock at the same time.
    Exclusion,
    /// No two holders have the same fence, and a holder that began after another one held has the larger
    /// fence.
    Fences,
}

/// A rule that a test disables on purpose, to prove that the exploration finds it. Each is disabled outside
/// of the code under test: in its driver, or in its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mistake {
    /// All rules apply.
    #[default]
    None,
    /// The client uses the largest fence that a node granted, without a majority for it.
    LargestFenceTaken,
    /// A node that has lost its memory grants at once.
    NoQuarantine,
    /// The quarantine of a node is one tick shorter than the longest lock.
    QuarantineTooShort,
    /// A node that has lost its memory restarts its fences from 1.
    FencesForgotten,
    /// Validity starts at the reply instead of at the request.
    ValidityFromAnswer,
    /// The client counts half of the nodes, rounded down, as a quorum.
    HalfIsEnough,
}

/// The length of a tick. Any value works that is longer than the allowances for drift and rounding.
pub(super) const TICK_MS: u64 = 10;

/// The largest number of nodes and of clients.
pub(super) const MOST: usize = 3;

impl Laws {
    /// Whether this violation is one of these invariants.
    pub(super) fn cover(self, violation: &Violation) -> bool {
        match self {
            Self::All => true,
            Self::Exclusion => matches!(violation, Violation::Overlap { .. }),
            Self::Fences => {
                matches!(violation, Violation::FenceRepeated { .. } | Violation::FenceNotLarger { .. })
            }
        }
    }
}

impl Bounds {
    /// Nodes and clients that only acquire and release the lock.
    #[must_use]
    pub fn of(nodes: usize, clients: usize) -> Self {
        assert!((1..=MOST).contains(&nodes) && (1..=MOST).contains(&clients), "1 to {MOST} of each");
        Self {
            nodes,
            clients,
            ttl_ticks: 2,
            earlier: [0; MOST],
            crashes: 0,
            extensions: 0,
            silences: 0,
            breaks: 0,
            copies: 0,
            gives_up: true,
            hints: false,
            laws: Laws::All,
            mistake: Mistake::None,
            most_states: 60_000_000,
        }
    }

    /// The same bounds with a rule disabled, and the invariants that this should break.
    #[must_use]
    pub fn with(self, mistake: Mistake, laws: Laws) -> Self {
        Self { mistake, laws, ..self }
    }

    /// The time to live that clients request, in milliseconds.
    ///
    /// It is a little less than whole ticks, so that the drift that a client subtracts, the millisecond that
    /// a node adds for rounding, and the time that a node adds to its quarantine all fall between the same
    /// two ticks. Then a client stops believing on the very tick on which a node that granted at once expires
    /// the lock: no slack hides a wrong rule.
    pub(super) fn ttl_ms(&self) -> u64 {
        self.ttl_ticks * TICK_MS - 3
    }

    /// Whether a request can arrive over another connection than the release that undoes it.
    pub(super) fn has_late_requests(&self) -> bool {
        self.breaks > 0 || self.copies > 0
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} nodes that granted {:?} times before, {} clients, ttl {} ticks, {} crashes, {} extensions each, \
             {} silences, {} breaks, {} copies",
            self.nodes,
            &self.earlier[..self.nodes],
            self.clients,
            self.ttl_ticks,
            self.crashes,
            self.extensions,
            self.silences,
            self.breaks,
            self.copies
        )?;
        if self.gives_up {
            f.write_str(", clients may give up")?;
        }
        if self.hints {
            f.write_str(", hints")?;
        }
        match self.mistake {
            Mistake::None => Ok(()),
            mistake => write!(f, "; disabled rule: {mistake:?}"),
        }
    }
}
