//! Which node answers at an address, and whether it may vote in place of the node that answered before.
//!
//! A vote counts because a node remembers what it granted. A server that has forgotten must not vote: another
//! node that no operator admitted, a copy of the node from before its last start, a node whose disk was
//! restored. The nodes guard against that themselves. A client can guard against it as well, because it has
//! seen the node before.

use redlock_contract::Origin;
use std::fmt;

/// What a node reports about itself when a connection begins. An older module reports its id only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The id of the node, the same at all of its addresses and after a restart.
    pub id: String,
    /// The incarnation, which grows with every start of the node.
    pub incarnation: Option<u64>,
    /// The high-water mark: no fence that the node has given out is larger.
    pub high_water: Option<u64>,
    /// How the node came to be part of its group.
    pub origin: Option<Origin>,
    /// Whether the node votes. A node that does not vote refuses every acquire and every extension itself.
    pub is_voting: Option<bool>,
}

/// How a client knows a node that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// No node has been accepted at this address before.
    First,
    /// The same node as before.
    Same,
    /// A node that was accepted at another address before: nodes may swap addresses.
    Moved,
    /// Another node: an operator admitted it, or its module is too old to know admission.
    Another,
    /// A server that does not vote. The client can query it and send it releases.
    NonVoting,
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
    /// The node has a smaller incarnation than before: it is an older copy.
    OlderCopy {
        /// The incarnation that the node reports.
        now: u64,
        /// The largest incarnation that was accepted before.
        before: u64,
    },
    /// The node has forgotten fences.
    WentBack {
        /// The high-water mark that the node reports.
        now: u64,
        /// The largest high-water mark that was accepted before.
        before: u64,
    },
}

impl NodeIdentity {
    /// Whether the module reports more than an id, so that the client can judge the node.
    fn reports_state(&self) -> bool {
        self.incarnation.is_some() || self.high_water.is_some() || self.origin.is_some()
    }

