//! The faults of a history, and when they are injected.

use super::replica::Promotion;
use super::start::{Backup, Data, End, HOSTILE_KEY, Kept};
use super::{Coming, World};
use crate::Weakness;
use crate::disk::{STEPS, Step};
use crate::identity;
use crate::network::LinkDirection;
use redlock_contract::HighWater;
use redlock_contract::limits::MAX_FENCE;
use redlock_core::NodeHost;
use redlock_core::durable::DurableState;

/// One fault.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// A node is down for a while, and restarts with its durable state and the data that it has kept.
    Crash { node: usize, down_us: u64, end: End, kept: Kept },
    /// The server starts again.
    Restart { server: usize, data: Data },
    /// The files of a node are copied.
    BackUp { node: usize },
    /// A node restarts with other files than its latest.
    Restore { node: usize, down_us: u64, files: Files },
    /// A node dies in its next store.
    Tear { node: usize, step: Step },
    /// The replica of a node is promoted.
    Promote { node: usize, how: Promotion },
    /// A client reaches another node at an address for a while.
    Stray { client: usize, node: usize, to: usize, us: u64 },
    /// A hostile client raises the fence of its own key as far as it can, with `times` commands.
    Raise { node: usize, times: u32 },
    /// A node stalls, and so do all requests to it.
    Stall { node: usize, us: u64 },
    /// Messages are dropped for a while; `None` means all clients, or all nodes.
    Cut { client: Option<usize>, node: Option<usize>, directions: &'static [LinkDirection], us: u64 },
    /// A connection breaks and is established again, while messages in flight still arrive.
    Break { client: usize, node: usize },
    /// Pushes on their own connection are dropped for a while.
    Deaf { client: usize, node: usize, us: u64 },
    /// The connection for pushes breaks, and is established again after a while.
    PushBreak { client: usize, node: usize },
    /// A client pauses, or its whole machine sleeps.
    Pause { client: usize, us: u64, sleeps: bool },
    /// The wall clock of a client jumps, ahead or back.
    Jump { client: usize, us: i64 },
}

/// The files with which a node restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// Copies of its state file and its data, both older.
    Copies,
    /// A copy of its state file, older, and its latest data.
    CopiedState,
    /// Its latest state file, and older data.
    OlderData,
    /// Its latest data, without a state file.
    NoState,
    /// Nothing.
    None,
    /// All its latest files, on another port.
    OtherPort,
    /// The machine was set back as a whole: all files are older, and nothing on disk shows it.
    SetBack,
}

/// All variants.
const FILES: [Files; 7] = [
    Files::Copies,
    Files::CopiedState,
    Files::OlderData,
    Files::NoState,
    Files::None,
    Files::OtherPort,
    Files::SetBack,
];

const TO_NODE: &[LinkDirection] = &[LinkDirection::ToNode];
const TO_CLIENT: &[LinkDirection] = &[LinkDirection::ToClient];
const BOTH: &[LinkDirection] = &[LinkDirection::ToNode, LinkDirection::ToClient];

/// How far a wall clock jumps that a person has set: an hour, in microseconds.
const FAR_US: i64 = 3_600_000_000;

impl Fault {
    /// The name of the fault in the counters.
    fn kind(&self) -> &'static str {
        match self {
            Self::Crash { end: End::Kill, .. } => "crash",
            Self::Crash { end: End::Power, .. } => "power failure",
            Self::Crash { end: End::Shutdown, .. } => "shutdown",
            Self::Restart { .. } => "restart",
            Self::BackUp { .. } => "backup",
            Self::Restore { files: Files::Copies, .. } => "state and data copied back",
            Self::Restore { files: Files::CopiedState, .. } => "state copied back",
            Self::Restore { files: Files::OlderData, .. } => "older data",
            Self::Restore { files: Files::NoState, .. } => "state file lost",
            Self::Restore { files: Files::None, .. } => "all files lost",
            Self::Restore { files: Files::OtherPort, .. } => "other port",
            Self::Restore { files: Files::SetBack, .. } => "machine set back",
            Self::Tear { .. } => "torn store prepared",
            Self::Promote { .. } => "failover",
            Self::Stray { .. } => "stray",
            Self::Raise { .. } => "hostile raise",
            Self::Stall { .. } => "stall",
            Self::Cut { client: None, .. } => "node cut off",
            Self::Cut { node: None, .. } => "client cut off",
            Self::Cut { directions: BOTH, .. } => "cut both ways",
            Self::Cut { .. } => "cut one way",
            Self::Break { .. } => "break",
            Self::Deaf { .. } => "push cut",
            Self::PushBreak { .. } => "push break",
            Self::Pause { sleeps: false, .. } => "pause",
            Self::Pause { sleeps: true, .. } => "sleep",
            Self::Jump { us: 0.., .. } => "wall clock ahead",
            Self::Jump { .. } => "wall clock back",
        }
    }
}

