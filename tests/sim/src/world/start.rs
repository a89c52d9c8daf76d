//! How a server ends and starts: what its disk keeps, and what it loads. Which node it is then, and how long it is in
//! quarantine, decides `redlock_core::start`, as in the module.

use super::fault::Fault;
use super::{Coming, World, id_of};
use crate::Weakness;
use crate::client::name;
use redlock_contract::HighWater;
use redlock_core::durable::{Dataset, DurableState, FileId};
use redlock_core::image::LockImage;
use redlock_core::start::{FoundFile, Grace, Start};
use redlock_core::{KeyState, Millis, NodeHost};

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The process is killed: everything that it has written is on disk.
    Kill,
    /// The machine loses power: what was not synced may be lost.
    Power,
    /// The server is shut down cleanly.
    Shutdown,
}

/// The data that a server finds when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The server keeps no data.
    Nothing,
    /// An earlier backup.
    Older,
    /// Every lock as it was when the server ended.
    Saved,
    /// Every lock as it was granted or extended: the file does not show the remaining time at the end.
    Logged,
}

/// A data set that a server loads.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    id: Option<u64>,
    high_water: u64,
    highest_fence: u64,
    locks: Vec<([u8; 1], LockImage)>,
}

/// Files of a server as they were at an earlier time.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    pub(super) state: Vec<u8>,
    pub(super) file: FileId,
    pub(super) data: Data,
}

