//! What goes wrong, and when.

use super::{Coming, World, fresh_node};
use crate::Weakness;
use crate::client::name;
use crate::network::Way;
use redlock_core::image::LockImage;
use redlock_core::{Millis, Occupant};

/// One thing that goes wrong.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// A node is gone for a while. It comes back with nothing but its durable state, or with all its locks as well.
    Crash { node: usize, down_us: u64, memory: Memory },
    /// It comes back.
    Restart { node: usize, saved: Option<Saved> },
    /// A node stands still, with all that arrives meanwhile.
    Stall { node: usize, us: u64 },
    /// Nothing gets through for a while; to or from everybody, where no one is named.
    Cut { client: Option<usize>, node: Option<usize>, ways: &'static [Way], us: u64 },
    /// A connection is made anew, with what is on its way still to come.
    Break { client: usize, node: usize },
    /// Nothing is heard for a while on the connection that news have to themselves.
    Deaf { client: usize, node: usize, us: u64 },
    /// That connection breaks, and is made anew after a while.
    NewsBreak { client: usize, node: usize },
    /// A client stands still, or its whole machine sleeps.
    Pause { client: usize, us: u64, sleeps: bool },
    /// The wall clock of a client jumps, ahead or back.
    Jump { client: usize, us: i64 },
}

/// What a node has written down by the time it crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Its durable state only.
    Gone,
    /// Every lock as it was when it was shut down.
    Saved,
    /// Every lock as it was when it was granted: what came of it since is not in the file.
    Logged,
}

/// What a node loads.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    /// Locks under their keys.
    locks: Vec<([u8; 1], LockImage)>,
    /// Whether it knows that these are all: a node that was waiting when it crashed does not.
    is_whole: bool,
}

const THERE: &[Way] = &[Way::There];
const BACK: &[Way] = &[Way::Back];
const BOTH: &[Way] = &[Way::There, Way::Back];

/// How far a wall clock jumps that somebody has set: an hour.
const FAR_US: i64 = 3_600_000_000;

impl Trouble {
    /// Its name in the count of what went wrong.
    fn kind(&self) -> &'static str {
        match self {
            Self::Crash { memory: Memory::Gone, .. } => "crash",
            Self::Crash { memory: Memory::Saved, .. } => "crash with what was saved",
            Self::Crash { memory: Memory::Logged, .. } => "crash with what was logged",
            Self::Restart { .. } => "restart",
            Self::Stall { .. } => "stall",
            Self::Cut { client: None, .. } => "node cut off",
            Self::Cut { node: None, .. } => "client cut off",
            Self::Cut { ways: BOTH, .. } => "cut both ways",
            Self::Cut { .. } => "cut one way",
            Self::Break { .. } => "break",
            Self::Deaf { .. } => "news cut",
            Self::NewsBreak { .. } => "news break",
            Self::Pause { sleeps: false, .. } => "pause",
            Self::Pause { sleeps: true, .. } => "sleep",
            Self::Jump { us: 0.., .. } => "wall clock ahead",
            Self::Jump { .. } => "wall clock back",
        }
    }
}

