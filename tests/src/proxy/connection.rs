//! One connection through the proxy: two directions, each of which carries whole commands or replies.

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
    /// The client has said something in Redis's protocol.
    is_redis: AtomicBool,
    /// Names of the commands that the server has got and not answered.
    unanswered: Mutex<VecDeque<String>>,
    /// The next reply is not passed on: it ends the connection.
    ends_at_reply: AtomicBool,
    /// The client is told that its connection is closed, while the way to the server stays open.
    close_client: Notify,
    end: Notify,
}

/// A command, a reply, or some bytes that are neither, on their way.
struct Item {
    bytes: Vec<u8>,
    name: Option<String>,
    is_push: bool,
    arrived: Instant,
}

/// What to do with the item at the head of a direction.
enum ItemAction {
    /// Nothing, until something changes.
    Wait,
    /// Nothing, until this moment or until something changes.
    WaitUntil(Instant),
    Hold,
    CloseClient,
    Discard,
    Deliver(Vec<u8>),
    /// Deliver this and end the connection.
    DeliverAndEnd(Vec<u8>),
}

/// Carries bytes both ways until both sides are done or a later cut than the one it was `born` after.
pub(super) async fn serve(client: TcpStream, server: TcpStream, born: u64, state: &ProxyState) {
    let mut rules = state.rules.subscribe();
    let link = Connection::default();
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = Forwarder::new(Direction::ToServer, &link, state).run(from_client, to_server);
    let back = Forwarder::new(Direction::ToClient, &link, state).run(from_server, to_client);
    tokio::select! {
        _ = async { tokio::join!(there, back) } => {}
        () = link.end.notified() => {}
        _ = rules.wait_for(|rules| rules.cuts != born) => {}
    }
}

/// One direction.
struct Forwarder<'a> {
    direction: Direction,
    link: &'a Connection,
    state: &'a ProxyState,
    /// Bytes that are no whole item yet.
    unread: Vec<u8>,
    queue: VecDeque<Item>,
    /// The count of `releases` at which a fault stopped the item at the head.
    held_at: Option<u64>,
    /// Nobody takes what is carried: it is read and thrown away, so that the other side can go on.
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
                    // Whatever its sender still says does not come any more.
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
                () = self.link.close_client.notified(), if self.direction == Direction::ToClient && !self.discards => {
                    let _ = to.shutdown().await;
                    self.discards = true;
                }
                _ = rules.changed() => {}
            }
        }
        // The other side learns that nothing more comes; what it still has to say goes its own way.
        let _ = to.shutdown().await;
    }

    /// Cuts what has arrived into items.
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
                    // A push answers nobody, but whoever subscribes.
                    Some(length) if self.unread[0] == b'>' && !self.is_subscribing() => {
                        is_push = true;
                        (length, None)
                    }
                    Some(length) => (length, self.unanswered(VecDeque::pop_front)),
                    None => return,
                },
                // Another protocol, as inside TLS.
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

    /// The sender is gone: what it left unfinished goes on as it is.
    fn flush_unread(&mut self) {
        if !self.unread.is_empty() {
            let bytes = std::mem::take(&mut self.unread);
            self.queue.push_back(Item { bytes, name: None, is_push: false, arrived: Instant::now() });
        }
    }

    /// What happens to the item at the head, by the rules of this moment.
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
        let fuse = &mut rules.direction_mut(self.direction).cut_after;
        match *fuse {
            Some(left) if left <= bytes.len() => {
                *fuse = None;
                bytes.truncate(left);
                ItemAction::DeliverAndEnd(bytes)
            }
            Some(left) => {
                *fuse = Some(left - bytes.len());
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
                self.queue.pop_front();
                if !self.discards {
                    self.state.observed.send_modify(|observed| observed.dropped += 1);
                }
            }
            ItemAction::Deliver(bytes) | ItemAction::DeliverAndEnd(bytes) => {
                let item = self.queue.pop_front();
                // Before the bytes: the reply may be here as soon as they are there.
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
