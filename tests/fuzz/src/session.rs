//! The client's state machine for one lock, with any replies, late and repeated ones included.
//!
//! The client holds the lock only if a majority has answered one fence and the leases of that majority have not
//! expired. It acquires the lock once, and never again after the lock was lost or released. A release goes to every
//! node that may hold the lock. Some sessions queue, repeat their request and get pushed grants again and again.

use crate::byte_reader::ByteReader;
use redlock_proto::{
    AcquireOptions, Ask, Drift, Event, Failure, FailureKind, Grant, LockReply, LockState, MAX_NODES, Moment,
    NodeSet, QueueRequest, Quorum, Request, Transmit,
};
use std::time::Duration;

const LONGEST_HISTORY: usize = 300;
const FIRST_STAMP: u64 = 100;

/// Runs the target on the client's state machine.
pub fn run(bytes: &[u8]) {
    check(bytes, LockState::handle_reply);
}

/// Runs the target; `hear` passes a reply to the state machine.
///
/// # Panics
/// If the client breaks a rule.
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

/// Drives a session, and records what it needs to judge the session's events.
struct Harness {
    session: LockState,
    quorum: Quorum,
    now: (u64, u64),
    sent: Vec<Sent>,
    /// The last fence that each node answered.
    said: Vec<Option<u64>>,
    /// The latest time at which each node's lease ends, by all its replies.
    lasts: Vec<Option<(u64, u64)>>,
    /// Whether each node, by its last reply, holds the lock for the session or has it in its queue.
    holds: Vec<bool>,
    /// How many requests to each node are in flight or in doubt.
    unknown: Vec<usize>,
    /// For a session that queues: the largest stamp, and for every node the stamp of the last request that it granted.
    /// If the node has refused a later request, the stamp before that of the refused one.
    stamps: Option<(u64, Vec<u64>)>,
    phase: Phase,
    extension: Option<Request>,
    /// A reply came that no correct node sends. Rules that depend on correct nodes are not checked then.
    is_wild: bool,
    was_released: bool,
    was_freed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Acquiring,
    Held(u64),
    Ended,
}

