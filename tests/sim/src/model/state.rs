//! A state of the whole system, and how it is stored.

use super::bounds::{Bounds, MOST};
use super::client::{ClientId, Clients};
use super::link::{LinkId, Links};
use super::node::{NodeId, Nodes};

/// The state of all nodes, clients and links. All parts are numbers of states that are stored elsewhere, each
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) nodes: [NodeId; MOST],
    pub(super) clients: [ClientId; MOST],
    /// The link of each client to each node.
    pub(super) links: [[LinkId; MOST]; MOST],
    pub(super) left: Left,
}

/// How many faults may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) crashes: u8,
    pub(super) silences: u8,
    pub(super) breaks: u8,
    pub(super) copies: u8,
}

impl State {
    /// The first state.
    pub(super) fn new(bounds: &Bounds) -> Self {
        let Bounds { crashes, silences, breaks, copies, .. } = *bounds;
        Self {
            nodes: [Nodes::NEW; MOST],
            clients: [Clients::IDLE; MOST],
            links: [[Links::NEW; MOST]; MOST],
            left: Left { crashes, silences, breaks, copies },
        }
    }

    /// The number of words of a packed state.
    pub(super) fn words(bounds: &Bounds) -> usize {
        bounds.nodes + bounds.clients * (bounds.nodes + 1) + 1
    }

    /// Packs the state into words.
    pub(super) fn pack(&self, bounds: &Bounds, words: &mut Vec<u32>) {
        words.clear();
        words.extend_from_slice(&self.nodes[..bounds.nodes]);
        for client in 0..bounds.clients {
            words.push(self.clients[client]);
            words.extend_from_slice(&self.links[client][..bounds.nodes]);
        }
        let Left { crashes, silences, breaks, copies } = self.left;
        words.push(u32::from_le_bytes([crashes, silences, breaks, copies]));
    }

    /// Unpacks a state.
    pub(super) fn unpack(bounds: &Bounds, words: &[u32]) -> Self {
        let mut state = Self::new(bounds);
        let (nodes, rest) = words.split_at(bounds.nodes);
        state.nodes[..bounds.nodes].copy_from_slice(nodes);
        for (client, part) in rest.chunks_exact(bounds.nodes + 1).enumerate() {
            state.clients[client] = part[0];
            state.links[client][..bounds.nodes].copy_from_slice(&part[1..]);
        }
        let [crashes, silences, breaks, copies] = words.last().copied().unwrap_or_default().to_le_bytes();
        state.left = Left { crashes, silences, breaks, copies };
        state
    }
}

/// All permutations of `count` elements: where each of them goes.
pub(super) fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..count {
        let longer = |order: &Vec<usize>| {
            let places = (0..count).filter(|place| !order.contains(place)).collect::<Vec<_>>();
            let order = order.clone();
            places.into_iter().map(move |place| [&order[..], &[place]].concat())
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_as_it_was() {
        for (nodes, clients) in [(1, 1), (2, 3), (3, 2), (3, 3)] {
            let bounds = Bounds { crashes: 7, copies: 2, ..Bounds::of(nodes, clients) };
            let mut state = State::new(&bounds);
            state.nodes[nodes - 1] = 70_000;
            state.clients[clients - 1] = 5;
            state.links[clients - 1][nodes - 1] = 9;
            state.left.silences = 4;
            let mut words = Vec::new();
            state.pack(&bounds, &mut words);
            assert_eq!((words.len(), State::unpack(&bounds, &words)), (State::words(&bounds), state));
        }
    }

    #[test]
    fn every_order_is_there_once() {
        assert_eq!(orders(2), [[0, 1], [1, 0]]);
        let three = orders(3);
        let distinct: std::collections::HashSet<_> = three.iter().collect();
        assert_eq!((three.len(), distinct.len(), &three[0][..]), (6, 6, &[0, 1, 2][..]));
    }
}
