//! The connection to one node. All callers share it; replies come in the order of the commands.
//!
//! A `NodeConn` connects by itself and reconnects with backoff. While the node is known to be down, a command
//! fails at once: no caller waits for a node that has just made another caller wait.
//!
//! | to find | look in |
//! |---|---|
//! | states, submitting a command, timeouts, failing | this file |
//! | writing, flushing, reading, decoding | `conn/transfer.rs` |
//! | connecting and backoff | `connecting.rs` |
//! | releases that the node has not executed yet | `pending_releases.rs` |

#[cfg(test)]
mod tests;
mod transfer;

use super::connecting::{Backoff, Connecting, Timeouts};
use super::in_flight::{InFlight, NodeEvent, Stage};
use super::pending_releases::{PendingRelease, PendingReleases};
use super::shutdown::LeftoverConn;
use super::timers::sooner;
use crate::connect::{Ready, Stream, Target};
use crate::node_watch::NodeWatch;
use crate::queue_support::{NoQueue, QueueSupport};
use crate::wire;
use bytes::BytesMut;
use redlock_proto::identity::NodeIdentity;
use redlock_proto::{Failure, FailureKind, Moment};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// After this many node timeouts without a reply, the client closes the connection.
const SILENT_TIMEOUTS: u32 = 4;

/// A node that the client reaches over a byte stream.
pub(super) struct NodeConn {
    node: usize,
    pub(super) watch: NodeWatch,
    target: Arc<Target>,
    timeouts: Timeouts,
    state: ConnState,
    /// Encoded commands that are not written yet.
    write_buf: BytesMut,
    /// Whether the stream may still buffer bytes that were written to it.
    needs_flush: bool,
    /// Bytes that are not decoded yet.
    read_buf: BytesMut,
    /// Requests without a reply, oldest first.
    in_flight: VecDeque<InFlight>,
    /// How many requests at the front of `in_flight` were reported as overdue.
    overdue: usize,
    /// When the oldest overdue request was sent; `None` once the node has replied since.
    silent_since: Option<Moment>,
    releases: PendingReleases,
    backoff: Backoff,
    /// The node's identity at the last connection that the client accepted.
    pub(super) identity: Option<NodeIdentity>,
    /// The identity in the last reply to `REDLOCK.NODE`, until the pool takes it.
    pub(super) new_identity: Option<NodeIdentity>,
    connected_at: Moment,
    /// The channel on which the node pushes grants; `None` if this client never queues.
    channel: Option<Arc<[u8]>>,
    /// Whether this client can queue on the node.
    pub(super) queue_support: QueueSupport,
}

enum ConnState {
    /// Never connected. Commands wait for the connection, because the node may well be up.
    New(Option<Connecting>),
    Up(Box<dyn Stream>),
    /// Commands fail. `connecting` is set while the client reconnects.
    Down {
        failure: Failure,
        retry_at: Moment,
        connecting: Option<Connecting>,
    },
}

/// The result of [`NodeConn::poll`].
pub(super) enum ConnProgress {
    /// Nothing happened; the task is woken when something does.
    Idle,
    /// Something happened: poll again.
    Busy,
    /// A connection is ready. The caller passes it to [`NodeConn::open`] or calls [`NodeConn::refuse`].
    Connected(Ready),
}

impl NodeConn {
    pub(super) fn new(
        node: usize,
        name: &Arc<str>,
        target: Arc<Target>,
        timeouts: Timeouts,
        channel: Option<Arc<[u8]>>,
    ) -> Self {
        Self {
            node,
            watch: NodeWatch::new(name),
            target,
            timeouts,
            state: ConnState::New(None),
            write_buf: BytesMut::new(),
            needs_flush: false,
            read_buf: BytesMut::new(),
            in_flight: VecDeque::new(),
            overdue: 0,
            silent_since: None,
            releases: PendingReleases::default(),
            backoff: Backoff::default(),
            identity: None,
            new_identity: None,
            connected_at: Moment::default(),
            channel,
            queue_support: QueueSupport::Unknown,
        }
    }

