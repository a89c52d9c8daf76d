//! The client's decisions, whatever the nodes answer, how late, and how often.
//!
//! A lock is held only when a majority has said one number while their time had not run out; it is held once, and
//! never again after it was lost or released; and a release goes to everybody who may hold it. Some sessions wait in
//! line, and are asked for and handed the lock again and again.

use crate::byte_reader::ByteReader;
use redlock_proto::{
    Ask, Drift, Event, Failure, FailureKind, Grant, LockReply, LockState, MAX_NODES, Moment, NodeSet,
    QueueRequest, Quorum, Request, Transmit,
};
use std::time::Duration;

const LONGEST_HISTORY: usize = 300;
const FIRST_STAMP: u64 = 100;

/// Tries a session.
pub fn run(bytes: &[u8]) {
    check(bytes, LockState::handle_reply);
}

/// Tries a session that hears of answers in this way.
///
/// # Panics
/// When it breaks a promise.
pub fn check(bytes: &[u8], hear: impl Fn(&mut LockState, usize, &Request, LockReply, Moment)) {
    let mut tape = ByteReader::new(bytes);
    let mut driver = Harness::begin(&mut tape);
    for _ in 0..LONGEST_HISTORY {
        if tape.is_over() {
            break;
        }
        driver.step(&mut tape, &hear);
    }
}

/// What the driver has seen, from which follows what the session may say.
struct Harness {
    session: LockState,
    quorum: Quorum,
    now: (u64, u64),
    sent: Vec<Sent>,
    /// What each node said last of its fence.
    said: Vec<Option<u64>>,
    /// Until when each node holds the lock at the latest, by its longest answer.
    lasts: Vec<Option<(u64, u64)>>,
    /// What each node last said of holding the lock for us, or having us in line.
    holds: Vec<bool>,
    /// How many requests to each node may have got there without our knowing what became of them.
    unknown: Vec<usize>,
    /// For a session that waits: the largest stamp, and of every node that of the last request it has granted. If it
    /// has refused one since, that of the one before.
    stamps: Option<(u64, Vec<u64>)>,
    phase: Phase,
    extension: Option<Request>,
    /// An answer came that no node gives. What depends on nodes that keep to their part is not checked then.
    is_wild: bool,
    was_released: bool,
    was_freed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Acquiring,
    Held(u64),
    Over,
}

/// A request on its way to a node.
struct Sent {
    node: usize,
    request: Request,
    heard: ReplyState,
    /// Whether the node did as asked.
    granted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplyState {
    Nothing,
    /// It was given up; the answer may still come.
    Silence,
    Answer,
}

impl Harness {
    fn begin(tape: &mut ByteReader<'_>) -> Self {
        let nodes = [1, 2, 3, 4, 5, 5, 7, MAX_NODES][tape.below(8)];
        let quorum = Quorum::of(nodes).expect("a node");
        let drift = match tape.below(4) {
            0..=2 => Drift::default(),
            _ => {
                let share = f64::from(tape.byte()) / 255.0;
                Drift::new(share, Duration::from_millis(tape.sized_number())).expect("a share")
            }
        };
        let now = (tape.sized_number() >> 8, tape.sized_number() >> 8);
        let hint = tape.one_in(4).then(|| tape.sized_number());
        let session = LockState::new(quorum, drift, ttl(tape), hint, Moment::new(now.0, now.1));
        let waits = tape.one_in(3);
        let mut session = if waits {
            let line = QueueRequest {
                ticket: 50,
                stamp: FIRST_STAMP,
                wait: Duration::ZERO,
                channel: [b'c'; 16],
                claim: None,
            };
            let patience = Duration::from_millis(tape.sized_number() >> 16);
            session.with_queue(line, Moment::new(now.0, now.1).plus(patience))
        } else {
            session
        };
        let Some(Transmit { request, to }) = session.poll_transmit() else { panic!("it asks for the lock") };
        assert_eq!(to, NodeSet::first(nodes));
        let sent = (0..nodes).map(|node| Sent { node, request, heard: ReplyState::Nothing, granted: false });
        Self {
            session,
            quorum,
            now,
            sent: sent.collect(),
            said: vec![None; nodes],
            lasts: vec![None; nodes],
            holds: vec![false; nodes],
            unknown: vec![1; nodes],
            stamps: waits.then(|| (FIRST_STAMP, vec![0; nodes])),
            phase: Phase::Acquiring,
            extension: None,
            is_wild: false,
            was_released: false,
            was_freed: false,
        }
    }