impl World<'_> {
    /// The data that a server will load if it ends now.
    pub(super) fn data_of(&self, server: usize, kept: Kept) -> Data {
        let sim = &self.servers[server];
        let at = sim.time.at(self.now);
        let longest_ms = self.plan.longest_ms();
        let image = |key: [u8; 1]| {
            let mut image = sim.memory.image(&key, at)?;
            let span_ms = image.left_ms + image.held_ms;
            if kept == Kept::Logged {
                image.left_ms = span_ms.min(longest_ms);
            }
            if self.plan.weakness == Weakness::LoadedTooShort {
                image.left_ms /= 2;
            }
            image.held_ms = span_ms - image.left_ms;
            Some((key, image))
        };
        match kept {
            Kept::Nothing => Data::default(),
            Kept::Older => sim.backup.as_ref().map(|backup| backup.data.clone()).unwrap_or_default(),
            Kept::Saved | Kept::Logged => {
                let state = sim.memory.node().state();
                let has_fences = state.longest_lease_ms > 0;
                let keys = (0..self.plan.keys).map(name).chain([HOSTILE_KEY]);
                Data {
                    id: has_fences.then_some(state.dataset_id),
                    high_water: state.high_water.common(),
                    highest_fence: sim.memory.node().largest_fence().max(state.high_water.common()),
                    locks: keys.filter_map(image).collect(),
                }
            }
        }
    }

    /// Copies the files of a server.
    pub(super) fn back_up(&mut self, server: usize) {
        let data = self.data_of(server, Kept::Saved);
        let sim = &mut self.servers[server];
        let file = sim.memory.host().disk.read();
        sim.backup = file.map(|(state, file)| Backup { state: state.to_vec(), file, data });
    }

    /// Ends a server.
    pub(super) fn end_server(&mut self, server: usize, end: End) {
        let sim = &mut self.servers[server];
        sim.is_down = true;
        if end == End::Shutdown {
            let node = sim.memory.node();
            let mut last = node.state().clone();
            let is_complete = node.quarantine_left_ms(&mut sim.time.at(self.now)) == 0
                || self.plan.weakness == Weakness::WaitForgotten;
            if is_complete && last.non_voting.is_none() {
                last.locks_at_shutdown = Some(node.locks_digest());
                // Without this store, the next start is in quarantine.
                let _ = sim.memory.host_mut().store(&last);
            }
        }
        let disk = &mut sim.memory.host_mut().disk;
        disk.was_interrupted();
        if end == End::Power {
            disk.lose_power(&mut self.chance);
        }
    }

    /// Whether a server has just died in a store of its state. It starts again later.
    pub(super) fn has_died_in_a_store(&mut self, server: usize) -> bool {
        self.has_died_with(server, None)
    }

    fn has_died_with(&mut self, server: usize, data: Option<Data>) -> bool {
        if !self.servers[server].memory.host_mut().disk.was_interrupted() {
            return false;
        }
        self.outcome.count("crash in a store");
        let end = if self.chance.bool() { End::Kill } else { End::Power };
        let kept = if self.chance.bool() { Kept::Nothing } else { Kept::Logged };
        let data = data.unwrap_or_else(|| self.data_of(server, kept));
        self.tell(|| format!("server {server} dies in a store: {end:?}, {kept:?}"));
        self.end_server(server, end);
        let at = self.now + self.chance.u64(0..self.plan.ttl_ms * 1_000);
        self.schedule(at, Coming::Fault(Fault::Restart { server, data }));
        true
    }

    /// Starts a server with the files on its disk and this data.
    pub(super) fn start_server(&mut self, server: usize, data: Data) {
        if self.servers[server].is_gone {
            return;
        }
        self.ids += 1;
        let new_id = self.ids;
        let weakness = self.plan.weakness;
        let sim = &mut self.servers[server];
        let stored = match sim.memory.host().disk.read() {
            None => FoundFile::Nothing,
            Some((bytes, id)) => {
                let Ok(stored) = DurableState::decode(bytes) else {
                    let node = sim.node;
                    return self.checks.cannot_start(node);
                };
                let is_copy = stored.file.is_some_and(|written| !written.is_same(id));
                if is_copy && weakness != Weakness::CopyTaken {
                    FoundFile::Copy(stored.state)
                } else {
                    FoundFile::Own(stored.state)
                }
            }
        };
        let had_file = !matches!(stored, FoundFile::Nothing);
        let mut start = Start::new(stored, false, false, id_of(new_id), new_id);
        let marks = had_file.then(|| start.state.high_water.clone());
        let state = &mut start.state;
        match weakness {
            Weakness::FencesForgotten => (state.high_water, state.incarnation) = (HighWater::default(), 0),
            Weakness::OneHighWaterMark => state.high_water = HighWater::new(state.high_water.highest()),
            Weakness::RestartedReplicaVotes => (state.non_voting, start.continues) = (None, true),
            _ => {}
        }
        sim.is_down = false;
        // A server that cannot store its state has died in that store.
        let is_up = sim.memory.restart_with(&start, sim.time.at(self.now)).is_ok();
        sim.memory.node_mut().set_claim_window_ms(self.plan.claim_ms);
        if is_up {
            self.load(server, &data, marks.as_ref(), new_id);
            self.settle(server, &start);
        }
        if self.has_died_with(server, Some(data)) {
            return;
        }
        let sim = &mut self.servers[server];
        sim.touched.fill(self.now);
        let (node, lost_its_vote) = (sim.node, sim.memory.node().state().non_voting.is_some());
        if self.current[node] == server && lost_its_vote {
            self.vacate(node);
        }
        // All clients reconnect, also those that use it as another node.
        let nodes = 0..self.plan.nodes;
        for (client, node) in
            (0..self.plan.clients).flat_map(|client| nodes.clone().map(move |node| (client, node)))
        {
            if self.clients[client].servers[node] == server {
                self.reconnect(client, node);
                if self.plan.separate_pushes {
                    self.stop_listening(client, node);
                }
            }
        }
    }

    /// Loads a data set, and decides whether it belongs to this node.
    fn load(&mut self, server: usize, data: &Data, stored: Option<&HighWater>, new_id: u64) {
        let sim = &mut self.servers[server];
        let mut at: Millis = sim.time.at(self.now);
        for (key, image) in &data.locks {
            let mut image = image.clone();
            (image.left_ms, image.held_ms) = sim.memory.node().times_of_own(image.left_ms, image.held_ms);
            let own = sim.memory.node().state();
            let goes_beyond = own.non_voting.is_none() && image.fence > own.high_water.highest();
            if let Some(next) = sim.memory.node().state_to_load(key, &image).filter(|_| !goes_beyond) {
                match sim.memory.host_mut().store(&next) {
                    Ok(()) => sim.memory.node_mut().set_state(next),
                    Err(_) => sim.memory.node_mut().set_unsaved_state(next),
                }
            }
            let lock = sim.memory.node_mut().load(0, key, &image, &mut at).expect("room for a lock");
            sim.memory.plant(key, KeyState::Lock(lock));
        }
        let has_locks = sim.memory.node().held() > 0;
        let dataset = Dataset {
            id: data.id,
            has_locks,
            high_water: data.high_water,
            highest_fence: data.highest_fence,
        };
        let own = sim.memory.node().state();
        let next = match own.reason_not_to_vote(dataset, stored) {
            _ if self.plan.weakness == Weakness::OtherPortIsNew => None,
            Some(reason) => Some(sim.memory.node_mut().without_vote(reason, id_of(new_id), dataset)),
            None if own.non_voting.is_some() => own.following(dataset.id, dataset.high_water),
            None => None,
        };
        if let Some(next) = next {
            match sim.memory.host_mut().store(&next) {
                Ok(()) => sim.memory.node_mut().set_state(next),
                Err(_) => sim.memory.node_mut().set_unsaved_state(next),
            }
        }
    }

    /// Ends the quarantine of a node that has all its locks.
    fn settle(&mut self, server: usize, start: &Start) {
        let node = self.servers[server].memory.node_mut();
        let expected = start.expected_locks(Grace::Auto);
        let is_complete = match self.plan.weakness {
            Weakness::NoQuarantine | Weakness::RestartedReplicaVotes => true,
            Weakness::OlderDataTaken => expected.is_some(),
            _ => expected.is_some_and(|expected| expected.are_here(node.locks_digest(), true)),
        };
        if is_complete {
            node.cancel_quarantine();
        } else {
            node.outlast_loaded_locks();
        }
    }

    /// Runs the periodic timer of a server: it lowers the longest lease when no such lease is left.
    pub(super) fn cron(&mut self, server: usize) {
        let sim = &mut self.servers[server];
        if sim.is_gone {
            return;
        }
        if !sim.is_down && self.now >= sim.stalled_until {
            let node = sim.memory.node();
            let next = match self.plan.weakness {
                Weakness::LongestLeaseKept => None,
                Weakness::LongestLeaseLoweredEarly => node.state().with_leases_of(0),
                _ => node.state_with_shorter_lease(&mut sim.time.at(self.now)),
            };
            if let Some(next) = next
                && sim.memory.host_mut().store(&next).is_ok()
            {
                self.outcome.count("longest lease lowered");
                sim.memory.node_mut().set_state(next);
            }
            self.has_died_in_a_store(server);
        }
        let ttl_us = self.plan.ttl_ms * 1_000;
        if self.now < (self.plan.horizon_ms + self.plan.long_ms) * 1_000 {
            let at = self.now + self.chance.u64(ttl_us / 8..ttl_us / 4);
            self.schedule(at, Coming::Cron { server });
        }
    }
}

/// The key on which a hostile client may run commands.
pub(super) const HOSTILE_KEY: [u8; 1] = *b"z";
