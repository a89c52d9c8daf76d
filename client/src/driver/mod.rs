//! The driver: the one task of a manager that talks to the nodes.
//!
//! All calls of a manager come in here, and all replies too. Because there is one task, commands of
//! concurrent callers to one node share a write, their replies share a read, and no state needs a mutex. The
//! protocol of a lock is in [`redlock_proto::LockState`]; the driver also repeats releases until they are done.
//!
//! | to find | look in |
//! |---|---|
//! | the loop, and the order in which it does things | this file |
//! | what callers can ask for | `message.rs` |
//! | what the driver does for each message | `calls.rs` |
//! | one lock: its state and its callers | `lock_entry.rs` |
//! | the meaning of replies and pushes | `replies.rs` |
//! | sending what a lock asks for, votes, timers of locks | `locks.rs`, `timers.rs` |
//! | wait queues and pushed grants | `queueing.rs` |
//! | releases that fail, and what follows them | `releases.rs`, `pending_releases.rs` |
//! | commands that are not votes | `broadcast.rs` |
//! | the end of the driver, and callers of flush | `flush.rs` |
//! | the end of the runtime, and the last releases | `shutdown.rs` |
//! | requests in flight, and the events that come of them | `in_flight.rs` |
//! | all nodes; which node may vote | `pool.rs` |
//! | one connection: states and timeouts; reading and writing | `conn.rs`, `conn/transfer.rs` |
//! | connecting and backoff | `connecting.rs` |
//! | the wait for the first handshakes | `introduction.rs` |
//! | nodes in memory | `memory_conn.rs` |
//!
//! The order of the loop: take calls; if many callers are active, let other tasks run once, so that their
//! commands share the write; write and read; handle the events that the nodes caused. Repeat while any of
//! this brings something new. Only then, when every reply that has come is handled, fire timers and report
//! overdue requests, start calls that waited for the first handshakes, answer callers of flush, and
//! sleep until a timer, bytes or a call.

mod broadcast;
mod calls;
mod conn;
mod connecting;
mod flush;
mod in_flight;
mod introduction;
mod lock_entry;
mod locks;
mod memory_conn;
mod message;
mod pending_releases;
mod pool;
mod queueing;
mod releases;
mod replies;
mod shutdown;
#[cfg(test)]
mod tests;
mod timers;

pub(crate) use broadcast::NodeResponse;
pub(crate) use message::{AcquireCall, Acquired, EntryId, Extended, Inbox, Message, NotAcquired, WaitPlan};
pub(crate) use replies::lock_reply;
pub(crate) use shutdown::LeftoverConns;

use crate::clock::Clock;
use crate::observe;
use crate::settings::Settings;
use broadcast::Broadcast;
use bytes::BytesMut;
use flush::FlushWaiter;
use in_flight::{InFlight, NodeEvent};
use lock_entry::LockEntry;
use pool::NodePool;
use redlock_proto::Moment;
use redlock_proto::fence_hint::FenceHints;
use slab::Slab;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use timers::{Timers, sooner};
use tokio::sync::mpsc;
use tokio::time::Sleep;

/// How many calls the loop takes before it polls the nodes again.
const MAX_CALLS: usize = 256;

/// Up to this many concurrent callers, the loop writes at once and does not wait for more commands.
const FEW_CALLERS: usize = 2;

