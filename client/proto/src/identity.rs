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
    /// The highest high-water mark: no fence that the node has granted is larger.
    pub high_water: Option<u64>,
    /// The high-water mark of all keys that no client has raised far. It moves while the highest mark stays.
    pub common_high_water: Option<u64>,
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
    /// A node answers again that another node has replaced at this address.
    Replaced {
        /// The id of the node that answers.
        now: String,
        /// The id of the node that was accepted at this address last.
        by: String,
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
        self.common_high_water = self.common_high_water.max(now.common_high_water);
        self.origin = now.origin.or(self.origin);
    }
}

/// Whether a client counts the node that answers at an address, given what it accepted there before.
///
/// If neither node reports more than an id, another node is accepted: an older module has no admission.
///
/// # Errors
/// If the client does not count the node, with the reason.
pub fn compare(before: Option<&NodeIdentity>, now: &NodeIdentity) -> Result<Accepted, Objection> {
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
    let marks = |node: &NodeIdentity| [node.high_water, node.common_high_water];
    match marks(now).into_iter().zip(marks(before)).find(|(now, before)| now.is_some() && now < before) {
        Some((Some(now), Some(before))) => Err(Objection::WentBack { now, before }),
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
    /// The ids of the nodes that were accepted at each address. The last one is the present node. The client does not
    /// accept the others there again: each was stopped when it was replaced, or it votes beside its replacement.
    at: Vec<Vec<String>>,
}

impl Roster {
    /// Creates an empty roster for this number of addresses.
    #[must_use]
    pub fn new(addresses: usize) -> Self {
        Self { nodes: Vec::new(), at: vec![Vec::new(); addresses] }
    }

    fn known(&self, id: &str) -> Option<&NodeIdentity> {
        self.nodes.iter().find(|node| node.id == id)
    }

    fn id_at(&self, address: usize) -> Option<&str> {
        self.at.get(address)?.last().map(String::as_str)
    }

    /// Whether another node has replaced this one at an address.
    fn is_replaced(&self, address: usize, id: &str) -> bool {
        self.known(id).is_none() && self.at.get(address).is_some_and(|ids| ids.iter().any(|old| old == id))
    }

    /// Whether the client has ever accepted a node at an address.
    #[must_use]
    pub fn has_accepted_at(&self, address: usize) -> bool {
        self.id_at(address).is_some()
    }

    /// Whether the client counts the node that answers at an address: by [`compare`], and a node that it knows
    /// from another address as if that node had been at this one.
    ///
    /// # Errors
    /// If the client does not count the node, with the reason.
    pub fn check(&self, address: usize, now: &NodeIdentity) -> Result<Accepted, Objection> {
        if now.is_voting == Some(false) {
            return Ok(Accepted::NonVoting);
        }
        let before = self.id_at(address);
        match self.known(&now.id) {
            Some(known) if before != Some(now.id.as_str()) => {
                compare(Some(known), now).map(|_| Accepted::Moved)
            }
            Some(known) => compare(Some(known), now),
            None => match before.filter(|_| self.is_replaced(address, &now.id)) {
                Some(by) => Err(Objection::Replaced { now: now.id.clone(), by: by.to_owned() }),
                None => compare(before.and_then(|id| self.known(id)), now),
            },
        }
    }

    /// Notes a node that the client counts from now on, and forgets all but the id of the node that it
    /// replaces. A server that does not vote replaces no node.
    pub fn accept(&mut self, address: usize, now: &NodeIdentity) {
        if now.is_voting == Some(false) {
            return;
        }
        let is_new = self.known(&now.id).is_none();
        match self.nodes.iter_mut().find(|node| node.id == now.id) {
            Some(known) => known.accept(now),
            None => self.nodes.push(now.clone()),
        }
        let Some(ids) = self.at.get_mut(address) else { return };
        ids.retain(|id| *id != now.id);
        ids.push(now.id.clone());
        if is_new {
            let at = &self.at;
            self.nodes.retain(|node| at.iter().filter_map(|ids| ids.last()).any(|id| *id == node.id));
        }
    }

    /// Notes what the node at an address reports about itself later, on the same connection.
    ///
    /// # Errors
    /// If the client does not count the node any more, with the reason.
    pub fn learn(&mut self, address: usize, said: &NodeIdentity) -> Result<(), Objection> {
        // A server that did not vote when the connection began may have been admitted since.
        self.check(address, said)?;
        self.accept(address, said);
        Ok(())
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted { now, before } => {
                let (now, before) = (short(now), short(before));
                write!(f, "answers as node {now} now; it was node {before}: admit it with `redlock admit`")
            }
            Self::Replaced { now, by } => {
                let (now, by) = (short(now), short(by));
                write!(f, "answers as node {now} again, which node {by} has replaced: stop it")
            }
            Self::OlderCopy { now, before } => write!(
                f,
                "it is an older copy of this node: its incarnation is {now}, and was {before}; {STOP_IT}"
            ),
            Self::WentBack { now, before } => write!(
                f,
                "its high-water mark went back from {before} to {now}: its disk was restored; {STOP_IT}"
            ),
        }
    }
}