impl World<'_> {
    /// Schedules the faults of this history.
    pub(super) fn schedule_faults(&mut self) {
        let ttl_us = self.plan.ttl_ms * 1_000;
        let plan = self.plan;
        for _ in 0..plan.crashes {
            let (node, down_us) = (self.any_node(), self.chance.u64(0..ttl_us));
            let (end, kept) = self.any_end();
            self.plan_fault(Fault::Crash { node, down_us, end, kept });
        }
        for _ in 0..plan.stalls {
            let (node, us) = (self.any_node(), self.chance.u64(0..2 * ttl_us));
            self.plan_fault(Fault::Stall { node, us });
        }
        for _ in 0..plan.cuts {
            let (client, node, us) = (self.any_client(), self.any_node(), self.chance.u64(0..3 * ttl_us));
            let (client, node, directions) = match self.chance.u32(0..5) {
                0 => (Some(client), Some(node), TO_NODE),
                1 => (Some(client), Some(node), TO_CLIENT),
                2 => (Some(client), Some(node), BOTH),
                3 => (None, Some(node), BOTH),
                _ => (Some(client), None, BOTH),
            };
            self.plan_fault(Fault::Cut { client, node, directions, us });
        }
        for _ in 0..plan.breaks {
            let (client, node) = (self.any_client(), self.any_node());
            self.plan_fault(Fault::Break { client, node });
        }
        for _ in 0..plan.pauses {
            let (client, us) = (self.any_client(), self.chance.u64(0..3 * ttl_us));
            let sleeps = self.chance.bool();
            self.plan_fault(Fault::Pause { client, us, sleeps });
        }
        for _ in 0..plan.jumps {
            let client = self.any_client();
            let near = 3 * ttl_us.cast_signed();
            let far = if self.chance.bool() { near } else { FAR_US };
            let us = self.chance.i64(-far..far);
            self.plan_fault(Fault::Jump { client, us });
        }
        if plan.separate_pushes {
            for _ in 0..plan.cuts {
                let (client, node, us) = (self.any_client(), self.any_node(), self.chance.u64(0..3 * ttl_us));
                self.plan_fault(Fault::Deaf { client, node, us });
            }
            for _ in 0..plan.breaks {
                let (client, node) = (self.any_client(), self.any_node());
                self.plan_fault(Fault::PushBreak { client, node });
            }
        }
        self.lay_out_lost_identities();
    }

    /// Schedules the faults after which a server is not the node that it was.
    fn lay_out_lost_identities(&mut self) {
        let (plan, ttl_us) = (self.plan, self.plan.ttl_ms * 1_000);
        for _ in 0..plan.torn {
            let (node, step) = (self.any_node(), STEPS[self.chance.usize(0..STEPS.len())]);
            self.plan_fault(Fault::Tear { node, step });
        }
        for _ in 0..plan.failovers {
            let (node, how) = (self.any_node(), self.any_promotion());
            self.attach_replica(node);
            self.plan_fault(Fault::Promote { node, how });
        }
        for _ in 0..plan.restores {
            let (node, down_us, files) = (self.any_node(), self.chance.u64(0..ttl_us), self.any_files());
            self.back_up(node);
            if files == Files::SetBack {
                // Clients can detect an older copy only if the node has started at least twice since.
                for _ in 0..3 {
                    self.plan_fault(Fault::Crash { node, down_us: 0, end: End::Shutdown, kept: Kept::Saved });
                }
            } else if self.chance.bool() {
                self.plan_fault(Fault::BackUp { node });
            }
            self.plan_fault(Fault::Restore { node, down_us, files });
        }
        for _ in 0..plan.strays {
            let (client, node, to) = (self.any_client(), self.any_node(), self.any_node());
            let us = self.chance.u64(0..3 * ttl_us);
            self.plan_fault(Fault::Stray { client, node, to, us });
        }
        for _ in 0..plan.raises {
            let (node, times) = (self.any_node(), [1, 2, 40, 400][self.chance.usize(0..4)]);
            self.plan_fault(Fault::Raise { node, times });
        }
        if plan.long_ms > 0 {
            for server in 0..self.servers.len() {
                let at = self.chance.u64(0..ttl_us);
                self.schedule(at, Coming::Cron { server });
            }
        }
    }

    fn any_node(&mut self) -> usize {
        self.chance.usize(0..self.plan.nodes)
    }

    fn any_client(&mut self) -> usize {
        self.chance.usize(0..self.plan.clients)
    }

    /// How a server ends, and with what data it restarts. If a rule is disabled, always an end that the rule
    /// protects against.
    fn any_end(&mut self) -> (End, Kept) {
        let end = [End::Kill, End::Power, End::Shutdown, End::Shutdown][self.chance.usize(0..4)];
        let kept = [Kept::Nothing, Kept::Nothing, Kept::Older, Kept::Saved, Kept::Logged];
        let kept = kept[self.chance.usize(0..5)];
        match self.plan.weakness {
            Weakness::NoQuarantine | Weakness::FencesForgotten => (End::Kill, Kept::Nothing),
            Weakness::LoadedTooShort => (End::Shutdown, Kept::Saved),
            Weakness::FileNotSynced | Weakness::FolderNotSynced => (End::Power, Kept::Nothing),
            _ => (end, kept),
        }
    }

    fn any_promotion(&mut self) -> Promotion {
        let any = [Promotion::OldIsDead, Promotion::OldLives, Promotion::Restart][self.chance.usize(0..3)];
        match self.plan.weakness {
            Weakness::LeapAfterPromotion | Weakness::PromotedWaitsForHeardLeases => Promotion::OldIsDead,
            Weakness::OldMasterVotesOn
            | Weakness::AdmittedBesideOld
            | Weakness::AdmittedAboveEarlierMarks => Promotion::OldLives,
            Weakness::RestartedReplicaVotes => Promotion::Restart,
            _ => any,
        }
    }

    fn any_files(&mut self) -> Files {
        let any = FILES[self.chance.usize(0..FILES.len())];
        match self.plan.weakness {
            Weakness::OlderDataTaken => Files::OlderData,
            Weakness::OtherPortIsNew => Files::OtherPort,
            Weakness::CopyTaken => Files::Copies,
            _ => any,
        }
    }

    fn plan_fault(&mut self, fault: Fault) {
        let at = self.chance.u64(0..self.plan.horizon_ms * 1_000);
        self.schedule(at, Coming::Fault(fault));
    }

    /// Injects a fault.
    pub(super) fn inject(&mut self, fault: Fault) {
        // A server that is down cannot fail again. A node that was set back must not restart before its
        // admission: each restart increments its incarnation, until clients accept it as the node that it
        // was.
        if let Fault::Crash { node, .. }
        | Fault::Restore { node, .. }
        | Fault::BackUp { node }
        | Fault::Tear { node, .. } = fault
            && (self.servers[self.current[node]].is_down || self.set_back.contains(node))
        {
            return;
        }
        self.tell(|| format!("{fault:?}"));
        let now = self.now;
        let kind = fault.kind();
        match fault {
            Fault::Restore { node, down_us, files } => {
                if !self.restore(node, down_us, files) {
                    return;
                }
            }
            Fault::Promote { node, how } => return self.promote(node, how),
            Fault::Crash { node, down_us, end, kept } => {
                let server = self.current[node];
                let data = self.data_of(server, kept);
                self.end_server(server, end);
                self.schedule(now + down_us, Coming::Fault(Fault::Restart { server, data }));
            }
            Fault::Restart { server, data } => self.start_server(server, data),
            Fault::BackUp { node } => self.back_up(self.current[node]),
            Fault::Tear { node, step } => {
                let server = self.current[node];
                self.servers[server].memory.host_mut().disk.break_before(Some(step));
            }
            Fault::Stray { client, node, to, us } => {
                self.move_client(client, node, Some(self.current[to]));
                self.schedule(now + us, Coming::Move { client, node, server: None });
            }
            Fault::Raise { node, times } => self.raise(self.current[node], times),
            Fault::Stall { node, us } => self.servers[self.current[node]].stalled_until = now + us,
            Fault::Cut { client, node, directions, us } => {
                let clients = client.map_or(0..self.plan.clients, |client| client..client + 1);
                let nodes = node.map_or(0..self.plan.nodes, |node| node..node + 1);
                let clients = self.clients[clients].iter_mut();
                for connection in clients.flat_map(|client| client.connections_to(nodes.clone())) {
                    directions.iter().for_each(|direction| connection.cut(*direction, now + us));
                }
            }
            Fault::Deaf { client, node, us } => {
                self.clients[client].push_connection(node).cut(LinkDirection::ToClient, now + us);
            }
            Fault::PushBreak { client, node } => self.stop_listening(client, node),
            Fault::Break { client, node } => {
                let old = self.clients[client].connections[node].id;
                let at = now + self.chance.u64(0..self.plan.ttl_ms * 500);
                let server = self.clients[client].servers[node];
                self.schedule(at, Coming::Closed { server, connection: old });
                if self.plan.weakness == Weakness::TakenBackAtOnce {
                    self.take_back(client, node);
                }
                self.reconnect(client, node);
            }
            Fault::Pause { client, us, sleeps } => {
                let client = &mut self.clients[client];
                client.paused_until = client.paused_until.max(now + us);
                if let Some(active) = &mut client.active {
                    active.has_paused = true;
                }
                if sleeps {
                    client.clock.slept(us);
                }
            }
            Fault::Jump { client, us } => {
                let client = &mut self.clients[client];
                client.wall_ahead_us += us;
                if self.plan.weakness == Weakness::WallClockBelieved {
                    client.clock.jump(us);
                }
            }
        }
        self.outcome.count(kind);
    }

    /// Ends a node and replaces its files. False if that is impossible: the group could not do without the
    /// node, or there are no older files.
    fn restore(&mut self, node: usize, down_us: u64, files: Files) -> bool {
        let server = self.current[node];
        let is_lost = !matches!(files, Files::OlderData | Files::OtherPort);
        let backup = self.servers[server].backup.clone();
        let needs_backup =
            matches!(files, Files::Copies | Files::CopiedState | Files::OlderData | Files::SetBack);
        if is_lost && !self.can_lose(node) || needs_backup && backup.is_none() {
            return false;
        }
        if files == Files::SetBack && !backup.as_ref().is_some_and(|backup| self.all_refuse(node, backup)) {
            return false;
        }
        let latest = self.data_of(server, Kept::Saved);
        self.end_server(server, End::Shutdown);
        let disk = &mut self.servers[server].memory.host_mut().disk;
        let older = |backup: Option<Backup>| backup.map(|backup| backup.data).unwrap_or_default();
        let data = match (files, backup) {
            (Files::Copies, Some(backup)) => {
                disk.put_copy(&backup.state);
                backup.data
            }
            (Files::CopiedState, Some(backup)) => {
                disk.put_copy(&backup.state);
                latest
            }
            (Files::SetBack, Some(backup)) => {
                disk.put_back(&backup.state, backup.file);
                disk.break_before(None);
                self.set_back.insert(node);
                backup.data
            }
            (Files::NoState, _) => {
                disk.remove();
                latest
            }
            (Files::None, _) => {
                disk.remove();
                Data::default()
            }
            (Files::OtherPort, _) => {
                if self.plan.weakness == Weakness::OtherPortIsNew {
                    disk.remove();
                }
                latest
            }
            (_, backup) => older(backup),
        };
        self.schedule(self.now + down_us, Coming::Fault(Fault::Restart { server, data }));
        if is_lost {
            // The backup belongs to the node that was lost.
            self.servers[server].backup = None;
            if self.plan.weakness != Weakness::CopyTaken {
                self.vacate(node);
            }
        }
        true
    }

    /// Whether every client refuses a node that starts from this backup. A client that has not seen a later
    /// state cannot detect an older copy: there, the promises assume that a machine is not set back.
    fn all_refuse(&self, node: usize, backup: &Backup) -> bool {
        let Ok(stored) = DurableState::decode(&backup.state) else { return false };
        let (state, _) = stored.state.restarted();
        self.clients.iter().all(|client| !identity::is_taken(&client.known, node, &state))
    }

    /// A hostile client raises the fence of its own key.
    fn raise(&mut self, server: usize, times: u32) {
        let ttl = self.plan.ttl_ms.max(10).to_string();
        let sim = &mut self.servers[server];
        if sim.is_down {
            return;
        }
        let at = sim.time.at(self.now);
        let mut ask = |words: &[&[u8]]| sim.memory.execute(words, u64::MAX, at);
        // The node may refuse: in quarantine it grants nothing.
        let _ = ask(&[b"REDLOCK.ACQUIRE", &HOSTILE_KEY, b"hostile", ttl.as_bytes()]);
        for _ in 0..times {
            let far = MAX_FENCE.to_string();
            let raised =
                [b"REDLOCK.EXTEND", &HOSTILE_KEY[..], b"hostile", ttl.as_bytes(), b"FENCE", far.as_bytes()];
            if ask(&raised).is_err() {
                break;
            }
        }
        if self.plan.weakness == Weakness::OneHighWaterMark {
            let mut state = sim.memory.node().state().clone();
            state.high_water = HighWater::new(MAX_FENCE);
            if sim.memory.host_mut().store(&state).is_ok() {
                sim.memory.node_mut().set_state(state);
            }
        }
        if !self.has_died_in_a_store(server) {
            self.attend(server);
        }
    }
}
