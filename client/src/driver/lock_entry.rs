//! One lock that the driver tracks, and the callers that wait for it.

use super::in_flight::Stage;
use super::message::{AcquireCall, Acquired, EntryId, Extended, NotAcquired};
use crate::lock_shared::{LockShared, LostReason};
use crate::settings::Settings;
use redlock_proto::lock_state::LockEnded;
use redlock_proto::{
    AcquireOptions, Ask, Drift, Event, LockReply, LockState, Moment, QueueRequest, Refusal, ReleaseProgress,
    Request, Vote,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A lock that the driver tracks, from the first request to the last reply.
pub(super) struct LockEntry {
    pub(super) serial: u64,
    /// The protocol: which requests to send, and what their replies mean.
    pub(super) state: LockState,
    pub(super) shared: Arc<LockShared>,
    on_acquired: Option<oneshot::Sender<Acquired>>,
    on_extended: Option<oneshot::Sender<Extended>>,
    pub(super) on_released: Option<oneshot::Sender<ReleaseProgress>>,
    /// Released or detached: the entry stays only for outstanding replies.
    pub(super) is_over: bool,
    /// Requests without an outcome, overdue ones excluded.
    in_flight: usize,
    /// Requests without a final outcome, overdue ones included.
    unanswered: usize,
    /// The validity that the last acquire or extension gives.
    lease: Duration,
    /// The time to live of the extension in flight.
    next_ttl: Option<Duration>,
    /// When the newest extension was sent, once it has failed: later votes explain it.
    failed_extension: Option<Moment>,
    /// When the newest extension was sent.
    last_extension: Option<Moment>,
    pub(super) ticket: Option<u64>,
    is_queued: bool,
    /// Whether the caller has got an error: later votes explain it.
    pub(super) has_failed: bool,
    /// The earliest moment at which the timer may fire again.
    pub(super) not_before: Moment,
    /// When the timer fires; `None` if it is not set.
    pub(super) timer: Option<Moment>,
}

impl LockEntry {
    /// An attempt to acquire a lock, with a place in the nodes' wait queues until a moment if `queue` is set.
    pub(super) fn new(
        settings: &Settings,
        serial: u64,
        call: AcquireCall,
        hint: Option<u64>,
        queue: Option<(QueueRequest, Moment)>,
        now: Moment,
    ) -> Self {
        let options = AcquireOptions { mode: call.shared.mode, hint };
        let state = LockState::new(settings.quorum, settings.drift, call.ttl, options, now);
        let yields = call.wait.map_or(0, |wait| wait.yields);
        let state = match queue {
            Some((request, until)) => state.with_queue(request, until).after_yields(yields),
            None => state,
        };
        Self {
            serial,
            state,
            ticket: call.ticket(),
            shared: call.shared,
            on_acquired: Some(call.answer),
            on_extended: None,
            on_released: None,
            is_over: false,
            in_flight: 0,
            unanswered: 0,
            lease: settings.drift.lease(call.ttl),
            next_ttl: None,
            failed_extension: None,
            last_extension: None,
            is_queued: queue.is_some(),
            has_failed: false,
            not_before: now,
            timer: None,
        }
    }

    /// Counts requests that were sent.
    pub(super) fn sent(&mut self, requests: usize) {
        self.in_flight += requests;
        self.unanswered += requests;
    }

    /// Counts the outcome of a request.
    pub(super) fn settled(&mut self, stage: Stage) {
        if stage != Stage::SettledLate {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if stage != Stage::Overdue {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
    }

    /// Whether the driver can drop the entry.
    pub(super) fn is_done(&self) -> bool {
        self.is_over && self.unanswered == 0
    }

    /// Whether a caller of flush waits for this lock: a release, or an attempt that may end with one.
    pub(super) fn is_releasing(&self) -> bool {
        self.in_flight > 0 && (self.is_over || self.on_acquired.is_some())
    }

    /// Starts an extension. It replaces an extension in flight, whose caller gets no answer.
    pub(super) fn extend(
        &mut self,
        ttl: Duration,
        drift: Drift,
        now: Moment,
        answer: oneshot::Sender<Extended>,
    ) {
        match self.state.extend(ttl, now) {
            Ok(()) => {
                self.lease = drift.lease(ttl);
                self.next_ttl = Some(ttl);
                (self.last_extension, self.failed_extension) = (Some(now), None);
                self.on_extended = Some(answer);
            }
            Err(LockEnded) => {
                self.shared.end(LostReason::Expired);
                let _ = answer.send(Extended::Ended);
            }
        }
    }

    /// Ends the lock. The state then asks for the releases.
    pub(super) fn release(&mut self, now: Moment) {
        self.is_over = true;
        self.shared.end(LostReason::Released);
        self.state.release(now);
        // Settled at once if no node may hold the lock, or if an earlier release is settled.
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

    /// Reports an event to the callers; true if the driver has to release the lock.
    pub(super) fn apply(&mut self, event: Option<Event>, has_sent: bool, id: EntryId, now: Moment) -> bool {
        // Any reply may shorten or lengthen the validity of a held lock.
        if let (Some(_), Some(until)) = (self.state.fence(), self.state.valid_until()) {
            self.shared.set_valid_until(until, self.lease);
        }
        let Some(event) = event else { return !has_sent && self.is_cancelled() };
        match event {
            Event::Held { fence } => return !self.report_held(fence, id, now),
            Event::Failed(refusal) => {
                self.report_refusal(refusal);
                return true;
            }
            Event::Extended => {
                if let Some(fence) = self.state.fence() {
                    self.shared.granted(fence);
                }
                // Set here: the extension counts even if the caller has stopped waiting.
                if let Some(ttl) = self.next_ttl.take() {
                    self.shared.set_ttl(ttl, self.lease);
                }
                self.shared.set_last_votes(None);
                self.report_extension(Extended::Yes);
            }
            Event::NotExtended(ballot) => {
                self.failed_extension = self.last_extension;
                self.shared.set_last_votes(Some(ballot));
                self.report_extension(Extended::No);
            }
            Event::Lost(ballot) => {
                // Records `Expired` first if the validity has ended; otherwise the nodes have lost the lock.
                let _ = self.shared.remaining();
                self.shared.end(LostReason::Gone);
                self.failed_extension = self.last_extension;
                self.shared.set_last_votes(Some(ballot));
                self.report_extension(Extended::Lost);
            }
            Event::Released => self.report_release(),
        }
        false
    }

    /// Hands the lock to the caller; false if the caller has stopped waiting.
    fn report_held(&mut self, fence: u64, id: EntryId, now: Moment) -> bool {
        self.shared.granted(fence);
        self.shared.granted_by(self.state.ballot().nodes(|vote| vote.fence().is_some()));
        if self.state.was_contended() {
            self.shared.refused();
        }
        let is_taken = self.on_acquired.take().is_some_and(|answer| answer.send(Ok(id)).is_ok());
        if is_taken {
            self.state.claim(now);
        }
        is_taken
    }

    /// Tells the caller that the attempt has failed; false if the caller has been answered before.
    fn report_refusal(&mut self, refusal: Refusal) -> bool {
        let Some(answer) = self.on_acquired.take() else { return false };
        self.has_failed = true;
        let ballot = self.state.ballot().clone();
        let _ = answer.send(Err(NotAcquired { refusal, ballot, has_waited: self.is_queued }));
        true
    }

    /// Adds a vote that came after the attempt or the extension was decided, for the error of the caller.
    pub(super) fn add_late_vote(&self, node: usize, request: &Request, reply: &LockReply) {
        match request.ask {
            Ask::Acquire { .. } | Ask::Wait { .. } if self.has_failed => {
                self.shared.add_late_vote(node, Vote::from(reply.clone()));
            }
            Ask::Acquire { .. } | Ask::Wait { .. } | Ask::RaiseFence { .. } => {
                if let Some(fence) = self.state.fence() {
                    self.shared.add_vote_of_held(node, fence, reply);
                }
            }
            Ask::Extend if self.failed_extension == Some(request.sent) => {
                self.shared.add_to_last_votes(node, Vote::from(reply.clone()));
            }
            _ => {}
        }
    }

    /// Fails an attempt whose deadline has passed; false if the attempt had ended before.
    pub(super) fn time_out(&mut self) -> bool {
        !self.is_over && self.report_refusal(Refusal::NoQuorum)
    }

    /// Whether it is an attempt that has not ended yet.
    pub(super) fn is_attempt(&self) -> bool {
        !self.is_over && self.on_acquired.is_some()
    }

    /// Whether the caller has stopped waiting for the attempt.
    fn is_cancelled(&self) -> bool {
        !self.is_over && self.on_acquired.as_ref().is_some_and(oneshot::Sender::is_closed)
    }
}
