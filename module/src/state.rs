//! What the module knows between two calls.

use std::collections::HashSet;

use redlock_core::durable::Dataset;
use redlock_core::{LockId, LockNode, Millis};

use crate::ffi::clock::MachineClock;
use crate::ffi::confined::Confined;
use crate::ffi::context::Ctx;
use crate::ffi::replication::ReplicationTarget;
use crate::ffi::timer::Timer;
use crate::restart::{ExpectedLocks, Grace};
use crate::search::LockSearch;

/// The node and what surrounds it.
pub(crate) struct ModuleState {
    pub(crate) node: LockNode,
    pub(crate) clock: MachineClock,
    /// A replica, or a server that loads its dataset, grants and sweeps nothing.
    pub(crate) is_replica: bool,
    pub(crate) is_loading: bool,
    /// When to wait after a start, for the next one.
    pub(crate) grace: Grace,
    /// What ends the wait after a start at once.
    pub(crate) expected: Option<ExpectedLocks>,
    /// What the data set says about itself.
    pub(crate) dataset: Dataset,
    /// The highest fence that the state file knew of when the server started; `None` if there was no state file. No
    /// limit once the server runs.
    pub(crate) highest_at_start: Option<u64>,
    /// The evicted lock that the node already waits for.
    pub(crate) last_evicted: Option<LockId>,
    /// The log knows about the wait.
    pub(crate) is_quarantine_logged: bool,
    /// Whether effects have to be replicated one by one.
    pub(crate) replication_target: ReplicationTarget,
    /// Locks that are not where they were granted.
    pub(crate) search: LockSearch,
    /// The keys of locks, with somebody waiting, of which an image was just made.
    pub(crate) images: HashSet<(u16, Vec<u8>)>,
    /// Whether the server tells what happens to keys and connections.
    pub(crate) watches_keys: bool,
    /// The timer of the sweep, and when it should fire.
    pub(crate) timer: Option<(Timer, Millis)>,
}

static STATE: Confined<ModuleState> = Confined::empty();

/// Fills in the state when the module is loaded.
pub(crate) fn begin(state: ModuleState) -> bool {
    STATE.fill(state)
}

/// Works on the state; `None` if it is open further up the stack.
pub(crate) fn with<R>(run: impl FnOnce(&mut ModuleState) -> R) -> Option<R> {
    STATE.with(run)
}

/// Works on the state in a call of the server; `None` as above.
#[inline]
pub(crate) fn during<R>(ctx: Ctx<'_>, run: impl FnOnce(&mut ModuleState) -> R) -> Option<R> {
    STATE.during(ctx, run)
}
