//! Whether the lock can be had again: from every state, when all is quiet.
//!
//! Whatever is on its way is lost, and time passes until no lock can be left and no quarantine. Then nobody may
//! have the lock, and a client that asks for it must get it, with all nodes and with any one of them away, under
//! a number that is larger than any before.

use super::client::{Acts, Clients};
use super::node::{Happens, NodeId};
use super::speech::RequestId;
use super::state::State;
use super::world::World;
use crate::Violation;
use hashbrown::HashMap;
use redlock_proto::{NodeSet, Quorum};

/// What was found, by the states of the nodes: nothing else matters when all is quiet.
#[derive(Default)]
pub(super) struct Freedom {
    /// The smallest number that the next holder may get.
    known: HashMap<[NodeId; super::bounds::MOST], Result<u64, Violation>>,
}

impl Freedom {
    /// How many different cases there were.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// What is wrong with a state when all is quiet.
    pub(super) fn check(&mut self, world: &mut World, state: &State) -> Option<Violation> {
        let least = match self.known.get(&state.nodes) {
            Some(known) => known.clone(),
            None => {
                let found = least_fence(world, state);
                self.known.insert(state.nodes, found.clone());
                found
            }
        };
        let before = world.largest(state);
        match least {
            Ok(fence) if fence <= before => Some(Violation::FenceNotLarger { key: 0, fence, before }),
            Ok(_) => None,
            Err(violation) => Some(violation),
        }
    }
}

fn least_fence(world: &mut World, state: &State) -> Result<u64, Violation> {
    let mut nodes = state.nodes;
    let nodes = &mut nodes[..world.bounds.nodes];
    // A lock may have been granted just now, and a node may just have begun to wait.
    for (number, node) in nodes.iter_mut().enumerate() {
        for _ in 0..world.bounds.ttl_ticks {
            *node = world.nodes.step(*node, Happens::Tick, &mut world.speech).0;
        }
        let summary = world.nodes.summary(*node);
        if summary.lock.is_some() {
            return Err(Violation::Ghost { node: number, key: 0 });
        }
        if summary.quarantine_ms > 0 {
            return Err(Violation::NotFreeAgain { key: 0 });
        }
    }
    let mut least = take(world, nodes, NodeSet::EMPTY)?;
    let quorum = Quorum::of(nodes.len()).expect("there are nodes");
    if quorum.is_reached_by(nodes.len() - 1) {
        for away in 0..nodes.len() {
            least = least.min(take(world, nodes, [away].into_iter().collect())?);
        }
    }
    Ok(least)
}

/// Takes the lock while every message arrives at once, except where a node is away; tells its number.
fn take(world: &mut World, nodes: &[NodeId], away: NodeSet) -> Result<u64, Violation> {
    let mut nodes = nodes.to_vec();
    let owner = super::bounds::MOST;
    let begin = Acts::Begin { above: 0, hint: None };
    let begun = world.clients.step(Clients::IDLE, begin, &mut world.speech);
    let mut client = begun.client;
    let mut to_ask: Vec<(RequestId, NodeSet)> = begun.sends.into_iter().collect();
    while let Some((request, to)) = to_ask.pop() {
        for node in to.iter() {
            let acts = if away.contains(node) {
                Acts::FindsSilent { node, request }
            } else {
                let ask = world.speech.ask_of(request);
                let what = Happens::Asked { ask, client: owner, connection: 0 };
                let (after, reply) = world.nodes.step(nodes[node], what, &mut world.speech);
                nodes[node] = after;
                Acts::Hears { node, request, reply }
            };
            let acted = world.clients.step(client, acts, &mut world.speech);
            client = acted.client;
            to_ask.extend(acted.sends);
        }
    }
    let facts = world.clients.facts(client);
    facts.fence.filter(|_| facts.is_valid).ok_or(Violation::NotFreeAgain { key: 0 })
}
