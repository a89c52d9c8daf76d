//! The checks after all faults: no lock is left over, and every lock can be acquired.

use super::start::{Data, End};
use super::{World, lock_reply};
use crate::client::name;
use redlock_contract::drift::with_drift;
use redlock_core::durable::SHORT_LEASE_MS;
use redlock_proto::{AcquireOptions, Drift, Event, LockState, Moment, Transmit};
use std::time::Duration;

/// How many requests to each node a client can send before its first lease ends. Here messages take no time, so a
/// client that had to raise nodes step by step would never fail.
const MOST_ROUNDS: usize = 32;

impl World<'_> {
    /// After all faults: no lock may be left over, and every lock can be acquired, in one round from the
    /// second time on.
    pub(super) fn afterwards(&mut self) {
        let longest_us = self.longest_us();
        for node in 0..self.plan.nodes {
            let server = self.current[node];
            self.servers[server].memory.host_mut().disk.break_before(None);
            for key in 0..self.plan.keys {
                let sim = &mut self.servers[server];
                let at = sim.time.at(sim.touched[key] + longest_us);
                let is_held = sim.memory.exists(&name(key), at);
                self.checks.after_its_time(node, key, is_held);
            }
        }
        // Longer than a quarantine after a crash.
        self.now += (self.plan.longest_ms() * 3 + 20) * 1_000;
        self.take_all_in_peace();
        if self.plan.long_ms > 0 {
            // The long leases have ended, so a crash must not cost their time any more.
            for node in 0..self.plan.nodes {
                let server = self.current[node];
                self.cron(server);
                self.end_server(server, End::Kill);
                self.start_server(server, Data::default());
            }
            let longest_us = with_drift(2 * SHORT_LEASE_MS) * 1_000;
            self.now += longest_us * 1_000_000 / (1_000_000 - u64::from(self.plan.clock_ppm)) + 2_000;
            self.take_all_in_peace();
        }
    }

    fn take_all_in_peace(&mut self) {
        for key in 0..self.plan.keys {
            for round in 0..2 {
                let requests = self.take_in_peace(key);
                self.checks.asked_in_peace(key, requests, self.plan.nodes, round == 0);
            }
        }
    }

    /// How long a lock can last on a node, in microseconds of true time: its time to live on the slowest
    /// clock, and a whole millisecond at each end.
    fn longest_us(&self) -> u64 {
        let slowest = 1_000_000 - u64::from(self.plan.clock_ppm);
        self.plan.longest_ms() * 1_000 * 1_000_000 / slowest + 2_000
    }

    /// Acquires and releases a lock while every message arrives at once. Returns the number of requests, or
    /// `None` if the client did not get the lock.
    fn take_in_peace(&mut self, key: usize) -> Option<usize> {
        self.sessions += 1;
        let id = self.sessions;
        self.checks.began(id, &[key]);
        let owner = format!("{id:032x}");
        let now = Moment::on_one_clock(1);
        let ttl = Duration::from_millis(self.plan.ttl_ms.max(10));
        let mut session = LockState::new(self.quorum, Drift::default(), ttl, AcquireOptions::default(), now);
        let mut requests = 0;
        let mut to_ask: Vec<Transmit> = session.poll_transmit().into_iter().collect();
        while let Some(Transmit { request, to }) = to_ask.pop() {
            for node in to.iter() {
                requests += usize::from(!request.is_release());
                let sim = &mut self.servers[self.current[node]];
                let at = sim.time.at(self.now);
                let node_reply = request.with_words(&[name(key)], owner.as_bytes(), b"", |words| {
                    sim.memory.execute(words, u64::MAX, at)
                });
                session.handle_reply(node, &request, lock_reply(node_reply), now);
                to_ask.extend(session.poll_transmit());
                match session.poll_event() {
                    Some(Event::Held { fence }) => self.checks.held(id, &[key], fence, &[]),
                    Some(Event::Failed(_)) => return None,
                    _ => {}
                }
            }
            if requests > MOST_ROUNDS * self.plan.nodes {
                return None;
            }
            // A real client would wait for a moment; here all nodes have answered.
            session.handle_timeout(now);
            to_ask.extend(session.poll_transmit());
            if to_ask.is_empty() && session.fence().is_some() {
                session.release(now);
                to_ask.extend(session.poll_transmit());
            }
        }
        Some(requests)
    }
}
