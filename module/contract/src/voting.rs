//! The role of a node, its origin, and why it does not vote.

use std::fmt;

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

/// Why a server does not vote, as it reports it to a client. A later module may have other reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NonVotingReason {
    /// A reason of this version.
    Known(NonVoting),
    /// The word of another reason; empty if the server gives none.
    Unknown(String),
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
    (NonVoting::NoState, "no-state-file", "its data set has locks or fences, and there is no state file"),
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

    /// What the operator must do so that the server votes. `node` is the address of the server, if it is known.
    #[must_use]
    pub fn remedy(self, node: Option<&str>) -> String {
        match self {
            Self::SeveralStates => {
                "keep the state file of this node, move the others out of its dir and restart the server"
                    .into()
            }
            _ => admit(node),
        }
    }

    /// The reason with this name; `None` for an unknown name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|reason| reason.name() == name)
    }
}

/// The message of the server in its log and in its error replies.
impl fmt::Display for NonVoting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (explanation, remedy) = (self.explanation(), self.remedy(None));
        write!(f, "this server does not vote and grants nothing: {explanation}; {remedy}")
    }
}

impl NonVotingReason {
    /// Reads the field `non-voting-reason`.
    #[must_use]
    pub fn read(word: &str) -> Self {
        NonVoting::named(word).map_or_else(|| Self::Unknown(word.to_owned()), Self::Known)
    }

    /// The word in the field.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Known(reason) => reason.name(),
            Self::Unknown(word) => word,
        }
    }

    /// The reason as a clause for people, on one line.
    #[must_use]
    pub fn explanation(&self) -> String {
        match self {
            Self::Known(reason) => reason.explanation().to_owned(),
            Self::Unknown(word) if word.is_empty() => "it gives no reason".to_owned(),
            Self::Unknown(word) => {
                format!("its reason is {word:?}, which this version of redlock does not know")
            }
        }
    }

    /// What the operator must do so that the server at this address votes.
    #[must_use]
    pub fn remedy(&self, node: &str) -> String {
        match self {
            Self::Known(reason) => reason.remedy(Some(node)),
            Self::Unknown(_) => admit(Some(node)),
        }
    }
}

/// The remedy for a server that an operator can admit.
fn admit(node: Option<&str>) -> String {
    let node = node.map_or_else(String::new, |node| format!(" {node}"));
    format!("run `redlock admit{node}` once the server that it replaces is stopped")
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

    #[test]
    fn every_reason_has_an_explanation_and_a_remedy() {
        for word in ["replica", "copied-state-file", "several-state-files", "a-later-one", ""] {
            assert_eq!(NonVotingReason::read(word).name(), word);
        }
        let explanation = |word| NonVotingReason::read(word).explanation();
        assert_eq!(explanation("copied-state-file"), "its state file is a copy");
        assert_eq!(
            explanation("a-later\none"),
            "its reason is \"a-later\\none\", which this version of redlock does not know"
        );
        assert_eq!(explanation(""), "it gives no reason");
        let remedy = |word| NonVotingReason::read(word).remedy("a:1");
        for word in ["replica", "a-later-one", ""] {
            assert!(remedy(word).starts_with("run `redlock admit a:1` once"), "{}", remedy(word));
        }
        assert!(remedy("several-state-files").contains("move the others out of its dir"));
        assert_eq!(
            NonVoting::Asked.to_string(),
            "this server does not vote and grants nothing: it was started with new-node non-voting; run `redlock admit` \
             once the server that it replaces is stopped"
        );
    }
}
