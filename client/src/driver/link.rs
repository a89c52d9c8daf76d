//! One connection to one node: commands of all callers go out together, replies come back in order.
//!
//! A link connects by itself, again and again if it must, and says at once that a node is down when it is
//! known to be: nobody waits for a node that the last caller waited for in vain.

use super::entry::{Answer, Arrival, Entry, Owed, Stage};
use crate::connect::{self, ConnectFailure, Identity, Ready, Stream, Target};
use crate::owner::random;
use crate::wire;
use bytes::{Buf, Bytes, BytesMut};
use redlock_proto::{Failure, FailureKind, Moment};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::task::JoinHandle;
use tokio_util::io::poll_read_buf;

/// The first pause before connecting again; it doubles from failure to failure.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause: a repaired node is used again after at most this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many node timeouts without any reply make a connection be given up.
const SILENT_TIMEOUTS: u32 = 4;
/// How long a node that could not do what it was asked is left alone before it is asked again to free a lock.
const PAY_AGAIN: Duration = Duration::from_millis(100);
/// How many releases are kept for a node that is away. The rest runs out by itself.
const MOST_OWED: usize = 65_536;
/// How much may wait to be written before a node that does not read counts as gone.
const MOST_UNWRITTEN: usize = 16 * 1024 * 1024;
/// Room for many replies: a busy node's are read together.
const READ_AHEAD: usize = 16 * 1024;

/// How long a node may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) node_timeout: Duration,
    pub(super) connect_timeout: Duration,
}

/// A node that is reached over a stream of bytes.
pub(super) struct Link {
    node: usize,
    target: Arc<Target>,
    patience: Patience,
    state: State,
    /// Commands that are not written yet.
    unwritten: BytesMut,
    /// Whether what was written may not have left yet.
    must_flush: bool,
    /// Bytes that are not a whole reply yet.
    unread: BytesMut,
    /// What waits for a reply, oldest first.
    waiting: VecDeque<Entry>,
    /// How many at the front have been reported as unanswered.
    given_up: usize,
    /// Since when nothing has come although something is overdue.
    silent_since: Option<Moment>,
    owed: VecDeque<Owed>,
    /// When what is owed is sent again over a connection that is up.
    pay_at: Option<Moment>,
    failures_in_a_row: u32,
    /// Who the node was when it was last reached.
    identity: Option<Identity>,
    /// When the connection was made.
    opened: Moment,
    /// The command that asks for the news of grants, if anybody wants them.
    subscribe: Option<Bytes>,
    news: News,
}

/// Whether a node tells of the locks that it gives to those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// Nobody knows yet.
    Unknown,
    /// It was asked to.
    Asked,
    Subscribed,
    /// It does not: its module is older, it speaks another protocol, or it does not let us listen.
    None,
}

enum State {
    /// Before the first use: what is asked waits for the connection, because nobody knows better yet.
    New(Option<JoinHandle<Result<Ready, ConnectFailure>>>),
    Up(Box<dyn Stream>),
    /// Known to be down. A connection may be under way.
    Down {
        why: Arc<str>,
        retry_at: Moment,
        job: Option<JoinHandle<Result<Ready, ConnectFailure>>>,
    },
}

/// What polling a link has brought.
pub(super) enum Progress {
    /// Nothing more for now.
    Idle,
    /// Something: ask again.
    Some,
    /// A connection is there. Nothing is sent over it before [`Link::open`].
    Connected(Ready),
}

impl Link {
    pub(super) fn new(
        node: usize,
        target: Arc<Target>,
        patience: Patience,
        subscribe: Option<Bytes>,
    ) -> Self {
        Self {
            node,
            target,
            patience,
            state: State::New(None),
            unwritten: BytesMut::new(),
            must_flush: false,
            unread: BytesMut::new(),
            waiting: VecDeque::new(),
            given_up: 0,
            silent_since: None,
            owed: VecDeque::new(),
            pay_at: None,
            failures_in_a_row: 0,
            identity: None,
            opened: Moment::default(),
            subscribe,
            news: News::Unknown,
        }
    }

    /// Who the node is, or was when it was last reached.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Whether nothing is owed that is worth waiting for: sent and not answered, or due for less than a timeout.
    pub(super) fn is_at_rest(&self, now: Moment) -> bool {
        let is_awaited = |entry: &Entry| match entry {
            Entry::Owed(owed) => !now.has_reached(self.overdue_at(owed.due)),
            _ => false,
        };
        !self.waiting.iter().skip(self.given_up).any(is_awaited) && self.worth_waiting_until(now).is_none()
    }

