//! A session and those who wait for it.

use super::in_flight::Stage;
use super::message::{Acquired, EntryId, Extended, NotAcquired, WaitPlan};
use crate::hold::Hold;
use crate::lease::Loss;
use crate::settings::Settings;
use crate::wire::Frame;
use redlock_core::proof::{GrantMessage, Stamped};
use redlock_proto::lock_state::Over;
use redlock_proto::{
    Ask, Drift, Event, Failure, FailureKind, Grant, LockState, Moment, QueueRequest, Refusal,
    ReleaseProgress, Reply, Request,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A lock that the driver looks after, from the attempt to the last answer.
pub(super) struct LockEntry {
    pub(super) serial: u64,
    pub(super) state: LockState,
    pub(super) hold: Arc<Hold>,
    on_acquired: Option<oneshot::Sender<Acquired>>,
    on_extended: Option<oneshot::Sender<Extended>>,
    pub(super) on_released: Option<oneshot::Sender<ReleaseProgress>>,
    /// Released, or given away: only answers are still to come.
    pub(super) is_over: bool,
    /// Requests whose fate is not known, and not yet overdue.
    in_flight: usize,
    /// Requests that a connection still has, overdue ones too.
    unanswered: usize,
    /// For how long the lock is counted on once it is held.
    lease: Duration,
    /// The time to live of the extension that is under way.
    next_ttl: Option<Duration>,
    /// The name of the call, if it may take long.
    pub(super) ticket: Option<u64>,
    is_queued: bool,
    /// When it can be woken again.
    pub(super) not_before: Moment,
    /// When it is going to be woken.
    pub(super) planned: Option<Moment>,
}

impl LockEntry {
    #[allow(clippy::too_many_arguments, reason = "one call's worth of words, nothing to group")]
    pub(super) fn begin(
        settings: &Settings,
        serial: u64,
        hold: Arc<Hold>,
        ttl: Duration,
        hint: Option<u64>,
        line: Option<(QueueRequest, WaitPlan, Moment)>,
        now: Moment,
        answer: oneshot::Sender<Acquired>,
    ) -> Self {
        let state = LockState::new(settings.quorum, settings.drift, ttl, hint, now);
        let state = match line {
            Some((line, wait, until)) => state.with_queue(line, until).after_yields(wait.yields),
            None => state,
        };
        Self {
            serial,
            state,
            hold,
            on_acquired: Some(answer),
            on_extended: None,
            on_released: None,
            is_over: false,
            in_flight: 0,
            unanswered: 0,
            ticket: None,
            is_queued: line.is_some(),
            not_before: now,
            planned: None,
            lease: settings.drift.lease(ttl),
            next_ttl: None,
        }
    }

    pub(super) fn sent(&mut self, requests: usize) {
        self.in_flight += requests;
        self.unanswered += requests;
    }

    pub(super) fn settled(&mut self, stage: Stage) {
        if stage != Stage::SettledLate {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if stage != Stage::Overdue {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
    }

    /// Whether nobody needs it any more.
    pub(super) fn is_done(&self) -> bool {
        self.is_over && self.unanswered == 0
    }

    /// Whether a release is under way that can still be waited for.
    pub(super) fn is_releasing(&self) -> bool {
        self.in_flight > 0 && (self.is_over || self.on_acquired.is_some())
    }

    /// Begins an extension. One that was under way before answers nobody any more.
    pub(super) fn extend(
        &mut self,
        ttl: Duration,
        drift: Drift,
        now: Moment,
        answer: oneshot::Sender<Extended>,
    ) {
        let begun = self.state.extend(ttl, now);
        if begun.is_ok() {
            self.lease = drift.lease(ttl);
            self.next_ttl = Some(ttl);
        }
        self.await_extension(begun, answer);
    }

    fn await_extension(&mut self, begun: Result<(), Over>, answer: oneshot::Sender<Extended>) {
        match begun {
            Ok(()) => self.on_extended = Some(answer),
            Err(Over) => {
                self.hold.lease.end(Loss::Expired);
                let _ = answer.send(Extended::Over);
            }
        }
    }

    pub(super) fn release(&mut self, now: Moment) {
        self.is_over = true;
        self.hold.lease.end(Loss::Released);
        self.state.release(now);
        // With no node to ask, or asked before, it may be settled at once.
        let _ = self.state.poll_event();
        if self.state.release_progress().is_some_and(ReleaseProgress::is_settled) {
            self.report_release();
        }
    }

    fn report_release(&mut self) {
        if let (Some(answer), Some(progress)) = (self.on_released.take(), self.state.release_progress()) {
            let _ = answer.send(progress.clone());
        }
    }

    fn report_extension(&mut self, extended: Extended) {
        if let Some(answer) = self.on_extended.take() {
            let _ = answer.send(extended);
        }
    }

    /// Tells those who wait what has happened; true if the lock is to be released because no caller wants it.
    pub(super) fn apply(&mut self, event: Option<Event>, has_sent: bool, id: EntryId, now: Moment) -> bool {
        // Any answer may move the end of a lock that is held, in either direction.
        if let (Some(_), Some(until)) = (self.state.fence(), self.state.valid_until()) {
            self.hold.lease.set_until(until, self.lease);
        }
        let Some(event) = event else { return !has_sent && self.is_cancelled() };
        match event {
            Event::Held { fence } => {
                self.hold.granted(fence);
                self.hold.granted_by(self.state.ballot().nodes(|vote| vote.fence().is_some()));
                if self.state.was_refused() {
                    self.hold.refused();
                }
                let answer = self.on_acquired.take();
                // Nobody there to take it: a cancelled call leaves no lock behind.
                if answer.is_none_or(|answer| answer.send(Ok(id)).is_err()) {
                    return true;
                }
                self.state.claim(now);
            }
            Event::Failed(refusal) => {
                self.report_refusal(refusal);
                return true;
            }
            Event::Extended => {
                if let Some(fence) = self.state.fence() {
                    self.hold.granted(fence);
                }
                // Here and not where the answer is awaited: that future may be gone, and the extension counts.
                if let Some(ttl) = self.next_ttl.take() {
                    self.hold.set_ttl(ttl, self.lease);
                }
                self.hold.remember(None);
                self.report_extension(Extended::Yes);
            }
            Event::NotExtended(ballot) => {
                self.hold.remember(Some(ballot.clone()));
                self.report_extension(Extended::No(ballot));
            }
            Event::Lost(ballot) => {
                // Unless its time was up before, it is the nodes that have let go of it.
                let _ = self.hold.lease.remaining();
                self.hold.lease.end(Loss::Gone);
                self.hold.remember(Some(ballot));
                self.report_extension(Extended::Lost);
            }
            Event::Released => self.report_release(),
        }
        false
    }

    /// Tells whoever wanted the lock that it is not had; false if nobody waits to hear that.
    fn report_refusal(&mut self, refusal: Refusal) -> bool {
        let Some(answer) = self.on_acquired.take() else { return false };
        let ballot = self.state.ballot().clone();
        let _ = answer.send(Err(NotAcquired { refusal, ballot, has_waited: self.is_queued }));
        true
    }

    /// Ends an attempt that has no more time; true if it was not over before.
    pub(super) fn time_out(&mut self) -> bool {
        !self.is_over && self.report_refusal(Refusal::NoQuorum)
    }

    /// Whether the caller is gone. A cancelled call is given up as soon as anything comes in for it.
    fn is_cancelled(&self) -> bool {
        !self.is_over && self.on_acquired.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}

/// What a node's reply means to a session.
pub(super) fn reply_of(outcome: Result<Frame, Failure>, request: &Request) -> Reply {
    let frame = match outcome {
        Ok(frame) => frame,
        Err(failure) => return Reply::Failed(failure),
    };
    match &frame {
        Frame::Integer(number) => match u64::try_from(*number) {
            Ok(number) => Reply::Number(number),
            Err(_) => garbled("a negative number"),
        },
        Frame::Nil => Reply::Nil,
        Frame::Array(parts) if matches!(request.ask, Ask::Wait { .. }) => queued(parts),
        Frame::Error(_) => {
            let complaint = frame.error_message().unwrap_or_default();
            match quarantine(&complaint) {
                Some(left) => Reply::Quarantined { left },
                None if is_line_full(&complaint, request) => Reply::Nil,
                None => rejected(&complaint),
            }
        }
        _ => garbled("a reply of a kind that the command does not have"),
    }
}

/// A place in line: what is left to the holder, the position, the holder's ticket.
fn queued(parts: &[Frame]) -> Reply {
    let number = |part: &Frame| part.as_integer().and_then(|number| u64::try_from(number).ok());
    match parts {
        [_, position, ticket] => match (number(position), number(ticket)) {
            (Some(position), Some(ticket)) => Reply::Queued { position, ticket },
            _ => garbled("a place in line that is none"),
        },
        _ => garbled("a place in line that is none"),
    }
}

/// What a verified message says of the grant; `None` if it says nothing of times.
pub(super) fn grant_of(message: &GrantMessage<'_>) -> Option<Grant> {
    let Stamped { stamp, waited_ms, claim_ms } = message.stamped?;
    let (waited, claim) = (Duration::from_millis(waited_ms), Duration::from_millis(claim_ms));
    Some(Grant { fence: message.fence, stamp, waited, claim })
}

/// A reply that makes no sense says nothing about what the node did.
fn garbled(why: &str) -> Reply {
    Reply::Failed(Failure::new(FailureKind::Cut, why))
}

fn rejected(why: &str) -> Reply {
    Reply::Failed(Failure::new(FailureKind::Rejected, why))
}

/// Whether the lock is held, and the line for it full: refused, as whoever does not wait is.
fn is_line_full(complaint: &str, request: &Request) -> bool {
    matches!(request.ask, Ask::Wait { .. }) && complaint.starts_with("REDLOCKWAITERS ")
}

/// How long a node waits, if that is what it complains of: `REDLOCKQUARANTINE … <ms left>`.
fn quarantine(complaint: &str) -> Option<Duration> {
    complaint.strip_prefix("REDLOCKQUARANTINE")?;
    let left = complaint.rsplit(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?;
    left.parse().ok().map(Duration::from_millis)
}
