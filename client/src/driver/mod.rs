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
mod lines;
mod lock_entry;
mod message;
mod pending_releases;
mod pool;
mod releases;
#[cfg(test)]
mod tests;
mod wakes;

pub(crate) use broadcast::{BroadcastCommand, NodeResponse, SecretArgs};
pub(crate) use message::{Acquired, EntryId, Extended, Inbox, Message, NotAcquired, Wait};

use crate::clock::Clock;
use crate::queue_support::{NoQueue, QueueSupport};
use crate::settings::Settings;
use crate::wire;
use broadcast::Broadcast;
use bytes::BytesMut;
use conn::sooner;
use in_flight::{Answer, Arrival, InFlight, Stage};
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
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;
use wakes::Wakes;

/// How many calls are taken in before the nodes are looked after again.
const CALLS_AT_ONCE: usize = 256;

/// How soon after it was woken a session can be woken again.
const AT_ONCE: Duration = Duration::from_micros(50);

/// Up to so many callers at a time nobody is made to wait for company.
const FEW_CALLERS: usize = 2;

/// Somebody who wants to go.
struct Closing {
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
    is_wanted: bool,
    taken: Vec<Message>,
    /// Calls that want to wait, made before it was known whether the nodes have lines.
    unplaced: Vec<Message>,
    pool: NodePool,
    locks: Slab<LockEntry>,
    broadcasts: Slab<(u64, Broadcast)>,
    wakes: Wakes,
    /// The sessions of calls that may take long, by their tickets: those that wait in line, and others.
    by_ticket: HashMap<u64, EntryId>,
    /// Where the nodes send the news of what they give to those who wait.
    channel: [u8; 16],
    /// Whether the reason for polling was reported.
    has_reported_polling: bool,
    /// Requests of sessions whose fate is not known, and not yet overdue.
    awaited: usize,
    serial: u64,
    hints: FenceHints,
    arrivals: Vec<Arrival>,
    scratch: BytesMut,
    timer: Pin<Box<Sleep>>,
    armed: Option<Moment>,
    /// Those who want to go.
    closing: Vec<Closing>,
    has_lingered: bool,
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
            is_wanted: true,
            taken: Vec::new(),
            unplaced: Vec::new(),
            locks: Slab::new(),
            broadcasts: Slab::new(),
            wakes: Wakes::default(),
            by_ticket: HashMap::new(),
            channel,
            has_reported_polling: false,
            awaited: 0,
            serial: 0,
            hints: FenceHints::default(),
            arrivals: Vec::new(),
            scratch: BytesMut::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            closing: Vec::new(),
            has_lingered: false,
        }
    }

    /// Takes in what callers ask; true if there was anything.
    fn take_calls(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        if !self.is_wanted {
            return false;
        }
        let mut taken = std::mem::take(&mut self.taken);
        if let Poll::Ready(0) = self.calls.poll_recv_many(cx, &mut taken, CALLS_AT_ONCE) {
            self.is_wanted = false;
        }
        let any = !taken.is_empty();
        for message in taken.drain(..) {
            self.call(message, now);
        }
        self.taken = taken;
        any
    }

    fn call(&mut self, message: Message, now: Moment) {
        match message {
            Message::Acquire { hold, ttl, wait, answer } => {
                let until = wait.and_then(|wait| wait.in_line_until);
                let support = until.map_or(QueueSupport::No(NoQueue::TurnedOff), |_| self.queue_support());
                if support == QueueSupport::Unknown {
                    self.unplaced.push(Message::Acquire { hold, ttl, wait, answer });
                    return;
                }
                let hint = self.hints.for_next_acquire();
                self.serial += 1;
                let ticket = wait.map(|wait| wait.ticket);
                let until = until.filter(|_| support == QueueSupport::Yes);
                let line = wait.zip(until).map(|(wait, until)| (self.line(wait.ticket), wait, until));
                let mut entry =
                    LockEntry::begin(&self.settings, self.serial, hold, ttl, hint, line, now, answer);
                entry.ticket = ticket;
                let id = EntryId { index: self.locks.insert(entry), serial: self.serial };
                if let Some(ticket) = ticket {
                    self.by_ticket.insert(ticket, id);
                }
                self.follow(id, now);
            }
            Message::Cancel { ticket } => {
                self.unplaced.retain(|call| !is_named(call, ticket));
                if let Some(lock) = self.by_ticket.get(&ticket).copied() {
                    self.follow(lock, now);
                }
            }
            Message::TimeUp { ticket } => self.time_up(ticket, now),
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
                self.forget_if_done(lock);
            }
            Message::ReleaseUntracked { hold, ttl } => self.release_untracked(&hold, ttl, now),
            Message::Broadcast { command, to, answer } => self.broadcast(&command, to, answer, now),
            Message::Close { answer } => {
                let (asked, serial) = (now, self.serial);
                self.closing.push(Closing { asked, serial, answer: Some(answer) });
            }
        }
    }

    /// Answers a call whose time is up, and frees what it may have got.
    fn time_up(&mut self, ticket: u64, now: Moment) {
        if let Some(place) = self.unplaced.iter().position(|call| is_named(call, ticket))
            && let Message::Acquire { answer, .. } = self.unplaced.remove(place)
        {
            let ballot = Ballot::new(self.settings.quorum);
            let _ = answer.send(Err(NotAcquired { refusal: Refusal::NoQuorum, ballot, has_waited: false }));
        }
        let Some(lock) = self.by_ticket.get(&ticket).copied() else { return };
        if self.entry(lock).is_some_and(LockEntry::give_up) {
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
        self.awaited += to.len();
        let (pool, arrivals, scratch) = (&mut self.pool, &mut self.arrivals, &mut self.scratch);
        let hold = &entry.hold;
        request.with_words(hold.keys.names(), hold.owner.as_bytes(), &self.settings.label, |words| {
            scratch.clear();
            wire::command(scratch, words);
            for node in to.iter() {
                pool.submit(node, words, scratch, InFlight::Vote { lock, request }, now, arrivals);
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
        self.forget_if_done(lock);
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
            self.pool.submit(node, &words, &self.scratch, request, now, &mut self.arrivals);
        }
    }

    /// Works off what has come of earlier requests; true if there was anything.
    fn settle(&mut self, now: Moment) -> bool {
        let any = !self.arrivals.is_empty();
        // What is settled may send more, and in memory that arrives at once.
        while !self.arrivals.is_empty() {
            let mut arrivals = std::mem::take(&mut self.arrivals);
            for arrival in arrivals.drain(..) {
                self.arrived(arrival, now);
            }
            if self.arrivals.is_empty() {
                self.arrivals = arrivals;
            }
        }
        any
    }

    fn arrived(&mut self, arrival: Arrival, now: Moment) {
        let Answer { node, request, outcome, stage } = match arrival {
            Arrival::Answer(answer) => answer,
            Arrival::News { node, message } => return self.heard(node, &message, now),
            Arrival::Cut { node, failure } => return self.cut(node, &failure, now),
            Arrival::SubscribeRefused => return self.leave_queues(now),
        };
        match request {
            InFlight::Vote { lock, request } => {
                let Some(entry) = self.locks.get_mut(lock.index) else { return };
                entry.settled(stage);
                if stage != Stage::SettledLate {
                    self.awaited = self.awaited.saturating_sub(1);
                }
                if stage != Stage::Overdue && request.is_release() {
                    self.after_release(node, lock, &request, &outcome, now);
                }
                let Some(entry) = self.locks.get_mut(lock.index) else { return };
                let reply = reply_of(outcome, &request);
                entry.state.handle_reply(node, &request, reply, now);
                self.follow(lock, now);
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
    fn follow(&mut self, lock: EntryId, now: Moment) {
        let has_sent = self.transmit(lock, now);
        let Some(entry) = self.locks.get_mut(lock.index) else { return };
        let event = entry.state.poll_event();
        if let Some(Event::Held { fence }) = event {
            self.hints.held(fence);
        }
        if entry.carry_out(event, has_sent, lock, now) {
            self.release(lock, now);
        } else {
            self.transmit(lock, now);
        }
        self.plan_wake(lock);
        self.forget_if_done(lock);
    }

    /// Makes sure that a session is woken when it wants to be.
    fn plan_wake(&mut self, lock: EntryId) {
        let Some(entry) = self.entry(lock) else { return };
        let Some(at) = entry.state.poll_timeout() else { return };
        let at = at.later_of(entry.not_before);
        if entry.planned.is_none_or(|planned| at.nanoseconds() < planned.nanoseconds()) {
            entry.planned = Some(at);
            self.wakes.plan(lock, at);
        }
    }

    fn forget_if_done(&mut self, lock: EntryId) {
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
        let mut woke_any = self.pool.tick(now, &mut self.arrivals);
        while let Some((lock, planned)) = self.wakes.due(now) {
            // One that another plan has taken the place of is needless.
            let Some(entry) = self.entry(lock).filter(|entry| entry.planned == Some(planned)) else {
                continue;
            };
            entry.planned = None;
            if entry.state.poll_timeout().is_some_and(|at| now.has_reached(at)) {
                woke_any = true;
                entry.state.handle_timeout(now);
                // Nobody is woken twice at one moment: a session that asks for that would keep everybody else waiting.
                entry.not_before = now.plus(AT_ONCE);
                self.follow(lock, now);
            } else if let Some(at) = entry.state.poll_timeout() {
                // Later than `not_before` or not: that may be reached by one clock, and this is by none.
                entry.planned = Some(at);
                self.wakes.plan(lock, at);
            }
        }
        woke_any || !self.arrivals.is_empty()
    }

    /// Arms the timer for what is due next. It may go off too early, never too late: under load the next
    /// deadline moves all the time, and to move the timer with it would cost more than the rest.
    fn arm(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<()> {
        let Some(next) = sooner(sooner(self.wakes.next(), self.pool.wake_at(now)), self.let_go_at(now))
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
    fn let_go_at(&self, now: Moment) -> Option<Moment> {
        let timeout = self.settings.node_timeout;
        let waiting = self.closing.iter().map(|closing| closing.asked.plus(timeout));
        waiting.filter(|until| !now.has_reached(*until)).map(Some).fold(None, sooner)
    }

    /// Whether to let other tasks run before anything is written: with many callers about, more of them are
    /// just about to ask, and what they ask can share a write. One caller alone never waits.
    fn lingers(&mut self) -> bool {
        let callers = self.awaited / self.settings.quorum.nodes();
        self.has_lingered = !self.has_lingered && callers > FEW_CALLERS;
        self.has_lingered
    }

    /// Tells those who want to go that nothing is left to be freed; true if the driver itself can go.
    fn is_done(&mut self, now: Moment) -> bool {
        if self.closing.is_empty() && self.is_wanted {
            return false;
        }
        let freed = self.locks.iter().filter(|(_, entry)| entry.is_being_freed());
        let freed = freed.map(|(_, entry)| entry.serial);
        // Locks that no driver keeps are freed by asking, too.
        let asked = self.broadcasts.iter().map(|(_, (serial, _))| *serial);
        let oldest = freed.chain(asked).min().unwrap_or(u64::MAX);
        // Whoever wants to go waits for what was begun before, not for what others have begun since.
        let pool = &self.pool;
        self.closing.retain_mut(|closing| {
            let must_wait = oldest <= closing.serial || !pool.are_at_rest(closing.asked, now);
            if !must_wait && let Some(answer) = closing.answer.take() {
                let _ = answer.send(());
            }
            must_wait
        });
        !self.is_wanted && oldest == u64::MAX && self.pool.are_at_rest(now, now)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let now = this.clock.now();
            let mut busy = this.take_calls(cx, now);
            if busy && this.lingers() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            busy |= this.pool.poll(cx, now, &mut this.arrivals);
            // What has arrived is judged by the time it was read at, not by that of the last look at the clock.
            busy |= !this.arrivals.is_empty() && this.settle(this.clock.now());
            if busy {
                continue;
            }
            // Only now, when everything that has come is read, can anything be called overdue.
            if this.tick(now) | this.place(now) {
                this.settle(now);
                continue;
            }
            if this.is_done(now) {
                return Poll::Ready(());
            }
            if this.arm(cx, now).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Whether a call was made with this ticket.
fn is_named(call: &Message, ticket: u64) -> bool {
    matches!(call, Message::Acquire { wait: Some(wait), .. } if wait.ticket == ticket)
}
