//! Visits all states, breadth first, so that the first path to a violation is a shortest one.

use super::bounds::{Bounds, Laws};
use super::freedom::Freedom;
use super::state::State;
use super::world::{Action, KINDS, World};
use crate::Violation;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::fmt;
use std::hash::BuildHasher;

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Report {
    /// The bounds of the exploration.
    pub bounds: Bounds,
    /// The number of distinct states, up to the order of the nodes.
    pub states: usize,
    /// The number of steps between states.
    pub steps: u64,
    /// The number of steps to the furthest state.
    pub depth: usize,
    /// The number of distinct states of a single node.
    pub node_states: usize,
    /// The number of distinct states of a single client.
    pub client_states: usize,
    /// The number of distinct node states from which the lock was acquired again.
    pub taken_again: usize,
    /// The number of states in which a client holds the lock.
    pub held_states: usize,
    /// The number of steps of each kind.
    pub kinds: Vec<(&'static str, u64)>,
    /// Whether all states were visited.
    pub is_complete: bool,
    /// A shortest path to a violation.
    pub counterexample: Option<Counterexample>,
    /// The number of steps of single nodes that were compared on another path to the same state.
    pub audited: u64,
}

/// A path to a violation.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The broken invariant.
    pub violation: Violation,
    /// The steps, as text.
    pub steps: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let completeness = if self.is_complete { "all of them" } else { "not all of them" };
        write!(
            f,
            "{}: {} states ({completeness}), {} steps, depth {}, lock held in {}; {} states of a node, {} of a \
             client; taken again from {}; {} steps audited",
            self.bounds,
            self.states,
            self.steps,
            self.depth,
            self.held_states,
            self.node_states,
            self.client_states,
            self.taken_again,
            self.audited
        )
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {} steps:", self.violation, self.steps.len())?;
        self.steps.iter().enumerate().try_for_each(|(at, step)| writeln!(f, "{:4}  {step}", at + 1))
    }
}

