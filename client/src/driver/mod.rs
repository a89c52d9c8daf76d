//! The one loop that talks to the nodes.
//!
//! All calls of a manager come in here and all replies too. One task for everything, because then the
//! commands of concurrent callers to one node share a write, their replies share a read, and a decision needs
//! no lock: it is made where the last vote arrives. The loop decides nothing itself; sessions do
//! ([`redlock_proto::LockState`]).

mod broadcast;
mod conn;
mod connecting;
mod in_flight;
mod lock_entry;
mod message;
mod pending_releases;
mod pool;
mod queueing;
mod releases;
#[cfg(test)]
mod tests;
mod timers;

pub(crate) use broadcast::{BroadcastCommand, NodeResponse, SecretArgs};
pub(crate) use message::{Acquired, EntryId, Extended, Inbox, Message, NotAcquired, WaitPlan};

use crate::clock::Clock;
use crate::queue_support::{NoQueue, QueueSupport};
use crate::settings::Settings;
use crate::wire;
use broadcast::Broadcast;
use bytes::BytesMut;
use conn::sooner;
use in_flight::{InFlight, NodeEvent, RequestOutcome, Stage};
use lock_entry::{LockEntry, reply_of};
use pool::NodePool;
use redlock_proto::fence_hint::FenceHints;
use redlock_proto::{Ballot, Event, Moment, NodeSet, Refusal, Transmit};
use slab::Slab;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use timers::Timers;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

/// How many calls are taken in before the nodes are looked after again.
const MAX_CALLS: usize = 256;

/// How soon after it was woken a session can be woken again.
const MIN_TIMER_PAUSE: Duration = Duration::from_micros(50);

/// Up to so many callers at a time nobody is made to wait for company.
const FEW_CALLERS: usize = 2;

/// Somebody who wants to go.
struct CloseWaiter {
    /// When it said so, and what the newest session was.
    asked: Moment,
    serial: u64,
    answer: Option<oneshot::Sender<()>>,
}

/// The task that serves a manager.
pub(crate) struct Driver {
    settings: Arc<Settings>,
    clock: Clock,
    calls: mpsc::UnboundedReceiver<Message>,
    /// Whether anybody is left who could call.
    has_callers: bool,
    received: Vec<Message>,
    /// Calls that want to wait, made before it was known whether the nodes have lines.
    undecided: Vec<Message>,
    pool: NodePool,
    locks: Slab<LockEntry>,
    broadcasts: Slab<(u64, Broadcast)>,
    timers: Timers,
    /// The sessions of calls that may take long, by their tickets: those that wait in line, and others.
    by_ticket: HashMap<u64, EntryId>,
    /// Where the nodes send the news of what they give to those who wait.
    channel: [u8; 16],
    /// Whether the reason for polling was reported.
    has_reported_polling: bool,
    /// Requests of sessions whose fate is not known, and not yet overdue.
    in_flight: usize,
    serial: u64,
    hints: FenceHints,
    events: Vec<NodeEvent>,
    scratch: BytesMut,
    timer: Pin<Box<Sleep>>,
    armed: Option<Moment>,
    /// Those who want to go.
    close_waiters: Vec<CloseWaiter>,
    has_batched: bool,
}

/// Starts a driver on the current runtime.
pub(crate) fn start(settings: &Arc<Settings>, runtime: &tokio::runtime::Handle) -> Inbox {
    let (inbox, calls) = mpsc::unbounded_channel();
    let settings = Arc::clone(settings);
    runtime.spawn(async move { Driver::new(settings, calls).await });
    inbox
}

