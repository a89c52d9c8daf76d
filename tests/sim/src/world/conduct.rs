//! What clients do with their locks: the part of the driver, and a workload that holds, extends, writes and
//! abandons locks.

use super::{Coming, Wake, World};
use crate::Weakness;
use crate::checks::SessionId;
use crate::client::{Active, Client, KeptPlace};
use crate::network::delay;
use redlock_proto::keep_alive::{self, KeepAlive, NextExtension};
use redlock_proto::{
    AcquireOptions, Ask, Event, FailureKind, LockMode, LockReply, LockState, Moment, NodeSet, Refusal,
    Request, Retry, Transmit,
};
use std::time::Duration;

impl World<'_> {
    pub(super) fn reply_arrives(
        &mut self,
        node: usize,
        client: usize,
        session: SessionId,
        request: Request,
        reply: LockReply,
    ) {
        let now = self.clients[client].clock.at(self.now);
        let who = &mut self.clients[client];
        let Some(active) = who.active.as_mut().filter(|active| active.id == session) else { return };
        // A timeout is ignored if the reply came before it.
        let is_silence = matches!(&reply, LockReply::Failed(failure) if failure.kind == FailureKind::Silent);
        if is_silence && active.answered.contains(&(request, node)) {
            return;
        }
        if !is_silence {
            active.answered.push((request, node));
        }
        if let (LockReply::Queued { .. }, [key], Some(ticket)) = (&reply, &active.keys[..], active.ticket) {
            active.queued.insert(node);
            if active.queued.len() == self.plan.nodes && active.fence.is_none() {
                let key = *key;
                let ticket = self.honest(ticket);
                self.checks.queued(session, key, ticket);
            }
        }
        let Some(active) = self.clients[client].active.as_mut() else { return };
        let mut counted = request;
        if self.plan.weakness == Weakness::ValidityFromAnswer {
            counted.sent = now;
        }
        active.session.handle_reply(node, &counted, reply, now);
        self.follow(client);
    }

    /// Sends the next request of a lock state.
    fn transmit(&mut self, client: usize) {
        let Some(active) = self.clients[client].active.as_mut() else { return };
        let Some(Transmit { request, to }) = active.session.poll_transmit() else { return };
        self.send(client, request, to);
    }

    /// Sends the requests and handles the events of a lock state after an input.
    pub(super) fn follow(&mut self, client: usize) {
        let Some(active) = self.clients[client].active.as_mut() else { return };
        let (transmit, event) = (active.session.poll_transmit(), active.session.poll_event());
        let session = active.id;
        // A holder notices at once that the end of its validity has moved.
        let end = active.end.map(|(end, _)| end);
        if active.fence.is_some() && end != active.session.valid_until() {
            self.look_in(client, Duration::ZERO);
        }
        self.plan_wake(client);
        if let Some(Transmit { request, to }) = transmit {
            self.outcome.promotions += u64::from(matches!(request.ask, Ask::RaiseFence { .. }));
            if self.plan.weakness == Weakness::LargestFenceTaken
                && let Ask::RaiseFence { fence } = request.ask
                && self.clients[client].active.as_ref().is_some_and(disagrees)
            {
                return self.held(client, fence);
            }
            self.send(client, request, to);
        }
        match event {
            None => {}
            Some(Event::Held { fence }) => self.held(client, fence),
            Some(Event::Failed(Refusal::Yielded)) => {
                self.tell(|| format!("client {client}, session {session} yields"));
                self.outcome.yields += 1;
                let active = self.clients[client].active.as_ref();
                let place = active.and_then(|active| {
                    let (keys, mode, yields) = (active.keys.clone(), active.mode, active.yields + 1);
                    Some(KeptPlace { ticket: active.ticket?, keys, mode, yields })
                });
                self.end(client, true);
                self.clients[client].keeps_place = place;
                self.begin_again_in(client, Duration::ZERO);
            }
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
        self.checks.holds_from_now(active.id, &active.keys, fence);
        self.checks.held(active.id, &active.keys, fence, &believers);
        let (session, keys, ttl) = (active.id, active.keys.clone(), active.ttl);
        let is_shared = active.mode == LockMode::Shared;
        if let ([_], Some(_), true) = (&keys[..], active.ticket, self.plan.is_calm()) {
            self.let_the_impatient_leave();
            self.checks.held_after_waiting(session);
        }
        self.outcome.holds += 1;
        self.outcome.shared_holds += u64::from(is_shared && !believers.is_empty());
        self.tell(|| format!("client {client}, session {session} HOLDS {keys:?} with fence {fence}"));
        let ttl_us = self.plan.ttl_ms * 1_000;
        let is_long = ttl_us < micros(ttl) && self.chance.bool();
        let hold_us = self.chance.u64(0..if is_long { micros(ttl) } else { ttl_us } * 3 / 2);
        let ends = self.clients[client].clock.at(now + hold_us);
        let keeps_alive = self.chance.bool();
        let who = &mut self.clients[client];
        who.hints.held(fence);
        who.refusals = 0;
        let Some(active) = who.active.as_mut() else { return };
        active.fence = Some(fence);
        active.has_paused = false;
        active.session.claim(who.clock.at(now));
        self.transmit(client);
        let who = &mut self.clients[client];
        let Some(active) = who.active.as_mut() else { return };
        if keeps_alive {
            let lease = self.drift.lease(ttl);
            active.keep_alive = Some(KeepAlive::new(lease, ends));
            self.plan_extension(client, KeepAlive::after_success);
        }
        for _ in 0..self.chance.u32(0..3) {
            let at = Duration::from_micros(self.chance.u64(0..=hold_us));
            self.wake_in(client, session, at, Wake::Write);
        }
        let last = if self.chance.u32(0..10) == 0 { Wake::Vanish } else { Wake::Release };
        self.wake_in(client, session, Duration::from_micros(hold_us), last);
        self.look_in(client, Duration::ZERO);
    }

    fn plan_extension(&mut self, client: usize, next: fn(&KeepAlive, Moment, Moment) -> NextExtension) {
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_ref() else { return };
        let (Some(keep_alive), Some(until)) = (&active.keep_alive, active.session.valid_until()) else {
            return;
        };
        if let NextExtension::ExtendIn(pause) = next(keep_alive, until, now) {
            self.wake_in(client, active.id, pause, Wake::Extend);
        }
    }

    fn wake_in(&mut self, client: usize, session: SessionId, pause: Duration, what: Wake) {
        // Rounded up, so that a client does not wake before the time it waits for, again and again.
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
                active.planned = None;
                if active.session.poll_timeout().is_some_and(|at| now.has_reached(at)) {
                    active.session.handle_timeout(now);
                    self.follow(client);
                } else {
                    self.plan_wake(client);
                }
            }
            Wake::Extend => {
                if active.session.extend(active.ttl, now).is_ok() {
                    self.transmit(client);
                }
            }
            Wake::Notice(look) if look == active.looks => self.notice(client),
            Wake::Notice(_) => {}
            Wake::Write => {
                // A careful client checks its guard. Its write may still arrive too late.
                if active.is_valid(now) {
                    let (fence, keys, mode) =
                        (active.fence.unwrap_or_default(), active.keys.clone(), active.mode);
                    for key in keys {
                        let at = self.now + delay(self.plan, &mut self.chance);
                        self.schedule(at, Coming::Access { client, session, key, fence, mode });
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
                self.tell(|| format!("client {client}, session {session} ends without a release"));
                self.end(client, false);
                self.begin_again_soon(client);
            }
        }
    }

    pub(super) fn plan_wake(&mut self, client: usize) {
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_mut() else { return };
        let Some(at) = active.session.poll_timeout() else { return };
        if active.planned.is_none_or(|planned| at.nanoseconds() < planned.nanoseconds()) {
            active.planned = Some(at);
            let id = active.id;
            self.wake_in(client, id, now.until(at), Wake::Patience);
        }
    }

    /// Schedules a check of the remaining validity, and replaces the one that was scheduled.
    fn look_in(&mut self, client: usize, pause: Duration) {
        let Some(active) = self.clients[client].active.as_mut() else { return };
        active.looks += 1;
        let (session, look) = (active.id, active.looks);
        self.wake_in(client, session, pause, Wake::Notice(look));
    }

    /// Notifies a holder whose validity is about to end; otherwise schedules the next check.
    fn notice(&mut self, client: usize) {
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_mut() else { return };
        let lease = self.drift.lease(active.ttl);
        let session = active.id;
        let until = active.session.valid_until();
        let left = until.map_or(Duration::ZERO, |until| now.until(until));
        if let Some(until) = until.filter(|until| active.end.is_none_or(|(end, _)| end != *until)) {
            active.end = Some((until, left));
        }
        let span = active.end.map_or(lease, |(_, span)| span.min(lease));
        let ahead = match self.plan.weakness {
            Weakness::NoticeTooLate => Duration::ZERO,
            _ => keep_alive::notice(span),
        };
        let early = left.saturating_sub(ahead);
        if !early.is_zero() {
            let nap = (early * 7 / 8).max(Duration::from_micros(100));
            return self.look_in(client, nap.min(early));
        }
        self.tell(|| format!("client {client}, session {session} is notified that its validity ends"));
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
        let any =
            if all { (0..self.plan.keys).collect() } else { vec![self.chance.usize(0..self.plan.keys)] };
        let shares = self.plan.shares && any.len() == 1 && self.chance.bool();
        let any_mode = if shares { LockMode::Shared } else { LockMode::Exclusive };
        let (ticket, keys, mode, yields) = match self.clients[client].keeps_place.take() {
            Some(KeptPlace { ticket, keys, mode, yields }) => (Some(ticket), keys, mode, yields),
            None => (None, any, any_mode, 0),
        };
        if mode == LockMode::Shared {
            self.checks.shares(id);
        }
        self.checks.began(id, &keys);
        let owner = format!("{:032x}", self.chance.u128(..));
        let who = &mut self.clients[client];
        let owner_before = std::mem::replace(&mut who.last_owner, owner.clone());
        let now = who.clock.at(self.now);
        let hint = who.hints.for_next_acquire();
        let is_long = self.plan.long_ms > 0 && self.chance.u32(0..6) == 0;
        let ttl = Duration::from_millis(if is_long { self.plan.long_ms } else { self.plan.ttl_ms });
        let mut session = LockState::new(self.quorum, self.drift, ttl, AcquireOptions { mode, hint }, now);
        let (mut place, mut patience) = (None, None);
        if self.plan.waits && (ticket.is_some() || self.chance.u32(0..4) > 0) {
            let (line, until) = self.place_in_line(client, ticket, now);
            session = session.with_queue(line, until).after_yields(yields);
            place = Some(line.ticket);
            patience = Some(until);
            if let [key] = keys[..] {
                let ticket = self.honest(line.ticket);
                self.checks.takes_its_turn(id, key, ticket);
            }
        }
        self.clients[client].active = Some(Active {
            id,
            owner,
            owner_before,
            keys,
            mode,
            ttl,
            session,
            fence: None,
            keep_alive: None,
            ticket: place,
            yields,
            patience,
            queued: NodeSet::EMPTY,
            rounds: Vec::new(),
            end: None,
            looks: 0,
            planned: None,
            answered: Vec::new(),
            has_paused: false,
        });
        self.plan_wake(client);
        self.transmit(client);
        if self.chance.u32(0..12) == 0 {
            let us = self.chance.u64(0..2_000);
            self.wake_in(client, id, Duration::from_micros(us), Wake::Cancel);
        }
    }

    /// Removes waiters whose time limit is near: by the clock of some node they may have left its queue
    /// already.
    fn let_the_impatient_leave(&mut self) {
        for client in &self.clients {
            let now = client.clock.at(self.now);
            let Some(active) = &client.active else { continue };
            let longest = self.longest_patience();
            let clocks_differ = longest.saturating_sub(self.drift.lease(longest));
            if active.patience.is_some_and(|until| now.until(until) <= clocks_differ) {
                self.checks.leaves_queue(active.id);
            }
        }
    }

    /// Ends the session of a client, with a release to the nodes or without.
    fn end(&mut self, client: usize, says_so: bool) {
        let now = self.clients[client].clock.at(self.now);
        let Some(active) = self.clients[client].active.as_mut() else { return };
        if active.fence.is_some() {
            let has_lapsed = active.end.is_some_and(|(end, _)| now.has_reached(end));
            self.checks.stopped(active.id, has_lapsed, active.has_paused);
        }
        self.checks.ended(active.id);
        let disagreed = active.session.ballot().disagrees();
        active.session.release(now);
        if says_so {
            self.transmit(client);
        }
        let who = &mut self.clients[client];
        if disagreed {
            who.hints.saw_disagreement();
        }
        who.active = None;
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Whether a client does not hold its lock because nodes granted different fences.
fn disagrees(active: &Active) -> bool {
    active.fence.is_none() && active.session.ballot().disagrees()
}
