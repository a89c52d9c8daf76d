//! When all is quiet again: nothing may be left, and everything must be had.

use super::{World, reply_of};
use crate::checks::Violation;
use crate::client::name;
use redlock_proto::{Drift, Event, Moment, NodeSet, Session};
use std::time::Duration;

impl World<'_> {
    /// When all is quiet: nothing may be left, everything must be had, and in one round from the second time on.
    pub(super) fn afterwards(&mut self) {
        // Longer than a lock lasts and a node waits, on the slowest clock.
        self.now += (self.plan.ttl_ms * 3 + 20) * 1_000;
        for node in 0..self.plan.nodes {
            for key in 0..self.plan.keys {
                let sim = &mut self.nodes[node];
                if sim.memory.exists(&name(key), sim.time.at(self.now)) {
                    self.checks.violations.push(Violation::Ghost { node, key });
                }
            }
        }
        for key in 0..self.plan.keys {
            for round in 0..2 {
                let Some(requests) = self.take_in_peace(key) else {
                    return self.checks.violations.push(Violation::NotFreeAgain { key });
                };
                if round > 0 && requests > self.plan.nodes {
                    let nodes = self.plan.nodes;
                    self.checks.violations.push(Violation::MoreThanOneRound { requests, nodes });
                }
            }
        }
    }

    /// Takes and frees a lock while every message arrives at once; tells how many requests it took.
    fn take_in_peace(&mut self, key: usize) -> Option<usize> {
        self.sessions += 1;
        let id = self.sessions;
        self.checks.began(id, &[key]);
        let owner = format!("{id:032x}");
        let now = Moment::on_one_clock(1);
        let ttl = Duration::from_millis(self.plan.ttl_ms.max(10));
        let (mut session, request) = Session::begin(self.quorum, Drift::default(), ttl, None, now);
        let mut requests = 0;
        let mut to_ask = vec![(request, NodeSet::first(self.plan.nodes))];
        while let Some((request, to)) = to_ask.pop() {
            for node in to.iter() {
                requests += usize::from(!request.is_release());
                let sim = &mut self.nodes[node];
                let at = sim.time.at(self.now);
                let said = request.with_words(&[name(key)], owner.as_bytes(), b"", |words| {
                    sim.memory.execute(words, u64::MAX, at)
                });
                match session.answered(node, &request, reply_of(said), now) {
                    Some(Event::Promote(request, to)) => to_ask.push((request, to)),
                    Some(Event::Held { fence }) => self.checks.held(id, &[key], fence, &[]),
                    Some(Event::Failed(_)) => return None,
                    _ => {}
                }
            }
            // What a real client would wait for a moment: here everybody has answered.
            if let Some(Event::Promote(request, to)) = session.woken(now) {
                to_ask.push((request, to));
            }
            if to_ask.is_empty() && session.fence().is_some() {
                to_ask.push(session.release(now));
            }
        }
        Some(requests)
    }
}