    fn moment(&self) -> Moment {
        Moment::new(self.now.0, self.now.1)
    }

    fn step(
        &mut self,
        tape: &mut ByteReader<'_>,
        hear: &impl Fn(&mut LockState, usize, &Request, LockReply, Moment),
    ) {
        match tape.below(16) {
            0 | 1 if self.stamps.is_some() => self.hand_on(tape),
            2 if self.stamps.is_some() => {
                let node = tape.below(self.quorum.nodes());
                let was_valid = self.is_valid();
                self.session.handle_disconnect(node, Failure::new(FailureKind::Cut, ""), self.moment());
                self.take(was_valid);
            }
            0..=8 => {
                let open: Vec<usize> = (0..self.sent.len())
                    .filter(|sent| self.sent[*sent].heard != ReplyState::Answer)
                    .collect();
                if !open.is_empty() {
                    let which = *tape.pick(&open);
                    let reply = self.reply(tape);
                    self.answer(which, reply, hear);
                }
            }
            9 => {
                let ns = tape.sized_number() >> 8;
                self.now = (self.now.0.saturating_add(ns), self.now.1.saturating_add(ns));
            }
            10 => {
                let (one, other) = (tape.sized_number() >> 16, tape.sized_number() >> 16);
                self.now = (self.now.0.saturating_add(one), self.now.1.saturating_add(other));
            }
            11 => {
                if let Some(moment) = self.session.poll_timeout() {
                    let (one, other) = moment.nanoseconds();
                    self.now = (self.now.0.max(one), self.now.1.max(other));
                }
                let was_valid = self.is_valid();
                self.session.handle_timeout(self.moment());
                self.take(was_valid);
            }
            12 | 13 => self.extend(ttl(tape)),
            14 => self.wild_answer(tape, hear),
            _ => self.release(),
        }
        let held = match self.phase {
            Phase::Held(fence) => Some(fence),
            _ => None,
        };
        assert_eq!(self.session.fence(), held, "{:?}", self.phase);
        self.check_validity();
    }

    fn reply(&self, tape: &mut ByteReader<'_>) -> LockReply {
        match tape.below(12) {
            0..=3 => LockReply::Number(1 + tape.below(4) as u64),
            // What a node that was asked to count up to a number says, or nearly.
            4..=6 => {
                let goals = self.sent.iter().rev().filter_map(|sent| match sent.request.ask {
                    Ask::RaiseFence { fence } => Some(fence),
                    _ => None,
                });
                LockReply::Number(
                    goals.chain([5]).next().unwrap_or(5).saturating_sub(u64::from(tape.one_in(4))),
                )
            }
            7 => LockReply::Number(tape.sized_number()),
            8 if self.stamps.is_some() && !tape.one_in(4) => {
                LockReply::Queued { position: 1, ticket: 40 + tape.below(20) as u64 }
            }
            8 => LockReply::Nil,
            9 => LockReply::Quarantined { left: Duration::from_millis(tape.sized_number()) },
            _ => {
                let kinds = [FailureKind::Silent, FailureKind::Cut, FailureKind::Down, FailureKind::Rejected];
                LockReply::Failed(Failure::new(*tape.pick(&kinds), ""))
            }
        }
    }

