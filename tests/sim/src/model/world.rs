//! The possible steps of the system, and their results.

use super::bounds::{Bounds, MOST};
use super::client::{Acted, Acts, Clients, Wrong};
use super::link::Links;
use super::node::{Happens, Nodes};
use super::speech::{RequestId, Speech, describe};
use super::state::{State, orders};
use crate::Violation;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Begin {
        client: usize,
        hint: Option<u64>,
    },
    /// The oldest request in flight reaches the node.
    Deliver {
        client: usize,
        node: usize,
    },
    /// The oldest reply in flight reaches the client.
    Hear {
        client: usize,
        node: usize,
    },
    /// The client counts a node as silent. Messages in flight still arrive.
    Silence {
        client: usize,
        node: usize,
    },
    Break {
        client: usize,
        node: usize,
    },
    /// The oldest request in flight will arrive a second time.
    Copy {
        client: usize,
        node: usize,
    },
    /// A request of an older connection, or a copy, reaches the node.
    DeliverLate {
        client: usize,
        node: usize,
        place: usize,
    },
    Wake {
        client: usize,
    },
    Extend {
        client: usize,
    },
    Release {
        client: usize,
    },
    Crash {
        node: usize,
    },
    Tick,
}

/// The number of kinds of steps.
pub(super) const KINDS: usize = 12;

impl Action {
    /// The index of its kind, and the name.
    pub(super) fn kind(self) -> (usize, &'static str) {
        match self {
            Self::Begin { .. } => (0, "begin"),
            Self::Deliver { .. } => (1, "deliver"),
            Self::Hear { .. } => (2, "hear"),
            Self::Silence { .. } => (3, "silence"),
            Self::Break { .. } => (4, "break"),
            Self::Copy { .. } => (5, "copy"),
            Self::DeliverLate { .. } => (6, "deliver late"),
            Self::Wake { .. } => (7, "wake"),
            Self::Extend { .. } => (8, "extend"),
            Self::Release { .. } => (9, "release"),
            Self::Crash { .. } => (10, "crash"),
            Self::Tick => (11, "tick"),
        }
    }
}

