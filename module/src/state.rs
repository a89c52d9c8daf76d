//! The state of the module between two calls of the server.

use std::collections::HashSet;

use redlock_contract::HighWater;
use redlock_core::durable::Dataset;
use redlock_core::start::{ExpectedLocks, Grace};
use redlock_core::sweep_budget::SweepBudget;
use redlock_core::{LockId, LockNode, Millis};

use crate::ffi::clock::MachineClock;
use crate::ffi::confined::Confined;
use crate::ffi::context::Ctx;
use crate::ffi::replication::ReplicationTarget;
use crate::ffi::timer::Timer;
use crate::search::LockSearch;

/// The node, and what the module keeps beside it. The life cycle of a lock's value and record is drawn in
/// [`reclaim`](crate::reclaim).
pub(crate) struct ModuleState {
    pub(crate) node: LockNode,
    pub(crate) clock: MachineClock,
    /// The server is a replica: it grants and sweeps nothing.
    pub(crate) is_replica: bool,
    /// The server loads a data set: it grants and sweeps nothing.
    pub(crate) is_loading: bool,
    /// When the node is in quarantine after a start: `redlock.restart-grace`.
    pub(crate) grace: Grace,
    /// The locks that, if the data set contains them, end the quarantine at once.
    pub(crate) expected: Option<ExpectedLocks>,
    /// What the data set says about itself.
    pub(crate) dataset: Dataset,
    /// The high-water marks of the state file at the start of the server; `None` if there was no state file.
    /// The largest mark once the server runs.
    pub(crate) marks_at_start: Option<HighWater>,
    /// The evicted lock that the quarantine already covers.
    pub(crate) last_evicted: Option<LockId>,
    /// The log contains the line about the quarantine after a start.
    pub(crate) is_quarantine_logged: bool,
    /// Whether anything receives effects.
    pub(crate) replication_target: ReplicationTarget,
    /// The search for locks that are not under their keys.
    pub(crate) search: LockSearch,
    /// Keys with waiters of which the server has just saved an image.
    pub(crate) images: HashSet<(u16, Vec<u8>)>,
    /// Whether the module is subscribed to events of keys and connections.
    pub(crate) watches_keys: bool,
    /// How much the next call of the sweep does.
    pub(crate) sweep_budget: SweepBudget,
    /// The timer of the sweep, and when it fires.
    pub(crate) timer: Option<(Timer, Millis)>,
}

static STATE: Confined<ModuleState> = Confined::empty();

/// Fills in the state when the module is loaded.
pub(crate) fn begin(state: ModuleState) -> bool {
    STATE.fill(state)
}

/// Runs `run` on the state; `None` if an outer call on the stack already uses the state.
pub(crate) fn with<R>(run: impl FnOnce(&mut ModuleState) -> R) -> Option<R> {
    STATE.with(run)
}

/// Runs `run` on the state in a call of the server; `None` as above.
#[inline]
pub(crate) fn during<R>(ctx: Ctx<'_>, run: impl FnOnce(&mut ModuleState) -> R) -> Option<R> {
    STATE.during(ctx, run)
}