    fn answer(
        &mut self,
        which: usize,
        reply: LockReply,
        hear: &impl Fn(&mut LockState, usize, &Request, LockReply, Moment),
    ) {
        let sent = &mut self.sent[which];
        let gives_up = matches!(&reply, LockReply::Failed(failure) if failure.may_have_happened());
        sent.heard = if gives_up && sent.heard == ReplyState::Nothing {
            ReplyState::Silence
        } else {
            ReplyState::Answer
        };
        sent.granted |= matches!(reply, LockReply::Number(1..));
        let (node, request) = (sent.node, sent.request);
        let is_settled = !gives_up;
        if is_settled && matches!(request.ask, Ask::Acquire { .. } | Ask::Wait { .. }) {
            self.unknown[node] -= 1;
        }
        self.note(node, &request, &reply);
        let (was_valid, now) = (self.is_valid(), self.moment());
        hear(&mut self.session, node, &request, reply, now);
        self.take(was_valid);
    }

    /// A node gives the lock to the session that waits, and says so.
    fn hand_on(&mut self, tape: &mut ByteReader<'_>) {
        let Some((largest, granted)) = &mut self.stamps else { return };
        let node = tape.below(self.quorum.nodes());
        let stamp = FIRST_STAMP + tape.below(usize::try_from(*largest - FIRST_STAMP).unwrap_or(0) + 1) as u64;
        let request = self.sent.iter().rev().find(|sent| {
            sent.node == node && matches!(sent.request.ask, Ask::Wait { queue, .. } if queue.stamp == stamp)
        });
        // Only what was asked for is handed on, and only where it may have got.
        let Some(request) = request.filter(|_| self.unknown[node] > 0 || self.holds[node]) else { return };
        let at_most = request.request.sent.until(Moment::new(self.now.0, self.now.1));
        let at_most = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        let waited = Duration::from_millis(tape.sized_number().min(at_most));
        let claim = Duration::from_millis(1 + tape.below(200) as u64);
        let fence = 1 + tape.below(4) as u64;
        // A request is granted once. Of one that is known to have been, or an older one, the news comes late or again: the
        // node has said something else since.
        let is_old = stamp <= granted[node];
        granted[node] = granted[node].max(stamp);
        self.holds[node] = true;
        if self.phase != Phase::Over && !is_old {
            self.said[node] = Some(fence);
        }
        // It was given away by now at the latest.
        if !is_old {
            self.lasts_until(node, self.moment().plus(claim));
        }
        let (was_valid, now) = (self.is_valid(), self.moment());
        self.session.handle_grant(node, Grant { fence, stamp, waited, claim }, now);
        self.take(was_valid);
    }

    fn lasts_until(&mut self, node: usize, end: Moment) {
        let (end, before) = (end.nanoseconds(), self.lasts[node].unwrap_or_default());
        self.lasts[node] = Some((before.0.max(end.0), before.1.max(end.1)));
    }

    /// Any answer to anything, from anybody.
    fn wild_answer(
        &mut self,
        tape: &mut ByteReader<'_>,
        hear: &impl Fn(&mut LockState, usize, &Request, LockReply, Moment),
    ) {
        self.is_wild = true;
        let node = tape.below(MAX_NODES + 4);
        let ask = match tape.below(4) {
            0 => Ask::Acquire { hint: None },
            1 => Ask::RaiseFence { fence: tape.sized_number() },
            2 => Ask::Extend,
            _ => Ask::Release { floor: None },
        };
        let request =
            Request { ask, ttl: ttl(tape), sent: Moment::new(tape.sized_number(), tape.sized_number()) };
        let reply = self.reply(tape);
        self.note(node, &request, &reply);
        let (was_valid, now) = (self.is_valid(), self.moment());
        hear(&mut self.session, node, &request, reply, now);
        self.take(was_valid);
    }