    /// Until when what is owed is worth waiting for, if it still is. A node that refuses it again and again is not
    /// waited for anew each time.
    fn worth_waiting_until(&self, now: Moment) -> Option<Moment> {
        let until = self.owed.back()?.due.plus(self.patience.node_timeout);
        (!now.has_reached(until)).then_some(until)
    }

    /// Takes a command to be sent, or says why the node cannot be asked. Releases are taken as long as there
    /// is a connection: behind the request that they undo, they cannot come too early.
    pub(super) fn submit(&mut self, command: &[u8], entry: Entry, now: Moment) -> Result<(), Failure> {
        match &self.state {
            State::Down { why, .. } => return Err(Failure::new(FailureKind::Down, Arc::clone(why))),
            State::New(_) | State::Up(_) => {}
        }
        if let Some(since) = self.silent_since.filter(|_| !entry.frees()) {
            let silence = format!("no answer for {} ms", now.since(since).as_millis());
            return Err(Failure::new(FailureKind::Down, silence));
        }
        self.unwritten.extend_from_slice(command);
        self.waiting.push_back(entry);
        Ok(())
    }

    /// Keeps a release for when the node is back, or can do what it was asked.
    pub(super) fn owe(&mut self, owed: Owed, now: Moment) {
        if self.owed.len() >= MOST_OWED {
            self.owed.retain(|owed| !now.has_reached(owed.pointless_from));
        }
        if self.owed.len() < MOST_OWED {
            self.owed.push_back(owed);
            self.pay_at.get_or_insert(now.plus(PAY_AGAIN));
        }
    }

    /// Sends what the node is owed.
    fn pay(&mut self, now: Moment) {
        self.pay_at = None;
        for mut owed in std::mem::take(&mut self.owed) {
            if !now.has_reached(owed.pointless_from) {
                self.unwritten.extend_from_slice(&owed.command);
                owed.sent = now;
                self.waiting.push_back(Entry::Owed(owed));
            }
        }
    }