impl World<'_> {
    /// Decides what goes wrong in this history.
    pub(super) fn lay_out_troubles(&mut self) {
        let ttl_us = self.plan.ttl_ms * 1_000;
        let plan = self.plan;
        for _ in 0..plan.crashes {
            let (node, down_us) = (self.any_node(), self.chance.u64(0..ttl_us));
            let memory = self.any_memory();
            self.trouble(Trouble::Crash { node, down_us, memory });
        }
        for _ in 0..plan.stalls {
            let (node, us) = (self.any_node(), self.chance.u64(0..2 * ttl_us));
            self.trouble(Trouble::Stall { node, us });
        }
        for _ in 0..plan.cuts {
            let (client, node, us) = (self.any_client(), self.any_node(), self.chance.u64(0..3 * ttl_us));
            let (client, node, ways) = match self.chance.u32(0..5) {
                0 => (Some(client), Some(node), THERE),
                1 => (Some(client), Some(node), BACK),
                2 => (Some(client), Some(node), BOTH),
                3 => (None, Some(node), BOTH),
                _ => (Some(client), None, BOTH),
            };
            self.trouble(Trouble::Cut { client, node, ways, us });
        }
        for _ in 0..plan.breaks {
            let (client, node) = (self.any_client(), self.any_node());
            self.trouble(Trouble::Break { client, node });
        }
        for _ in 0..plan.pauses {
            let (client, us) = (self.any_client(), self.chance.u64(0..3 * ttl_us));
            let sleeps = self.chance.bool();
            self.trouble(Trouble::Pause { client, us, sleeps });
        }
        for _ in 0..plan.jumps {
            let client = self.any_client();
            let near = 3 * ttl_us.cast_signed();
            let far = if self.chance.bool() { near } else { FAR_US };
            let us = self.chance.i64(-far..far);
            self.trouble(Trouble::Jump { client, us });
        }
        if plan.news_apart {
            for _ in 0..plan.cuts {
                let (client, node, us) = (self.any_client(), self.any_node(), self.chance.u64(0..3 * ttl_us));
                self.trouble(Trouble::Deaf { client, node, us });
            }
            for _ in 0..plan.breaks {
                let (client, node) = (self.any_client(), self.any_node());
                self.trouble(Trouble::NewsBreak { client, node });
            }
        }
    }

    fn any_node(&mut self) -> usize {
        self.chance.usize(0..self.plan.nodes)
    }

    fn any_client(&mut self) -> usize {
        self.chance.usize(0..self.plan.clients)
    }

    /// Where a rule is left out, every crash is one that the rule is there for.
    fn any_memory(&mut self) -> Memory {
        let any = [Memory::Gone, Memory::Gone, Memory::Saved, Memory::Logged][self.chance.usize(0..4)];
        match self.plan.weakness {
            Weakness::NoQuarantine | Weakness::FencesForgotten => Memory::Gone,
            Weakness::LoadedTooShort => Memory::Saved,
            _ => any,
        }
    }

    fn trouble(&mut self, trouble: Trouble) {
        let at = self.chance.u64(0..self.plan.horizon_ms * 1_000);
        self.schedule(at, Coming::Trouble(trouble));
    }

    /// Lets something go wrong.
    pub(super) fn strike(&mut self, trouble: Trouble) {
        // What is down cannot fall.
        if matches!(trouble, Trouble::Crash { node, .. } if self.nodes[node].is_down) {
            return;
        }
        self.tell(|| format!("{trouble:?}"));
        self.outcome.count(trouble.kind());
        let now = self.now;
        match trouble {
            Trouble::Crash { node, down_us, memory } => {
                self.nodes[node].is_down = true;
                let saved = self.saved(node, memory);
                self.schedule(now + down_us, Coming::Trouble(Trouble::Restart { node, saved }));
            }
            Trouble::Restart { node, saved } => self.restart(node, saved),
            Trouble::Stall { node, us } => self.nodes[node].stalled_until = now + us,
            Trouble::Cut { client, node, ways, us } => {
                let clients = client.map_or(0..self.plan.clients, |client| client..client + 1);
                let nodes = node.map_or(0..self.plan.nodes, |node| node..node + 1);
                let clients = self.clients[clients].iter_mut();
                for connection in clients.flat_map(|client| client.connections_to(nodes.clone())) {
                    ways.iter().for_each(|way| connection.cut(*way, now + us));
                }
            }
            Trouble::Deaf { client, node, us } => {
                self.clients[client].news_from(node).cut(Way::Back, now + us);
            }
            Trouble::NewsBreak { client, node } => self.stop_listening(client, node),
            Trouble::Break { client, node } => {
                let old = self.clients[client].connections[node].id;
                let at = now + self.chance.u64(0..self.plan.ttl_ms * 500);
                self.schedule(at, Coming::Closed { node, connection: old });
                if self.plan.weakness == Weakness::TakenBackAtOnce {
                    self.take_back(client, node);
                }
                self.reconnect(client, node);
            }
            Trouble::Pause { client, us, sleeps } => {
                let client = &mut self.clients[client];
                client.paused_until = client.paused_until.max(now + us);
                if let Some(active) = &mut client.active {
                    active.has_paused = true;
                }
                if sleeps {
                    client.clock.slept(us);
                }
            }
            Trouble::Jump { client, us } => {
                let client = &mut self.clients[client];
                client.wall_ahead_us += us;
                if self.plan.weakness == Weakness::WallClockBelieved {
                    client.clock.jump(us);
                }
            }
        }
    }

    /// What a node that crashes now is going to load; nothing if it has written down nothing of its locks.
    fn saved(&self, node: usize, memory: Memory) -> Option<Saved> {
        let sim = &self.nodes[node];
        let mut at = sim.time.at(self.now);
        let is_whole = sim.memory.node().quarantine_left_ms(&mut at) == 0;
        let image = |key: usize| {
            let mut image = sim.memory.image(&name(key), at)?;
            if memory == Memory::Logged {
                (image.left_ms, image.held_ms) = (self.plan.ttl_ms, 0);
            }
            if self.plan.weakness == Weakness::LoadedTooShort {
                image.left_ms /= 2;
            }
            Some((name(key), image))
        };
        let locks = || (0..self.plan.keys).filter_map(image).collect();
        (memory != Memory::Gone).then(|| Saved { locks: locks(), is_whole })
    }

    fn restart(&mut self, node: usize, saved: Option<Saved>) {
        let sim = &mut self.nodes[node];
        sim.is_down = false;
        let mut at: Millis = sim.time.at(self.now);
        match (saved, self.plan.weakness) {
            (Some(saved), _) => {
                sim.memory.crash(at);
                if saved.is_whole || self.plan.weakness == Weakness::WaitForgotten {
                    sim.memory.node_mut().end_quarantine();
                }
                for (key, image) in saved.locks {
                    let lock = sim.memory.node_mut().load(0, &key, &image, &mut at).expect("room for a lock");
                    sim.memory.plant(&key, Occupant::Lock(lock));
                }
                sim.touched.fill(self.now);
            }
            (None, Weakness::FencesForgotten) => {
                let wait_ms = sim.memory.node().state().quarantine_ms();
                sim.memory = fresh_node(node, self.plan);
                sim.memory.node_mut().quarantine(wait_ms, &mut at);
            }
            (None, Weakness::NoQuarantine) => {
                sim.memory.crash(at);
                sim.memory.node_mut().end_quarantine();
            }
            (None, _) => sim.memory.crash(at),
        }
        sim.memory.node_mut().set_claim_window_ms(self.plan.claim_ms);
        // Whoever was connected is not any more.
        for client in 0..self.plan.clients {
            self.reconnect(client, node);
            if self.plan.news_apart {
                self.stop_listening(client, node);
            }
        }
    }
}