    /// Takes note of an answer before the session does.
    fn note(&mut self, node: usize, request: &Request, reply: &LockReply) {
        if node >= self.quorum.nodes() || request.is_release() {
            return;
        }
        let number = match reply {
            LockReply::Number(number @ 1..) => Some(*number),
            _ => None,
        };
        if let (Some((_, granted)), Ask::Wait { queue, .. }) = (&mut self.stamps, request.ask) {
            match reply {
                LockReply::Number(1..) => granted[node] = granted[node].max(queue.stamp),
                // A grant has overtaken it, or the answer to a later request.
                LockReply::Nil | LockReply::Queued { .. } if queue.stamp <= granted[node] => return,
                // Whatever was granted before has been taken back.
                LockReply::Nil | LockReply::Queued { .. } => granted[node] = queue.stamp - 1,
                _ => {}
            }
        }
        if request.ask != Ask::Extend && self.phase != Phase::Over {
            self.said[node] = number;
        }
        if number.is_some() {
            self.lasts_until(node, request.sent.plus(request.ttl));
        }
        if matches!(request.ask, Ask::Acquire { .. } | Ask::Wait { .. }) {
            match reply {
                LockReply::Number(1..) | LockReply::Queued { .. } => self.holds[node] = true,
                LockReply::Nil | LockReply::Quarantined { .. } => self.holds[node] = false,
                // A fence of 0 is no answer: who knows what it did.
                LockReply::Number(_) => self.unknown[node] += 1,
                LockReply::Failed(_) => {}
            }
        }
    }

    /// Whether so many nodes pass a test as make a majority.
    fn majority(&self, test: impl Fn(usize) -> bool) -> bool {
        self.quorum.is_reached_by((0..self.quorum.nodes()).filter(|node| test(*node)).count())
    }

    /// Whether a majority can be counted on now.
    fn is_valid(&self) -> bool {
        self.session.valid_until().is_some_and(|until| !self.moment().has_reached(until))
    }

    /// Sends what the client asks for. What a node hands over after the others have made a majority is claimed as
    /// it comes.
    fn take_transmit(&mut self) -> bool {
        let Some(Transmit { request, to }) = self.session.poll_transmit() else { return false };
        let claims = self.stamps.is_some() && matches!(self.phase, Phase::Held(_));
        assert!(claims || self.phase == Phase::Acquiring, "sent when it was too late");
        match (request.ask, &mut self.stamps) {
            (Ask::RaiseFence { fence: 1.. }, _) => {}
            (Ask::Wait { queue, .. }, Some((largest, _))) if queue.stamp == *largest + 1 => {
                *largest = queue.stamp;
                to.iter().for_each(|node| self.unknown[node] += 1);
            }
            _ => panic!("{request:?}"),
        }
        self.send(request, to);
        true
    }

    /// Takes note of what an input has led to; `was_valid` tells whether the lock could be counted on before.
    fn take(&mut self, was_valid: bool) {
        let has_sent = self.take_transmit();
        let is_valid = self.is_valid();
        let event = self.session.poll_event();
        assert!(!has_sent || event.is_none(), "one input leads to one output");
        match event {
            None => {}
            Some(Event::Held { fence }) => {
                assert_eq!(self.phase, Phase::Acquiring, "held for a second time");
                let agrees = |node: usize| self.said[node] == Some(fence);
                assert!(self.majority(agrees), "{fence} is not what a majority said: {:?}", self.said);
                assert!(is_valid, "held when its time was up");
                self.phase = Phase::Held(fence);
                self.session.claim(self.moment());
                if let Some(Transmit { request, to }) = self.session.poll_transmit() {
                    assert!(self.stamps.is_some(), "claimed what nobody handed on");
                    self.send(request, to);
                }
            }
            Some(Event::Failed(_)) => {
                assert_eq!(self.phase, Phase::Acquiring, "failed when it was over");
                self.phase = Phase::Over;
            }
            Some(Event::Extended) => {
                assert!(matches!(self.phase, Phase::Held(_)) && is_valid, "extended when it was over");
                let request = self.extension.take();
                let granted = |node| {
                    let is_of_it = |sent: &&Sent| sent.node == node && Some(sent.request) == request;
                    self.sent.iter().filter(is_of_it).any(|sent| sent.granted)
                };
                assert!(self.is_wild || self.majority(granted), "extended by less than a majority");
            }
            Some(Event::NotExtended(_)) => {
                assert!(matches!(self.phase, Phase::Held(_)) && is_valid, "news when it was over");
                self.extension = None;
            }
            Some(Event::Lost(_)) => {
                assert!(matches!(self.phase, Phase::Held(_)), "lost what was not held");
                assert!(!was_valid || !is_valid, "lost what is still held");
                self.phase = Phase::Over;
            }
            Some(Event::Released) => {
                assert!(self.was_released, "free without a release");
                assert!(self.is_wild || !self.was_freed, "free for a second time");
                self.was_freed = true;
            }
        }
    }

