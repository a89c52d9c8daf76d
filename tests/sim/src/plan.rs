//! The parameters of a history: nodes, clients, and how many faults of each kind.

use super::Weakness;
use fastrand::Rng;
use redlock_core::durable::SHORT_LEASE_MS;
use std::fmt;

/// Everything that is decided before a history begins. The seed decides the rest.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all random decisions.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of clients that compete.
    pub clients: usize,
    /// The number of keys that they compete for.
    pub keys: usize,
    /// The time to live that clients request, in milliseconds.
    pub ttl_ms: u64,
    /// Clients begin new attempts until this time, in milliseconds.
    pub horizon_ms: u64,
    /// How many messages of a thousand are lost.
    pub lost: u32,
    /// How many messages of a thousand arrive twice.
    pub repeated: u32,
    /// How many messages of a thousand are late, by up to three times the time to live.
    pub late: u32,
    /// How many times a node loses its memory.
    pub crashes: u32,
    /// How many times a node stalls.
    pub stalls: u32,
    /// How many times messages are cut between a client and a node, in one direction or both, or between one
    /// of them and all others.
    pub cuts: u32,
    /// How many times a connection breaks and is established again, while messages in flight still arrive.
    pub breaks: u32,
    /// How many times a client pauses, or its whole machine sleeps.
    pub pauses: u32,
    /// How many times the wall clock of a client jumps.
    pub jumps: u32,
    /// How many times a server dies while it stores its state.
    pub torn: u32,
    /// How many times a replica is promoted, or started as a master.
    pub failovers: u32,
    /// How many times files of a server are lost, copied, or replaced by older ones.
    pub restores: u32,
    /// How many times a client reaches another node at the address of a node.
    pub strays: u32,
    /// How many times a hostile client raises the fence of its own key as far as it can.
    pub raises: u32,
    /// The time to live of some locks, in milliseconds; 0 if all locks use `ttl_ms`.
    pub long_ms: u64,
    /// The error of clock rates, in parts per million to either side.
    pub clock_ppm: u32,
    /// Whether about half of the attempts on one key ask for a shared lock.
    pub shares: bool,
    /// Whether clients queue for locks that are held.
    pub waits: bool,
    /// Whether pushes come on connections of their own, as they do if the connections for requests use RESP2:
    /// then pushes and replies overtake each other. These connections are cut, and break, as often as the
    /// others.
    pub separate_pushes: bool,
    /// The claim window of the nodes, in milliseconds.
    pub claim_ms: u64,
    /// The longest delay of a message that is not late, in microseconds.
    pub slowest_us: u64,
    /// A rule that a test disables on purpose.
    pub weakness: Weakness,
}

/// The largest clock error that the drift of one percent and two milliseconds covers, half of it on each
/// side.
const WITHIN_DRIFT_PPM: u32 = 4_900;

/// The shortest claim window with which waiters are served in the order of their tickets.
///
/// An abandoned lock ends on each node by the clock of that node, and a released lock when the message
/// arrives there. Nodes that two clients share are not probed for ten milliseconds. So the next waiter gets
/// the lock from the last node late, and until then the first node must reserve the lock for it.
const LEAST_ORDERLY_CLAIM_MS: u64 = 40;