    /// Moves bytes in both directions, as far as they go now.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
        arrivals: &mut Vec<Arrival>,
    ) -> Progress {
        match &mut self.state {
            State::New(job) => {
                let job = job.get_or_insert_with(|| begin(&self.target, self.patience));
                match Pin::new(job).poll(cx) {
                    Poll::Ready(outcome) => self.connected(outcome, now, arrivals),
                    Poll::Pending => Progress::Idle,
                }
            }
            State::Down { retry_at, job, .. } => {
                if job.is_none() && !now.has_reached(*retry_at) {
                    return Progress::Idle;
                }
                let job = job.get_or_insert_with(|| begin(&self.target, self.patience));
                match Pin::new(job).poll(cx) {
                    Poll::Ready(outcome) => self.connected(outcome, now, arrivals),
                    Poll::Pending => Progress::Idle,
                }
            }
            State::Up(_) => match self.transfer(cx, arrivals) {
                Ok(true) => Progress::Some,
                Ok(false) => Progress::Idle,
                Err(why) => {
                    self.fail(FailureKind::Cut, &why, now, arrivals);
                    Progress::Some
                }
            },
        }
    }

    fn connected(
        &mut self,
        outcome: Result<Result<Ready, ConnectFailure>, tokio::task::JoinError>,
        now: Moment,
        arrivals: &mut Vec<Arrival>,
    ) -> Progress {
        let why = match outcome {
            Ok(Ok(ready)) => return Progress::Connected(ready),
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "the runtime is shutting down".to_owned(),
        };
        self.fail(FailureKind::Down, &why, now, arrivals);
        Progress::Some
    }

    /// Uses a new connection, for what the node is owed and what waits for it.
    pub(super) fn open(&mut self, ready: Ready, now: Moment) {
        self.unread = ready.leftover;
        self.silent_since = None;
        self.opened = now;
        self.news = News::None;
        if let Some(subscribe) = self.subscribe.clone().filter(|_| ready.tells_news) {
            self.ask_for_news(&subscribe, now);
        }
        self.pay(now);
        self.identity = Some(ready.identity);
        self.state = State::Up(ready.stream);
    }

    /// Asks for the news of grants, before anything that may bring such news.
    fn ask_for_news(&mut self, subscribe: &[u8], now: Moment) {
        let commands = std::mem::take(&mut self.unwritten);
        self.unwritten.extend_from_slice(subscribe);
        self.unwritten.extend_from_slice(&commands);
        self.waiting.push_front(Entry::Subscription { sent: now });
        // Those at the front that were given up are one place further back now.
        self.given_up += usize::from(self.given_up > 0);
        self.news = News::Asked;
    }

    /// Whether one can wait in line at the node; `None` as long as that is not known. At a node that is away
    /// nobody waits, and nobody need wait for it.
    pub(super) fn offers_waiting(&self) -> Option<bool> {
        let is_away = matches!(self.state, State::Down { .. }) || self.silent_since.is_some();
        match self.news {
            News::None => Some(is_away),
            News::Subscribed => Some(true),
            News::Unknown | News::Asked => is_away.then_some(true),
        }
    }

    /// Does not use a new connection: the node is not fit to vote. Whoever was found there before is there no
    /// longer, and may be found elsewhere.
    pub(super) fn refuse(&mut self, why: &str, now: Moment, arrivals: &mut Vec<Arrival>) {
        self.identity = None;
        self.fail(FailureKind::Down, why, now, arrivals);
    }

    /// Writes and reads as far as it goes; true if anything came in.
    fn transfer(&mut self, cx: &mut Context<'_>, arrivals: &mut Vec<Arrival>) -> Result<bool, String> {
        let State::Up(stream) = &mut self.state else { return Ok(false) };
        let mut stream = Pin::new(stream);
        while !self.unwritten.is_empty() {
            match stream.as_mut().poll_write(cx, &self.unwritten) {
                Poll::Ready(Ok(0)) => return Err("the connection takes no more".into()),
                Poll::Ready(Ok(count)) => self.unwritten.advance(count),
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending if self.unwritten.len() > MOST_UNWRITTEN => {
                    return Err("it does not read".into());
                }
                Poll::Pending => break,
            }
            self.must_flush = true;
        }
        // A TLS stream may keep bytes to itself until it is told to part with them.
        if self.must_flush {
            match stream.as_mut().poll_flush(cx) {
                Poll::Ready(Ok(())) => self.must_flush = false,
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending => {}
            }
        }
        let mut came = false;
        let mut has_moved = false;
        loop {
            self.unread.reserve(READ_AHEAD);
            match poll_read_buf(stream.as_mut(), cx, &mut self.unread) {
                Poll::Ready(Ok(0)) => return Err("the node closed the connection".into()),
                Poll::Ready(Ok(_)) => came = true,
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending => break,
            }
            while let Some(frame) = wire::decode(&mut self.unread).map_err(|garbled| garbled.to_string())? {
                if let wire::Frame::Push(parts) = &frame {
                    match said(parts) {
                        Said::Subscribed => {
                            self.news = News::Subscribed;
                            if let Some(Entry::Subscription { .. }) = self.waiting.front() {
                                self.waiting.pop_front();
                                self.given_up = self.given_up.saturating_sub(1);
                            }
                        }
                        Said::News(message) => arrivals.push(Arrival::News { node: self.node, message }),
                        Said::Nothing => {}
                    }
                    continue;
                }
                let entry = self.waiting.pop_front().ok_or("a reply that nobody asked for")?;
                if matches!(entry, Entry::Subscription { .. }) {
                    // Only a refusal is a reply: this user may not subscribe. Anything else answers a later command,
                    // and from then on nobody would know which.
                    if !matches!(frame, wire::Frame::Error(_)) {
                        return Err("no answer to the subscription".into());
                    }
                    self.news = News::None;
                    self.given_up = self.given_up.saturating_sub(1);
                    continue;
                }
                let stage = Stage::settled(self.given_up > 0);
                self.given_up = self.given_up.saturating_sub(1);
                self.silent_since = None;
                let outcome = match demotion(&self.target, &frame) {
                    None => {
                        self.failures_in_a_row = 0;
                        Ok(frame)
                    }
                    Some(failure) => {
                        has_moved = true;
                        Err(failure)
                    }
                };
                arrivals.push(Arrival::Answer(Answer { node: self.node, entry, outcome, stage }));
            }
            if has_moved {
                return Err("the server is a replica now".into());
            }
        }
        Ok(came)
    }

    /// Reports what is overdue, and gives the connection up if nothing comes at all.
    pub(super) fn tick(&mut self, now: Moment, arrivals: &mut Vec<Arrival>) {
        while let Some(entry) = self.waiting.get(self.given_up) {
            if !now.has_reached(self.overdue_at(entry.sent())) {
                break;
            }
            self.silent_since.get_or_insert(entry.sent());
            if matches!(entry, Entry::Subscription { .. }) {
                self.given_up += 1;
                continue;
            }
            let waited = format!("none within {} ms", now.since(entry.sent()).as_millis());
            let outcome = Err(Failure::new(FailureKind::Silent, waited));
            let stage = Stage::Overdue;
            let answer = Answer { node: self.node, entry: entry.clone(), outcome, stage };
            arrivals.push(Arrival::Answer(answer));
            self.given_up += 1;
        }
        if !matches!(self.state, State::Up(_)) {
            return;
        }
        if self.abandon_at().is_some_and(|deadline| now.has_reached(deadline)) {
            self.fail(FailureKind::Cut, "it does not answer", now, arrivals);
        } else if self.pay_at.is_some_and(|deadline| now.has_reached(deadline)) {
            self.pay(now);
        }
    }

    /// When a request that was sent at this moment is overdue. The first ones wait for the first connection as well.
    fn overdue_at(&self, sent: Moment) -> Moment {
        match &self.state {
            State::New(_) => sent.plus(self.patience.connect_timeout.max(self.patience.node_timeout)),
            State::Up(_) if !sent.has_reached(self.opened) => self.opened.plus(self.patience.node_timeout),
            _ => sent.plus(self.patience.node_timeout),
        }
    }

    fn abandon_at(&self) -> Option<Moment> {
        Some(self.silent_since?.plus(self.patience.node_timeout * SILENT_TIMEOUTS))
    }

    /// When to call [`Link::tick`] or [`Link::poll`] next, if nothing comes.
    pub(super) fn wake_at(&self, now: Moment) -> Option<Moment> {
        let overdue = self.waiting.get(self.given_up).map(|entry| self.overdue_at(entry.sent()));
        let other = match &self.state {
            State::Down { retry_at, job: None, .. } => Some(*retry_at),
            State::Up(_) => sooner(self.abandon_at(), self.pay_at),
            _ => None,
        };
        sooner(sooner(overdue, other), self.worth_waiting_until(now))
    }

    /// Counts the node as down, tells everybody who waits, and plans the next connection.
    fn fail(&mut self, kind: FailureKind, why: &str, now: Moment, arrivals: &mut Vec<Arrival>) {
        let why: Arc<str> = why.into();
        if matches!(self.news, News::Asked | News::Subscribed) {
            let failure = Failure::new(FailureKind::Cut, Arc::clone(&why));
            arrivals.push(Arrival::Cut { node: self.node, failure });
            self.news = News::Unknown;
        }
        for (place, entry) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            if matches!(entry, Entry::Subscription { .. }) {
                continue;
            }
            let outcome = Err(Failure::new(kind, Arc::clone(&why)));
            let stage = Stage::settled(place < self.given_up);
            arrivals.push(Arrival::Answer(Answer { node: self.node, entry, outcome, stage }));
        }
        self.given_up = 0;
        self.silent_since = None;
        self.unwritten.clear();
        self.must_flush = false;
        self.unread.clear();
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures_in_a_row.min(16)).min(LONGEST_PAUSE);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        // Half of the pause is chance: many clients shall not come back to a node at the same moment.
        let chance = pause.mul_f64(0.5 * (random() as f64 / u64::MAX as f64));
        let retry_at = now.plus(pause / 2 + chance);
        self.state = State::Down { why, retry_at, job: None };
    }
}