/// A request to a node.
struct Sent {
    node: usize,
    request: Request,
    heard: ReplyState,
    /// Whether the node has granted the request.
    granted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplyState {
    Nothing,
    /// The client gave up the request; the reply may still come.
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
        let session = LockState::new(
            quorum,
            drift,
            ttl(tape),
            AcquireOptions::exclusive(hint),
            Moment::new(now.0, now.1),
        );
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
        let Some(Transmit { request, to }) = session.poll_transmit() else {
            panic!("a new session sends no request")
        };
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
            // The fence to which a node was asked to raise, or one close to it.
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

    /// A node hands the lock to the queued session and sends a push.
    fn hand_on(&mut self, tape: &mut ByteReader<'_>) {
        let Some((largest, granted)) = &mut self.stamps else { return };
        let node = tape.below(self.quorum.nodes());
        let stamp = FIRST_STAMP + tape.below(usize::try_from(*largest - FIRST_STAMP).unwrap_or(0) + 1) as u64;
        let request = self.sent.iter().rev().find(|sent| {
            sent.node == node && matches!(sent.request.ask, Ask::Wait { queue, .. } if queue.stamp == stamp)
        });
        // A node hands off only to a request that it may have received.
        let Some(request) = request.filter(|_| self.unknown[node] > 0 || self.holds[node]) else { return };
        let at_most = request.request.sent.until(Moment::new(self.now.0, self.now.1));
        let at_most = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        let waited = Duration::from_millis(tape.sized_number().min(at_most));
        let claim = Duration::from_millis(1 + tape.below(200) as u64);
        let fence = 1 + tape.below(4) as u64;
        // A node grants a request once. For a request that it has granted, or an older one, this push is late or
        // repeated: the node has sent another reply since.
        let is_old = stamp <= granted[node];
        granted[node] = granted[node].max(stamp);
        self.holds[node] = true;
        if self.phase != Phase::Ended && !is_old {
            self.said[node] = Some(fence);
        }
        // The node granted the lock now or earlier.
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

    /// Any reply to any request, from any node number.
    fn wild_answer(
        &mut self,
        tape: &mut ByteReader<'_>,
        hear: &impl Fn(&mut LockState, usize, &Request, LockReply, Moment),
    ) {
        self.is_wild = true;
        let node = tape.below(MAX_NODES + 4);
        let ask = match tape.below(4) {
            0 => Ask::Acquire { options: AcquireOptions::default() },
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

    /// Records a reply before the session gets it.
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
                // A grant, or the reply to a later request, has overtaken this reply.
                LockReply::Nil | LockReply::Queued { .. } if queue.stamp <= granted[node] => return,
                // The node no longer holds what it granted before.
                LockReply::Nil | LockReply::Queued { .. } => granted[node] = queue.stamp - 1,
                _ => {}
            }
        }
        if request.ask != Ask::Extend && self.phase != Phase::Ended {
            self.said[node] = number;
        }
        if number.is_some() {
            self.lasts_until(node, request.sent.plus(request.ttl));
        }
        if matches!(request.ask, Ask::Acquire { .. } | Ask::Wait { .. }) {
            match reply {
                LockReply::Number(1..) | LockReply::Queued { .. } => self.holds[node] = true,
                LockReply::Nil | LockReply::Quarantined { .. } => self.holds[node] = false,
                // A fence of 0 is not a valid reply: the request is in doubt.
                LockReply::Number(_) => self.unknown[node] += 1,
                LockReply::Failed(_) => {}
            }
        }
    }

    /// Whether a majority of the nodes passes a test.
    fn majority(&self, test: impl Fn(usize) -> bool) -> bool {
        self.quorum.is_reached_by((0..self.quorum.nodes()).filter(|node| test(*node)).count())
    }

    /// Whether the session's lock is valid now.
    fn is_valid(&self) -> bool {
        self.session.valid_until().is_some_and(|until| !self.moment().has_reached(until))
    }

    /// Sends the client's next request, if any. The client claims the grant of a node that comes after a majority too.
    fn take_transmit(&mut self) -> bool {
        let Some(Transmit { request, to }) = self.session.poll_transmit() else { return false };
        let claims = self.stamps.is_some() && matches!(self.phase, Phase::Held(_));
        assert!(claims || self.phase == Phase::Acquiring, "sent after the end of the attempt");
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

    /// Checks the outputs that follow an input. `was_valid`: whether the lock was valid before the input.
    fn take(&mut self, was_valid: bool) {
        let has_sent = self.take_transmit();
        let is_valid = self.is_valid();
        let event = self.session.poll_event();
        assert!(!has_sent || event.is_none(), "one input led to two outputs");
        match event {
            None => {}
            Some(Event::Held { fence }) => {
                assert_eq!(self.phase, Phase::Acquiring, "acquired twice");
                let agrees = |node: usize| self.said[node] == Some(fence);
                assert!(self.majority(agrees), "{fence} is not the fence of a majority: {:?}", self.said);
                assert!(is_valid, "acquired after its validity ended");
                self.phase = Phase::Held(fence);
                self.session.claim(self.moment());
                if let Some(Transmit { request, to }) = self.session.poll_transmit() {
                    assert!(self.stamps.is_some(), "claimed a lock without a hand-off");
                    self.send(request, to);
                }
            }
            Some(Event::Failed(_)) => {
                assert_eq!(self.phase, Phase::Acquiring, "failed after the end of the attempt");
                self.phase = Phase::Ended;
            }
            Some(Event::Extended) => {
                assert!(matches!(self.phase, Phase::Held(_)) && is_valid, "extended after the lock ended");
                let request = self.extension.take();
                let granted = |node| {
                    let is_of_it = |sent: &&Sent| sent.node == node && Some(sent.request) == request;
                    self.sent.iter().filter(is_of_it).any(|sent| sent.granted)
                };
                assert!(self.is_wild || self.majority(granted), "extended by less than a majority");
            }
            Some(Event::NotExtended(_)) => {
                assert!(
                    matches!(self.phase, Phase::Held(_)) && is_valid,
                    "an extension failed after the lock ended"
                );
                self.extension = None;
            }
            Some(Event::Lost(_)) => {
                assert!(matches!(self.phase, Phase::Held(_)), "lost a lock that was not held");
                assert!(!was_valid || !is_valid, "lost a lock that is still valid");
                self.phase = Phase::Ended;
            }
            Some(Event::Released) => {
                assert!(self.was_released, "released without a request");
                assert!(self.is_wild || !self.was_freed, "released twice");
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

    /// Checks that the validity ends no later than the leases of a majority.
    fn check_validity(&self) {
        let Some(until) = self.session.valid_until().map(Moment::nanoseconds) else { return };
        let holds = |node: usize| self.lasts[node].is_some_and(|end| until.0 <= end.0 && until.1 <= end.1);
        assert!(
            self.majority(holds),
            "valid until {until:?}, longer than a majority of the leases: {:?}",
            self.lasts
        );
    }

    fn extend(&mut self, ttl: Duration) {
        let was_valid = self.is_valid();
        match self.session.extend(ttl, self.moment()) {
            Ok(()) => {
                assert!(
                    matches!(self.phase, Phase::Held(_)) && was_valid,
                    "an extension of a lock that is over"
                );
                let transmit = self.session.poll_transmit();
                assert!(self.is_wild || transmit.is_some(), "the extension goes to no node");
                self.extension = transmit.map(|transmit| transmit.request);
                if let Some(Transmit { request, to }) = transmit {
                    self.send(request, to);
                }
            }
            Err(_) => {
                assert!(
                    !(matches!(self.phase, Phase::Held(_)) && was_valid),
                    "a held lock cannot be extended"
                );
                self.phase = Phase::Ended;
            }
        }
    }

    fn release(&mut self) {
        self.session.release(self.moment());
        let (transmit, event) = (self.session.poll_transmit(), self.session.poll_event());
        self.phase = Phase::Ended;
        self.extension = None;
        if self.was_released {
            assert!(transmit.is_none() && event.is_none(), "a second release has an effect");
            return;
        }
        self.was_released = true;
        let to = transmit.map_or(NodeSet::EMPTY, |transmit| transmit.to);
        // Without a node to ask, the release ends at once.
        self.was_freed = matches!(event, Some(Event::Released));
        assert_eq!(self.was_freed, to.is_empty(), "{event:?}");
        for node in 0..self.quorum.nodes() {
            let is_asked = to.contains(node);
            let maybe_held = self.holds[node] || self.unknown[node] > 0;
            // A session that queues may ask a node more than once and does not count its requests, so it may send a
            // release that is not needed.
            let is_right = is_asked == maybe_held || (is_asked && self.stamps.is_some());
            assert!(
                self.is_wild || is_right,
                "node {node}: gets a release: {is_asked}, may hold the lock: {maybe_held}"
            );
        }
        if let Some(Transmit { request, to }) = transmit {
            self.send(request, to);
        }
    }
}

/// Any time to live that the client accepts, in the range of the command's argument.
fn ttl(tape: &mut ByteReader<'_>) -> Duration {
    let ms = match tape.below(4) {
        0..=2 => 30_000,
        _ => tape.sized_number(),
    };
    Duration::from_millis(ms)
}
