//! Loading the module into the server.

use std::collections::HashSet;
use std::env;
use std::ffi::c_int;

use redlock_core::LockNode;
use redlock_core::durable::{Dataset, ID_DIGITS};
use redlock_core::start::{FoundFile, Grace, Start};
use redlock_core::sweep_budget::SweepBudget;

use crate::config::{self, Arguments, SETTINGS};
use crate::ffi::api;
use crate::ffi::clock::MachineClock;
use crate::ffi::confined::this_is_the_main_thread;
use crate::ffi::context::Ctx;
use crate::ffi::log::Level;
use crate::ffi::replication::ReplicationTarget;
use crate::ffi::{command_info, data_type, events, settings};
use crate::restart;
use crate::search::LockSearch;
use crate::state::{self, ModuleState};
use crate::state_file::{self, FoundState, StateFile};

/// The module's version as `MODULE LIST` shows it: 0.1.0 is 100.
pub(crate) const MODULE_VERSION: c_int = digits(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + digits(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + digits(env!("CARGO_PKG_VERSION_PATCH"));

const fn digits(text: &str) -> c_int {
    let (mut value, mut at) = (0, 0);
    while at < text.len() {
        value = value * 10 + (text.as_bytes()[at] - b'0') as c_int;
        at += 1;
    }
    value
}

/// The oldest server that has the functions the module needs, above all settings and key specifications.
const OLDEST_SERVER: u32 = 0x07_00_00;

/// Why the module is not loaded on a server with `cluster-enabled yes`.
const REFUSED_IN_A_CLUSTER: &str = "this server is cluster-enabled. Fences do not move with slots, and Valkey refuses \
    slot migration for all data while the module is loaded. Load it on a server with cluster-enabled no: a node is one \
    server at one address, and several independent nodes give redundancy";

/// Loads the module into the server.
///
/// # Errors
/// The reason why it is not loaded, for the server's log.
pub(crate) fn load(ctx: Ctx<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    check_server(ctx)?;
    let arguments = config::arguments(arguments)?;

    this_is_the_main_thread();
    let (mut file, found) = find_state(ctx, &arguments)?;
    let is_replica = ctx.flags().is_replica();
    let is_asked_not_to_vote = arguments.new_node_is_non_voting;
    let start =
        Start::new(found, is_replica, is_asked_not_to_vote, ctx.random_hex::<ID_DIGITS>(), random_id(ctx));
    let (durable, stripes) = start.state.restarted();
    if let Some(file) = &mut file {
        // A node that cannot store its state grants nothing: the operator should learn it now.
        file.store(&durable).map_err(|error| {
            format!(
                "{} cannot be written: {error}; the server needs to write to its dir",
                file.path().display()
            )
        })?;
    }
    let state = new_state(LockNode::new(durable, stripes), &start, is_replica, arguments.grace);
    if !(file.is_none_or(state_file::keep) && state::begin(state)) {
        return Err("the server must load the module on its main thread".to_owned());
    }
    register(ctx, &arguments)?;
    state::with(|state| restart::begin(state, ctx, &start));
    if ctx.may_evict_locks() {
        ctx.log(
            Level::Warning,
            "maxmemory-policy allows the server to evict locks; set it to noeviction or volatile-*",
        );
    }
    ctx.log(Level::Notice, &format!("version {} is ready", redlock_core::node::VERSION));
    Ok(())
}

/// Finds the state file; no file if there are several.
fn find_state(ctx: Ctx<'_>, arguments: &Arguments) -> Result<(Option<StateFile>, FoundFile), String> {
    let dir = env::current_dir().map_err(|error| format!("the server's dir cannot be found: {error}"))?;
    Ok(match state_file::find(&dir, arguments.state_file.as_deref())? {
        FoundState::Nothing(file) => (Some(file), FoundFile::Nothing),
        FoundState::Own(file, state) => (Some(file), FoundFile::Own(state)),
        FoundState::Copy(file, state) => (Some(file), FoundFile::Copy(state)),
        FoundState::Several(paths) => {
            let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            ctx.log(Level::Warning, &format!("there is more than one state file: {}", names.join(", ")));
            (None, FoundFile::Several)
        }
    })
}

/// The state of a module that has just been loaded.
fn new_state(node: LockNode, start: &Start, is_replica: bool, grace: Grace) -> ModuleState {
    ModuleState {
        node,
        clock: MachineClock::start(),
        is_replica,
        is_loading: false,
        grace,
        expected: None,
        dataset: Dataset::default(),
        marks_at_start: start.continues.then(|| start.state.high_water.clone()),
        last_evicted: None,
        is_quarantine_logged: false,
        replication_target: ReplicationTarget::Present,
        search: LockSearch::default(),
        images: HashSet::new(),
        watches_keys: false,
        sweep_budget: SweepBudget::default(),
        timer: None,
    }
}

/// Checks that the module can run on this server.
fn check_server(ctx: Ctx<'_>) -> Result<(), String> {
    let version = api::server_version().unwrap_or(0);
    if version < OLDEST_SERVER {
        let [_, major, minor, patch] = version.to_be_bytes();
        return Err(format!(
            "it needs Redis 7.0 or later, or Valkey; this server is version {major}.{minor}.{patch}"
        ));
    }
    api::require_all().map_err(|missing| format!("this server lacks {missing}"))?;
    if ctx.flags().is_cluster() {
        return Err(REFUSED_IN_A_CLUSTER.to_owned());
    }
    Ok(())
}

/// Registers commands, the data type, settings and events with the server.
fn register(ctx: Ctx<'_>, arguments: &Arguments) -> Result<(), String> {
    api::options(ctx);
    data_type::data_type(ctx)?;
    command_info::commands(ctx)?;
    for (which, (setting, default)) in SETTINGS.iter().zip(arguments.defaults).enumerate() {
        config::set(which, default);
        settings::number_setting(ctx, which, setting.name, default, setting.range)?;
    }
    settings::grace_setting(ctx, arguments.grace)?;
    settings::load_settings(ctx)?;
    events::subscriptions(ctx)?;
    command_info::acl_categories(ctx);
    Ok(())
}

/// A random id of 63 bits, never 0.
fn random_id(ctx: Ctx<'_>) -> u64 {
    let bits = u64::from_str_radix(&ctx.random_hex::<16>(), 16).unwrap_or(1);
    (bits >> 1).max(1)
}
