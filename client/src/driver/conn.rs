//! One connection to one node: commands of all callers go out together, replies come back in order.
//!
//! A connection connects by itself, again and again if it must, and says at once that a node is down when it is
//! known to be: nobody waits for a node that the last caller waited for in vain.

use super::connecting::{Backoff, Connecting, Timeouts};
use super::in_flight::{InFlight, NodeEvent, PendingRelease, RequestOutcome, Stage};
use super::pending_releases::PendingReleases;
use crate::connect::{self, ConnectFailure, Identity, Ready, Stream, Target};
use crate::queue_support::{NoQueue, QueueSupport};
use crate::wire::{self, Push};
use bytes::{Buf, BytesMut};
use redlock_proto::identity::NodeIdentity;
use redlock_proto::{Failure, FailureKind, Moment};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

/// How many node timeouts without any reply make a connection be given up.
const SILENT_TIMEOUTS: u32 = 4;
/// How much of what is owed is handed over at once; the rest follows when that has been written.
const FLUSH_BATCH: usize = 256 * 1024;
/// How much may wait to be written before a node that does not read counts as gone.
const MAX_UNSENT: usize = 16 * 1024 * 1024;
/// Room for many replies: a busy node's are read together.
const READ_AHEAD: usize = 16 * 1024;

/// A node that is reached over a stream of bytes.
pub(super) struct NodeConn {
    node: usize,
    target: Arc<Target>,
    timeouts: Timeouts,
    state: ConnState,
    /// Commands that are not written yet.
    write_buf: BytesMut,
    /// Whether what was written may not have left yet.
    needs_flush: bool,
    /// Bytes that are not a whole reply yet.
    read_buf: BytesMut,
    /// What waits for a reply, oldest first.
    in_flight: VecDeque<InFlight>,
    /// How many at the front have been reported as unanswered.
    overdue: usize,
    /// Since when nothing has come although something is overdue.
    silent_since: Option<Moment>,
    releases: PendingReleases,
    backoff: Backoff,
    /// Who the node was when it was last reached.
    identity: Option<Identity>,
    /// What the node has said of itself since, until [`NodeConn::take_new_identity`].
    new_identity: Option<NodeIdentity>,
    /// When the connection was made.
    connected_at: Moment,
    /// The channel on which the node pushes grants; `None` if this client never queues.
    channel: Option<Arc<[u8]>>,
    queue_support: QueueSupport,
}

enum ConnState {
    /// Before the first use: what is asked waits for the connection, because nobody knows better yet.
    New(Option<Connecting>),
    Up(Box<dyn Stream>),
    /// Known to be down. A connection may be under way.
    Down {
        why: Arc<str>,
        retry_at: Moment,
        connecting: Option<Connecting>,
    },
}

/// What polling a connection has brought.
pub(super) enum ConnProgress {
    /// Nothing more for now.
    Idle,
    /// Something: ask again.
    Some,
    /// A connection is there. Nothing is sent over it before [`NodeConn::open`].
    Connected(Ready),
}

