//! Which node answers at an address, and whether it may vote in the place of the one that did before.
//!
//! A vote counts because a node remembers what it granted. A server that has forgotten must not vote: another node
//! that nobody admitted, a copy of the node from before its last start, a node whose disk was restored. The nodes
//! guard against that themselves. A client also can: it has seen the node before.

use std::fmt;

/// What a node says of itself when a connection begins. An older module says its id only; so does a cluster, which
/// is many servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The same at every address of the node, and after a restart.
    pub id: String,
    /// Grows at every start of the node.
    pub incarnation: Option<u64>,
    /// At least every fence that the node has given out.
    pub high_water: Option<u64>,
    /// How the node came to be part of its group.
    pub origin: Option<Origin>,
}

/// How a node came to be part of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It started without state of its own.
    New,
    /// An operator admitted it in the place of another node.
    Admitted,
}

/// How a client knows a node that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// No node has been accepted at this address before.
    First,
    /// The node of before.
    Same,
    /// Another node, in its place.
    Another,
}

/// Why a client does not count a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// Another node answers, and no operator has admitted it.
    NotAdmitted {
        /// The id of the node that answers.
        now: String,
        /// The id of the node that was accepted before.
        before: String,
    },
    /// The node has started less often than the one of before: it is a copy.
    OlderCopy {
        /// The incarnation that it answers.
        now: u64,
        /// The largest that was accepted before.
        before: u64,
    },
    /// The node has forgotten fences.
    WentBack {
        /// The high-water mark that it answers.
        now: u64,
        /// The largest that was accepted before.
        before: u64,
    },
}

impl NodeIdentity {
    /// Whether the module says more than an id, so that two servers can be told apart by it.
    fn is_told(&self) -> bool {
        self.incarnation.is_some() || self.high_water.is_some() || self.origin.is_some()
    }

    /// Keeps what was accepted last: the largest numbers of one node, or all of another.
    pub fn accept(&mut self, now: &Self) {
        if self.id != now.id {
            *self = now.clone();
            return;
        }
        self.incarnation = self.incarnation.max(now.incarnation);
        self.high_water = self.high_water.max(now.high_water);
        self.origin = now.origin.or(self.origin);
    }
}

/// Whether a client counts the node that answers at an address, given what it accepted there before.
///
/// Where neither says more than an id, another node is accepted: an older module knows no admission.
///
/// # Errors
/// With the reason, if the client does not count the node.
pub fn judge(before: Option<&NodeIdentity>, now: &NodeIdentity) -> Result<Accepted, Objection> {
    let Some(before) = before else { return Ok(Accepted::First) };
    if before.id != now.id {
        let may_replace = now.origin == Some(Origin::Admitted) || !(before.is_told() || now.is_told());
        let objection = || Objection::NotAdmitted { now: now.id.clone(), before: before.id.clone() };
        return may_replace.then_some(Accepted::Another).ok_or_else(objection);
    }
    match (now.incarnation, before.incarnation) {
        (Some(now), Some(before)) if now < before => return Err(Objection::OlderCopy { now, before }),
        _ => {}
    }
    match (now.high_water, before.high_water) {
        (Some(now), Some(before)) if now < before => Err(Objection::WentBack { now, before }),
        _ => Ok(Accepted::Same),
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted { now, before } => {
                let (now, before) = (short(now), short(before));
                write!(f, "answers as node {now} now; it was node {before}: admit it with `redlock admit`")
            }
            Self::OlderCopy { now, before } => {
                write!(f, "an older copy of this node: incarnation {now}, was {before}")
            }
            Self::WentBack { now, before } => {
                write!(f, "its high-water mark went back from {before} to {now}: its disk was restored")
            }
        }
    }
}

