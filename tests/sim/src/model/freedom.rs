//! Whether the lock can be acquired again: from every state, after all faults.
//!
//! All messages in flight are lost, and time passes until every lock and every quarantine has ended. Then no
//! client may hold the lock, and a client that requests it must get it, with all nodes and with any one node
//! unreachable, with a larger fence than any before.

use super::client::{Acts, Clients};
use super::node::{Happens, NodeId};
use super::speech::RequestId;
use super::state::State;
use super::world::World;
use crate::Violation;
use hashbrown::HashMap;
use redlock_proto::{NodeSet, Quorum};

/// The results, by the states of the nodes. Nothing else matters after all faults.
#[derive(Default)]
pub(super) struct Freedom {
    /// The smallest fence that the next holder may get, or the violation.
    known: HashMap<[NodeId; super::bounds::MOST], Result<u64, Violation>>,
}

impl Freedom {
    /// The number of distinct cases.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The broken invariant of a state after all faults.
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
    // A lock may have been granted just now, and a quarantine may just have begun.
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
    let quorum = Quorum::of(nodes.len()).expect("bounds have at least one node");
    if quorum.is_reached_by(nodes.len() - 1) {
        for away in 0..nodes.len() {
            least = least.min(take(world, nodes, [away].into_iter().collect())?);
        }
    }
    Ok(least)
}

/// Acquires the lock while every message arrives at once, except at unreachable nodes. Returns its fence.
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
