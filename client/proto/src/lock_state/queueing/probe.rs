//! The probe: finds out which tickets hold the nodes that the client lacks.
//!
//! Two clients can be first at different nodes, so that neither gets a majority. A client with a minority of
//! grants therefore probes the other nodes, and yields its grants to an older ticket that lacks a majority as
//! well.

use crate::{LockReply, Moment, NodeSet, Quorum};
use std::time::Duration;

/// The shortest time after which a client with a minority of grants probes the other nodes. It exceeds
/// the time between the first and the last grant of one hand-off, even on busy machines.
const MIN_PROBE_DELAY: Duration = Duration::from_millis(10);
/// The longest such time.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(1);
/// The most doublings of the first delay, one for each earlier yield of the call: the client that it yielded to may be
/// gone.
const MAX_DOUBLINGS: u32 = 4;

/// Probes the nodes while the client has a minority of the grants.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    probe: Probe,
    /// How often earlier attempts of the same call have yielded.
    yields: u32,
}

#[derive(Clone, Debug)]
enum Probe {
    Idle,
    Scheduled {
        at: Moment,
        delay: Duration,
    },
    InFlight {
        /// The stamp of the round: replies to other rounds name the holders of another time.
        stamp: u64,
        /// The nodes that have not replied.
        unanswered: NodeSet,
        /// The tickets of the holders, as the nodes replied; 0 for a holder without a ticket.
        holders: Vec<u64>,
        /// When the client decides without the rest of the replies.
        by: Moment,
        /// How long the client waited before this probe.
        delay: Duration,
    },
}

/// What a client with a minority of grants does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeStep {
    Wait,
    Send,
    Yield,
}

impl Prober {
    pub(super) fn new() -> Self {
        Self { probe: Probe::Idle, yields: 0 }
    }

    pub(super) fn set_yields(&mut self, times: u32) {
        self.yields = times;
    }

    /// Forgets the probe: the client has no grants, or a majority of them.
    pub(super) fn cancel(&mut self) {
        self.probe = Probe::Idle;
    }

    /// Decides what a client with a minority of grants does now.
    pub(super) fn step(
        &mut self,
        own_ticket: u64,
        quorum: Quorum,
        round_trip: Option<Duration>,
        now: Moment,
    ) -> ProbeStep {
        let delay = match &self.probe {
            Probe::Idle => self.first_delay(round_trip),
            Probe::Scheduled { at, .. } if now.has_reached(*at) => return ProbeStep::Send,
            Probe::InFlight { unanswered, holders, by, delay, .. }
                if unanswered.is_empty() || now.has_reached(*by) =>
            {
                if older_ticket_lacks_majority(holders, own_ticket, quorum) {
                    return ProbeStep::Yield;
                }
                delay.saturating_mul(2).min(MAX_PROBE_DELAY)
            }
            _ => return ProbeStep::Wait,
        };
        self.probe = Probe::Scheduled { at: now.plus(delay), delay };
        ProbeStep::Wait
    }

    /// Notes that the round with this stamp went to these nodes as a probe.
    pub(super) fn note_sent(&mut self, stamp: u64, to: NodeSet, now: Moment) {
        if let Probe::Scheduled { delay, .. } = self.probe {
            let by = now.plus(delay);
            self.probe = Probe::InFlight { stamp, unanswered: to, holders: Vec::new(), by, delay };
        }
    }

    /// Notes the reply of a node to the round with this stamp.
    pub(super) fn note_reply(&mut self, node: usize, stamp: u64, reply: &LockReply) {
        if let Probe::InFlight { stamp: probed, unanswered, holders, .. } = &mut self.probe
            && *probed == stamp
        {
            unanswered.remove(node);
            if let LockReply::Queued { ticket, .. } = reply {
                holders.push(*ticket);
            }
        }
    }

    /// When there is something to do.
    pub(super) fn timeout(&self) -> Option<Moment> {
        match &self.probe {
            Probe::Idle => None,
            Probe::Scheduled { at, .. } => Some(*at),
            Probe::InFlight { by, .. } => Some(*by),
        }
    }

    /// Four round trips, and longer for every earlier yield.
    fn first_delay(&self, round_trip: Option<Duration>) -> Duration {
        let four = round_trip.unwrap_or_default().saturating_mul(4).clamp(MIN_PROBE_DELAY, MAX_PROBE_DELAY);
        four.saturating_mul(1 << self.yields.min(MAX_DOUBLINGS)).min(MAX_PROBE_DELAY)
    }
}

/// Whether an older ticket holds some nodes but no majority: then this client yields to it. A holder with a
/// majority needs no node of this client. A holder without a ticket does not queue.
fn older_ticket_lacks_majority(holders: &[u64], own_ticket: u64, quorum: Quorum) -> bool {
    let has = |ticket: u64| holders.iter().filter(|holder| **holder == ticket).count();
    let is_older = |ticket: u64| ticket > 0 && ticket < own_ticket;
    holders.iter().any(|ticket| is_older(*ticket) && !quorum.is_reached_by(has(*ticket)))
}
