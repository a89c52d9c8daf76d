//! What a node says of itself: its role, how it began, and why it does not vote.

/// Whether a server decides, or follows another one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It grants locks.
    Master,
    /// It has a copy of them.
    Replica,
}

/// How a node began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It started without a past.
    New,
    /// An operator admitted it in the place of another node.
    Admitted,
}

/// Why a server does not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonVoting {
    /// It is a replica, or was one.
    Replica,
    /// Its state file is a copy of another file.
    CopiedState,
    /// Its data set is not the one that its state file belongs to.
    ForeignData,
    /// It has locks in its data set and no state file.
    NoState,
    /// It found more than one state file, and cannot tell which is its own.
    SeveralStates,
    /// The operator started it with `new-node non-voting`.
    Asked,
}

impl Role {
    /// The word in the field `role`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Replica => "replica",
        }
    }
}

impl Origin {
    /// The word in the field `origin` and in the state file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Admitted => "admitted",
        }
    }

    /// The origin with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::New, Self::Admitted].into_iter().find(|origin| origin.name() == name)
    }
}

/// Names and explanations, in the order of the variants.
const REASONS: [(NonVoting, &str, &str); 6] = [
    (NonVoting::Replica, "replica", "it is or was a replica"),
    (NonVoting::CopiedState, "copied-state-file", "its state file is a copy"),
    (NonVoting::ForeignData, "foreign-data", "its data set does not belong to its state file"),
    (NonVoting::NoState, "no-state-file", "its data set has locks but there is no state file"),
    (NonVoting::SeveralStates, "several-state-files", "there is more than one state file"),
    (NonVoting::Asked, "new-node", "it was started with new-node non-voting"),
];

impl NonVoting {
    /// All reasons.
    pub fn all() -> impl Iterator<Item = Self> {
        REASONS.iter().map(|(reason, ..)| *reason)
    }

    /// The word in the field `non-voting-reason` and in the state file.
    #[must_use]
    pub fn name(self) -> &'static str {
        REASONS[self as usize].1
    }

    /// A clause for people.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        REASONS[self as usize].2
    }

    /// What the operator does about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::SeveralStates => {
                "keep the state file of this node, move the others out of its dir and restart the server"
            }
            _ => "run `redlock admit` once the server that it replaces is stopped",
        }
    }

    /// The reason with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|reason| reason.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (place, reason) in NonVoting::all().enumerate() {
            assert_eq!(reason as usize, place, "REASONS is in the order of the variants");
            assert_eq!(NonVoting::named(reason.name()), Some(reason));
        }
        for origin in [Origin::New, Origin::Admitted] {
            assert_eq!(Origin::named(origin.name()), Some(origin));
        }
        assert_eq!((NonVoting::named("tired"), Origin::named("")), (None, None));
    }
}
