//! Loading the module: all of it, or none with a reason.

use std::collections::HashSet;
use std::env;
use std::ffi::c_int;

use redlock_contract::NonVoting;
use redlock_core::Node;
use redlock_core::durable::{Dataset, DurableState, ID_DIGITS};

use crate::config::{self, Arguments, SETTINGS};
use crate::ffi::api;
use crate::ffi::clock::MachineClock;
use crate::ffi::confined::this_is_the_main_thread;
use crate::ffi::context::Ctx;
use crate::ffi::log::Level;
use crate::ffi::replication::ReplicationTarget;
use crate::ffi::{command_info, data_type, events, settings};
use crate::restart;
use crate::search::Search;
use crate::state::{self, State};
use crate::state_file::{self, Found, StateFile};

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

/// The oldest server that has what the module needs, settings and key specifications above all.
const OLDEST_SERVER: u32 = 0x07_00_00;

/// Why the module is not loaded on a server with `cluster-enabled yes`.
const REFUSED_IN_A_CLUSTER: &str = "this server is cluster-enabled. Fences do not move with slots, and Valkey refuses \
    slot migration for all data while the module is loaded. Load it on a server with cluster-enabled no: a node is one \
    server at one address, and several independent nodes give redundancy";

/// Loads the module into the server.
///
/// # Errors
/// Why it is not loaded; the line goes to the server's log.
pub(crate) fn load(ctx: Ctx<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    check_server(ctx)?;
    let arguments = config::arguments(arguments)?;

    this_is_the_main_thread();
    let dir = env::current_dir().map_err(|error| format!("the server's dir cannot be found: {error}"))?;
    let found = state_file::find(&dir, arguments.state_file.as_deref())?;
    let is_replica = ctx.flags().is_replica();
    let Identity { mut file, stored, before } =
        identify(ctx, found, is_replica, arguments.new_node_is_non_voting);
    let (durable, stripes) = stored.restarted();
    if let Some(file) = &mut file {
        // Nothing is granted that relies on a state which cannot be stored: better to know it now.
        file.store(&durable).map_err(|error| {
            format!(
                "{} cannot be written: {error}; the server needs to write to its dir",
                file.path().display()
            )
        })?;
    }
    let began = file.is_none_or(state_file::keep)
        && state::begin(State {
            node: Node::new(durable, stripes),
            clock: MachineClock::start(),
            is_replica,
            is_loading: false,
            grace: arguments.grace,
            expected: None,
            dataset: Dataset::default(),
            highest_at_start: before.as_ref().map(DurableState::highest),
            last_evicted: None,
            is_announced: false,
            replication_target: ReplicationTarget::Present,
            search: Search::default(),
            images: HashSet::new(),
            watches_keys: false,
            timer: None,
        });
    if !began {
        return Err("the server does not load it on its main thread".to_owned());
    }
    register(ctx, &arguments)?;
    state::with(|state| restart::begin(state, ctx, before.as_ref()));
    if ctx.may_evict_locks() {
        ctx.log(
            Level::Warning,
            "maxmemory-policy allows the server to evict locks; set it to noeviction or volatile-*",
        );
    }
    ctx.log(Level::Notice, &format!("version {} is ready", redlock_core::node::VERSION));
    Ok(())
}

/// Whether the module can run on this server.
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

/// Who this server is.
struct Identity {
    /// Its state file; `None` if it cannot tell which of several is its own.
    file: Option<StateFile>,
    /// The state to start with.
    stored: DurableState,
    /// The state of the node's last run, if this server is that node and votes.
    before: Option<DurableState>,
}

/// Decides who this server is from what it has found. It is a node that has run before only with that node's own
/// state file, and only as a master.
fn identify(ctx: Ctx<'_>, found: Found, is_replica: bool, new_node_is_non_voting: bool) -> Identity {
    let new_id = || ctx.random_hex::<ID_DIGITS>();
    let new_state = |reason| {
        let mut state = DurableState::new(new_id(), random_id(ctx));
        state.non_voting = reason;
        state
    };
    match found {
        Found::Nothing(file) => {
            let reason = match (is_replica, new_node_is_non_voting) {
                (true, _) => Some(NonVoting::Replica),
                (false, true) => Some(NonVoting::Asked),
                (false, false) => None,
            };
            Identity { file: Some(file), stored: new_state(reason), before: None }
        }
        Found::Known { file, mut state, is_copy } => {
            // Format 1 had no id of the data set.
            if state.dataset_id == 0 {
                state.dataset_id = random_id(ctx);
            }
            let reason = match (state.non_voting, is_copy, is_replica) {
                (_, true, _) => Some(NonVoting::CopiedState),
                (None, false, true) => Some(NonVoting::Replica),
                _ => None,
            };
            let stored = reason.map_or_else(|| state.clone(), |reason| state.without_vote(reason, new_id()));
            let before = stored.non_voting.is_none().then(|| stored.clone());
            Identity { file: Some(file), stored, before }
        }
        Found::Several(paths) => {
            let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            ctx.log(Level::Warning, &format!("there is more than one state file: {}", names.join(", ")));
            Identity { file: None, stored: new_state(Some(NonVoting::SeveralStates)), before: None }
        }
    }
}

/// 63 random bits that are not all 0.
fn random_id(ctx: Ctx<'_>) -> u64 {
    let bits = u64::from_str_radix(&ctx.random_hex::<16>(), 16).unwrap_or(1);
    (bits >> 1).max(1)
}