    /// Whether the node is down, or has an overdue request and has not replied since.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, ConnState::Down { .. }) || self.silent_since.is_some()
    }

    /// Queues a command for writing. If the node is down, the request fails at once. A release is queued even
    /// if the node is silent: it follows its acquire on the same connection.
    pub(super) fn submit(
        &mut self,
        command: &[u8],
        request: InFlight,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) {
        let failure = match (&self.state, self.silent_since) {
            (ConnState::Down { failure, .. }, _) => failure.clone(),
            (_, Some(since)) if !request.is_release() => {
                let why = format!("no answer for {} ms", now.since(since).as_millis());
                Failure::new(FailureKind::Down, why)
            }
            _ => {
                self.write_buf.extend_from_slice(command);
                self.in_flight.push_back(request);
                return;
            }
        };
        let outcome = Err(failure);
        events.push(NodeEvent::Outcome { node: self.node, request, outcome, stage: Stage::Settled });
    }

    /// Keeps a release until the node is back, or until the node can execute it.
    pub(super) fn queue_release(&mut self, release: Box<PendingRelease>, now: Moment) {
        self.releases.add(release, now);
    }

    /// Starts to send the pending releases. A release that fails again is queued again, and sent next time.
    fn flush_releases(&mut self, now: Moment) {
        self.releases.mark_due();
        self.buffer_releases(now);
    }

    /// Whether a `flush` that was called at `asked` still waits for a release to this node: one that was queued
    /// at `asked` or earlier, whose timeout, counted from its queueing, has not ended at `now`, and that was
    /// not reported as overdue.
    pub(super) fn awaits_release(&self, asked: Moment, now: Moment) -> bool {
        let is_awaited = |release: &PendingRelease| {
            asked.has_reached(release.queued_at) && !now.has_reached(release.queued_at.plus(self.allowed()))
        };
        let is_sent_and_awaited =
            |request: &InFlight| matches!(request, InFlight::Release(release) if is_awaited(release));
        self.in_flight.iter().skip(self.overdue).any(is_sent_and_awaited)
            || self.releases.iter().any(is_awaited)
    }

    /// When the newest pending release is no longer awaited; `None` if that is past.
    fn releases_awaited_until(&self, now: Moment) -> Option<Moment> {
        let until = self.releases.newest()?.queued_at.plus(self.timeouts.node_timeout);
        (!now.has_reached(until)).then_some(until)
    }

    /// Connects, or moves bytes over the connection, until the operating system blocks.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) -> ConnProgress {
        let connecting = match &mut self.state {
            ConnState::Up(_) => {
                return match self.transfer(cx, now, events) {
                    Ok(false) => ConnProgress::Idle,
                    Ok(true) => ConnProgress::Busy,
                    Err(why) => self.fail(Failure::new(FailureKind::Cut, why), now, events),
                };
            }
            ConnState::Down { retry_at, connecting: None, .. } if !now.has_reached(*retry_at) => {
                return ConnProgress::Idle;
            }
            ConnState::New(connecting) | ConnState::Down { connecting, .. } => connecting,
        };
        match connecting.get_or_insert_with(|| Connecting::begin(&self.target, self.timeouts)).poll(cx) {
            Poll::Pending => ConnProgress::Idle,
            Poll::Ready(Ok(ready)) => ConnProgress::Connected(ready),
            Poll::Ready(Err(failure)) => self.fail((&failure).into(), now, events),
        }
    }

    /// Uses a new connection: subscribes to grants, then sends pending releases and waiting commands.
    pub(super) fn open(&mut self, ready: Ready, now: Moment) {
        self.read_buf = ready.leftover;
        self.silent_since = None;
        self.connected_at = now;
        self.queue_support = match (ready.no_queue, self.channel.clone()) {
            (Some(reason), _) => QueueSupport::No(reason),
            (None, None) => QueueSupport::No(NoQueue::TurnedOff),
            (None, Some(channel)) => {
                self.subscribe(&channel, now);
                QueueSupport::Unknown
            }
        };
        self.flush_releases(now);
        self.new_identity = None;
        self.identity = Some(ready.identity);
        self.state = ConnState::Up(ready.stream);
        self.watch.connected();
    }

    /// Closes a new connection without using it, because the node may not vote. Its former identity is
    /// forgotten, so that the same node may be accepted at another address.
    pub(super) fn refuse(&mut self, why: Failure, now: Moment, events: &mut Vec<NodeEvent>) {
        self.identity = None;
        self.fail(why, now, events);
    }

    /// Subscribes to the channel of grants, before any command that may cause a grant.
    fn subscribe(&mut self, channel: &[u8], now: Moment) {
        let commands = std::mem::take(&mut self.write_buf);
        wire::command(&mut self.write_buf, &[b"SUBSCRIBE", channel]);
        self.write_buf.extend_from_slice(&commands);
        self.in_flight.push_front(InFlight::Subscription { sent: now });
        // The overdue requests have moved back by one.
        self.overdue += usize::from(self.overdue > 0);
    }

    /// Reports overdue requests. Closes the connection if the node is silent for too long. True if there are
    /// releases to write now.
    pub(super) fn tick(&mut self, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        self.report_overdue(now, events);
        if !matches!(self.state, ConnState::Up(_)) {
            return false;
        }
        if self.close_at().is_some_and(|deadline| now.has_reached(deadline)) {
            let why = format!("no reply for {SILENT_TIMEOUTS} node timeouts");
            self.fail(Failure::new(FailureKind::Cut, why), now, events);
        } else if self.releases.flush_at.is_some_and(|deadline| now.has_reached(deadline)) {
            self.flush_releases(now);
            return !self.write_buf.is_empty();
        }
        false
    }

    fn report_overdue(&mut self, now: Moment, events: &mut Vec<NodeEvent>) {
        while let Some(request) = self.in_flight.get(self.overdue) {
            let sent = request.sent();
            if !now.has_reached(self.overdue_at(sent)) {
                break;
            }
            let is_first = self.silent_since.is_none();
            self.silent_since.get_or_insert(sent);
            self.overdue += 1;
            let waited = format!("waited {} ms", now.since(sent).as_millis());
            let failure = Failure::new(FailureKind::Silent, waited);
            if is_first {
                self.watch.failed(&failure);
            }
            if !matches!(request, InFlight::Subscription { .. }) {
                let (node, request, outcome) = (self.node, request.clone(), Err(failure));
                events.push(NodeEvent::Outcome { node, request, outcome, stage: Stage::Overdue });
            }
        }
    }

    /// How long the node may take to reply. The first requests also wait for the first connection.
    fn allowed(&self) -> Duration {
        match &self.state {
            ConnState::New(_) => self.timeouts.connect_timeout.max(self.timeouts.node_timeout),
            _ => self.timeouts.node_timeout,
        }
    }

    /// When a request that was submitted at `sent` is overdue. A request that waited for the connection has
    /// its full time from the moment of connecting.
    fn overdue_at(&self, sent: Moment) -> Moment {
        let is_up = matches!(self.state, ConnState::Up(_));
        let from = if is_up && !sent.has_reached(self.connected_at) { self.connected_at } else { sent };
        from.plus(self.allowed())
    }

    /// When the client closes the connection to a silent node.
    fn close_at(&self) -> Option<Moment> {
        Some(self.silent_since?.plus(self.timeouts.node_timeout * SILENT_TIMEOUTS))
    }

    /// When to call [`NodeConn::tick`] or [`NodeConn::poll`] next, if no bytes come.
    pub(super) fn wake_at(&self, now: Moment) -> Option<Moment> {
        let overdue = self.in_flight.get(self.overdue).map(|request| self.overdue_at(request.sent()));
        let other = match &self.state {
            ConnState::Down { retry_at, connecting: None, .. } => Some(*retry_at),
            ConnState::Up(_) => sooner(self.close_at(), self.releases.flush_at),
            _ => None,
        };
        sooner(sooner(overdue, other), self.releases_awaited_until(now))
    }

    /// Takes the connection from the runtime, with the commands and the pending releases that are unsent.
    /// `None` without a connection.
    pub(super) fn into_leftover(mut self, now: Moment) -> Option<LeftoverConn> {
        self.flush_releases(now);
        let ConnState::Up(stream) = self.state else { return None };
        let last_release = self.in_flight.iter().rposition(InFlight::is_release);
        let due = self.in_flight.iter().take(last_release.map_or(0, |place| place + 1));
        // The reply to a subscription is a push.
        let unanswered = due.filter(|request| !matches!(request, InFlight::Subscription { .. })).count();
        let (unsent, read_buf) = (self.write_buf, self.read_buf);
        Some(LeftoverConn { stream: stream.detach().ok()?, unsent, read_buf, unanswered })
    }

    /// Counts the node as down: fails all requests in flight and plans the next connection.
    fn fail(&mut self, failure: Failure, now: Moment, events: &mut Vec<NodeEvent>) -> ConnProgress {
        let node = self.node;
        self.watch.failed(&failure);
        if matches!(self.state, ConnState::Up(_)) {
            if !matches!(self.queue_support, QueueSupport::No(_)) {
                events.push(NodeEvent::Disconnected { node, failure: failure.clone() });
            }
            self.backoff.ended_after(now.since(self.connected_at));
        }
        for (place, request) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
            if !matches!(request, InFlight::Subscription { .. }) {
                let outcome = Err(failure.clone());
                let stage = Stage::settled(place < self.overdue);
                events.push(NodeEvent::Outcome { node, request, outcome, stage });
            }
        }
        self.queue_support = QueueSupport::Unknown;
        self.overdue = 0;
        self.silent_since = None;
        self.write_buf.clear();
        self.needs_flush = false;
        self.read_buf.clear();
        self.releases.pause();
        // Requests from now on are not sent at all.
        let kind = if failure.kind == FailureKind::Cut { FailureKind::Down } else { failure.kind };
        let failure = Failure { kind, ..failure };
        self.state = ConnState::Down { failure, retry_at: self.backoff.failed(now), connecting: None };
        ConnProgress::Busy
    }
}
