//! Nodes behind a delay, as if they were on other machines than their clients.

use std::time::Duration;

use super::Pair;
use super::delay::Delays;
use super::nodes::{ServerSets, url};
use super::runtime::BenchRuntime;

/// The delay between a client and a node in the same data centre.
pub(super) const NEAR: Duration = Duration::from_micros(500);

/// Delays before some nodes, for the plain server and the server with the module.
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

    /// Connects the two contenders to these nodes; nodes without a delay are reached directly.
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
