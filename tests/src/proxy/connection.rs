//! One connection through the proxy. Each direction forwards whole commands or replies.

use super::frames::{command, frame};
use super::rules::{CommandFault, Direction, Rules};
use super::state::ProxyState;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What both directions of a connection share.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// The client has sent a command in the Redis protocol.
    is_redis: AtomicBool,
    /// The names of the commands that were forwarded to the server and not answered yet.
    unanswered: Mutex<VecDeque<String>>,
    /// The proxy ends the connection instead of forwarding the next reply.
    ends_at_reply: AtomicBool,
    /// Closes the connection to the client, while the connection to the server stays open.
    close_client: Notify,
    end: Notify,
}

/// A command, a reply, or bytes that are neither, in the queue of a direction.
struct Item {
    bytes: Vec<u8>,
    name: Option<String>,
    is_push: bool,
    arrived: Instant,
}

/// What to do with the first item of a direction.
enum ItemAction {
    /// Wait until something changes.
    Wait,
    /// Wait until this moment, or until something changes.
    WaitUntil(Instant),
    Hold,
    CloseClient,
    Discard,
    Deliver(Vec<u8>),
    /// Deliver these bytes and end the connection.
    DeliverAndEnd(Vec<u8>),
}

/// Forwards bytes in both directions until both sides have closed, a fault ends the connection, or the number of cuts
/// is no longer `born`.
pub(super) async fn serve(client: TcpStream, server: TcpStream, born: u64, state: &ProxyState) {
    let mut rules = state.rules.subscribe();
    let link = Connection::default();
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let forward = Forwarder::new(Direction::ToServer, &link, state).run(from_client, to_server);
    let backward = Forwarder::new(Direction::ToClient, &link, state).run(from_server, to_client);
    tokio::select! {
        _ = async { tokio::join!(forward, backward) } => {}
        () = link.end.notified() => {}
        _ = rules.wait_for(|rules| rules.cuts != born) => {}
    }
}

/// One direction.
struct Forwarder<'a> {
    direction: Direction,
    link: &'a Connection,
    state: &'a ProxyState,
    /// Bytes that are not a whole item yet.
    unread: Vec<u8>,
    queue: VecDeque<Item>,
    /// The value of `releases` when a fault held the first item.
    held_at: Option<u64>,
    /// The proxy discards everything that it reads, so that the sender does not block: the receiver is gone, or bytes
    /// of this connection were lost. TCP never delivers bytes that follow lost ones.
    discards: bool,
}

impl<'a> Forwarder<'a> {
    fn new(way: Direction, link: &'a Connection, state: &'a ProxyState) -> Self {
        let (unread, queue) = (Vec::new(), VecDeque::new());
        Self { direction: way, link, state, unread, queue, held_at: None, discards: false }
    }

    async fn run(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut rules = self.state.rules.subscribe();
        let mut open = true;
        let mut buffer = vec![0; 64 * 1024];
        while open || !self.queue.is_empty() {
            rules.borrow_and_update();
            let step = self.step();
            let until = match step {
                ItemAction::WaitUntil(moment) => Some(moment),
                ItemAction::Wait => None,
                other => {
                    // The client's connection is closed, so it sends nothing more.
                    open &= !matches!(other, ItemAction::CloseClient);
                    self.apply(other, &mut to).await;
                    continue;
                }
            };
            tokio::select! {
                read = from.read(&mut buffer), if open => match read {
                    Ok(size @ 1..) => self.split_items(&buffer[..size]),
                    Ok(0) | Err(_) => {
                        self.flush_unread();
                        open = false;
                    }
                },
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
                () = self.link.close_client.notified(), if self.direction == Direction::ToClient => {
                    let _ = to.shutdown().await;
                    self.discards = true;
                }
                _ = rules.changed() => {}
            }
        }
        // Closes this direction for the receiver. The other direction still works.
        let _ = to.shutdown().await;
    }

    /// Splits the bytes that have arrived into items.
    fn split_items(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        while !self.unread.is_empty() {
            let mut is_push = false;
            let (length, name) = match self.direction {
                Direction::ToServer if self.unread[0] == b'*' => match command(&self.unread) {
                    Some(found) => (found.length, Some(found.name)),
                    None => return,
                },
                Direction::ToClient if self.link.is_redis.load(Relaxed) => match frame(&self.unread) {
                    // A push is not a reply, except to SUBSCRIBE.
                    Some(length) if self.unread[0] == b'>' && !self.is_subscribing() => {
                        is_push = true;
                        (length, None)
                    }
                    Some(length) => (length, self.unanswered(VecDeque::pop_front)),
                    None => return,
                },
                // Another protocol, such as TLS.
                _ => (self.unread.len(), None),
            };
            if self.direction == Direction::ToServer
                && let Some(name) = &name
            {
                self.link.is_redis.store(true, Relaxed);
                self.state.count_command(name);
            }
            let rest = self.unread.split_off(length);
            let bytes = std::mem::replace(&mut self.unread, rest);
            self.queue.push_back(Item { bytes, name, is_push, arrived: Instant::now() });
        }
    }

