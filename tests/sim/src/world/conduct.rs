//! What a client does with its locks: the driver's part, and a workload that holds, extends, writes, forgets.

use super::{Coming, Wake, World};
use crate::Weakness;
use crate::checks::{SessionId, Violation};
use crate::client::{Active, Client};
use crate::network::delay;
use redlock_proto::pace::{self, KeepAlive, Next};
use redlock_proto::{Event, FailureKind, Moment, NodeSet, Reply, Request, Retry, Session};
use std::time::Duration;

impl World<'_> {
    pub(super) fn reply_arrives(
        &mut self,
        node: usize,
        client: usize,
        session: SessionId,
        request: Request,
        reply: Reply,
    ) {
        let now = self.clients[client].clock.at(self.now);
        let who = &mut self.clients[client];
        let Some(active) = who.active.as_mut().filter(|active| active.id == session) else { return };
        // Only silence is told twice: a reply that came before is not taken back.
        if matches!(&reply, Reply::Failed(failure) if failure.kind == FailureKind::Silent)
            && is_answered(active, node, &request)
        {
            return;
        }
        let mut counted = request;
        if self.plan.weakness == Weakness::ValidityFromAnswer {
            counted.sent = now;
        }
        let event = active.session.answered(node, &counted, reply, now);
        self.follow(client, event);
    }

    /// Does what a session has decided.
    fn follow(&mut self, client: usize, event: Option<Event>) {
        let Some(active) = self.clients[client].active.as_ref() else { return };
        let session = active.id;
        match event {
            None => {
                if let Some(at) = active.session.wake_at() {
                    let wait = self.clients[client].clock.at(self.now).until(at);
                    self.wake_in(client, session, wait, Wake::Patience);
                }
            }
            Some(Event::Promote(request, to)) => {
                self.outcome.promotions += 1;
                if self.plan.weakness == Weakness::LargestFenceTaken
                    && let redlock_proto::Ask::Promote { fence } = request.ask
                {
                    return self.held(client, fence);
                }
                self.send(client, request, to);
            }
            Some(Event::Held { fence }) => self.held(client, fence),
            Some(Event::Failed(refusal)) => {
                self.tell(|| format!("client {client}, session {session} failed: {refusal:?}"));
                self.end(client, true);
                let who = &mut self.clients[client];
                who.refusals += 1;
                let attempts = who.refusals;
                let first = Duration::from_millis(self.plan.ttl_ms / 20);
                let pause = Retry::exponential(first, first * 6);
                let pause = pause.next(attempts, Duration::ZERO, self.chance.u64(..)).unwrap_or_default();
                self.begin_again_in(client, pause);
            }
            Some(Event::Extended) => {
                self.outcome.extensions += 1;
                self.checks.extended(session);
                self.plan_extension(client, KeepAlive::after_success);
            }
            Some(Event::NotExtended(_)) => self.plan_extension(client, KeepAlive::after_failure),
            Some(Event::Lost(_)) => {
                self.tell(|| format!("client {client}, session {session} lost its lock"));
                self.end(client, true);
                self.begin_again_soon(client);
            }
            Some(Event::Released) => {}
        }
    }

    fn held(&mut self, client: usize, fence: u64) {
        let now = self.now;
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != client);
        let Some(active) = self.clients[client].active.as_ref() else { return };
        let shared = |other: &Client| {
            let keys = active.keys.iter();
            keys.filter_map(|key| Some((other.believes_in(*key, now)?, *key))).collect::<Vec<_>>()
        };
        let believers: Vec<_> = others.flat_map(|(_, other)| shared(other)).collect();
        self.checks.held(active.id, &active.keys, fence, &believers);
        let (session, keys) = (active.id, active.keys.clone());
        self.outcome.holds += 1;
        self.tell(|| format!("client {client}, session {session} HOLDS {keys:?} with fence {fence}"));
        let ttl_us = self.plan.ttl_ms * 1_000;
        let hold_us = self.chance.u64(0..ttl_us * 3 / 2);
        let ends = self.clients[client].clock.at(now + hold_us);
        let keeps_alive = self.chance.bool();
        let who = &mut self.clients[client];
        who.hints.held(fence);
        who.refusals = 0;
        let Some(active) = who.active.as_mut() else { return };
        active.fence = Some(fence);
        active.has_paused = false;
        if keeps_alive {
            let lease = self.drift.lease(Duration::from_millis(self.plan.ttl_ms));
            active.keep_alive = Some(KeepAlive::new(lease, ends));
            self.plan_extension(client, KeepAlive::after_success);
        }
        for _ in 0..self.chance.u32(0..3) {
            let at = Duration::from_micros(self.chance.u64(0..=hold_us));
            self.wake_in(client, session, at, Wake::Write);
        }
        let last = if self.chance.u32(0..10) == 0 { Wake::Vanish } else { Wake::Release };
        self.wake_in(client, session, Duration::from_micros(hold_us), last);
        self.wake_in(client, session, Duration::ZERO, Wake::Notice);
    }

    fn plan_extension(&mut self, client: usize, next: fn(&KeepAlive, Moment, Moment) -> Next) {
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_ref() else { return };
        let (Some(keep_alive), Some(until)) = (&active.keep_alive, active.session.valid_until()) else {
            return;
        };
        if let Next::ExtendIn(pause) = next(keep_alive, until, now) {
            self.wake_in(client, active.id, pause, Wake::Extend);
        }
    }

    fn wake_in(&mut self, client: usize, session: SessionId, pause: Duration, what: Wake) {
        // Rounded up, so that a client that waits for a moment does not wake before it, again and again.
        let us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX / 2) + 1;
        self.schedule(self.now + us, Coming::Wake { client, session, what });
    }

    fn begin_again_soon(&mut self, client: usize) {
        let us = self.chance.u64(0..self.plan.ttl_ms * 200);
        self.begin_again_in(client, Duration::from_micros(us));
    }

    fn begin_again_in(&mut self, client: usize, pause: Duration) {
        self.wake_in(client, 0, pause, Wake::Begin);
    }

    pub(super) fn wake(&mut self, client: usize, session: SessionId, what: Wake) {
        if what == Wake::Begin {
            return self.begin(client);
        }
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_mut().filter(|active| active.id == session) else {
            return;
        };
        match what {
            Wake::Begin => {}
            Wake::Patience => {
                if active.session.wake_at().is_some_and(|at| now.has_reached(at)) {
                    let event = active.session.woken(now);
                    self.follow(client, event);
                }
            }
            Wake::Extend => {
                if let Ok((request, to)) = active.session.extend(Duration::from_millis(self.plan.ttl_ms), now)
                {
                    self.send(client, request, to);
                }
            }
            Wake::Notice => self.notice(client),
            Wake::Write => {
                // A careful client looks at its guard. What it sends may still come too late.
                if active.is_valid(now) {
                    let (fence, keys) = (active.fence.unwrap_or_default(), active.keys.clone());
                    for key in keys {
                        let at = self.now + delay(self.plan, &mut self.chance);
                        self.schedule(at, Coming::Write { client, session, key, fence });
                    }
                }
            }
            Wake::Release => {
                self.tell(|| format!("client {client}, session {session} releases"));
                self.end(client, true);
                self.begin_again_soon(client);
            }
            Wake::Cancel => {
                if active.fence.is_none() {
                    self.tell(|| format!("client {client}, session {session} is cancelled"));
                    self.end(client, true);
                    self.begin_again_soon(client);
                }
            }
            Wake::Vanish => {
                self.tell(|| format!("client {client}, session {session} vanishes"));
                self.end(client, false);
                self.begin_again_soon(client);
            }
        }
    }

    /// Tells a holder that its time is nearly up, and comes back until it is.
    fn notice(&mut self, client: usize) {
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_ref() else { return };
        let (session, has_paused) = (active.id, active.has_paused);
        let lease = self.drift.lease(Duration::from_millis(self.plan.ttl_ms));
        let left = active.session.valid_until().map_or(Duration::ZERO, |until| now.until(until));
        let early = left.saturating_sub(pace::notice(lease));
        if !early.is_zero() {
            let nap = (early * 7 / 8).max(Duration::from_micros(100));
            return self.wake_in(client, session, nap.min(early), Wake::Notice);
        }
        if left.is_zero() && !has_paused && self.plan.clocks_are_within_bounds() {
            self.checks.violations.push(Violation::LossToldLate { session });
        }
        self.tell(|| format!("client {client}, session {session} is told that its time is up"));
        self.end(client, true);
        self.begin_again_soon(client);
    }

    fn begin(&mut self, client: usize) {
        if self.now >= self.plan.horizon_ms * 1_000 || self.clients[client].active.is_some() {
            return;
        }
        self.sessions += 1;
        self.outcome.attempts += 1;
        let id = self.sessions;
        let all = self.chance.u32(0..4) == 0;
        let keys =
            if all { (0..self.plan.keys).collect() } else { vec![self.chance.usize(0..self.plan.keys)] };
        self.checks.began(id, &keys);
        let owner = format!("{:032x}", self.chance.u128(..));
        let who = &mut self.clients[client];
        let now = who.clock.at(self.now);
        let hint = who.hints.for_next_acquire();
        let ttl = Duration::from_millis(self.plan.ttl_ms);
        let (session, request) = Session::begin(self.quorum, self.drift, ttl, hint, now);
        let fence = None;
        who.active = Some(Active { id, owner, keys, session, fence, keep_alive: None, has_paused: false });
        self.send(client, request, NodeSet::first(self.plan.nodes));
        if self.chance.u32(0..12) == 0 {
            let us = self.chance.u64(0..2_000);
            self.wake_in(client, id, Duration::from_micros(us), Wake::Cancel);
        }
    }

    /// Ends what a client has, with a word to the nodes or without.
    fn end(&mut self, client: usize, says_so: bool) {
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_mut() else { return };
        self.checks.ended(active.id);
        let disagreed = active.session.ballot().disagrees();
        let (request, to) = active.session.release(now);
        if says_so {
            self.send(client, request, to);
        }
        let who = &mut self.clients[client];
        if disagreed {
            who.hints.saw_disagreement();
        }
        who.active = None;
    }
}

/// Whether a node has answered a request already.
fn is_answered(active: &Active, node: usize, request: &Request) -> bool {
    let answered = !matches!(active.session.ballot().vote(node), redlock_proto::Vote::Pending);
    answered && matches!(request.ask, redlock_proto::Ask::Acquire { .. })
}