impl NodeConn {
    pub(super) fn new(
        node: usize,
        target: Arc<Target>,
        timeouts: Timeouts,
        channel: Option<Arc<[u8]>>,
    ) -> Self {
        Self {
            node,
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

    /// Who the node is, or was when it was last reached.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Whether nothing is owed that is worth waiting for, of what was owed at the moment `asked`: sent and not
    /// answered, or due for less than a timeout. A node that refuses it again and again is not waited for anew each
    /// time.
    pub(super) fn has_no_pending_release(&self, asked: Moment, now: Moment) -> bool {
        let is_awaited = |release: &PendingRelease| {
            asked.has_reached(release.due) && !now.has_reached(release.due.plus(self.allowed()))
        };
        let sent = self.in_flight.iter().skip(self.overdue);
        let is_sent_and_awaited =
            |request: &InFlight| matches!(request, InFlight::Release(release) if is_awaited(release));
        !sent.into_iter().any(is_sent_and_awaited) && !self.releases.iter().any(is_awaited)
    }

    /// Until when the last of what is owed is worth waiting for, if it still is.
    fn releases_wait_until(&self, now: Moment) -> Option<Moment> {
        let until = self.releases.newest()?.due.plus(self.timeouts.node_timeout);
        (!now.has_reached(until)).then_some(until)
    }

    /// Takes a command to be sent, or says why the node cannot be asked. Releases are taken as long as there
    /// is a connection: behind the request that they undo, they cannot come too early.
    pub(super) fn submit(&mut self, command: &[u8], request: InFlight, now: Moment) -> Result<(), Failure> {
        match &self.state {
            ConnState::Down { why, .. } => return Err(Failure::new(FailureKind::Down, Arc::clone(why))),
            ConnState::New(_) | ConnState::Up(_) => {}
        }
        if let Some(since) = self.silent_since.filter(|_| !request.is_release()) {
            let silence = format!("no answer for {} ms", now.since(since).as_millis());
            return Err(Failure::new(FailureKind::Down, silence));
        }
        self.write_buf.extend_from_slice(command);
        self.in_flight.push_back(request);
        Ok(())
    }

    /// Keeps a release for when the node is back, or can do what it was asked.
    pub(super) fn queue_release(&mut self, release: Box<PendingRelease>, now: Moment) {
        self.releases.add(release, now);
    }

    /// Begins to send what the node is owed by now. What it does not take this time is owed anew, and comes after.
    fn flush_releases(&mut self, now: Moment) {
        self.releases.mark_due();
        self.buffer_releases(now);
    }

    /// Sends as much of it as should wait to be written. All at once could look like a node that does not read.
    fn buffer_releases(&mut self, now: Moment) {
        while self.write_buf.len() < FLUSH_BATCH {
            let Some(mut release) = self.releases.next(now) else { break };
            self.write_buf.extend_from_slice(&release.command);
            release.sent = now;
            self.in_flight.push_back(InFlight::Release(release));
        }
    }

    /// Moves bytes in both directions, as far as they go now.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) -> ConnProgress {
        match &mut self.state {
            ConnState::New(connecting) => {
                match connecting.get_or_insert_with(|| begin(&self.target, self.timeouts)).poll(cx) {
                    Poll::Ready(outcome) => self.connected(outcome, now, events),
                    Poll::Pending => ConnProgress::Idle,
                }
            }
            ConnState::Down { retry_at, connecting, .. } => {
                if connecting.is_none() && !now.has_reached(*retry_at) {
                    return ConnProgress::Idle;
                }
                match connecting.get_or_insert_with(|| begin(&self.target, self.timeouts)).poll(cx) {
                    Poll::Ready(outcome) => self.connected(outcome, now, events),
                    Poll::Pending => ConnProgress::Idle,
                }
            }
            ConnState::Up(_) => match self.transfer(cx, now, events) {
                Ok(true) => ConnProgress::Some,
                Ok(false) => ConnProgress::Idle,
                Err(why) => {
                    self.fail(FailureKind::Cut, &why, now, events);
                    ConnProgress::Some
                }
            },
        }
    }

    fn connected(
        &mut self,
        outcome: Result<Ready, ConnectFailure>,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) -> ConnProgress {
        match outcome {
            Ok(ready) => ConnProgress::Connected(ready),
            Err(failure) => {
                self.fail(FailureKind::Down, &failure.to_string(), now, events);
                ConnProgress::Some
            }
        }
    }

    /// Uses a new connection, for what the node is owed and what waits for it.
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
    }

    /// What the node has said of itself since the connection was made, if it was asked.
    pub(super) fn take_new_identity(&mut self) -> Option<NodeIdentity> {
        self.new_identity.take()
    }

    /// Subscribes to the channel of grants, before any command that may cause one.
    fn subscribe(&mut self, channel: &[u8], now: Moment) {
        let commands = std::mem::take(&mut self.write_buf);
        wire::command(&mut self.write_buf, &[b"SUBSCRIBE", channel]);
        self.write_buf.extend_from_slice(&commands);
        self.in_flight.push_front(InFlight::Subscription { sent: now });
        // Those at the front that were given up are one place further back now.
        self.overdue += usize::from(self.overdue > 0);
    }