/// The beginning of an id, as people compare it.
fn short(id: &str) -> String {
    const SHOWN: usize = 8;
    let mut text: String = id.chars().filter(|char| !char.is_control()).take(SHOWN).collect();
    if id.chars().count() > SHOWN {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use Origin::{Admitted, New};

    fn node(id: &str, incarnation: u64, high_water: u64, origin: Origin) -> NodeIdentity {
        let (incarnation, high_water, origin) = (Some(incarnation), Some(high_water), Some(origin));
        NodeIdentity { id: id.into(), incarnation, high_water, origin }
    }

    fn old(id: &str) -> NodeIdentity {
        NodeIdentity { id: id.into(), ..NodeIdentity::default() }
    }

    #[test]
    fn every_change_has_its_judgement() {
        let known = node("a", 7, 100, New);
        let other = |now: &str| Err(Objection::NotAdmitted { now: now.into(), before: "a".into() });
        let copy = |now| Err(Objection::OlderCopy { now, before: 7 });
        let back = |now| Err(Objection::WentBack { now, before: 100 });
        let table = [
            (None, node("a", 1, 0, New), Ok(Accepted::First)),
            (None, old("a"), Ok(Accepted::First)),
            (Some(&known), known.clone(), Ok(Accepted::Same)),
            (Some(&known), node("a", 8, 100, New), Ok(Accepted::Same)),
            (Some(&known), node("a", 7, 101, Admitted), Ok(Accepted::Same)),
            // A restored copy.
            (Some(&known), node("a", 6, 100, New), copy(6)),
            (Some(&known), node("a", 6, 900, Admitted), copy(6)),
            (Some(&known), node("a", 6, 99, New), copy(6)),
            (Some(&known), node("a", 7, 99, New), back(99)),
            (Some(&known), node("a", 8, 99, Admitted), back(99)),
            // Another node.
            (Some(&known), node("b", 7, 100, New), other("b")),
            (Some(&known), node("b", 900, 900, New), other("b")),
            (Some(&known), node("b", 1, 0, Admitted), Ok(Accepted::Another)),
            // An older module.
            (Some(&known), old("a"), Ok(Accepted::Same)),
            (Some(&known), old("b"), other("b")),
            (Some(&old("a")), node("a", 1, 0, New), Ok(Accepted::Same)),
            (Some(&old("a")), node("b", 1, 0, New), other("b")),
            (Some(&old("a")), node("b", 1, 0, Admitted), Ok(Accepted::Another)),
            (Some(&old("a")), old("b"), Ok(Accepted::Another)),
        ];
        for (before, now, judgement) in table {
            assert_eq!(judge(before, &now), judgement, "{now:?} after {before:?}");
        }
    }

    #[test]
    fn the_largest_numbers_of_a_node_are_kept() {
        let mut known = node("a", 7, 100, New);
        known.accept(&node("a", 8, 100, New));
        known.accept(&node("a", 8, 300, New));
        assert_eq!(known, node("a", 8, 300, New));
        // A module that says less for a while hides nothing.
        known.accept(&old("a"));
        assert_eq!(known, node("a", 8, 300, New));
        known.accept(&node("b", 1, 2, Admitted));
        assert_eq!(known, node("b", 1, 2, Admitted));
    }

    #[test]
    fn an_objection_says_what_was_and_what_is() {
        let told =
            |before: &NodeIdentity, now: &NodeIdentity| judge(Some(before), now).unwrap_err().to_string();
        let known = node("9bc1de5500000000", 7, 100, New);
        assert_eq!(
            told(&known, &node("3f2a51bc\u{1b}11", 1, 0, New)),
            "answers as node 3f2a51bc… now; it was node 9bc1de55…: admit it with `redlock admit`"
        );
        assert_eq!(
            told(&known, &node(&known.id, 4, 100, New)),
            "an older copy of this node: incarnation 4, was 7"
        );
        assert_eq!(
            told(&known, &node(&known.id, 7, 40, New)),
            "its high-water mark went back from 100 to 40: its disk was restored"
        );
    }
}