    /// Takes over what an accepted node reports: of the same node the largest values, of another node
    /// everything.
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
/// If neither node reports more than an id, another node is accepted: an older module has no admission.
///
/// # Errors
/// If the client does not count the node, with the reason.
pub fn judge(before: Option<&NodeIdentity>, now: &NodeIdentity) -> Result<Accepted, Objection> {
    let Some(before) = before else { return Ok(Accepted::First) };
    if before.id != now.id {
        let may_replace =
            now.origin == Some(Origin::Admitted) || !(before.reports_state() || now.reports_state());
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

/// The nodes that a client has accepted, and at which of its addresses.
///
/// The roster outlives rejections and broken connections: a node that was rejected must not be accepted when
/// it connects again.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// The accepted nodes, with the largest values that each has reported. At most one for every address.
    nodes: Vec<NodeIdentity>,
    /// The id of the node that was accepted last at each address.
    at: Vec<Option<String>>,
}

impl Roster {
    /// Creates an empty roster for this number of addresses.
    #[must_use]
    pub fn new(addresses: usize) -> Self {
        Self { nodes: Vec::new(), at: vec![None; addresses] }
    }

    fn known(&self, id: &str) -> Option<&NodeIdentity> {
        self.nodes.iter().find(|node| node.id == id)
    }

    fn id_at(&self, address: usize) -> Option<&str> {
        self.at.get(address)?.as_deref()
    }

    /// Whether the client counts the node that answers at an address: by [`judge`], and a node that it knows
    /// from another address as if that node had been at this one.
    ///
    /// # Errors
    /// If the client does not count the node, with the reason.
    pub fn judge(&self, address: usize, now: &NodeIdentity) -> Result<Accepted, Objection> {
        if now.is_voting == Some(false) {
            return Ok(Accepted::NonVoting);
        }
        let before = self.id_at(address);
        match self.known(&now.id) {
            Some(known) if before != Some(now.id.as_str()) => {
                judge(Some(known), now).map(|_| Accepted::Moved)
            }
            Some(known) => judge(Some(known), now),
            None => judge(before.and_then(|id| self.known(id)), now),
        }
    }

    /// Notes a node that the client counts from now on, and forgets the node that it replaces. A server that
    /// does not vote replaces no node.
    pub fn accept(&mut self, address: usize, now: &NodeIdentity) {
        if now.is_voting == Some(false) {
            return;
        }
        let is_new = self.known(&now.id).is_none();
        match self.nodes.iter_mut().find(|node| node.id == now.id) {
            Some(known) => known.accept(now),
            None => self.nodes.push(now.clone()),
        }
        let Some(place) = self.at.get_mut(address) else { return };
        *place = Some(now.id.clone());
        if is_new {
            let at = &self.at;
            self.nodes.retain(|node| at.iter().flatten().any(|id| *id == node.id));
        }
    }

    /// Notes what the node at an address reports about itself later, on the same connection.
    pub fn learn(&mut self, address: usize, said: &NodeIdentity) {
        // A server that did not vote when the connection began may have been admitted since.
        if self.judge(address, said).is_ok() {
            self.accept(address, said);
        }
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

/// The first characters of an id, for people to compare.
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
        NodeIdentity { id: id.into(), incarnation, high_water, origin, is_voting: Some(true) }
    }

    fn old(id: &str) -> NodeIdentity {
        NodeIdentity { id: id.into(), ..NodeIdentity::default() }
    }

    #[test]
    fn every_change_of_identity_is_judged() {
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
    fn the_largest_values_of_a_node_are_kept() {
        let mut known = node("a", 7, 100, New);
        known.accept(&node("a", 8, 100, New));
        known.accept(&node("a", 8, 300, New));
        assert_eq!(known, node("a", 8, 300, New));
        // A module that reports less for a while changes nothing.
        known.accept(&old("a"));
        assert_eq!(known, node("a", 8, 300, New));
        known.accept(&node("b", 1, 2, Admitted));
        assert_eq!(known, node("b", 1, 2, Admitted));
    }

    #[test]
    fn nodes_may_swap_addresses() {
        let mut roster = Roster::new(3);
        for (address, id) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(roster.judge(address, &node(id, 7, 100, New)), Ok(Accepted::First));
            roster.accept(address, &node(id, 7, 100, New));
        }
        assert_eq!(roster.judge(0, &node("b", 7, 100, New)), Ok(Accepted::Moved));
        roster.accept(0, &node("b", 8, 200, New));
        // What the client knows of a node holds at every address.
        assert_eq!(roster.judge(1, &node("b", 7, 200, New)), Err(Objection::OlderCopy { now: 7, before: 8 }));
        assert_eq!(roster.judge(1, &node("a", 6, 100, New)), Err(Objection::OlderCopy { now: 6, before: 7 }));
        assert_eq!(roster.judge(1, &node("a", 7, 100, New)), Ok(Accepted::Moved));
        roster.accept(1, &node("a", 7, 100, New));
        assert_eq!(roster.judge(1, &node("a", 7, 100, New)), Ok(Accepted::Same));
        // The client does not know this node.
        let objection = Objection::NotAdmitted { now: "d".into(), before: "a".into() };
        assert_eq!(roster.judge(1, &node("d", 9, 900, New)), Err(objection));
    }

    #[test]
    fn a_replaced_node_is_forgotten() {
        let mut roster = Roster::new(2);
        roster.accept(0, &node("a", 7, 100, New));
        roster.accept(1, &node("b", 7, 100, New));
        assert_eq!(roster.judge(0, &node("c", 1, 0, Admitted)), Ok(Accepted::Another));
        roster.accept(0, &node("c", 1, 0, Admitted));
        for (address, before) in [(0, "c"), (1, "b")] {
            let objection = Objection::NotAdmitted { now: "a".into(), before: before.into() };
            assert_eq!(roster.judge(address, &node("a", 8, 900, New)), Err(objection));
        }
        roster.learn(0, &node("c", 1, 50, Admitted));
        roster.learn(0, &node("b", 1, 900, Admitted));
        assert_eq!(roster.judge(0, &node("c", 2, 40, New)), Err(Objection::WentBack { now: 40, before: 50 }));
        assert_eq!(roster.nodes.len(), 2);
    }

    #[test]
    fn an_objection_names_the_old_and_the_new_value() {
        let objection =
            |before: &NodeIdentity, now: &NodeIdentity| judge(Some(before), now).unwrap_err().to_string();
        let known = node("9bc1de5500000000", 7, 100, New);
        assert_eq!(
            objection(&known, &node("3f2a51bc\u{1b}11", 1, 0, New)),
            "answers as node 3f2a51bc… now; it was node 9bc1de55…: admit it with `redlock admit`"
        );
        assert_eq!(
            objection(&known, &node(&known.id, 4, 100, New)),
            "an older copy of this node: incarnation 4, was 7"
        );
        assert_eq!(
            objection(&known, &node(&known.id, 7, 40, New)),
            "its high-water mark went back from 100 to 40: its disk was restored"
        );
    }

    #[test]
    fn a_non_voting_server_is_accepted_and_replaces_no_node() {
        let mut roster = Roster::new(1);
        let non_voting = NodeIdentity { is_voting: Some(false), ..node("b", 1, 0, New) };
        for _ in 0..2 {
            assert_eq!(roster.judge(0, &non_voting), Ok(Accepted::NonVoting));
            roster.accept(0, &non_voting);
            roster.accept(0, &node("a", 7, 100, New));
        }
        assert_eq!(roster.judge(0, &node("a", 7, 100, New)), Ok(Accepted::Same));
        // The same server, when it votes.
        assert!(roster.judge(0, &node("b", 1, 0, New)).is_err());
        assert_eq!(roster.judge(0, &node("b", 1, 0, Admitted)), Ok(Accepted::Another));
    }
}
