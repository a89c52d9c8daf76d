//! Raising the number of a lock that is held.
//!
//! A lock may have to be held under the number of another one: when both stand for one resource, in two groups of
//! nodes. The rule is the same as for a number that is agreed on at first: a majority of the nodes must have
//! answered exactly the new number while they held the lock. Until then it is held under the old one.

use super::{Event, LockState, Over, Phase, is_within_reach};
use crate::{Moment, NodeSet};

/// A number on its way to the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raising {
    goal: u64,
    in_flight: NodeSet,
    /// When the client gives up. Every raise renews the lease of its node, so the leases set no end.
    until: Moment,
}

impl LockState {
    /// Asks the nodes to hold the lock under a larger number, and for its time to live from now on. Ends with
    /// [`Event::Extended`] or [`Event::NotExtended`], as an extension does, and takes the place of one that is
    /// under way.
    ///
    /// # Errors
    /// When the lock is over.
    pub fn raise_fence(&mut self, goal: u64, now: Moment) -> Result<(), Over> {
        // What can be said of an extension can be said of this.
        self.extend(self.begun.ttl, now)?;
        self.extension = None;
        let until = now.plus(self.drift.lease(self.begun.ttl));
        self.raising = Some(Raising { goal, in_flight: self.maybe_held, until });
        self.send_raise(goal, self.maybe_held, now);
        Ok(())
    }