/// The task that serves a manager.
pub(crate) struct Driver {
    settings: Arc<Settings>,
    clock: Clock,
    calls: mpsc::UnboundedReceiver<Message>,
    /// Whether an [`Inbox`] still exists.
    has_callers: bool,
    /// The buffer for calls, reused.
    received: Vec<Message>,
    /// Calls that came before the client knew which nodes answer; and calls that want to queue, before it was
    /// known whether the nodes queue this client.
    undecided: Vec<AcquireCall>,
    pool: NodePool,
    locks: Slab<LockEntry>,
    broadcasts: Slab<Broadcast>,
    timers: Timers,
    /// The locks of calls that wait, by their tickets.
    by_ticket: HashMap<u64, EntryId>,
    /// The channel on which the nodes push grants to this driver.
    channel: [u8; 16],
    has_reported_polling: bool,
    /// Requests of locks without an outcome, overdue ones excluded.
    in_flight: usize,
    /// The serial of the newest lock or broadcast.
    serial: u64,
    hints: FenceHints,
    /// Events that are not handled yet.
    events: Vec<NodeEvent>,
    /// The buffer in which commands are encoded, reused.
    scratch: BytesMut,
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` ends; `None` if it is not set.
    sleeps_until: Option<Moment>,
    flush_waiters: Vec<FlushWaiter>,
    /// Whether the last poll let other tasks run before it wrote.
    has_batched: bool,
    /// Where the driver leaves its connections if its runtime shuts down while locks are held.
    leftover: Arc<LeftoverConns>,
    /// Whether nothing is left to do.
    has_ended: bool,
}

/// Starts a driver on the current runtime.
pub(crate) fn start(
    settings: &Arc<Settings>,
    leftover: &Arc<LeftoverConns>,
    runtime: &tokio::runtime::Handle,
) -> Inbox {
    let (inbox, calls) = mpsc::unbounded_channel();
    let (settings, leftover) = (Arc::clone(settings), Arc::clone(leftover));
    observe::describe();
    runtime.spawn(async move { Driver::new(settings, leftover, calls).await });
    inbox
}

impl Driver {
    fn new(
        settings: Arc<Settings>,
        leftover: Arc<LeftoverConns>,
        calls: mpsc::UnboundedReceiver<Message>,
    ) -> Self {
        let channel = crate::owner::channel();
        Self {
            clock: settings.clock,
            pool: NodePool::new(&settings, &channel),
            settings,
            calls,
            has_callers: true,
            received: Vec::new(),
            undecided: Vec::new(),
            locks: Slab::new(),
            broadcasts: Slab::new(),
            timers: Timers::default(),
            by_ticket: HashMap::new(),
            channel,
            has_reported_polling: false,
            in_flight: 0,
            serial: 0,
            hints: FenceHints::default(),
            events: Vec::new(),
            scratch: BytesMut::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            sleeps_until: None,
            flush_waiters: Vec::new(),
            has_batched: false,
            leftover,
            has_ended: false,
        }
    }

    /// Takes calls; true if there were any.
    fn receive_calls(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        if !self.has_callers {
            return false;
        }
        let mut received = std::mem::take(&mut self.received);
        if let Poll::Ready(0) = self.calls.poll_recv_many(cx, &mut received, MAX_CALLS) {
            self.has_callers = false;
        }
        let any = !received.is_empty();
        for message in received.drain(..) {
            self.handle_message(message, now);
        }
        self.received = received;
        any
    }

    /// Whether to let other tasks run before the loop writes: with many callers, more commands are about to
    /// come and can share the write. A single caller never waits.
    fn batches_writes(&mut self) -> bool {
        let callers = self.in_flight / self.settings.quorum.nodes();
        self.has_batched = !self.has_batched && callers > FEW_CALLERS;
        self.has_batched
    }

    /// Handles all events; true if there were any.
    fn handle_events(&mut self, now: Moment) -> bool {
        let any = !self.events.is_empty();
        // An event may cause requests; nodes in memory reply to them at once.
        while !self.events.is_empty() {
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                self.handle_event(event, now);
            }
            if self.events.is_empty() {
                self.events = events;
            }
        }
        any
    }

    fn handle_event(&mut self, event: NodeEvent, now: Moment) {
        match event {
            NodeEvent::Outcome { node, request, outcome, stage } => match request {
                InFlight::Vote { lock, request } => {
                    self.handle_vote(node, lock, &request, outcome, stage, now);
                }
                InFlight::Broadcast { broadcast, .. } => {
                    self.handle_broadcast_reply(node, broadcast, outcome, now);
                }
                InFlight::Release(release) => {
                    self.after_pending_release(node, release, &outcome, stage, now);
                }
                InFlight::Subscription { .. } => {}
            },
            NodeEvent::Push { node, message } => self.handle_push(node, &message, now),
            NodeEvent::Disconnected { node, failure } => self.handle_disconnect(node, &failure, now),
            NodeEvent::SubscribeRefused => self.leave_queues(now),
        }
    }

    /// Sleeps until the next deadline; ready if it has passed. The sleep may end too early, never too late:
    /// under load the next deadline moves all the time, and to move the sleep with it would cost more than
    /// the rest of the loop.
    fn poll_sleep(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<()> {
        let deadlines = [self.timers.next(), self.pool.wake_at(now), self.flush_deadline(now)];
        let Some(next) = deadlines.into_iter().fold(None, sooner) else { return Poll::Pending };
        if self.sleeps_until.is_none_or(|until| next.nanoseconds() < until.nanoseconds()) {
            self.sleep.as_mut().reset(tokio::time::Instant::now() + now.until(next));
            self.sleeps_until = Some(next);
        }
        let ended = self.sleep.as_mut().poll(cx);
        if ended.is_ready() {
            self.sleeps_until = None;
        }
        ended
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let now = this.clock.now();
            let mut is_busy = this.receive_calls(cx, now);
            if is_busy && this.batches_writes() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            is_busy |= this.pool.poll(cx, now, &mut this.events);
            // Replies count from the moment after they were read, not from `now`.
            is_busy |= !this.events.is_empty() && this.handle_events(this.clock.now());
            if is_busy {
                continue;
            }
            // Every reply that has come is handled: a request without one may be overdue.
            if this.fire_timers(now) | this.start_undecided(now) {
                this.handle_events(now);
                continue;
            }
            if this.is_done(now) {
                this.has_ended = true;
                return Poll::Ready(());
            }
            if this.poll_sleep(cx, now).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