/// The production code, and all its states that were seen.
pub(super) struct World {
    pub(super) bounds: Bounds,
    pub(super) speech: Speech,
    pub(super) nodes: Nodes,
    pub(super) clients: Clients,
    links: Links,
    orders: Vec<Vec<usize>>,
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let orders = orders(bounds.nodes);
        Self {
            bounds: *bounds,
            speech: Speech::new(),
            nodes: Nodes::new(bounds),
            clients: Clients::new(bounds, orders.clone()),
            links: Links::new(),
            orders,
        }
    }

    /// The first state.
    pub(super) fn first(&mut self) -> State {
        let mut state = State::new(&self.bounds);
        for (node, earlier) in self.bounds.earlier.into_iter().enumerate().take(self.bounds.nodes) {
            for _ in 0..earlier {
                state.nodes[node] = self.nodes.used(state.nodes[node], &mut self.speech);
            }
        }
        state
    }

    /// The largest fence that was ever held.
    pub(super) fn largest(&self, state: &State) -> u64 {
        let fences = state.clients.iter().filter_map(|client| self.clients.facts(*client).fence);
        fences.max().unwrap_or(0)
    }

    /// All possible steps.
    pub(super) fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.clear();
        let mut next_begins = true;
        for client in 0..self.bounds.clients {
            let facts = *self.clients.facts(state.clients[client]);
            if !facts.has_begun {
                // Clients that have not begun are interchangeable: it is enough that the first of them
                // begins.
                if std::mem::take(&mut next_begins) {
                    actions.push(Action::Begin { client, hint: None });
                    let hint = self.largest(state) + 1;
                    if self.bounds.hints && hint > 1 {
                        actions.push(Action::Begin { client, hint: Some(hint) });
                    }
                }
                continue;
            }
            if !facts.has_ended && (self.bounds.gives_up || facts.fence.is_some()) {
                actions.push(Action::Release { client });
            }
            if facts.may_extend {
                actions.push(Action::Extend { client });
            }
            if facts.may_wake {
                actions.push(Action::Wake { client });
            }
            for node in 0..self.bounds.nodes {
                self.on_link(state, client, node, facts.has_ended, actions);
            }
        }
        if state.left.crashes > 0 {
            actions.extend((0..self.bounds.nodes).map(|node| Action::Crash { node }));
        }
        actions.push(Action::Tick);
    }

    fn on_link(&self, state: &State, client: usize, node: usize, has_ended: bool, actions: &mut Vec<Action>) {
        let link = self.links.get(state.links[client][node]);
        if link.next_request().is_some() {
            actions.push(Action::Deliver { client, node });
            if state.left.copies > 0 {
                actions.push(Action::Copy { client, node });
            }
        }
        if link.next_reply().is_some() {
            actions.push(Action::Hear { client, node });
        }
        if link.oldest_unheard().is_some() {
            if state.left.silences > 0 && !has_ended {
                actions.push(Action::Silence { client, node });
            }
            if state.left.breaks > 0 {
                actions.push(Action::Break { client, node });
            }
        }
        actions.extend((0..link.late().count()).map(|place| Action::DeliverLate { client, node, place }));
    }

    /// The result of a step, with the nodes in any order, and the violation if it broke an invariant.
    pub(super) fn after(&mut self, state: &State, action: Action) -> (State, Option<Violation>) {
        let mut next = *state;
        let mut wrong = None;
        match action {
            Action::Begin { client, hint } => {
                let above = self.largest(state);
                self.acts(&mut next, client, Acts::Begin { above, hint }, &mut wrong);
            }
            Action::Wake { client } => self.acts(&mut next, client, Acts::Wakes, &mut wrong),
            Action::Extend { client } => self.acts(&mut next, client, Acts::Extends, &mut wrong),
            Action::Release { client } => self.acts(&mut next, client, Acts::Releases, &mut wrong),
            Action::Deliver { client, node } => self.deliver(&mut next, client, node),
            Action::DeliverLate { client, node, place } => {
                let late = self.links.get(next.links[client][node]).late().nth(place);
                if let Some((request, connection)) = late {
                    let ask = self.speech.ask_of(request);
                    let what = Happens::Asked { ask, client, connection };
                    next.nodes[node] = self.nodes.step(next.nodes[node], what, &mut self.speech).0;
                    self.links.change(&mut next.links[client][node], |link| link.take_late(place));
                }
            }
            Action::Hear { client, node } => {
                if let Some((request, reply)) = self.links.get(next.links[client][node]).next_reply() {
                    self.links.change(&mut next.links[client][node], |link| link.take_reply());
                    self.acts(&mut next, client, Acts::Hears { node, request, reply }, &mut wrong);
                }
            }
            Action::Silence { client, node } => {
                next.left.silences -= 1;
                if let Some(request) = self.links.get(next.links[client][node]).oldest_unheard() {
                    self.acts(&mut next, client, Acts::FindsSilent { node, request }, &mut wrong);
                }
            }
            Action::Break { client, node } => {
                next.left.breaks -= 1;
                self.break_off(&mut next, client, node, &mut wrong);
            }
            Action::Copy { client, node } => {
                next.left.copies -= 1;
                self.links.change(&mut next.links[client][node], |link| link.copy_next());
            }
            Action::Crash { node } => {
                next.left.crashes -= 1;
                next.nodes[node] = self.nodes.step(next.nodes[node], Happens::Crash, &mut self.speech).0;
            }
            Action::Tick => {
                for node in &mut next.nodes[..self.bounds.nodes] {
                    *node = self.nodes.step(*node, Happens::Tick, &mut self.speech).0;
                }
                for client in 0..self.bounds.clients {
                    self.acts(&mut next, client, Acts::Tick, &mut wrong);
                }
            }
        }
        self.forget_idle_words(&mut next);
        (next, wrong)
    }

    /// Removes messages in flight that can change nothing any more: requests of an ended client about a lock
    /// that it does not hold and cannot get, because no acquire of it is left.
    fn forget_idle_words(&mut self, next: &mut State) {
        if self.bounds.has_late_requests() {
            return;
        }
        for client in 0..self.bounds.clients {
            if !self.clients.facts(next.clients[client]).has_ended {
                continue;
            }
            for node in 0..self.bounds.nodes {
                let is_idle = |request| !self.speech.is_acquire(request);
                while self.links.get(next.links[client][node]).next_request().is_some_and(is_idle)
                    && !self.nodes.summary(next.nodes[node]).is_owned_by(client)
                {
                    self.links.change(&mut next.links[client][node], |link| link.take_request());
                }
            }
        }
    }

    /// Takes a step of a client, and sends its requests.
    fn acts(&mut self, next: &mut State, client: usize, acts: Acts, wrong: &mut Option<Violation>) {
        let Acted { client: id, sends, wrong: found } =
            self.clients.step(next.clients[client], acts, &mut self.speech);
        next.clients[client] = id;
        if let Some((request, to)) = sends {
            for node in to.iter() {
                self.links.change(&mut next.links[client][node], |link| link.send(request));
            }
        }
        if self.clients.facts(id).has_ended && acts != Acts::Tick {
            for node in 0..self.bounds.nodes {
                self.links.change(&mut next.links[client][node], |link| link.drop_replies());
            }
        }
        if let Some(found) = found {
            let session = client as u64;
            *wrong = Some(match found {
                Wrong::Revived => Violation::Revived { session },
                Wrong::NotLarger { fence, before } => Violation::FenceNotLarger { key: 0, fence, before },
            });
        }
    }

    fn deliver(&mut self, next: &mut State, client: usize, node: usize) {
        let link = self.links.get(next.links[client][node]);
        let connection = link.connection();
        let Some(request) = link.next_request() else { return };
        let what = Happens::Asked { ask: self.speech.ask_of(request), client, connection };
        let (after, reply) = self.nodes.step(next.nodes[node], what, &mut self.speech);
        next.nodes[node] = after;
        let is_heard = !self.clients.facts(next.clients[client]).has_ended;
        self.links.change(&mut next.links[client][node], |link| {
            link.take_request();
            if is_heard {
                link.answer(request, reply);
            }
        });
    }

    /// Breaks a connection. The client gets a failure for every request without a reply; a release in flight
    /// is sent again.
    fn break_off(&mut self, next: &mut State, client: usize, node: usize, wrong: &mut Option<Violation>) {
        let mut unheard = Vec::new();
        self.links.change(&mut next.links[client][node], |link| unheard = link.break_off());
        let is_release = |request: &RequestId| self.speech.request_of(*request).is_release();
        let (releases, asked): (Vec<_>, Vec<_>) = unheard.into_iter().partition(is_release);
        for request in releases {
            self.links.change(&mut next.links[client][node], |link| link.send(request));
        }
        for request in asked {
            self.acts(next, client, Acts::FindsCut { node, request }, wrong);
        }
    }

    /// The representative of all states that differ only in the order of their nodes.
    pub(super) fn canonical(&mut self, state: &State) -> State {
        let mut best = *state;
        for order in 0..self.orders.len() {
            let mut other = *state;
            for node in 0..self.bounds.nodes {
                let place = self.orders[order][node];
                other.nodes[place] = state.nodes[node];
                for client in 0..self.bounds.clients {
                    other.links[client][place] = state.links[client][node];
                }
            }
            let rank = |state: &State| (state.nodes, state.links);
            if order > 0 && rank(&other) > rank(&best) {
                continue;
            }
            for client in 0..self.bounds.clients {
                other.clients[client] =
                    self.clients.reordered(state.clients[client], order, &mut self.speech);
            }
            if order == 0 || (rank(&other), other.clients) < (rank(&best), best.clients) {
                best = other;
            }
        }
        best
    }

    /// The invariants that a state breaks.
    pub(super) fn broken_laws(&self, state: &State) -> Vec<Violation> {
        let facts: [_; MOST] = state.clients.map(|client| *self.clients.facts(client));
        let mut broken = Vec::new();
        for newcomer in 1..self.bounds.clients {
            for holder in 0..newcomer {
                if facts[newcomer].is_valid && facts[holder].is_valid {
                    let (holder, newcomer) = (holder as u64, newcomer as u64);
                    broken.push(Violation::Overlap { key: 0, holder, newcomer });
                }
                if let Some(fence) = facts[newcomer].fence
                    && facts[holder].fence == Some(fence)
                {
                    broken.push(Violation::FenceRepeated { key: 0, fence });
                }
            }
        }
        broken
    }

    /// A step and its result, as text.
    pub(super) fn tell(&mut self, state: &State, action: Action) -> String {
        let (next, _) = self.after(state, action);
        let line = match action {
            Action::Begin { client, .. } => format!("client {client} requests the lock"),
            Action::Deliver { client, node } => {
                let link = self.links.get(state.links[client][node]);
                let request = link.next_request().map_or_else(String::new, |id| self.words(id));
                let what = format!("node {node} ← client {client}: {request}");
                self.with_reply(what, state, client, node, link.next_request(), link.connection())
            }
            Action::DeliverLate { client, node, place } => {
                let link = self.links.get(state.links[client][node]);
                let (request, connection) = link.late().nth(place).unzip();
                let words = request.map_or_else(String::new, |id| self.words(id));
                let what = format!("node {node} ← client {client}, late: {words}");
                self.with_reply(what, state, client, node, request, connection.unwrap_or(0))
            }
            Action::Hear { client, node } => {
                let heard = self.links.get(state.links[client][node]).next_reply();
                let reply = heard.map(|(request, reply)| (self.words(request), self.speech.reply_of(reply)));
                format!("client {client} gets the reply of node {node}: {reply:?}")
            }
            Action::Silence { client, node } => format!("client {client} stops waiting for node {node}"),
            Action::Break { client, node } => {
                format!("the connection of client {client} to node {node} breaks")
            }
            Action::Copy { client, node } => {
                format!("the next request of client {client} to node {node} will arrive twice")
            }
            Action::Wake { client } => format!("client {client} stops waiting for more replies"),
            Action::Extend { client } => format!("client {client} extends"),
            Action::Release { client } => format!("client {client} releases"),
            Action::Crash { node } => format!("node {node} loses its memory"),
            Action::Tick => "a tick".into(),
        };
        let news = (0..self.bounds.clients).filter_map(|client| {
            let before = self.clients.facts(state.clients[client]);
            let after = self.clients.facts(next.clients[client]);
            let fence = after.fence.filter(|_| before.fence.is_none());
            fence.map(|fence| format!("; client {client} HOLDS with fence {fence}"))
        });
        line + &news.collect::<String>()
    }

    fn words(&self, request: RequestId) -> String {
        describe(self.speech.request_of(request).ask)
    }

    fn with_reply(
        &self,
        what: String,
        state: &State,
        client: usize,
        node: usize,
        request: Option<RequestId>,
        connection: u8,
    ) -> String {
        let asked =
            request.map(|request| Happens::Asked { ask: self.speech.ask_of(request), client, connection });
        let reply = asked.and_then(|asked| self.nodes.known_reply(state.nodes[node], asked));
        let reply = reply.map(|reply| self.speech.reply_of(reply));
        format!("{what} → {reply:?}")
    }
}