    /// Goes on with raising after a node has answered, if that is what it was asked for.
    pub(super) fn continue_held_raise(&mut self, node: usize, asked: u64, now: Moment) {
        let Phase::Held { .. } = self.phase else { return };
        let Some(Raising { goal, until, .. }) = self.raising.filter(|raising| raising.goal == asked) else {
            return;
        };
        if self.is_held_under(goal, now) {
            self.phase = Phase::Held { fence: goal };
            self.raising = None;
            return self.emit(Event::Extended);
        }
        // A fence may take several commands to reach. A node that did not advance has failed by now.
        let is_on_its_way =
            |fence: u64| fence < goal && is_within_reach(fence, goal) && !now.has_reached(until);
        if self.ballot.vote(node).fence().is_some_and(is_on_its_way) {
            return self.send_raise(goal, NodeSet::one(node), now);
        }
        let Some(raising) = self.raising.as_mut() else { return };
        raising.in_flight.remove(node);
        let in_flight = raising.in_flight;
        let can_count =
            |node: &usize| in_flight.contains(*node) || self.ballot.vote(*node).fence() == Some(goal);
        if !self.quorum.is_reached_by((0..self.quorum.nodes()).filter(can_count).count()) {
            self.raising = None;
            self.emit(Event::NotExtended(self.ballot.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Output;
    use super::super::{Ask, Request, Transmit};
    use super::*;
    use crate::{Drift, Failure, FailureKind, Quorum, Reply};
    use redlock_contract::limits::{MAX_FENCE, RAISE_CAP, RAISE_STEP};
    use std::time::Duration;

    const TTL: Duration = Duration::from_millis(10_000);

    fn at(ms: u64) -> Moment {
        Moment::on_one_clock(ms * 1_000_000)
    }

    /// A lock that three nodes hold under these numbers, 0 for one that has not answered.
    fn held(numbers: [u64; 3]) -> LockState {
        let (mut lock, acquire) =
            LockState::begin(Quorum::of(3).unwrap(), Drift::default(), TTL, None, at(0));
        for (node, number) in numbers.into_iter().enumerate().filter(|(_, number)| *number > 0) {
            lock.on_reply(node, &acquire, Reply::Number(number), at(1));
        }
        assert!(lock.fence().is_some());
        lock
    }

    fn said(lock: &mut LockState, node: usize, request: &Request, number: u64) -> Option<Output> {
        lock.on_reply(node, request, Reply::Number(number), at(3))
    }

    #[test]
    fn a_majority_of_exactly_that_number_raises() {
        let mut lock = held([7, 7, 7]);
        let (request, to) = lock.on_raise(40, at(2)).unwrap();
        assert_eq!((request.ask, to.len()), (Ask::RaiseFence { fence: 40 }, 3));
        assert!(said(&mut lock, 0, &request, 40).is_none());
        assert_eq!(lock.fence(), Some(7), "one node is not enough");
        assert!(matches!(said(&mut lock, 1, &request, 40), Some(Output::Event(Event::Extended))));
        assert_eq!(lock.fence(), Some(40));
        assert!(said(&mut lock, 2, &request, 40).is_none(), "told once");
        assert_eq!(
            lock.valid_until().unwrap().nanoseconds().0,
            at(2 + 9_898).nanoseconds().0,
            "and extended"
        );
    }

    #[test]
    fn a_node_that_is_ahead_does_not_count() {
        let mut lock = held([7, 7, 90]);
        let (request, _) = lock.on_raise(40, at(2)).unwrap();
        assert!(said(&mut lock, 2, &request, 90).is_none());
        assert!(said(&mut lock, 0, &request, 40).is_none());
        assert_eq!(lock.fence(), Some(7));
        let silent = Reply::Failed(Failure::new(FailureKind::Silent, ""));
        let event = lock.on_reply(1, &request, silent, at(3));
        assert!(matches!(event, Some(Output::Event(Event::NotExtended(_)))), "{event:?}");
        assert_eq!(lock.fence(), Some(7), "still held as it was");
        // An answer that was late comes too late for whoever asked.
        assert!(said(&mut lock, 1, &request, 40).is_none());
    }

    #[test]
    fn a_node_that_raises_in_steps_is_asked_again() {
        let goal = RAISE_CAP + 9 * RAISE_STEP;
        let mut lock = held([7, 7, 0]);
        let (request, _) = lock.on_raise(goal, at(2)).unwrap();
        for step in 0..9 {
            let event = said(&mut lock, 0, &request, RAISE_CAP + step * RAISE_STEP);
            let Some(Output::Transmit(Transmit { request: again, to })) = event else { panic!("{event:?}") };
            assert_eq!((again.ask, to), (request.ask, NodeSet::one(0)));
        }
        assert!(said(&mut lock, 0, &request, goal).is_none());
        // One that stands still, and one that is not there: it cannot be had.
        assert!(said(&mut lock, 1, &request, 7).is_none(), "the third may still answer");
        let down = Reply::Failed(Failure::new(FailureKind::Down, ""));
        assert!(matches!(
            lock.on_reply(2, &request, down, at(3)),
            Some(Output::Event(Event::NotExtended(_)))
        ));
    }

    #[test]
    fn nobody_is_asked_for_a_fence_out_of_reach() {
        let mut lock = held([7, 7, 7]);
        let (request, _) = lock.on_raise(MAX_FENCE, at(2)).unwrap();
        assert!(said(&mut lock, 0, &request, RAISE_CAP).is_none());
        assert!(matches!(
            said(&mut lock, 1, &request, RAISE_CAP),
            Some(Output::Event(Event::NotExtended(_)))
        ));
    }

    /// A broken node might advance by one step each time, and renew the lease with it.
    #[test]
    fn nodes_that_raise_for_longer_than_a_lease_are_given_up() {
        let mut lock = held([7, 7, 7]);
        let (first, _) = lock.on_raise(RAISE_CAP, at(2)).unwrap();
        let mut requests = [first; 3];
        let mut ms = 2;
        for step in 1..200 {
            for (node, request) in requests.iter_mut().enumerate() {
                ms += 100;
                match lock.on_reply(node, request, Reply::Number(7 + step * RAISE_STEP), at(ms)) {
                    Some(Output::Transmit(Transmit { request: again, to })) => {
                        assert_eq!(to, NodeSet::one(node));
                        *request = again;
                    }
                    Some(Output::Event(Event::NotExtended(_))) => {
                        assert_eq!(lock.fence(), Some(7), "still held as it was");
                        assert!((9_900..10_300).contains(&ms), "after one lease, not after {ms} ms");
                        return;
                    }
                    other => assert!(other.is_none() && ms > 9_900, "{ms} ms: {other:?}"),
                }
            }
        }
        panic!("it goes on and on");
    }

    #[test]
    fn what_is_over_is_not_raised() {
        let mut lock = held([7, 7, 7]);
        let (request, _) = lock.on_raise(40, at(2)).unwrap();
        assert!(lock.on_reply(0, &request, Reply::Nil, at(3)).is_none());
        assert!(matches!(lock.on_reply(1, &request, Reply::Nil, at(3)), Some(Output::Event(Event::Lost(_)))));
        assert!(said(&mut lock, 2, &request, 40).is_none());
        assert_eq!(lock.fence(), None);
        assert!(lock.on_raise(41, at(4)).is_err());
        assert!(held([7, 7, 7]).on_raise(40, at(20_000)).is_err(), "its time is up");
    }

    #[test]
    fn an_extension_takes_its_place() {
        let mut lock = held([7, 7, 7]);
        let (raise, _) = lock.on_raise(40, at(2)).unwrap();
        let (extend, _) = lock.on_extend(TTL, at(3)).unwrap();
        assert!(said(&mut lock, 0, &raise, 40).is_none());
        assert!(said(&mut lock, 1, &raise, 40).is_none(), "nobody waits for it any more");
        assert!(said(&mut lock, 0, &extend, 40).is_none());
        assert!(matches!(said(&mut lock, 1, &extend, 40), Some(Output::Event(Event::Extended))));
        assert_eq!(lock.fence(), Some(7), "and nobody was told another number");
    }
}
