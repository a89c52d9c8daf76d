//! Moving bytes over a connection: write, flush, read, decode, and match each reply to its request.

use super::{ConnState, NodeConn};
use crate::connect::{self, Target};
use crate::driver::in_flight::{InFlight, NodeEvent, Stage};
use crate::queue_support::{NoQueue, QueueSupport};
use crate::wire::{self, Frame, Push};
use bytes::Buf;
use redlock_contract::ErrorCode;
use redlock_proto::{Failure, Moment};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

/// How many bytes of pending releases are buffered at a time; more follow when these are written.
const RELEASE_BATCH: usize = 256 * 1024;
/// How many bytes may be unsent before the client closes the connection to a node that does not read.
const MAX_UNSENT: usize = 16 * 1024 * 1024;
/// Room in the read buffer for many replies, so that the replies of a busy node share a read.
const READ_AHEAD: usize = 16 * 1024;

impl NodeConn {
    /// Writes and reads until both block; true if bytes came in. The error says why the connection ends.
    pub(super) fn transfer(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) -> Result<bool, String> {
        self.write(cx, now)?;
        self.flush(cx)?;
        let mut has_read = false;
        while self.read(cx)? {
            has_read = true;
            self.decode(now, events)?;
        }
        Ok(has_read)
    }

    /// Writes buffered commands, and pending releases between them, until the stream blocks.
    fn write(&mut self, cx: &mut Context<'_>, now: Moment) -> Result<(), String> {
        loop {
            self.buffer_releases(now);
            let ConnState::Up(stream) = &mut self.state else { return Ok(()) };
            if self.write_buf.is_empty() {
                return Ok(());
            }
            match Pin::new(stream).poll_write(cx, &self.write_buf) {
                Poll::Ready(Ok(0)) => return Err("write returned 0 bytes".into()),
                Poll::Ready(Ok(count)) => self.write_buf.advance(count),
                Poll::Ready(Err(error)) => return Err(error.to_string()),
                Poll::Pending if self.write_buf.len() > MAX_UNSENT => {
                    return Err(format!("peer stopped reading ({} MiB unsent)", MAX_UNSENT >> 20));
                }
                Poll::Pending => return Ok(()),
            }
            self.needs_flush = true;
        }
    }

    /// Buffers a batch of the releases that are due. All of them at once could exceed [`MAX_UNSENT`].
    pub(super) fn buffer_releases(&mut self, now: Moment) {
        while self.write_buf.len() < RELEASE_BATCH {
            let Some(mut release) = self.releases.next(now) else { break };
            self.write_buf.extend_from_slice(&release.command);
            release.sent = now;
            self.in_flight.push_back(InFlight::Release(release));
        }
    }

