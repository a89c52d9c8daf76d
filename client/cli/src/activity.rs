//! How many requests the nodes receive: rates between two reports, and their history over the last minutes.

use crate::group_report::NodeReport;
use redlock_contract::fields::counter;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How much time the history covers.
pub(crate) const COVERS: Duration = Duration::from_secs(10 * 60);

/// The counters of the nodes, and when they were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterSample<'a> {
    pub(crate) nodes: &'a [NodeReport],
    pub(crate) taken: Instant,
}

/// Requests per second by outcome, summed over all nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) grants: f64,
    pub(crate) refusals: f64,
    pub(crate) waits: f64,
    pub(crate) handoffs: f64,
}

impl Rates {
    /// The rates between two samples, from the nodes that showed their counters both times. `None` if there is no such
    /// node, or no time has passed.
    pub(crate) fn between(before: &CounterSample<'_>, now: &CounterSample<'_>) -> Option<Self> {
        let seconds = now.taken.saturating_duration_since(before.taken).as_secs_f64();
        let rate = |name: &str| {
            let each = before.nodes.iter().zip(now.nodes).filter_map(|(before, now)| {
                let (before, now) = (before.numbers.get(name)?, now.numbers.get(name)?);
                // After a restart, a node counts from 0 again.
                Some(now.checked_sub(*before).unwrap_or(*now))
            });
            let total = each.fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0) + count));
            total.filter(|_| seconds > 0.0).map(|count| per_second(count, seconds))
        };
        Some(Self {
            grants: rate(counter::GRANTS)?,
            refusals: rate(counter::REFUSALS)?,
            waits: rate(counter::WAITS)?,
            handoffs: rate(counter::HANDOFFS)?,
        })
    }

    /// The percentage of acquires that found the lock held.
    pub(crate) fn contention(&self) -> f64 {
        let (refused, all) = (self.refusals + self.waits, self.grants + self.refusals + self.waits);
        if all > 0.0 { refused / all * 100.0 } else { 0.0 }
    }
}

#[allow(clippy::cast_precision_loss, reason = "people do not need more than 52 bits")]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// The rates of the last minutes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RateHistory {
    last: Option<(Instant, Vec<NodeReport>)>,
    rates: VecDeque<(Instant, Rates)>,
}

impl RateHistory {
    /// Adds the rates since the last reports, and forgets those that are too old.
    pub(crate) fn add(&mut self, taken: Instant, nodes: Vec<NodeReport>) {
        let now = CounterSample { nodes: &nodes, taken };
        let before = self.last.as_ref().map(|(taken, nodes)| CounterSample { nodes, taken: *taken });
        if let Some(rates) = before.and_then(|before| Rates::between(&before, &now)) {
            self.rates.push_back((taken, rates));
        }
        let is_old = |entry: &&(Instant, Rates)| taken.saturating_duration_since(entry.0) > COVERS;
        while self.rates.front().filter(is_old).is_some() {
            self.rates.pop_front();
        }
        self.last = Some((taken, nodes));
    }

    pub(crate) fn json(&self, now: Instant) -> Value {
        let each = self.rates.iter().map(|(taken, rates)| {
            json!({
                "age_s": now.saturating_duration_since(*taken).as_secs_f64(),
                "grants": rates.grants,
                "refusals": rates.refusals,
                "waits": rates.waits,
                "handoffs": rates.handoffs,
                "contention": rates.contention(),
            })
        });
        json!({"covers_s": COVERS.as_secs(), "rates": each.collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_client::NodeState;

    /// A node that has granted this many locks.
    fn node(grants: u64) -> NodeReport {
        NodeReport {
            node: "a:1".into(),
            state: Ok(NodeState::default()),
            latency: Duration::ZERO,
            numbers: [counter::GRANTS, counter::REFUSALS, counter::WAITS, counter::HANDOFFS]
                .map(|name| (name.to_owned(), grants))
                .into(),
            server: None,
        }
    }

    #[test]
    fn contention_is_the_percentage_of_acquires_that_found_the_lock_held() {
        let rates = Rates { grants: 60.0, refusals: 30.0, waits: 10.0, handoffs: 5.0 };
        assert!((rates.contention() - 40.0).abs() < 1e-9);
        let idle = Rates { grants: 0.0, refusals: 0.0, waits: 0.0, handoffs: 0.0 };
        assert!(idle.contention().abs() < 1e-9);
    }

    #[test]
    fn the_history_has_a_rate_between_two_reports_and_forgets_old_ones() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut history = RateHistory::default();
        let grants = |history: &RateHistory, now| -> Vec<f64> {
            let json = history.json(now);
            json["rates"]
                .as_array()
                .expect("rates")
                .iter()
                .filter_map(|rate| rate["grants"].as_f64())
                .collect()
        };
        history.add(at(0), vec![node(100), node(100)]);
        assert!(grants(&history, at(0)).is_empty(), "one report is no rate");
        history.add(at(10), vec![node(110), node(120)]);
        // One node has restarted, and has counted to 5 since.
        history.add(at(20), vec![node(5), node(120)]);
        assert_eq!(grants(&history, at(20)), [3.0, 0.5]);
        history.add(at(10 + COVERS.as_secs() + 1), vec![node(5), node(120)]);
        assert_eq!(grants(&history, at(700)), [0.5, 0.0]);
        // A node that shows no counters is not a node without requests.
        let mute = NodeReport { numbers: [].into(), ..node(0) };
        history.add(at(612), vec![mute.clone(), mute]);
        assert_eq!(grants(&history, at(612)), [0.5, 0.0]);
    }
}
