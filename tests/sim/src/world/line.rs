//! Wait queues: the pushes of the nodes, reconnects, and tickets.

use super::{Coming, World};
use crate::Weakness;
use crate::client::name;
use crate::identity::{self, Known};
use crate::network::LinkDirection;
use redlock_contract::grant::{Stamped, Unverified};
use redlock_proto::{Ask, Failure, FailureKind, Grant, Moment, QueueRequest, Request, Vote};
use std::time::Duration;

/// The length of a channel name: the number of the client in decimal digits.
const CHANNEL_DIGITS: usize = 16;
/// Larger than any wall clock of a history.
const LAST_TICKET: u64 = 1 << 60;

impl World<'_> {
    /// Delivers the pushes of a server and the effects for its replica. Schedules the next sweep while it has
    /// waiters.
    pub(super) fn attend(&mut self, server: usize) {
        self.replicate(server);
        let node = self.servers[server].node;
        for push in self.servers[server].memory.take_pushes() {
            self.outcome.handoffs += 1;
            self.servers[server].touched.fill(self.now);
            let digits = push.channel.len().saturating_sub(CHANNEL_DIGITS);
            let client = std::str::from_utf8(&push.channel[digits..]).ok();
            let client: usize =
                client.and_then(|text| text.parse().ok()).expect("the channel is the number of a client");
            self.tell(|| {
                let text = String::from_utf8_lossy(&push.message).into_owned();
                format!("node {node} pushes to client {client}: {text}")
            });
            // A client does not read the pushes of a node that it refuses.
            let who = &self.clients[client];
            if who.servers[node] != server || who.refused.contains(node) {
                continue;
            }
            let connection = self.clients[client].push_connection(node).id;
            let times = 1 + usize::from(self.chance.u32(0..1000) < self.plan.repeated);
            for _ in 0..times {
                let way = self.clients[client].push_connection(node);
                if let Some(at) = way.arrival(LinkDirection::ToClient, self.now, self.plan, &mut self.chance)
                {
                    let message = push.message.clone();
                    self.schedule(at, Coming::Push { node, client, connection, message });
                } else {
                    self.outcome.count("push lost");
                }
            }
        }
        let sim = &mut self.servers[server];
        if sim.memory.node().waiters() == 0 || sim.is_attending || sim.is_gone {
            return;
        }
        if let Some(due) = sim.memory.node().next_sweep() {
            sim.is_attending = true;
            // A timer of the server runs about when it is due, never long before.
            let after_us = due.since(sim.time.at(self.now)).clamp(1, self.plan.ttl_ms) * 1_000;
            let at = self.now + after_us + self.chance.u64(0..1_000);
            self.schedule(at, Coming::Attend { server });
        }
    }

    pub(super) fn push_arrives(&mut self, node: usize, client: usize, connection: u64, message: &[u8]) {
        let who = &mut self.clients[client];
        let now = who.clock.at(self.now);
        // The client does not read what was sent on a closed connection.
        if who.push_connection(node).id != connection {
            return;
        }
        let Some(active) = who.active.as_mut() else { return };
        let message = Unverified::parse(message).expect("a push of a node can be parsed");
        if active.ticket != Some(message.ticket()) {
            return;
        }
        // An earlier attempt with the same ticket had another owner. A client that does not check stamps
        // accepts the pushes of that attempt.
        let before = Some(&active.owner_before).filter(|_| self.plan.weakness == Weakness::StampsUnchecked);
        let owners = [Some(&active.owner), before].into_iter().flatten();
        let node_id = &who.known[node].node_id;
        let Some(message) = owners.filter_map(|owner| message.verify(node_id, owner.as_bytes())).next()
        else {
            return;
        };
        let Stamped { stamp, waited_ms, claim_ms } =
            message.stamped.expect("every queued request has a stamp");
        let (waited, claim) = (Duration::from_millis(waited_ms), Duration::from_millis(claim_ms));
        let mut grant = Grant { fence: message.fence, stamp, waited, claim };
        match self.plan.weakness {
            Weakness::GrantFromItsNews => {
                let sent = active.rounds.iter().find(|(round, _)| *round == stamp).map(|(_, sent)| *sent);
                grant.waited = now.since(sent.unwrap_or(now)).mul_f64(1.02);
            }
            Weakness::StampsUnchecked => {
                grant.stamp = active.rounds.last().map_or(stamp, |(round, _)| *round);
            }
            _ => {}
        }
        let is_later = |(request, of): &(Request, usize)| {
            *of == node && matches!(request.ask, Ask::Wait { queue, .. } if queue.stamp > stamp)
        };
        if self.plan.separate_pushes && active.answered.iter().any(is_later) {
            self.outcome.count("push overtaken");
        }
        active.session.handle_grant(node, grant, now);
        self.follow(client);
    }

    /// The connection for the pushes of a node breaks, and pushes in flight are lost. The node detects it at
    /// once.
    pub(super) fn stop_listening(&mut self, client: usize, node: usize) {
        let back = self.now + self.chance.u64(0..self.plan.ttl_ms * 500);
        self.connections += 1;
        let connection = self.connections;
        let way = self.clients[client].push_connection(node);
        way.reconnect(connection);
        way.cut(LinkDirection::ToClient, back);
        self.schedule(back, Coming::Listening { node, client, connection });
    }

    /// The connection is back. The client finds grants whose pushes were lost by its next refresh.
    pub(super) fn listens_again(&mut self, node: usize, client: usize, connection: u64) {
        if self.clients[client].push_connection(node).id == connection {
            self.tell(|| format!("client {client} receives pushes of node {node} again"));
        }
    }

    /// Reconnects a client to a node. The client detects the break at once, the node later.
    pub(super) fn reconnect(&mut self, client: usize, node: usize) {
        self.connections += 1;
        let id = self.connections;
        self.meet(client, node);
        let who = &mut self.clients[client];
        who.connections[node].reconnect(id);
        let now = who.clock.at(self.now);
        if let Some(active) = who.active.as_mut() {
            active.queued.remove(node);
            active.session.handle_disconnect(node, Failure::new(FailureKind::Cut, ""), now);
            self.follow(client);
        }
    }

    /// A client reads the identity of the node, and compares it with the node that it knows.
    fn meet(&mut self, client: usize, node: usize) {
        let who = &mut self.clients[client];
        let sim = &self.servers[who.servers[node]];
        if sim.is_down || !self.plan.weakness.has_careful_clients() {
            return;
        }
        let state = sim.memory.node().state();
        if identity::is_taken(&who.known, node, state) {
            who.refused.remove(node);
            who.known[node] = Known::of(state);
        } else {
            who.refused.insert(node);
        }
    }

    /// A client uses another server as a node.
    pub(super) fn move_client(&mut self, client: usize, node: usize, server: Option<usize>) {
        let server = server.unwrap_or(self.current[node]);
        if self.servers[server].is_gone {
            return;
        }
        let old = std::mem::replace(&mut self.clients[client].servers[node], server);
        let connection = self.clients[client].connections[node].id;
        self.schedule(self.now, Coming::Closed { server: old, connection });
        self.tell(|| format!("client {client} finds node {node} at server {server}"));
        self.reconnect(client, node);
        if self.plan.separate_pushes {
            self.stop_listening(client, node);
        }
    }

    /// A deliberate bug: a node releases a lock that it has handed off to a client whose connection broke.
    pub(super) fn take_back(&mut self, client: usize, node: usize) {
        let server = self.clients[client].servers[node];
        let Some(active) = self.clients[client].active.as_ref() else { return };
        let was_handed = matches!(active.session.ballot().vote(node), Vote::Granted { .. });
        if active.ticket.is_some() && was_handed {
            for key in active.keys.clone() {
                self.servers[server].memory.delete(&name(key));
            }
        }
    }

    /// Converts a ticket on the wire to the order of the waiters, and back.
    pub(super) fn honest(&self, ticket: u64) -> u64 {
        if self.plan.weakness == Weakness::LastComeFirstServed { LAST_TICKET - ticket } else { ticket }
    }

    /// The longest time that a client queues.
    pub(super) fn longest_patience(&self) -> Duration {
        Duration::from_millis(self.plan.ttl_ms * 3)
    }

    /// The ticket and channel of a new attempt, and until when the client queues.
    pub(super) fn place_in_line(
        &mut self,
        client: usize,
        ticket: Option<u64>,
        now: Moment,
    ) -> (QueueRequest, Moment) {
        let ticket = ticket.unwrap_or_else(|| {
            let fresh = self.clients[client].next_ticket(client, self.now);
            self.honest(fresh)
        });
        let mut channel = [b'0'; CHANNEL_DIGITS];
        channel.copy_from_slice(format!("{client:016}").as_bytes());
        let line =
            QueueRequest { ticket, stamp: self.sessions << 12, wait: Duration::ZERO, channel, claim: None };
        let longest_ms = u64::try_from(self.longest_patience().as_millis()).unwrap_or(u64::MAX);
        let patience = Duration::from_millis(self.chance.u64(1..=longest_ms));
        (line, now.plus(patience))
    }
}
