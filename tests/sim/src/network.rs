//! Delay and loss of messages.

use super::clocks::TrueTime;
use super::plan::Plan;
use fastrand::Rng;

/// One connection between a client and a node. Messages on it keep their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// The id by which the node distinguishes connections.
    pub(super) id: u64,
    last_there: TrueTime,
    last_back: TrueTime,
    cut_there_until: TrueTime,
    cut_back_until: TrueTime,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkDirection {
    /// To the node.
    ToNode,
    /// To the client.
    ToClient,
}

impl Connection {
    /// A connection on which nothing has been sent.
    #[must_use]
    pub(super) fn new(id: u64) -> Self {
        Self { id, last_there: 0, last_back: 0, cut_there_until: 0, cut_back_until: 0 }
    }

    /// Drops all messages in one direction until then.
    pub(super) fn cut(&mut self, direction: LinkDirection, until: TrueTime) {
        match direction {
            LinkDirection::ToNode => self.cut_there_until = self.cut_there_until.max(until),
            LinkDirection::ToClient => self.cut_back_until = self.cut_back_until.max(until),
        }
    }

    /// Reconnects. Messages in flight may still arrive, after messages that are sent from now on.
    pub(super) fn reconnect(&mut self, id: u64) {
        self.id = id;
        self.last_there = 0;
        self.last_back = 0;
    }

    /// When a message that is sent now arrives; `None` if it is lost.
    pub(super) fn arrival(
        &mut self,
        direction: LinkDirection,
        now: TrueTime,
        plan: &Plan,
        chance: &mut Rng,
    ) -> Option<TrueTime> {
        let (last, cut_until) = match direction {
            LinkDirection::ToNode => (&mut self.last_there, self.cut_there_until),
            LinkDirection::ToClient => (&mut self.last_back, self.cut_back_until),
        };
        if now < cut_until || chance.u32(0..1000) < plan.lost {
            return None;
        }
        let arrival = (now + delay(plan, chance)).max(*last + 1);
        *last = arrival;
        Some(arrival)
    }
}

/// The delay of a message in microseconds: mostly a fraction of a millisecond, sometimes longer than any
/// lease.
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
