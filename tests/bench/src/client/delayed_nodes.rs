//! Nodes at a distance: behind a delay, as they are where they do not share a machine with their clients.

use std::time::Duration;

use super::Pair;
use super::delay::Delays;
use super::nodes::{ServerSets, url};
use super::runtime::BenchRuntime;

/// What lies between a client and a node in the same data centre.
pub(super) const NEAR: Duration = Duration::from_micros(500);

/// Delays before both kinds of some nodes.
pub(super) struct DelayedNodes {
    numbers: Vec<usize>,
    delays: Delays,
}

impl DelayedNodes {
    /// Puts a delay before each of these nodes.
    pub(super) fn start(nodes: &ServerSets, ways: impl IntoIterator<Item = (usize, Duration)>) -> Self {
        let ways: Vec<(usize, Duration)> = ways.into_iter().collect();
        let both = |(number, delay): &(usize, Duration)| nodes.ports(*number).map(|port| (*delay, port));
        let delays = Delays::start(&ways.iter().flat_map(both).collect::<Vec<_>>());
        Self { numbers: ways.into_iter().map(|(number, _)| number).collect(), delays }
    }

    /// The two contenders on a choice of nodes; those that no delay was put before are as near as ever.
    pub(super) fn pair(&self, stage: &BenchRuntime, nodes: &ServerSets, choice: &[usize]) -> Pair {
        let urls = |kind: usize| {
            let port = |number: &usize| match self.numbers.iter().position(|far| far == number) {
                Some(place) => self.delays.ports[2 * place + kind],
                None => nodes.ports(*number)[kind],
            };
            choice.iter().map(|number| url(port(number))).collect()
        };
        Pair::connect_to(stage, urls(0), urls(1))
    }
}
