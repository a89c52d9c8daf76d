//! The end of a driver whose runtime shuts down, and the last releases, which the client sends without a
//! runtime.
//!
//! A program that ends drops its guards and then its runtime. The runtime drops the driver, with the releases
//! that the driver has not sent yet. So the drop of the driver sends them itself, and waits for the replies, but
//! not for longer than [`LONGEST_WAIT`]. If a guard still lives, the driver leaves its connections behind for the
//! drop of that guard.

use super::in_flight::InFlight;
use super::memory_conn::MemoryConn;
use super::message::Message;
use super::pending_releases::{PendingRelease, ReleaseGoal};
use super::{Driver, EntryId};
use crate::connect::DetachedStream;
use crate::lock_shared::LockShared;
use crate::settings::Settings;
use crate::wire::{self, Frame};
use bytes::BytesMut;
use redlock_proto::{Ask, Moment, Request};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest time that a drop waits for replies; the node timeout applies if it is shorter.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// The connections of a driver whose runtime has shut down while locks were held.
#[derive(Default)]
pub(crate) struct LeftoverConns(Mutex<Leftover>);

#[derive(Default)]
pub(super) enum Leftover {
    /// No driver has left connections behind, or a new driver is in charge.
    #[default]
    None,
    Memory(MemoryConn),
    /// One per node; `None` without a usable connection.
    Remote(Vec<Option<LeftoverConn>>),
}

/// A connection to a node, for use without a runtime.
pub(super) struct LeftoverConn {
    pub(super) stream: Box<dyn DetachedStream>,
    pub(super) unsent: BytesMut,
    pub(super) read_buf: BytesMut,
    /// How many replies are due up to the reply to the last release.
    pub(super) unanswered: usize,
}

impl LeftoverConns {
    fn lock(&self) -> MutexGuard<'_, Leftover> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connections: a new driver is in charge.
    pub(crate) fn close(&self) {
        *self.lock() = Leftover::None;
    }

    /// Releases a lock, if its driver has left connections behind.
    pub(crate) fn release(&self, shared: &Arc<LockShared>, ttl: Duration, settings: &Settings) {
        let request = Request { ask: Ask::Release { floor: None }, ttl, sent: settings.clock.now() };
        let all = 0..shared.keys.names().len();
        let mut scratch = BytesMut::new();
        // No later driver repeats the release.
        let release = PendingRelease::new(ReleaseGoal::Release, all, shared, &request, &mut scratch);
        match &mut *self.lock() {
            Leftover::None => {}
            Leftover::Memory(memory) => {
                for node in 0..settings.quorum.nodes() {
                    let mut events = Vec::new();
                    let submitted = InFlight::Release(release.clone());
                    request.with_words(shared.keys.names(), shared.owner.as_bytes(), &[], |words| {
                        memory.submit(node, words, submitted, &mut events);
                    });
                }
            }
            Leftover::Remote(conns) => {
                for conn in conns.iter_mut().flatten() {
                    conn.unsent.extend_from_slice(&release.command);
                    conn.unanswered += 1;
                }
                exchange(conns, settings);
            }
        }
    }
}

/// Sends everything that is unsent, then waits for the replies. Closes the connections that fail or are too
/// slow, so that a node that hangs costs its time once.
pub(super) fn exchange(conns: &mut [Option<LeftoverConn>], settings: &Settings) {
    let deadline = Instant::now() + settings.node_timeout.min(LONGEST_WAIT);
    let keep = |conn: &mut Option<LeftoverConn>, outcome: io::Result<()>| {
        if outcome.is_err() {
            *conn = None;
        }
    };
    // To all nodes first: a node that does not answer must not keep a release from the others.
    for conn in conns.iter_mut() {
        let sent = conn.as_mut().map_or(Ok(()), LeftoverConn::send);
        keep(conn, sent);
    }
    for conn in conns.iter_mut() {
        let answered = conn.as_mut().map_or(Ok(()), |conn| conn.await_replies(deadline));
        keep(conn, answered);
    }
}

impl LeftoverConn {
    /// Writes everything. Fails if a write would block or the connection is closed.
    fn send(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() && self.unanswered == 0 {
            return Ok(());
        }
        self.stream.socket().set_nonblocking(true)?;
        self.stream.write_all(&self.unsent)?;
        self.unsent.clear();
        self.stream.flush()
    }

    /// Reads until all replies that are due have come.
    fn await_replies(&mut self, deadline: Instant) -> io::Result<()> {
        let mut chunk = [0; 4096];
        loop {
            while let Some(frame) = wire::decode(&mut self.read_buf).map_err(io::Error::other)? {
                if !matches!(frame, Frame::Push(_)) {
                    self.unanswered = self.unanswered.saturating_sub(1);
                }
            }
            if self.unanswered == 0 {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.socket().set_nonblocking(false)?;
            self.stream.socket().set_read_timeout(Some(left))?;
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.read_buf.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            }
        }
    }
}

impl Driver {
    /// Takes the releases that callers have sent; no further message can come.
    fn take_last_releases(&mut self, now: Moment) {
        self.calls.close();
        while let Ok(message) = self.calls.try_recv() {
            match message {
                Message::Release { .. }
                | Message::ReleaseUntracked { .. }
                | Message::Detach { .. }
                | Message::Broadcast { .. } => self.handle_message(message, now),
                // Their callers notice that the driver is gone.
                Message::Acquire(_)
                | Message::Cancel { .. }
                | Message::DeadlinePassed { .. }
                | Message::Extend { .. }
                | Message::Flush { .. } => {}
            }
        }
    }

    /// Releases the locks of attempts: their callers start again with another driver, or not at all.
    fn release_attempts(&mut self, now: Moment) {
        let attempts = self.locks.iter().filter(|(_, entry)| entry.is_attempt());
        let attempts = attempts.map(|(index, entry)| EntryId { index, serial: entry.serial });
        for lock in attempts.collect::<Vec<_>>() {
            self.release(lock, now);
        }
    }
}

impl Drop for Driver {
    /// Sends the last releases. Blocks for at most [`LONGEST_WAIT`].
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let leftover = Arc::clone(&self.leftover);
        // A guard that is dropped meanwhile waits here, and then releases its lock over the same connections.
        let mut leftover = leftover.lock();
        let now = self.clock.now();
        self.take_last_releases(now);
        self.release_attempts(now);
        self.handle_events(now);
        let mut conns = self.pool.take_conns(now);
        if let Leftover::Remote(conns) = &mut conns {
            exchange(conns, &self.settings);
        }
        if self.locks.iter().any(|(_, entry)| !entry.is_over) {
            *leftover = conns;
        }
    }
}