impl Driver {
    fn new(settings: Arc<Settings>, calls: mpsc::UnboundedReceiver<Message>) -> Self {
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
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            close_waiters: Vec::new(),
            has_batched: false,
        }
    }

    /// Takes in what callers ask; true if there was anything.
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

    fn handle_message(&mut self, message: Message, now: Moment) {
        match message {
            Message::Acquire { hold, ttl, wait, answer } => {
                let until = wait.and_then(|wait| wait.queue_until);
                let support = until.map_or(QueueSupport::No(NoQueue::TurnedOff), |_| self.queue_support());
                if support == QueueSupport::Unknown {
                    self.undecided.push(Message::Acquire { hold, ttl, wait, answer });
                    return;
                }
                let hint = self.hints.for_next_acquire();
                self.serial += 1;
                let ticket = wait.map(|wait| wait.ticket);
                let until = until.filter(|_| support == QueueSupport::Yes);
                let line =
                    wait.zip(until).map(|(wait, until)| (self.queue_request(wait.ticket), wait, until));
                let mut entry =
                    LockEntry::begin(&self.settings, self.serial, hold, ttl, hint, line, now, answer);
                entry.ticket = ticket;
                let id = EntryId { index: self.locks.insert(entry), serial: self.serial };
                if let Some(ticket) = ticket {
                    self.by_ticket.insert(ticket, id);
                }
                self.advance(id, now);
            }
            Message::Cancel { ticket } => {
                self.undecided.retain(|call| !is_named(call, ticket));
                if let Some(lock) = self.by_ticket.get(&ticket).copied() {
                    self.advance(lock, now);
                }
            }
            Message::DeadlinePassed { ticket } => self.deadline_passed(ticket, now),
            Message::Extend { lock, ttl, answer } => {
                let drift = self.settings.drift;
                let Some(entry) = self.entry(lock) else { return };
                entry.extend(ttl, drift, now, answer);
                self.transmit(lock, now);
            }
            Message::Release { lock, answer } => {
                if let Some(entry) = self.entry(lock) {
                    entry.on_released = answer;
                    self.release(lock, now);
                }
            }
            Message::Detach { lock } => {
                if let Some(entry) = self.entry(lock) {
                    entry.is_over = true;
                }
                self.remove_if_done(lock);
            }
            Message::ReleaseUntracked { hold, ttl } => self.release_untracked(&hold, ttl, now),
            Message::Broadcast { command, to, answer } => self.broadcast(&command, to, answer, now),
            Message::Close { answer } => {
                let (asked, serial) = (now, self.serial);
                self.close_waiters.push(CloseWaiter { asked, serial, answer: Some(answer) });
            }
        }
    }

    /// Answers a call whose time is up, and frees what it may have got.
    fn deadline_passed(&mut self, ticket: u64, now: Moment) {
        if let Some(place) = self.undecided.iter().position(|call| is_named(call, ticket))
            && let Message::Acquire { answer, .. } = self.undecided.remove(place)
        {
            let ballot = Ballot::new(self.settings.quorum);
            let _ = answer.send(Err(NotAcquired { refusal: Refusal::NoQuorum, ballot, has_waited: false }));
        }
        let Some(lock) = self.by_ticket.get(&ticket).copied() else { return };
        if self.entry(lock).is_some_and(LockEntry::time_out) {
            self.release(lock, now);
        }
    }

    fn entry(&mut self, id: EntryId) -> Option<&mut LockEntry> {
        self.locks.get_mut(id.index).filter(|entry| entry.serial == id.serial)
    }

    /// Sends what a lock state asks for; true if it asked for anything.
    fn transmit(&mut self, lock: EntryId, now: Moment) -> bool {
        let Some(entry) = self.locks.get_mut(lock.index) else { return false };
        let Some(Transmit { request, to }) = entry.state.poll_transmit() else { return false };
        entry.sent(to.len());
        self.in_flight += to.len();
        let (pool, events, scratch) = (&mut self.pool, &mut self.events, &mut self.scratch);
        let hold = &entry.hold;
        request.with_words(hold.keys.names(), hold.owner.as_bytes(), &self.settings.label, |words| {
            scratch.clear();
            wire::command(scratch, words);
            for node in to.iter() {
                pool.submit(node, words, scratch, InFlight::Vote { lock, request }, now, events);
            }
        });
        true
    }

    /// Ends a session: frees the lock wherever it may be held.
    fn release(&mut self, lock: EntryId, now: Moment) {
        let Some(entry) = self.entry(lock) else { return };
        let disagreed = entry.state.ballot().disagrees();
        entry.release(now);
        if disagreed {
            self.hints.saw_disagreement();
        }
        self.transmit(lock, now);
        self.remove_if_done(lock);
    }

    fn broadcast(
        &mut self,
        command: &BroadcastCommand,
        to: NodeSet,
        answer: oneshot::Sender<Vec<NodeResponse>>,
        now: Moment,
    ) {
        self.serial += 1;
        let nodes = self.settings.quorum.nodes();
        let serial = self.serial;
        let index = self.broadcasts.insert((serial, Broadcast::new(nodes, to, now, answer)));
        let words = command.words();
        self.scratch.clear();
        wire::command(&mut self.scratch, &words);
        for node in to.iter() {
            let request = InFlight::Broadcast { index, serial, sent: now };
            self.pool.submit(node, &words, &self.scratch, request, now, &mut self.events);
        }
    }

    /// Works off what has come of earlier requests; true if there was anything.
    fn handle_events(&mut self, now: Moment) -> bool {
        let any = !self.events.is_empty();
        // What is settled may send more, and in memory that arrives at once.
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
        let RequestOutcome { node, request, outcome, stage } = match event {
            NodeEvent::Outcome(outcome) => outcome,
            NodeEvent::Push { node, message } => return self.handle_push(node, &message, now),
            NodeEvent::Disconnected { node, failure } => return self.handle_disconnect(node, &failure, now),
            NodeEvent::SubscribeRefused => return self.leave_queues(now),
        };
        match request {
            InFlight::Vote { lock, request } => {
                let Some(entry) = self.locks.get_mut(lock.index) else { return };
                entry.settled(stage);
                if stage != Stage::SettledLate {
                    self.in_flight = self.in_flight.saturating_sub(1);
                }
                if stage != Stage::Overdue && request.is_release() {
                    self.after_release(node, lock, &request, &outcome, now);
                }
                let Some(entry) = self.locks.get_mut(lock.index) else { return };
                let reply = reply_of(outcome, &request);
                entry.state.handle_reply(node, &request, reply, now);
                self.advance(lock, now);
            }
            InFlight::Broadcast { index, serial, .. } => {
                let Some((of, broadcast)) = self.broadcasts.get_mut(index) else { return };
                if *of == serial && broadcast.record(node, outcome, now) {
                    self.broadcasts.remove(index).1.report();
                }
            }
            InFlight::Release(release) => self.after_pending_release(node, release, &outcome, stage, now),
            InFlight::Subscription { .. } => {}
        }
    }

    /// Carries out what a lock state asks for after an input or a command: sends, acts on the event, sets the timer.
    fn advance(&mut self, lock: EntryId, now: Moment) {
        let has_sent = self.transmit(lock, now);
        let Some(entry) = self.locks.get_mut(lock.index) else { return };
        let event = entry.state.poll_event();
        if let Some(Event::Held { fence }) = event {
            self.hints.held(fence);
        }
        if entry.apply(event, has_sent, lock, now) {
            self.release(lock, now);
        } else {
            self.transmit(lock, now);
        }
        self.set_timer(lock);
        self.remove_if_done(lock);
    }

    /// Makes sure that a session is woken when it wants to be.
    fn set_timer(&mut self, lock: EntryId) {
        let Some(entry) = self.entry(lock) else { return };
        let Some(at) = entry.state.poll_timeout() else { return };
        let at = at.later_of(entry.not_before);
        if entry.planned.is_none_or(|planned| at.nanoseconds() < planned.nanoseconds()) {
            entry.planned = Some(at);
            self.timers.plan(lock, at);
        }
    }

    fn remove_if_done(&mut self, lock: EntryId) {
        let Some(entry) = self.entry(lock).filter(|entry| entry.is_done()) else { return };
        if let Some(ticket) = entry.ticket
            && self.by_ticket.get(&ticket) == Some(&lock)
        {
            self.by_ticket.remove(&ticket);
        }
        self.locks.remove(lock.index);
    }

    /// Does what is due by now; true if there was anything.
    fn tick(&mut self, now: Moment) -> bool {
        let mut woke_any = self.pool.tick(now, &mut self.events);
        while let Some((lock, planned)) = self.timers.due(now) {
            // One that another plan has taken the place of is needless.
            let Some(entry) = self.entry(lock).filter(|entry| entry.planned == Some(planned)) else {
                continue;
            };
            entry.planned = None;
            if entry.state.poll_timeout().is_some_and(|at| now.has_reached(at)) {
                woke_any = true;
                entry.state.handle_timeout(now);
                // Nobody is woken twice at one moment: a session that asks for that would keep everybody else waiting.
                entry.not_before = now.plus(MIN_TIMER_PAUSE);
                self.advance(lock, now);
            } else if let Some(at) = entry.state.poll_timeout() {
                // Later than `not_before` or not: that may be reached by one clock, and this is by none.
                entry.planned = Some(at);
                self.timers.plan(lock, at);
            }
        }
        woke_any || !self.events.is_empty()
    }

    /// Arms the timer for what is due next. It may go off too early, never too late: under load the next
    /// deadline moves all the time, and to move the timer with it would cost more than the rest.
    fn poll_timer(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<()> {
        let Some(next) = sooner(sooner(self.timers.next(), self.pool.wake_at(now)), self.close_deadline(now))
        else {
            return Poll::Pending;
        };
        if self.armed.is_none_or(|armed| next.nanoseconds() < armed.nanoseconds()) {
            self.timer.as_mut().reset(tokio::time::Instant::now() + now.until(next));
            self.armed = Some(next);
        }
        let fired = self.timer.as_mut().poll(cx);
        if fired.is_ready() {
            self.armed = None;
        }
        fired
    }

    /// When the next of those who want to go has waited long enough for nodes that are away.
    fn close_deadline(&self, now: Moment) -> Option<Moment> {
        let timeout = self.settings.node_timeout;
        let waiting = self.close_waiters.iter().map(|waiter| waiter.asked.plus(timeout));
        waiting.filter(|until| !now.has_reached(*until)).map(Some).fold(None, sooner)
    }

    /// Whether to let other tasks run before anything is written: with many callers about, more of them are
    /// just about to ask, and what they ask can share a write. One caller alone never waits.
    fn batches_writes(&mut self) -> bool {
        let callers = self.in_flight / self.settings.quorum.nodes();
        self.has_batched = !self.has_batched && callers > FEW_CALLERS;
        self.has_batched
    }

    /// Tells those who want to go that nothing is left to be freed; true if the driver itself can go.
    fn is_done(&mut self, now: Moment) -> bool {
        if self.close_waiters.is_empty() && self.has_callers {
            return false;
        }
        let freed = self.locks.iter().filter(|(_, entry)| entry.is_releasing());
        let freed = freed.map(|(_, entry)| entry.serial);
        // Locks that no driver keeps are freed by asking, too.
        let asked = self.broadcasts.iter().map(|(_, (serial, _))| *serial);
        let oldest = freed.chain(asked).min().unwrap_or(u64::MAX);
        // Whoever wants to go waits for what was begun before, not for what others have begun since.
        let pool = &self.pool;
        self.close_waiters.retain_mut(|waiter| {
            let must_wait = oldest <= waiter.serial || !pool.has_no_pending_release(waiter.asked, now);
            if !must_wait && let Some(answer) = waiter.answer.take() {
                let _ = answer.send(());
            }
            must_wait
        });
        !self.has_callers && oldest == u64::MAX && self.pool.has_no_pending_release(now, now)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let now = this.clock.now();
            let mut busy = this.receive_calls(cx, now);
            if busy && this.batches_writes() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            busy |= this.pool.poll(cx, now, &mut this.events);
            // What has arrived is judged by the time it was read at, not by that of the last look at the clock.
            busy |= !this.events.is_empty() && this.handle_events(this.clock.now());
            if busy {
                continue;
            }
            // Only now, when everything that has come is read, can anything be called overdue.
            if this.tick(now) | this.start_undecided(now) {
                this.handle_events(now);
                continue;
            }
            if this.is_done(now) {
                return Poll::Ready(());
            }
            if this.poll_timer(cx, now).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Whether a call was made with this ticket.
fn is_named(call: &Message, ticket: u64) -> bool {
    matches!(call, Message::Acquire { wait: Some(wait), .. } if wait.ticket == ticket)
}