    /// Whether the node is known to be down, or does not answer.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, ConnState::Down { .. }) || self.silent_since.is_some()
    }

    /// Whether this client can queue on the node.
    pub(super) fn queue_support(&self) -> QueueSupport {
        self.queue_support
    }

    /// Does not use a new connection: the node is not fit to vote. Whoever was found there before is there no
    /// longer, and may be found elsewhere.
    pub(super) fn refuse(&mut self, why: &str, now: Moment, events: &mut Vec<NodeEvent>) {
        self.identity = None;
        self.fail(FailureKind::Down, why, now, events);
    }

    /// Writes and reads as far as it goes; true if anything came in.
    fn transfer(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) -> Result<bool, String> {
        loop {
            self.buffer_releases(now);
            if self.write_buf.is_empty() {
                break;
            }
            let ConnState::Up(stream) = &mut self.state else { return Ok(false) };
            match Pin::new(stream).poll_write(cx, &self.write_buf) {
                Poll::Ready(Ok(0)) => return Err("the connection takes no more".into()),
                Poll::Ready(Ok(count)) => self.write_buf.advance(count),
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending if self.write_buf.len() > MAX_UNSENT => {
                    return Err("it does not read".into());
                }
                Poll::Pending => break,
            }
            self.needs_flush = true;
        }
        let ConnState::Up(stream) = &mut self.state else { return Ok(false) };
        let mut stream = Pin::new(stream);
        // A TLS stream may keep bytes to itself until it is told to part with them.
        if self.needs_flush {
            match stream.as_mut().poll_flush(cx) {
                Poll::Ready(Ok(())) => self.needs_flush = false,
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending => {}
            }
        }
        let mut came = false;
        let mut has_moved = false;
        loop {
            self.read_buf.reserve(READ_AHEAD);
            match poll_read_buf(stream.as_mut(), cx, &mut self.read_buf) {
                Poll::Ready(Ok(0)) => return Err("the node closed the connection".into()),
                Poll::Ready(Ok(_)) => came = true,
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending => break,
            }
            while let Some(frame) = wire::decode(&mut self.read_buf).map_err(|error| error.to_string())? {
                if let wire::Frame::Push(parts) = &frame {
                    match wire::push(parts) {
                        Push::Subscribed => {
                            self.queue_support = QueueSupport::Yes;
                            // It has come to life again, if it was silent: this is the answer that was overdue.
                            self.silent_since = None;
                            if let Some(InFlight::Subscription { .. }) = self.in_flight.front() {
                                self.in_flight.pop_front();
                                self.overdue = self.overdue.saturating_sub(1);
                            }
                        }
                        Push::Message(message) => events.push(NodeEvent::Push { node: self.node, message }),
                        Push::Other => {}
                    }
                    continue;
                }
                let request = self.in_flight.pop_front().ok_or("a reply that nobody asked for")?;
                if matches!(request, InFlight::Subscription { .. }) {
                    // Only a refusal is a reply: this user may not subscribe. Anything else answers a later command,
                    // and from then on nobody would know which.
                    if !matches!(frame, wire::Frame::Error(_)) {
                        return Err("no answer to the subscription".into());
                    }
                    self.queue_support = QueueSupport::No(NoQueue::SubscribeRefused);
                    self.silent_since = None;
                    events.push(NodeEvent::SubscribeRefused);
                    self.overdue = self.overdue.saturating_sub(1);
                    continue;
                }
                let stage = Stage::settled(self.overdue > 0);
                self.overdue = self.overdue.saturating_sub(1);
                self.silent_since = None;
                let outcome = match demotion(&self.target, &frame) {
                    None => {
                        self.backoff.succeeded();
                        if matches!(request, InFlight::Broadcast { .. }) {
                            self.new_identity = connect::node_identity(&frame).or(self.new_identity.take());
                        }
                        Ok(frame)
                    }
                    Some(failure) => {
                        has_moved = true;
                        Err(failure)
                    }
                };
                events.push(NodeEvent::Outcome(RequestOutcome { node: self.node, request, outcome, stage }));
            }
            if has_moved {
                return Err("the server is a replica now".into());
            }
        }
        Ok(came)
    }

    /// Reports what is overdue, and gives the connection up if nothing comes at all. True if there is something to
    /// be written now.
    pub(super) fn tick(&mut self, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        while let Some(request) = self.in_flight.get(self.overdue) {
            if !now.has_reached(self.overdue_at(request.sent())) {
                break;
            }
            self.silent_since.get_or_insert(request.sent());
            if matches!(request, InFlight::Subscription { .. }) {
                self.overdue += 1;
                continue;
            }
            let waited = format!("none within {} ms", now.since(request.sent()).as_millis());
            let outcome = Err(Failure::new(FailureKind::Silent, waited));
            let stage = Stage::Overdue;
            let outcome = RequestOutcome { node: self.node, request: request.clone(), outcome, stage };
            events.push(NodeEvent::Outcome(outcome));
            self.overdue += 1;
        }
        if !matches!(self.state, ConnState::Up(_)) {
            return false;
        }
        if self.abandon_at().is_some_and(|deadline| now.has_reached(deadline)) {
            self.fail(FailureKind::Cut, "it does not answer", now, events);
        } else if self.releases.flush_at().is_some_and(|deadline| now.has_reached(deadline)) {
            self.flush_releases(now);
            return !self.write_buf.is_empty();
        }
        false
    }

    /// How long the node may take. The first requests wait for the first connection as well.
    fn allowed(&self) -> Duration {
        match &self.state {
            ConnState::New(_) => self.timeouts.connect_timeout.max(self.timeouts.node_timeout),
            _ => self.timeouts.node_timeout,
        }
    }

    /// When a request that was sent at this moment is overdue. One that had to wait for the connection has its time from then.
    fn overdue_at(&self, sent: Moment) -> Moment {
        let is_up = matches!(self.state, ConnState::Up(_));
        let from = if is_up && !sent.has_reached(self.connected_at) { self.connected_at } else { sent };
        from.plus(self.allowed())
    }

    fn abandon_at(&self) -> Option<Moment> {
        Some(self.silent_since?.plus(self.timeouts.node_timeout * SILENT_TIMEOUTS))
    }

    /// When to call [`NodeConn::tick`] or [`NodeConn::poll`] next, if nothing comes.
    pub(super) fn wake_at(&self, now: Moment) -> Option<Moment> {
        let overdue = self.in_flight.get(self.overdue).map(|request| self.overdue_at(request.sent()));
        let other = match &self.state {
            ConnState::Down { retry_at, connecting: None, .. } => Some(*retry_at),
            ConnState::Up(_) => sooner(self.abandon_at(), self.releases.flush_at()),
            _ => None,
        };
        sooner(sooner(overdue, other), self.releases_wait_until(now))
    }

    /// Counts the node as down, tells everybody who waits, and plans the next connection.
    fn fail(&mut self, kind: FailureKind, why: &str, now: Moment, events: &mut Vec<NodeEvent>) {
        let why: Arc<str> = why.into();
        if matches!(
            (&self.state, self.queue_support),
            (ConnState::Up(_), QueueSupport::Yes | QueueSupport::Unknown)
        ) {
            let failure = Failure::new(FailureKind::Cut, Arc::clone(&why));
            events.push(NodeEvent::Disconnected { node: self.node, failure });
        }
        self.queue_support = QueueSupport::Unknown;
        for (place, request) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
            if matches!(request, InFlight::Subscription { .. }) {
                continue;
            }
            let outcome = Err(Failure::new(kind, Arc::clone(&why)));
            let stage = Stage::settled(place < self.overdue);
            events.push(NodeEvent::Outcome(RequestOutcome { node: self.node, request, outcome, stage }));
        }
        self.overdue = 0;
        self.silent_since = None;
        self.write_buf.clear();
        self.needs_flush = false;
        self.read_buf.clear();
        if matches!(self.state, ConnState::Up(_)) {
            self.backoff.ended_after(now.since(self.connected_at));
        }
        self.releases.pause();
        let retry_at = self.backoff.failed(now);
        self.state = ConnState::Down { why, retry_at, connecting: None };
    }
}