/// All states in the order in which they were found.
struct Visited {
    stride: usize,
    words: Vec<u32>,
    /// From which state each was found first.
    parents: Vec<u32>,
    places: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Visited {
    fn new(stride: usize) -> Self {
        let (words, parents) = (Vec::new(), Vec::new());
        Self { stride, words, parents, places: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }

    fn len(&self) -> usize {
        self.parents.len()
    }

    fn get(&self, place: usize) -> &[u32] {
        &self.words[place * self.stride..][..self.stride]
    }

    /// Adds a state, unless it is known.
    fn add(&mut self, state: &[u32], parent: usize) {
        let Self { stride, words, parents, places, hasher } = self;
        let at = |place: u32| &words[place as usize * *stride..][..*stride];
        let hash = hasher.hash_one(state);
        let entry = places.entry(hash, |place| at(*place) == state, |place| hasher.hash_one(at(*place)));
        if let hashbrown::hash_table::Entry::Vacant(free) = entry {
            let number = |count: usize| u32::try_from(count).expect("fewer states than 2^32");
            free.insert(number(parents.len()));
            parents.push(number(parent));
            words.extend_from_slice(state);
        }
    }
}

struct Search {
    world: World,
    visited: Visited,
    freedom: Freedom,
    steps: u64,
    held_states: usize,
    kinds: [(&'static str, u64); KINDS],
}

/// How many other paths to node states the audit compares.
const AUDITS: usize = 2_000;

/// Explores all states within some bounds, until an invariant is broken.
#[must_use]
pub fn explore(bounds: &Bounds) -> Report {
    let mut search = Search {
        world: World::new(bounds),
        visited: Visited::new(State::words(bounds)),
        freedom: Freedom::default(),
        steps: 0,
        held_states: 0,
        kinds: [("", 0); KINDS],
    };
    let (found, is_complete) = search.run();
    let depth = search.depth();
    let counterexample = found.map(|(place, last, violation)| search.way_to(place, last, violation));
    let audited = search.world.nodes.audit(AUDITS, &mut search.world.speech);
    Report {
        bounds: *bounds,
        states: search.visited.len(),
        steps: search.steps,
        depth,
        node_states: search.world.nodes.len(),
        client_states: search.world.clients.len(),
        taken_again: search.freedom.len(),
        held_states: search.held_states,
        kinds: search.kinds.into_iter().filter(|(name, _)| !name.is_empty()).collect(),
        is_complete,
        counterexample,
        audited,
    }
}

/// The state in which a violation was found, the step that led to it if there is one, and the violation.
type Found = (usize, Option<Action>, Violation);

impl Search {
    /// Visits all states. Returns the first violation, and whether all states were visited.
    fn run(&mut self) -> (Option<Found>, bool) {
        let bounds = self.world.bounds;
        let mut words = Vec::new();
        let mut actions = Vec::new();
        let first = self.world.first();
        self.world.canonical(&first).pack(&bounds, &mut words);
        self.visited.add(&words, 0);
        let mut place = 0;
        while place < self.visited.len() {
            if self.visited.len() > bounds.most_states {
                return (None, false);
            }
            let state = State::unpack(&bounds, self.visited.get(place));
            if let Some(violation) = self.violation(&state) {
                return (Some((place, None, violation)), false);
            }
            let holds = |client: &u32| self.world.clients.facts(*client).is_valid;
            self.held_states += usize::from(state.clients.iter().any(holds));
            self.world.actions(&state, &mut actions);
            for action in &actions {
                let (next, violation) = self.world.after(&state, *action);
                self.steps += 1;
                let (kind, name) = action.kind();
                self.kinds[kind].0 = name;
                self.kinds[kind].1 += 1;
                if let Some(violation) = violation.filter(|found| bounds.laws.cover(found)) {
                    return (Some((place, Some(*action), violation)), false);
                }
                self.world.canonical(&next).pack(&bounds, &mut words);
                self.visited.add(&words, place);
            }
            place += 1;
        }
        (None, true)
    }

    /// The broken invariant of a state, if it is one of those that are checked.
    fn violation(&mut self, state: &State) -> Option<Violation> {
        let laws = self.world.bounds.laws;
        let broken = self.world.broken_laws(state).into_iter().find(|found| laws.cover(found));
        match laws {
            Laws::All => broken.or_else(|| self.freedom.check(&mut self.world, state)),
            Laws::Exclusion | Laws::Fences => broken,
        }
    }

    /// The states on the path to one, itself included.
    fn ancestry(&self, place: usize) -> Vec<usize> {
        let mut way = vec![place];
        let mut at = place;
        while at > 0 {
            at = self.visited.parents[at] as usize;
            way.push(at);
        }
        way.reverse();
        way
    }

    /// The number of steps to the last state: no state is further away.
    fn depth(&self) -> usize {
        self.ancestry(self.visited.len() - 1).len() - 1
    }

    /// The path to a state, and the step from there that breaks the invariant.
    fn way_to(&mut self, place: usize, last: Option<Action>, violation: Violation) -> Counterexample {
        let bounds = self.world.bounds;
        let way = self.ancestry(place);
        let mut steps = Vec::new();
        // Repeats the path with every node under its first number.
        let mut state = self.world.first();
        let mut actions = Vec::new();
        for place in &way[1..] {
            let wanted = State::unpack(&bounds, self.visited.get(*place));
            self.world.actions(&state, &mut actions);
            let leads_there = |action: &&Action| {
                let (next, _) = self.world.after(&state, **action);
                self.world.canonical(&next) == wanted
            };
            let action = *actions.iter().find(leads_there).expect("the search found this step");
            steps.push(self.world.tell(&state, action));
            state = self.world.after(&state, action).0;
        }
        if let Some(last) = last {
            // The node of the step may have another number here.
            self.world.actions(&state, &mut actions);
            let goes_wrong = |action: &&Action| self.world.after(&state, **action).1.is_some();
            let last = *actions.iter().find(goes_wrong).unwrap_or(&last);
            steps.push(self.world.tell(&state, last));
        }
        Counterexample { violation, steps }
    }
}