/// The refusal of a server that was the node and has become a replica of it: another one is, and a new
/// connection finds it. A release that was refused so is due there as well.
fn demotion(target: &Target, frame: &wire::Frame) -> Option<Failure> {
    match frame {
        wire::Frame::Error(text) if text.starts_with(b"READONLY") && target.may_move() => {
            Some(Failure::new(FailureKind::Rejected, frame.complaint().unwrap_or_default()))
        }
        _ => None,
    }
}

/// What a message that answers no command says.
enum Said {
    Subscribed,
    News(Bytes),
    Nothing,
}

fn said(parts: &[wire::Frame]) -> Said {
    let kind = parts.first().and_then(wire::Frame::as_bytes);
    match (kind, parts.get(2)) {
        (Some(b"subscribe"), _) => Said::Subscribed,
        (Some(b"message"), Some(wire::Frame::Bulk(message))) => Said::News(message.clone()),
        _ => Said::Nothing,
    }
}

/// The sooner of two moments, if there is any.
pub(super) fn sooner(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.nanoseconds() < one.nanoseconds() { other } else { one }),
        (one, other) => one.or(other),
    }
}

fn begin(target: &Arc<Target>, patience: Patience) -> JoinHandle<Result<Ready, ConnectFailure>> {
    let target = Arc::clone(target);
    tokio::spawn(async move {
        match tokio::time::timeout(patience.connect_timeout, connect::connect(&target)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ConnectFailure::Unreachable("no connection in time".into())),
        }
    })
}

impl Drop for Link {
    /// A connection that nobody waits for any more must not linger.
    fn drop(&mut self) {
        if let State::New(Some(job)) | State::Down { job: Some(job), .. } = &self.state {
            job.abort();
        }
    }
}