/// The refusal of a server that was the node and has become a replica of it: another one is, and a new
/// connection finds it. A release that was refused so is due there as well.
fn demotion(target: &Target, frame: &wire::Frame) -> Option<Failure> {
    match frame {
        wire::Frame::Error(text) if text.starts_with(b"READONLY") && target.may_move() => {
            Some(Failure::new(FailureKind::Rejected, frame.error_message().unwrap_or_default()))
        }
        _ => None,
    }
}

/// The sooner of two moments, if there is any.
pub(super) fn sooner(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.nanoseconds() < one.nanoseconds() { other } else { one }),
        (one, other) => one.or(other),
    }
}

fn begin(target: &Arc<Target>, timeouts: Timeouts) -> Connecting {
    let target = Arc::clone(target);
    Connecting::begin(async move { connect::connect(&target).await }, timeouts)
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::ReleaseGoal;
    use super::*;
    use crate::hold::Hold;

    /// A node that is back after most of a timeout and refuses what it is owed has had its time.
    #[tokio::test]
    async fn what_is_owed_is_waited_for_as_long_as_a_node_may_take_and_no_longer() {
        let at = |ms: u64| Moment::on_one_clock(1_000_000_000 + ms * 1_000_000);
        let timeout = Duration::from_secs(1);
        let locks = crate::LockManager::builder().nodes(["redis://localhost"]).build().unwrap();
        let crate::settings::Places::Servers(targets) = &locks.settings().places else { panic!("a server") };
        let timeouts = Timeouts { node_timeout: timeout, connect_timeout: timeout };
        let mut conn = NodeConn::new(0, Arc::clone(&targets[0]), timeouts, None);
        conn.fail(FailureKind::Cut, "cut", at(0), &mut Vec::new());
        let hold = Arc::new(Hold::new(locks.key(b"job").unwrap(), timeout, locks.settings()));
        let request = redlock_proto::Request {
            ask: redlock_proto::Ask::Release { floor: None },
            ttl: timeout,
            sent: at(0),
        };
        let release = PendingRelease {
            goal: ReleaseGoal::Release,
            hold,
            keys: 0..1,
            request,
            command: bytes::Bytes::new(),
            due: at(0),
            sent: at(0),
            expires_at: at(60_000),
        };
        conn.queue_release(Box::new(release), at(0));
        conn.state = ConnState::Up(Box::new(tokio::io::duplex(64).0));
        conn.connected_at = at(850);
        assert!(!conn.has_no_pending_release(at(10), at(999)));
        assert!(conn.has_no_pending_release(at(10), at(1_000)));
    }
}
