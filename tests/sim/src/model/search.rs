//! Goes through all states, breadth first, so that the first way to a violation is a shortest one.

use super::bounds::{Bounds, Laws};
use super::freedom::Freedom;
use super::state::State;
use super::world::{Action, KINDS, World};
use crate::Violation;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::fmt;
use std::hash::BuildHasher;

/// What an exploration has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Within which bounds.
    pub bounds: Bounds,
    /// How many different states there are, nodes being alike.
    pub states: usize,
    /// How many steps lead from one to another, or back to the same.
    pub steps: u64,
    /// How many steps the furthest state is away.
    pub depth: usize,
    /// How many different states of a single node there are.
    pub node_states: usize,
    /// How many different states of a single client there are.
    pub client_states: usize,
    /// From how many different states of all nodes the lock was taken again.
    pub taken_again: usize,
    /// In how many states somebody holds the lock.
    pub held_states: usize,
    /// How many steps of each kind there were.
    pub kinds: Vec<(&'static str, u64)>,
    /// Whether all states were looked at.
    pub is_complete: bool,
    /// A shortest way to something that must never be.
    pub counterexample: Option<Counterexample>,
    /// How many steps of single nodes were compared on another way to the same state.
    pub audited: u64,
}

/// How something comes about that must never be.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// What it is.
    pub violation: Violation,
    /// What happens, step by step.
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

/// All states in the order in which they were found, each exactly as it is.
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

    /// Adds a state, unless it is there.
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

/// How many other ways to states of nodes are gone to see that they lead to the same.
const AUDITS: usize = 2_000;

/// Looks at everything that can happen within some bounds, or until something does that must not.
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

/// The state in which something is found, and what happens there, if it takes another step.
type Found = (usize, Option<Action>, Violation);

impl Search {
    /// Looks at all states; tells what is wrong, and whether it has seen everything.
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

    /// What is wrong with a state, as far as it is looked for.
    fn violation(&mut self, state: &State) -> Option<Violation> {
        let laws = self.world.bounds.laws;
        let broken = self.world.broken_laws(state).into_iter().find(|found| laws.cover(found));
        match laws {
            Laws::All => broken.or_else(|| self.freedom.check(&mut self.world, state)),
            Laws::Exclusion | Laws::Fences => broken,
        }
    }

    /// The states on the way to one, itself included.
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

    /// How many steps the last state is away: none is further.
    fn depth(&self) -> usize {
        self.ancestry(self.visited.len() - 1).len() - 1
    }

    /// Tells how a state comes about, and the step from there that goes wrong.
    fn way_to(&mut self, place: usize, last: Option<Action>, violation: Violation) -> Counterexample {
        let bounds = self.world.bounds;
        let way = self.ancestry(place);
        let mut steps = Vec::new();
        // Goes the way again with every node under the name that it had in the beginning.
        let mut state = self.world.first();
        let mut actions = Vec::new();
        for place in &way[1..] {
            let wanted = State::unpack(&bounds, self.visited.get(*place));
            self.world.actions(&state, &mut actions);
            let leads_there = |action: &&Action| {
                let (next, _) = self.world.after(&state, **action);
                self.world.canonical(&next) == wanted
            };
            let action = *actions.iter().find(leads_there).expect("it was found this way");
            steps.push(self.world.tell(&state, action));
            state = self.world.after(&state, action).0;
        }
        if let Some(last) = last {
            // The same step may go by another name of the node here.
            self.world.actions(&state, &mut actions);
            let goes_wrong = |action: &&Action| self.world.after(&state, **action).1.is_some();
            let last = *actions.iter().find(goes_wrong).unwrap_or(&last);
            steps.push(self.world.tell(&state, last));
        }
        Counterexample { violation, steps }
    }
}