impl Plan {
    /// The plan of a seed. Most plans have a few kinds of faults, some have all of them, some none.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        let mut some = |most: u32| if chance.bool() { chance.u32(0..=most) } else { 0 };
        let (lost, repeated, late) = (some(100), some(50), some(50));
        let (crashes, stalls, cuts, breaks, pauses) = (some(4), some(3), some(6), some(6), some(4));
        let wild = chance.u32(0..8) == 0;
        let plan = Self {
            seed,
            nodes: [1, 2, 3, 3, 3, 3, 4, 5, 5, 7][chance.usize(0..10)],
            clients: chance.usize(2..=4),
            keys: chance.usize(1..=2),
            ttl_ms: [50, 200, 1_000][chance.usize(0..3)],
            horizon_ms: 0,
            lost,
            repeated,
            late,
            crashes,
            stalls,
            cuts,
            breaks,
            pauses,
            jumps: 0,
            torn: 0,
            failovers: 0,
            restores: 0,
            strays: 0,
            raises: 0,
            long_ms: 0,
            // Not drawn from `chance`, so that the histories without shared locks stay as they were.
            shares: Rng::with_seed(seed ^ 0x5a1e_d10c).u32(0..3) == 0,
            clock_ppm: if wild { 200_000 } else { WITHIN_DRIFT_PPM },
            waits: chance.bool(),
            separate_pushes: false,
            claim_ms: [5, 20, 100][chance.usize(0..3)],
            slowest_us: u64::MAX,
            weakness: Weakness::None,
        };
        let jumps = if chance.bool() { chance.u32(1..=4) } else { 0 };
        let horizon_ms = plan.ttl_ms * 5;
        let is_calm = chance.u32(0..20) == 0;
        let separate_pushes = chance.bool();
        let plan = if is_calm { plan.calm() } else { Self { jumps, ..plan } };
        let plan = Self { horizon_ms, separate_pushes: plan.waits && separate_pushes, ..plan };
        if is_calm { plan } else { plan.with_lost_identities(&mut chance) }
    }

    /// The same plan, with servers that lose their identity in one history of three, and with long leases in
    /// one of sixteen.
    fn with_lost_identities(self, chance: &mut Rng) -> Self {
        let happens = chance.u32(0..3) == 0;
        let mut some = |most: u32| if happens && chance.bool() { chance.u32(1..=most) } else { 0 };
        let (failovers, restores, strays) = (some(3), some(3), some(3));
        let (torn, raises) = (some(3), some(3));
        let plan = Self { torn, failovers, restores, strays, raises, ..self };
        let plan = if chance.u32(0..16) == 0 { plan.with_long_leases() } else { plan };
        plan.within_promises()
    }

    /// The same plan, with some leases that are long enough for a node to lower its longest lease again. No
    /// client queues: a waiter would refresh its position every few milliseconds, for minutes.
    fn with_long_leases(self) -> Self {
        let ttl_ms = SHORT_LEASE_MS / 2;
        let (horizon_ms, long_ms) = (8 * ttl_ms, 8 * ttl_ms);
        Self { ttl_ms, horizon_ms, long_ms, waits: false, separate_pushes: false, ..self }
    }

    /// The same plan, within the documented promises. The wait before an admission needs clocks that keep
    /// their rates.
    fn within_promises(mut self) -> Self {
        if self.failovers + self.restores > 0 {
            self.clock_ppm = self.clock_ppm.min(WITHIN_DRIFT_PPM);
        }
        self
    }

    /// The longest time to live that a client requests, in milliseconds.
    #[must_use]
    pub fn longest_ms(&self) -> u64 {
        self.ttl_ms.max(self.long_ms)
    }

    /// The same plan without faults, and with a queue for its only lock. It shows whether waiters are served
    /// in order.
    fn calm(self) -> Self {
        Self {
            claim_ms: self.claim_ms.max(LEAST_ORDERLY_CLAIM_MS),
            slowest_us: 1_000,
            clients: self.clients + 2,
            keys: 1,
            lost: 0,
            repeated: 0,
            late: 0,
            crashes: 0,
            stalls: 0,
            cuts: 0,
            breaks: 0,
            pauses: 0,
            jumps: 0,
            torn: 0,
            failovers: 0,
            restores: 0,
            strays: 0,
            raises: 0,
            long_ms: 0,
            clock_ppm: WITHIN_DRIFT_PPM,
            waits: true,
            ..self
        }
    }

    /// The same plan with a rule disabled.
    #[must_use]
    pub fn with(mut self, weakness: Weakness) -> Self {
        self.weakness = weakness;
        // With queues, the same bug makes locks that last no time, and other checks find those first.
        self.waits &= weakness != Weakness::LargestFenceTaken;
        self.separate_pushes &= self.waits;
        match weakness {
            // The bug needs two crashes of one node in a row.
            Weakness::WaitForgotten => (self.nodes, self.crashes) = (1, 6),
            Weakness::LeapAfterPromotion => (self.nodes, self.failovers) = (3, 3),
            Weakness::PromotedWaitsForHeardLeases
            | Weakness::OldMasterVotesOn
            | Weakness::RestartedReplicaVotes
            | Weakness::AdmittedBesideOld => (self.nodes, self.failovers) = (3, self.failovers.max(1)),
            // The asked nodes have crashed, or were not reached.
            Weakness::AdmittedAfterKnownLeases => {
                (self.nodes, self.failovers, self.crashes, self.lost) = (3, 2, 6, 150);
            }
            // The old master has restarted more often than the others, and answers until the operator stops
            // it.
            Weakness::AdmittedAboveEarlierMarks => {
                (self.nodes, self.failovers, self.crashes, self.torn) = (3, 2, 4, 3);
            }
            Weakness::AdmittedAboveOneNode => (self.nodes, self.failovers, self.crashes) = (3, 2, 4),
            Weakness::AdmittedAboveTheHighest => (self.nodes, self.failovers, self.raises) = (3, 2, 2),
            Weakness::OlderDataTaken | Weakness::OtherPortIsNew => self.restores = 3,
            Weakness::CopyTaken => (self.nodes, self.restores) = (3, 3),
            Weakness::AnyNodeTaken => (self.nodes, self.restores, self.strays) = (3, 2, 2),
            Weakness::OneHighWaterMark => (self.nodes, self.crashes, self.raises) = (1, 4, 2),
            Weakness::LongestLeaseKept => self = self.with_long_leases(),
            Weakness::LongestLeaseLoweredEarly => {
                self = Self { nodes: 1, crashes: 2, ..self.with_long_leases() };
            }
            Weakness::StoredAfterGrant | Weakness::FileNotSynced | Weakness::FolderNotSynced => {
                self.crashes = self.crashes.max(2);
            }
            _ => {}
        }
        self.within_promises()
    }

    /// Whether every clock keeps its rate within what the drift covers.
    #[must_use]
    pub fn clocks_are_within_bounds(&self) -> bool {
        self.clock_ppm <= WITHIN_DRIFT_PPM
    }

    /// Whether the plan has no faults: then waiters are served in order.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let messages = [self.lost, self.repeated, self.late];
        let faults = [self.crashes, self.stalls, self.cuts, self.breaks, self.pauses, self.jumps];
        let identities = [self.torn, self.failovers, self.restores, self.strays, self.raises];
        let mut faults = messages.iter().chain(&faults).chain(&identities);
        faults.all(|fault| *fault == 0) && self.clocks_are_within_bounds()
    }

    /// The same plan with fewer faults, one variant for each step by which it can be simpler.
    #[must_use]
    pub fn simpler(&self) -> Vec<Self> {
        type Knob = fn(&mut Plan) -> &mut u32;
        let knobs: [Knob; 14] = [
            |plan| &mut plan.lost,
            |plan| &mut plan.repeated,
            |plan| &mut plan.late,
            |plan| &mut plan.crashes,
            |plan| &mut plan.stalls,
            |plan| &mut plan.cuts,
            |plan| &mut plan.breaks,
            |plan| &mut plan.pauses,
            |plan| &mut plan.jumps,
            |plan| &mut plan.torn,
            |plan| &mut plan.failovers,
            |plan| &mut plan.restores,
            |plan| &mut plan.strays,
            |plan| &mut plan.raises,
        ];
        let mut simpler = Vec::new();
        for knob in knobs {
            let mut without = self.clone();
            if *knob(&mut without) > 0 {
                let half = *knob(&mut without) / 2;
                *knob(&mut without) = 0;
                let mut less = self.clone();
                *knob(&mut less) = half;
                simpler.extend([without, less]);
            }
        }
        if self.clients > 2 {
            simpler.push(Self { clients: self.clients - 1, ..self.clone() });
        }
        if self.keys > 1 {
            simpler.push(Self { keys: 1, ..self.clone() });
        }
        if self.long_ms > 0 {
            simpler.push(Self { long_ms: 0, ..self.clone() });
        }
        if self.waits {
            simpler.push(Self { waits: false, separate_pushes: false, ..self.clone() });
        }
        if self.shares {
            simpler.push(Self { shares: false, ..self.clone() });
        }
        if self.separate_pushes {
            simpler.push(Self { separate_pushes: false, ..self.clone() });
        }
        if self.horizon_ms > self.ttl_ms {
            simpler.push(Self { horizon_ms: self.horizon_ms / 2, ..self.clone() });
        }
        simpler
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} nodes, {} clients, {} keys, ttl {} ms, clocks off by {} ppm; lost {}, repeated {}, late {} in \
             a thousand; {} crashes, {} stalls, {} cuts, {} breaks, {} pauses, {} jumps, {} torn stores, {} failovers, \
             {} restores, {} strays, {} hostile raises",
            self.seed,
            self.nodes,
            self.clients,
            self.keys,
            self.ttl_ms,
            self.clock_ppm,
            self.lost,
            self.repeated,
            self.late,
            self.crashes,
            self.stalls,
            self.cuts,
            self.breaks,
            self.pauses,
            self.jumps,
            self.torn,
            self.failovers,
            self.restores,
            self.strays,
            self.raises,
        )?;
        if self.long_ms > 0 {
            write!(f, "; some leases of {} ms", self.long_ms)?;
        }
        if self.shares {
            write!(f, "; some locks are shared")?;
        }
        if self.waits {
            write!(f, "; clients queue, claim window {} ms", self.claim_ms)?;
        }
        if self.separate_pushes {
            write!(f, ", pushes on connections of their own")?;
        }
        match self.weakness {
            Weakness::None => Ok(()),
            weakness => write!(f, "; disabled rule: {weakness:?}"),
        }
    }
}