    /// Flushes the stream: TLS may buffer bytes until then.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        if self.needs_flush
            && let ConnState::Up(stream) = &mut self.state
            && let Poll::Ready(flushed) = Pin::new(stream).poll_flush(cx)
        {
            flushed.map_err(|error| error.to_string())?;
            self.needs_flush = false;
        }
        Ok(())
    }

    /// Reads once; false if there is nothing to read now.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let ConnState::Up(stream) = &mut self.state else { return Ok(false) };
        self.read_buf.reserve(READ_AHEAD);
        match poll_read_buf(Pin::new(stream), cx, &mut self.read_buf) {
            Poll::Ready(Ok(0)) => Err("the node closed the connection".into()),
            Poll::Ready(Ok(_)) => Ok(true),
            Poll::Ready(Err(error)) => Err(error.to_string()),
            Poll::Pending => Ok(false),
        }
    }

    /// Handles every complete frame in the read buffer.
    fn decode(&mut self, now: Moment, events: &mut Vec<NodeEvent>) -> Result<(), String> {
        let mut change = None;
        while let Some(frame) = wire::decode(&mut self.read_buf).map_err(|error| error.to_string())? {
            match &frame {
                Frame::Push(parts) => self.handle_push(Push::parse(parts), events),
                _ => change = self.handle_reply(frame, now, events)?.or(change),
            }
        }
        change.map_or(Ok(()), |change| Err(change.into()))
    }

    fn handle_push(&mut self, push: Push, events: &mut Vec<NodeEvent>) {
        match push {
            Push::Subscribed => {
                self.queue_support = QueueSupport::Yes;
                if self.silent_since.take().is_some() {
                    self.watch.answered();
                }
                if let Some(InFlight::Subscription { .. }) = self.in_flight.front() {
                    self.in_flight.pop_front();
                    self.overdue = self.overdue.saturating_sub(1);
                }
            }
            Push::Message(message) => events.push(NodeEvent::Push { node: self.node, message }),
            Push::Other => {}
        }
    }

    /// Matches a reply to the oldest request in flight. Returns the change of the server, if the reply shows one:
    /// then the client has to connect again, to learn which node answers.
    fn handle_reply(
        &mut self,
        frame: Frame,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) -> Result<Option<&'static str>, String> {
        let request = self.in_flight.pop_front().ok_or("a reply without a request")?;
        let stage = Stage::settled(self.overdue > 0);
        self.overdue = self.overdue.saturating_sub(1);
        if self.silent_since.take().is_some() {
            self.watch.answered();
        }
        self.watch.round_trip(request.sent().later_of(self.connected_at), now);
        if matches!(request, InFlight::Subscription { .. }) {
            return self.handle_subscribe_reply(&frame, events).map(|()| None);
        }
        let demotion = demotion(&self.target, &frame);
        let change = match &demotion {
            Some(_) => Some("the server is a replica now"),
            None => self.change_of_vote(&request, &frame),
        };
        if demotion.is_none() {
            self.backoff.succeeded();
            if matches!(request, InFlight::Broadcast { .. }) {
                self.new_identity = connect::node_identity(&frame).or(self.new_identity.take());
            }
        }
        let outcome = demotion.map_or(Ok(frame), Err);
        events.push(NodeEvent::Outcome { node: self.node, request, outcome, stage });
        Ok(change)
    }

    /// Whether the reply shows that the server votes now and did not before, or the other way round. Such a server
    /// has another node id.
    fn change_of_vote(&mut self, request: &InFlight, frame: &Frame) -> Option<&'static str> {
        let voted = self.identity.as_ref()?.is_voting?;
        match frame {
            Frame::Error(text) if ErrorCode::of(text) == Some(ErrorCode::NoVote) => {
                voted.then_some("the server does not vote any more")
            }
            Frame::Error(_) => None,
            // A server that does not vote refuses every acquire and every extension.
            _ if voted || request.is_release() || !matches!(request, InFlight::Vote { .. }) => None,
            _ => {
                // The reply is handled after the connection is closed, when the node counts as down.
                self.watch.votes_again();
                Some("the server votes now")
            }
        }
    }

    /// Handles a reply where the confirmation of `SUBSCRIBE` was due. A confirmation is a push, so only an
    /// error is valid here: the user may not subscribe. Any other reply belongs to a later command.
    fn handle_subscribe_reply(&mut self, frame: &Frame, events: &mut Vec<NodeEvent>) -> Result<(), String> {
        if !matches!(frame, Frame::Error(_)) {
            return Err("no answer to the subscription".into());
        }
        self.queue_support = QueueSupport::No(NoQueue::SubscribeRefused);
        events.push(NodeEvent::SubscribeRefused);
        Ok(())
    }
}

/// The failure of a request that a former master, now a replica, has refused. The client reconnects to find
/// the new master, and repeats a refused release there.
fn demotion(target: &Target, frame: &Frame) -> Option<Failure> {
    match frame {
        Frame::Error(text) if ErrorCode::of(text) == Some(ErrorCode::ReadOnly) && target.may_move() => {
            Some(Failure::rejected(frame.error_message().unwrap_or_default()))
        }
        _ => None,
    }
}
