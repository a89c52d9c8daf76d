//! The role of a node, its origin, and why it does not vote.

/// Whether a server is a master or a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server grants locks.
    Master,
    /// The server copies the locks of its master and grants none.
    Replica,
}

/// The origin of a node: how it got its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node started without earlier state.
    New,
    /// An operator admitted the node in place of another one.
    Admitted,
}

/// Why a server does not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonVoting {
    /// The server is or was a replica.
    Replica,
    /// The server's state file is a copy of another file.
    CopiedState,
    /// The server's state file belongs to another data set.
    ForeignData,
    /// The server has locks in its data set, but no state file.
    NoState,
    /// The server found more than one state file, and cannot tell which is its own.
    SeveralStates,
    /// The operator started the server with `new-node non-voting`.
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

    /// The origin with this name; `None` for an unknown name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::New, Self::Admitted].into_iter().find(|origin| origin.name() == name)
    }
}

/// Each reason with its name and its explanation, in the order of the variants.
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

    /// The reason as a clause for people.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        REASONS[self as usize].2
    }

    /// What the operator must do so that the server votes.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::SeveralStates => {
                "keep the state file of this node, move the others out of its dir and restart the server"
            }
            _ => "run `redlock admit` once the server that it replaces is stopped",
        }
    }

    /// The reason with this name; `None` for an unknown name.
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
