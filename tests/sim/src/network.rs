//! What becomes of a message.

use super::clocks::True;
use super::plan::Plan;
use fastrand::Rng;

/// One connection between a client and a node. Messages on it keep their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// A node tells connections apart.
    pub(super) id: u64,
    last_there: True,
    last_back: True,
    cut_there_until: True,
    cut_back_until: True,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the node.
    There,
    /// To the client.
    Back,
}

impl Connection {
    /// A connection on which nothing has been sent.
    #[must_use]
    pub(super) fn new(id: u64) -> Self {
        Self { id, last_there: 0, last_back: 0, cut_there_until: 0, cut_back_until: 0 }
    }

    /// Lets nothing through for a while.
    pub(super) fn cut(&mut self, way: Way, until: True) {
        match way {
            Way::There => self.cut_there_until = self.cut_there_until.max(until),
            Way::Back => self.cut_back_until = self.cut_back_until.max(until),
        }
    }

    /// Is made anew. What is on its way may still arrive, after what is sent from now on.
    pub(super) fn reconnect(&mut self, id: u64) {
        self.id = id;
        self.last_there = 0;
        self.last_back = 0;
    }

    /// When a message that is sent now arrives; `None` if it is lost.
    pub(super) fn arrival(&mut self, way: Way, now: True, plan: &Plan, chance: &mut Rng) -> Option<True> {
        let (last, cut_until) = match way {
            Way::There => (&mut self.last_there, self.cut_there_until),
            Way::Back => (&mut self.last_back, self.cut_back_until),
        };
        if now < cut_until || chance.u32(0..1000) < plan.lost {
            return None;
        }
        let arrival = (now + delay(plan, chance)).max(*last + 1);
        *last = arrival;
        Some(arrival)
    }
}

/// How long a message takes: mostly a fraction of a millisecond, sometimes longer than any lock lasts.
pub(super) fn delay(plan: &Plan, chance: &mut Rng) -> u64 {
    if chance.u32(0..1000) < plan.late {
        return chance.u64(0..=3 * plan.ttl_ms * 1_000);
    }
    let mut us = 40 + chance.u64(0..200);
    while chance.u32(0..10) == 0 {
        us *= 3;
    }
    us.min(plan.slowest_us)
}
