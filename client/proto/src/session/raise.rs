//! Raising the number of a lock that is held.
//!
//! A lock may have to be held under the number of another one: when both stand for one resource, in two groups of
//! nodes. The rule is the same as for a number that is agreed on at first: a majority of the nodes must have
//! answered exactly the new number while they held the lock. Until then it is held under the old one.

use super::{Ask, Event, Over, Phase, Request, Session, is_within_reach};
use crate::{Moment, NodeSet};

/// A number on its way to the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raising {
    goal: u64,
    in_flight: NodeSet,
    /// When the client gives up. Every raise renews the lease of its node, so the leases set no end.
    until: Moment,
}

impl Session {
    /// Asks the nodes to hold the lock under a larger number, and for its time to live from now on. Ends with
    /// [`Event::Extended`] or [`Event::NotExtended`], as an extension does, and takes the place of one that is
    /// under way.
    ///
    /// # Errors
    /// When the lock is over.
    pub fn raise_to(&mut self, goal: u64, now: Moment) -> Result<(Request, NodeSet), Over> {
        // What can be said of an extension can be said of this.
        let (_, to) = self.extend(self.begun.ttl, now)?;
        self.extension = None;
        let until = now.plus(self.drift.lease(self.begun.ttl));
        self.raising = Some(Raising { goal, in_flight: to, until });
        Ok((Request { ask: Ask::Promote { fence: goal }, ttl: self.begun.ttl, sent: now }, to))
    }

