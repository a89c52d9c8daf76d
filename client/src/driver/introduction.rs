//! The first moments of a driver, in which the client learns which node answers at each address.
//!
//! Two addresses may lead to one node. The client finds that out when it has read the identity at both. Attempts begin
//! when every node has identified itself or failed to connect. The client waits for the remaining nodes only as long
//! again as the majority took: at least 20 ms, at most the node timeout.

use super::timers::sooner;
use redlock_proto::{Moment, Quorum};
use std::time::Duration;

/// The client waits at least this long for the other nodes, after a majority has answered.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// Whether the client still waits for the first handshakes.
#[derive(Debug)]
pub(super) struct Introduction {
    quorum: Quorum,
    longest_wait: Duration,
    /// When the client began to connect.
    began: Option<Moment>,
    /// When the client stops waiting; `None` until a majority has answered.
    ends: Option<Moment>,
    has_ended: bool,
}

impl Introduction {
    /// `longest_wait` bounds the wait after a majority has answered.
    pub(super) fn new(quorum: Quorum, longest_wait: Duration) -> Self {
        Self { quorum, longest_wait, began: None, ends: None, has_ended: false }
    }

    /// Whether attempts may begin.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Notes how many nodes have identified themselves, and how many have failed to connect.
    pub(super) fn update(&mut self, identified: usize, failed: usize, now: Moment) {
        if self.has_ended {
            return;
        }
        let (began, nodes) = (*self.began.get_or_insert(now), self.quorum.nodes());
        let is_decided =
            self.quorum.is_reached_by(identified) || !self.quorum.is_reached_by(nodes.saturating_sub(failed));
        if is_decided {
            let wait = now.since(began).max(SHORTEST_WAIT).min(self.longest_wait);
            self.ends.get_or_insert(now.plus(wait));
        }
        let is_over = self.ends.is_some_and(|ends| now.has_reached(ends));
        self.has_ended = is_over || identified + failed >= nodes;
    }

    /// The earlier of this moment and the moment at which the client stops waiting.
    pub(super) fn or_earlier(&self, moment: Option<Moment>) -> Option<Moment> {
        sooner(moment, self.ends.filter(|_| !self.has_ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_millis(250);

    fn at(ms: u64) -> Moment {
        Moment::on_one_clock(1_000_000_000 + ms * 1_000_000)
    }

    /// The moment in milliseconds, and how many nodes have identified themselves and have failed by then.
    type Step = (u64, usize, usize);

    /// When the introduction of five nodes ends.
    fn ends(steps: &[Step]) -> Option<u64> {
        let mut introduction = Introduction::new(Quorum::of(5)?, LONGEST);
        for (place, (ms, identified, failed)) in steps.iter().enumerate() {
            let until = steps.get(place + 1).map_or(ms + 1_000, |(next, _, _)| *next);
            for now in *ms..until {
                introduction.update(*identified, *failed, at(now));
                if introduction.has_ended() {
                    assert_eq!(introduction.or_earlier(None), None);
                    return Some(now);
                }
            }
        }
        None
    }

    #[test]
    fn the_client_waits_for_all_nodes_but_not_long_for_the_last() {
        let table: [(&[Step], Option<u64>); 7] = [
            (&[(0, 0, 0), (3, 5, 0)], Some(3)),
            (&[(0, 0, 0), (3, 3, 0), (5, 4, 1)], Some(5)),
            // A node hangs. A near majority does not wait for the last node, a far one as long again.
            (&[(0, 0, 0), (3, 4, 0)], Some(23)),
            (&[(0, 0, 0), (60, 3, 0), (70, 4, 0)], Some(120)),
            (&[(0, 0, 0), (900, 4, 0)], Some(1_150)),
            // A majority is impossible: the call fails soon.
            (&[(0, 0, 0), (4, 1, 3)], Some(24)),
            // No majority has answered yet: the call needs one of the others anyway.
            (&[(0, 0, 0), (4, 2, 2)], None),
        ];
        for (steps, expected) in table {
            assert_eq!(ends(steps), expected, "{steps:?}");
        }
    }
}