    /// Forwards an incomplete item of a sender that has disconnected.
    fn flush_unread(&mut self) {
        if !self.unread.is_empty() {
            let bytes = std::mem::take(&mut self.unread);
            self.queue.push_back(Item { bytes, name: None, is_push: false, arrived: Instant::now() });
        }
    }

    /// The action for the first item, by the current rules.
    fn step(&mut self) -> ItemAction {
        let Some(item) = self.queue.front() else { return ItemAction::Wait };
        let mut step = ItemAction::Wait;
        self.state.rules.send_if_modified(|rules| {
            let waiting = |rules: &Rules| (rules.fault.is_some(), rules.direction(self.direction).cut_after);
            let before = waiting(rules);
            step = self.decide(item, rules);
            waiting(rules) != before
        });
        step
    }

    fn decide(&self, item: &Item, rules: &mut Rules) -> ItemAction {
        let way_rules = rules.direction(self.direction);
        let due = item.arrived + way_rules.delay;
        if way_rules.hold || self.held_at == Some(rules.releases) {
            return ItemAction::Wait;
        }
        if way_rules.drop || self.discards || (item.is_push && rules.drop_pushes) {
            return ItemAction::Discard;
        }
        if due > Instant::now() {
            return ItemAction::WaitUntil(due);
        }
        let mut bytes = item.bytes.clone();
        if self.direction == Direction::ToClient {
            if self.link.ends_at_reply.load(Relaxed) {
                return ItemAction::DeliverAndEnd(Vec::new());
            }
            if let Some(forged) = rules.forged(item.name.as_deref()) {
                bytes = forged.to_vec();
            }
        } else {
            match rules.take_fault(item.name.as_deref()) {
                Some(CommandFault::Hold) => return ItemAction::Hold,
                Some(CommandFault::DeliverAfterClose) => return ItemAction::CloseClient,
                Some(CommandFault::CutBefore) => return ItemAction::DeliverAndEnd(Vec::new()),
                Some(CommandFault::CutInside) => {
                    bytes.truncate(bytes.len() / 2);
                    return ItemAction::DeliverAndEnd(bytes);
                }
                Some(CommandFault::DropReply) => self.link.ends_at_reply.store(true, Relaxed),
                None => {}
            }
        }
        let cut_after = &mut rules.direction_mut(self.direction).cut_after;
        match *cut_after {
            Some(left) if left <= bytes.len() => {
                *cut_after = None;
                bytes.truncate(left);
                ItemAction::DeliverAndEnd(bytes)
            }
            Some(left) => {
                *cut_after = Some(left - bytes.len());
                ItemAction::Deliver(bytes)
            }
            None => ItemAction::Deliver(bytes),
        }
    }

    async fn apply(&mut self, step: ItemAction, to: &mut OwnedWriteHalf) {
        let ends = matches!(step, ItemAction::DeliverAndEnd(_));
        match step {
            ItemAction::Wait | ItemAction::WaitUntil(_) => {}
            ItemAction::Hold => self.held_at = Some(self.state.rules.borrow().releases),
            ItemAction::CloseClient => {
                self.held_at = Some(self.state.rules.borrow().releases);
                self.queue.truncate(1);
                self.link.close_client.notify_one();
            }
            ItemAction::Discard => {
                let was_push = self.queue.pop_front().is_some_and(|item| item.is_push);
                if !self.discards {
                    self.state.observed.send_modify(|observed| observed.dropped += 1);
                }
                self.discards |= !was_push;
            }
            ItemAction::Deliver(bytes) | ItemAction::DeliverAndEnd(bytes) => {
                let item = self.queue.pop_front();
                // Before the write: the reply may arrive at once.
                if self.direction == Direction::ToServer
                    && let Some(name) = item.and_then(|item| item.name)
                {
                    self.unanswered(|names| names.push_back(name));
                }
                self.discards = to.write_all(&bytes).await.is_err();
            }
        }
        if ends {
            self.link.end.notify_one();
        }
    }

    fn is_subscribing(&self) -> bool {
        self.unanswered(|names| names.front().is_some_and(|name| name == "SUBSCRIBE"))
    }

    fn unanswered<T>(&self, with: impl FnOnce(&mut VecDeque<String>) -> T) -> T {
        with(&mut self.link.unanswered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