    /// Goes on with raising after a node has answered, if that is what it was asked for.
    pub(super) fn attend_raising(&mut self, node: usize, asked: u64, now: Moment) -> Option<Event> {
        let Phase::Held { .. } = self.phase else { return None };
        let Raising { goal, until, .. } = self.raising.filter(|raising| raising.goal == asked)?;
        if self.is_held_under(goal, now) {
            self.phase = Phase::Held { fence: goal };
            self.raising = None;
            return Some(Event::Extended);
        }
        // A fence may take several commands to reach. A node that did not advance has failed by now.
        let is_on_its_way =
            |fence: u64| fence < goal && is_within_reach(fence, goal) && !now.has_reached(until);
        if self.ballot.vote(node).fence().is_some_and(is_on_its_way) {
            return Some(self.raise(goal, NodeSet::one(node), now));
        }
        let raising = self.raising.as_mut()?;
        raising.in_flight.remove(node);
        let in_flight = raising.in_flight;
        let can_count =
            |node: &usize| in_flight.contains(*node) || self.ballot.vote(*node).fence() == Some(goal);
        if self.quorum.is_reached_by((0..self.quorum.nodes()).filter(can_count).count()) {
            return None;
        }
        self.raising = None;
        Some(Event::NotExtended(self.ballot.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::{MAX_FENCE, RAISE_CAP, RAISE_STEP};
    use crate::{Drift, Failure, FailureKind, Quorum, Reply};
    use std::time::Duration;

    const TTL: Duration = Duration::from_millis(10_000);

    fn at(ms: u64) -> Moment {
        Moment::on_one_clock(ms * 1_000_000)
    }

    /// A lock that three nodes hold under these numbers, 0 for one that has not answered.
    fn held(numbers: [u64; 3]) -> Session {
        let (mut session, acquire) =
            Session::begin(Quorum::of(3).unwrap(), Drift::default(), TTL, None, at(0));
        for (node, number) in numbers.into_iter().enumerate().filter(|(_, number)| *number > 0) {
            session.answered(node, &acquire, Reply::Number(number), at(1));
        }
        assert!(session.fence().is_some());
        session
    }

    fn said(session: &mut Session, node: usize, request: &Request, number: u64) -> Option<Event> {
        session.answered(node, request, Reply::Number(number), at(3))
    }

    #[test]
    fn a_majority_of_exactly_that_number_raises() {
        let mut session = held([7, 7, 7]);
        let (request, to) = session.raise_to(40, at(2)).unwrap();
        assert_eq!((request.ask, to.len()), (Ask::Promote { fence: 40 }, 3));
        assert!(said(&mut session, 0, &request, 40).is_none());
        assert_eq!(session.fence(), Some(7), "one node is not enough");
        assert!(matches!(said(&mut session, 1, &request, 40), Some(Event::Extended)));
        assert_eq!(session.fence(), Some(40));
        assert!(said(&mut session, 2, &request, 40).is_none(), "told once");
        assert_eq!(
            session.valid_until().unwrap().nanoseconds().0,
            at(2 + 9_898).nanoseconds().0,
            "and extended"
        );
    }

    #[test]
    fn a_node_that_is_ahead_does_not_count() {
        let mut session = held([7, 7, 90]);
        let (request, _) = session.raise_to(40, at(2)).unwrap();
        assert!(said(&mut session, 2, &request, 90).is_none());
        assert!(said(&mut session, 0, &request, 40).is_none());
        assert_eq!(session.fence(), Some(7));
        let silent = Reply::Failed(Failure::new(FailureKind::Silent, ""));
        let event = session.answered(1, &request, silent, at(3));
        assert!(matches!(event, Some(Event::NotExtended(_))), "{event:?}");
        assert_eq!(session.fence(), Some(7), "still held as it was");
        // An answer that was late comes too late for whoever asked.
        assert!(said(&mut session, 1, &request, 40).is_none());
    }

    #[test]
    fn a_node_that_raises_in_steps_is_asked_again() {
        let goal = RAISE_CAP + 9 * RAISE_STEP;
        let mut session = held([7, 7, 0]);
        let (request, _) = session.raise_to(goal, at(2)).unwrap();
        for step in 0..9 {
            let event = said(&mut session, 0, &request, RAISE_CAP + step * RAISE_STEP);
            let Some(Event::Promote(again, to)) = event else { panic!("{event:?}") };
            assert_eq!((again.ask, to), (request.ask, NodeSet::one(0)));
        }
        assert!(said(&mut session, 0, &request, goal).is_none());
        // One that stands still, and one that is not there: it cannot be had.
        assert!(said(&mut session, 1, &request, 7).is_none(), "the third may still answer");
        let down = Reply::Failed(Failure::new(FailureKind::Down, ""));
        assert!(matches!(session.answered(2, &request, down, at(3)), Some(Event::NotExtended(_))));
    }

    #[test]
    fn nobody_is_asked_for_a_fence_out_of_reach() {
        let mut session = held([7, 7, 7]);
        let (request, _) = session.raise_to(MAX_FENCE, at(2)).unwrap();
        assert!(said(&mut session, 0, &request, RAISE_CAP).is_none());
        assert!(matches!(said(&mut session, 1, &request, RAISE_CAP), Some(Event::NotExtended(_))));
    }

    /// A broken node might advance by one step each time, and renew the lease with it.
    #[test]
    fn nodes_that_raise_for_longer_than_a_lease_are_given_up() {
        let mut session = held([7, 7, 7]);
        let (first, _) = session.raise_to(RAISE_CAP, at(2)).unwrap();
        let mut requests = [first; 3];
        let mut ms = 2;
        for step in 1..200 {
            for (node, request) in requests.iter_mut().enumerate() {
                ms += 100;
                match session.answered(node, request, Reply::Number(7 + step * RAISE_STEP), at(ms)) {
                    Some(Event::Promote(again, to)) => {
                        assert_eq!(to, NodeSet::one(node));
                        *request = again;
                    }
                    Some(Event::NotExtended(_)) => {
                        assert_eq!(session.fence(), Some(7), "still held as it was");
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
        let mut session = held([7, 7, 7]);
        let (request, _) = session.raise_to(40, at(2)).unwrap();
        assert!(session.answered(0, &request, Reply::Nil, at(3)).is_none());
        assert!(matches!(session.answered(1, &request, Reply::Nil, at(3)), Some(Event::Lost(_))));
        assert!(said(&mut session, 2, &request, 40).is_none());
        assert_eq!(session.fence(), None);
        assert!(session.raise_to(41, at(4)).is_err());
        assert!(held([7, 7, 7]).raise_to(40, at(20_000)).is_err(), "its time is up");
    }

    #[test]
    fn an_extension_takes_its_place() {
        let mut session = held([7, 7, 7]);
        let (raise, _) = session.raise_to(40, at(2)).unwrap();
        let (extend, _) = session.extend(TTL, at(3)).unwrap();
        assert!(said(&mut session, 0, &raise, 40).is_none());
        assert!(said(&mut session, 1, &raise, 40).is_none(), "nobody waits for it any more");
        assert!(said(&mut session, 0, &extend, 40).is_none());
        assert!(matches!(said(&mut session, 1, &extend, 40), Some(Event::Extended)));
        assert_eq!(session.fence(), Some(7), "and nobody was told another number");
    }
}
