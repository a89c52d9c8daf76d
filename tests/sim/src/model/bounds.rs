//! How much may happen, and which rule is left out on purpose.

use crate::Violation;
use std::fmt;

/// The world of one exploration. Whatever can happen within it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many nodes there are, 1 to 3.
    pub nodes: usize,
    /// How many attempts to hold the lock, 1 to 3, each by a client of its own. They begin at any time.
    pub clients: usize,
    /// How many ticks of the clock a lock lasts.
    pub ttl_ticks: u64,
    /// How often each node has granted the lock before: where they differ, so do their numbers.
    pub earlier: [u8; MOST],
    /// How many times nodes lose their memory, all together.
    pub crashes: u8,
    /// How many times each holder extends.
    pub extensions: u8,
    /// How many times a client counts a node as silent that has only been slow, all together.
    pub silences: u8,
    /// How many times connections break, with what is on its way still to come, all together.
    pub breaks: u8,
    /// How many requests arrive a second time, over another connection, all together.
    pub copies: u8,
    /// Whether a client may give up before it has the lock or is refused.
    pub gives_up: bool,
    /// Whether clients may tell the nodes what to count from.
    pub hints: bool,
    /// What is looked for.
    pub laws: Laws,
    /// A rule that is left out on purpose.
    pub mistake: Mistake,
    /// Where to stop, complete or not.
    pub most_states: usize,
}

/// What is looked for. A mistake breaks several laws, some of them sooner than the one it is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Laws {
    /// Everything that must be true.
    All,
    /// No two clients believe in the lock at the same time.
    Exclusion,
    /// No two holders have the same number, and one that began after another held has the larger one.
    Fences,
}

/// A rule that is left out on purpose, to see that it is found. All of them are made outside of the code under
/// test: in what drives it, or in what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mistake {
    /// All rules are kept.
    #[default]
    None,
    /// The largest number that a node said is taken, without a majority for it.
    LargestFenceTaken,
    /// A node that has lost its memory grants at once.
    NoQuarantine,
    /// A node that has lost its memory waits one tick less than the longest lock lasts.
    QuarantineTooShort,
    /// A node that has lost its memory counts from one again.
    FencesForgotten,
    /// Validity counts from the answer instead of from the request.
    ValidityFromAnswer,
    /// Half of the nodes, rounded down, are taken for enough.
    HalfIsEnough,
}

/// How long a tick is. Anything goes that is longer than the allowances for drift and rounding.
pub(super) const TICK_MS: u64 = 10;

/// The most nodes and the most clients of a world.
pub(super) const MOST: usize = 3;

impl Laws {
    /// Whether this is looked for.
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
    /// Nodes and clients that do nothing but take the lock and free it.
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

    /// The same with a rule left out, to see which law that breaks.
    #[must_use]
    pub fn with(self, mistake: Mistake, laws: Laws) -> Self {
        Self { mistake, laws, ..self }
    }

    /// The time to live that clients ask for.
    ///
    /// A little less than whole ticks: so much that what a client takes off for drift, the millisecond that a
    /// node adds for its rounding, and what a node adds to its quarantine, all fall between the same two ticks.
    /// Then a client stops believing on the very tick on which a node that was asked at once lets go: there is
    /// no slack on which a wrong rule could live.
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
            mistake => write!(f, "; left out: {mistake:?}"),
        }
    }
}