/// The remedy for a node that has forgotten something.
const STOP_IT: &str = "stop it, and admit a replacement";

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
        let common_high_water = high_water;
        NodeIdentity {
            id: id.into(),
            incarnation,
            high_water,
            common_high_water,
            origin,
            is_voting: Some(true),
        }
    }

    /// A node on which a client has raised one key far: its highest mark does not move any more.
    fn raised(common_high_water: u64) -> NodeIdentity {
        NodeIdentity { common_high_water: Some(common_high_water), ..node("a", 7, 1 << 62, New) }
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
            (Some(&raised(100)), raised(100), Ok(Accepted::Same)),
            (Some(&raised(100)), raised(99), back(99)),
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
            assert_eq!(compare(before, &now), judgement, "{now:?} after {before:?}");
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
            assert_eq!(roster.check(address, &node(id, 7, 100, New)), Ok(Accepted::First));
            roster.accept(address, &node(id, 7, 100, New));
        }
        assert_eq!(roster.check(0, &node("b", 7, 100, New)), Ok(Accepted::Moved));
        roster.accept(0, &node("b", 8, 200, New));
        // What the client knows of a node holds at every address.
        assert_eq!(roster.check(1, &node("b", 7, 200, New)), Err(Objection::OlderCopy { now: 7, before: 8 }));
        assert_eq!(roster.check(1, &node("a", 6, 100, New)), Err(Objection::OlderCopy { now: 6, before: 7 }));
        assert_eq!(roster.check(1, &node("a", 7, 100, New)), Ok(Accepted::Moved));
        roster.accept(1, &node("a", 7, 100, New));
        assert_eq!(roster.check(1, &node("a", 7, 100, New)), Ok(Accepted::Same));
        // The client does not know this node.
        let objection = Objection::NotAdmitted { now: "d".into(), before: "a".into() };
        assert_eq!(roster.check(1, &node("d", 9, 900, New)), Err(objection));
    }

    #[test]
    fn a_replaced_node_is_not_accepted_again() {
        let mut roster = Roster::new(2);
        roster.accept(0, &node("a", 7, 100, New));
        roster.accept(1, &node("b", 7, 100, New));
        assert_eq!(roster.check(0, &node("c", 1, 0, Admitted)), Ok(Accepted::Another));
        roster.accept(0, &node("c", 1, 0, Admitted));
        for origin in [New, Admitted] {
            let replaced = Objection::Replaced { now: "a".into(), by: "c".into() };
            assert_eq!(roster.check(0, &node("a", 8, 900, origin)), Err(replaced));
        }
        // At another address it may replace another node.
        let objection = Objection::NotAdmitted { now: "a".into(), before: "b".into() };
        assert_eq!(roster.check(1, &node("a", 8, 900, New)), Err(objection));
        assert_eq!(roster.check(1, &node("a", 8, 900, Admitted)), Ok(Accepted::Another));
        assert_eq!(roster.learn(0, &node("c", 1, 50, Admitted)), Ok(()));
        let copy = Objection::OlderCopy { now: 1, before: 7 };
        assert_eq!(roster.learn(0, &node("b", 1, 900, Admitted)), Err(copy));
        assert_eq!(roster.check(0, &node("c", 2, 40, New)), Err(Objection::WentBack { now: 40, before: 50 }));
        assert_eq!(roster.nodes.len(), 2);
    }

    #[test]
    fn an_objection_names_the_old_and_the_new_value() {
        let objection =
            |before: &NodeIdentity, now: &NodeIdentity| compare(Some(before), now).unwrap_err().to_string();
        let known = node("9bc1de5500000000", 7, 100, New);
        assert_eq!(
            objection(&known, &node("3f2a51bc\u{1b}11", 1, 0, New)),
            "answers as node 3f2a51bc… now; it was node 9bc1de55…: admit it with `redlock admit`"
        );
        let replaced = Objection::Replaced { now: known.id.clone(), by: "3f2a51bc11".into() };
        assert_eq!(
            replaced.to_string(),
            "answers as node 9bc1de55… again, which node 3f2a51bc… has replaced: stop it"
        );
        assert_eq!(
            objection(&known, &node(&known.id, 4, 100, New)),
            "it is an older copy of this node: its incarnation is 4, and was 7; stop it, and admit a replacement"
        );
        assert_eq!(
            objection(&known, &node(&known.id, 7, 40, New)),
            "its high-water mark went back from 100 to 40: its disk was restored; stop it, and admit a replacement"
        );
    }

    #[test]
    fn a_non_voting_server_is_accepted_and_replaces_no_node() {
        let mut roster = Roster::new(1);
        let non_voting = NodeIdentity { is_voting: Some(false), ..node("b", 1, 0, New) };
        for _ in 0..2 {
            assert_eq!(roster.check(0, &non_voting), Ok(Accepted::NonVoting));
            roster.accept(0, &non_voting);
            roster.accept(0, &node("a", 7, 100, New));
        }
        assert_eq!(roster.check(0, &node("a", 7, 100, New)), Ok(Accepted::Same));
        // The same server, when it votes.
        assert!(roster.check(0, &node("b", 1, 0, New)).is_err());
        assert_eq!(roster.check(0, &node("b", 1, 0, Admitted)), Ok(Accepted::Another));
    }
}