    fn send(&mut self, request: Request, to: NodeSet) {
        assert!(!to.is_empty(), "sent to no node: {request:?}");
        for node in to.iter() {
            let is_there = node < self.quorum.nodes();
            assert!(self.is_wild || is_there, "node {node}");
            if is_there {
                self.sent.push(Sent { node, request, heard: ReplyState::Nothing, granted: false });
            }
        }
    }

    /// A lock is counted on no longer than a majority can hold it.
    fn check_validity(&self) {
        let Some(until) = self.session.valid_until().map(Moment::nanoseconds) else { return };
        let holds = |node: usize| self.lasts[node].is_some_and(|end| until.0 <= end.0 && until.1 <= end.1);
        assert!(self.majority(holds), "counted on until {until:?}, which is too long: {:?}", self.lasts);
    }

    fn extend(&mut self, ttl: Duration) {
        let was_valid = self.is_valid();
        match self.session.extend(ttl, self.moment()) {
            Ok(()) => {
                assert!(matches!(self.phase, Phase::Held(_)) && was_valid, "an extension revives a lock");
                let transmit = self.session.poll_transmit();
                assert!(self.is_wild || transmit.is_some(), "no node is asked");
                self.extension = transmit.map(|transmit| transmit.request);
                if let Some(Transmit { request, to }) = transmit {
                    self.send(request, to);
                }
            }
            Err(_) => {
                assert!(!(matches!(self.phase, Phase::Held(_)) && was_valid), "a held lock is extended");
                self.phase = Phase::Over;
            }
        }
    }

    fn release(&mut self) {
        self.session.release(self.moment());
        let (transmit, event) = (self.session.poll_transmit(), self.session.poll_event());
        self.phase = Phase::Over;
        self.extension = None;
        if self.was_released {
            assert!(transmit.is_none() && event.is_none(), "released twice");
            return;
        }
        self.was_released = true;
        let to = transmit.map_or(NodeSet::EMPTY, |transmit| transmit.to);
        // With no node to ask, the release is over at once.
        self.was_freed = matches!(event, Some(Event::Released));
        assert_eq!(self.was_freed, to.is_empty(), "{event:?}");
        for node in 0..self.quorum.nodes() {
            let is_asked = to.contains(node);
            let maybe_held = self.holds[node] || self.unknown[node] > 0;
            // Whoever asked a node more than once does not keep count, and frees once too often rather than too
            // seldom.
            let is_right = is_asked == maybe_held || (is_asked && self.stamps.is_some());
            assert!(self.is_wild || is_right, "node {node}: asked is {is_asked}");
        }
        if let Some(Transmit { request, to }) = transmit {
            self.send(request, to);
        }
    }
}

/// Any time to live that the client lets through: as many milliseconds as a command can say.
fn ttl(tape: &mut ByteReader<'_>) -> Duration {
    let ms = match tape.below(4) {
        0..=2 => 30_000,
        _ => tape.sized_number(),
    };
    Duration::from_millis(ms)
}
