//! Helpers for tests: inputs and commands that return what the caller would poll.

use super::{Event, Grant, LockEnded, LockState, QueueRequest, Request, Transmit};
use crate::{AcquireOptions, Drift, Failure, LockReply, Moment, NodeSet, Quorum, Refusal};
use std::time::Duration;

/// What the caller polls after one call.
#[derive(Debug)]
pub(super) enum LockOutput {
    Transmit(Transmit),
    Event(Event),
}

/// Asserts that the client holds the lock now, with this fence.
#[track_caller]
pub(super) fn assert_held(output: Option<LockOutput>, fence: u64) {
    let is_held = matches!(&output, Some(LockOutput::Event(Event::Held { fence: held })) if *held == fence);
    assert!(is_held, "not held with fence {fence}: {output:?}");
}

/// Asserts that the attempt has failed now, for this reason.
#[track_caller]
pub(super) fn assert_failed(output: Option<LockOutput>, refusal: Refusal) {
    let has_failed = matches!(&output, Some(LockOutput::Event(Event::Failed(reason))) if *reason == refusal);
    assert!(has_failed, "not failed with {refusal:?}: {output:?}");
}

/// The request that a call has left to send, and its nodes.
#[track_caller]
pub(super) fn sent(output: Option<LockOutput>) -> (Request, NodeSet) {
    let Some(LockOutput::Transmit(Transmit { request, to })) = output else {
        panic!("no request: {output:?}")
    };
    (request, to)
}

impl LockState {
    pub(super) fn output(&mut self) -> Option<LockOutput> {
        let (transmit, event) = (self.poll_transmit(), self.poll_event());
        assert!(transmit.is_none() || event.is_none(), "one call leaves one output: {transmit:?}, {event:?}");
        assert!(transmit.is_none_or(|transmit| !transmit.to.is_empty()), "sent to no node: {transmit:?}");
        transmit.map(LockOutput::Transmit).or(event.map(LockOutput::Event))
    }

    pub(super) fn begin(
        quorum: Quorum,
        drift: Drift,
        ttl: Duration,
        hint: Option<u64>,
        now: Moment,
    ) -> (Self, Request) {
        let mut lock = Self::new(quorum, drift, ttl, AcquireOptions::exclusive(hint), now);
        let (request, to) = sent(lock.output());
        assert_eq!(to, NodeSet::first(quorum.nodes()));
        (lock, request)
    }

    pub(super) fn begin_queueing(self, queue: QueueRequest, until: Moment) -> (Self, Request) {
        let mut lock = self.with_queue(queue, until);
        let request = sent(lock.output()).0;
        (lock, request)
    }

    pub(super) fn on_reply(
        &mut self,
        node: usize,
        request: &Request,
        reply: LockReply,
        now: Moment,
    ) -> Option<LockOutput> {
        self.handle_reply(node, request, reply, now);
        self.output()
    }

    pub(super) fn on_grant(&mut self, node: usize, grant: Grant, now: Moment) -> Option<LockOutput> {
        self.handle_grant(node, grant, now);
        self.output()
    }

    pub(super) fn on_disconnect(&mut self, node: usize, failure: Failure, now: Moment) -> Option<LockOutput> {
        self.handle_disconnect(node, failure, now);
        self.output()
    }

    pub(super) fn on_timeout(&mut self, now: Moment) -> Option<LockOutput> {
        self.handle_timeout(now);
        self.output()
    }

    pub(super) fn on_stop_queueing(&mut self, now: Moment) -> Option<LockOutput> {
        self.stop_queueing(now);
        self.output()
    }

    pub(super) fn on_extend(&mut self, ttl: Duration, now: Moment) -> Result<(Request, NodeSet), LockEnded> {
        self.extend(ttl, now).map(|()| sent(self.output())).inspect_err(|_| assert!(self.output().is_none()))
    }

    pub(super) fn on_claim(&mut self, now: Moment) -> Option<(Request, NodeSet)> {
        self.claim(now);
        self.transmit.is_some().then(|| sent(self.output()))
    }

    pub(super) fn on_release(&mut self, now: Moment) -> (Request, NodeSet) {
        self.release(now);
        sent(self.output())
    }
}
