//! Loading the module: all of it, or none with a reason.

use std::collections::HashSet;
use std::ffi::c_int;
use std::path::PathBuf;

use redlock_core::Node;
use redlock_core::ledger::{ID_DIGITS, Ledger};

use crate::config::{self, SETTINGS};
use crate::restart;
use crate::search::Search;
use crate::server::api::{self, Ctx, Level};
use crate::server::clock::MachineClock;
use crate::server::confined::this_is_the_main_thread;
use crate::server::keys::Audience;
use crate::server::register;
use crate::state::{self, State};
use crate::vault::{self, Vault};

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

/// Loads the module into the server.
///
/// # Errors
/// Why it is not loaded; the line goes to the server's log.
pub(crate) fn load(ctx: Ctx<'_>, arguments: &[&[u8]]) -> Result<(), String> {
    let version = register::server_version().unwrap_or(0);
    if version < OLDEST_SERVER {
        let [_, major, minor, patch] = version.to_be_bytes();
        return Err(format!(
            "it needs Redis 7.0 or later, or Valkey; this server is version {major}.{minor}.{patch}"
        ));
    }
    api::require_all().map_err(|missing| format!("this server lacks {missing}"))?;
    let arguments = config::arguments(arguments)?;

    this_is_the_main_thread();
    let (mut vault, before) = Vault::open(&state_file(ctx, arguments.state_file)?)?;
    let (ledger, above) = match &before {
        Some(ledger) => ledger.reborn(),
        None => Ledger::new(ctx.random_hex::<ID_DIGITS>()).reborn(),
    };
    // Nothing is granted on what cannot be stored: better to know it now.
    vault.store(&ledger).map_err(|error| {
        format!("{} cannot be written: {error}; the server needs to write to its dir", vault.path().display())
    })?;
    let began = vault::keep(vault)
        && state::begin(State {
            node: Node::new(ledger, above),
            clock: MachineClock::start(),
            is_replica: ctx.circumstances().is_replica(),
            is_loading: false,
            is_cluster: ctx.circumstances().is_cluster(),
            grace: arguments.grace,
            expected: None,
            loaded_aof_bytes: None,
            had_aof_throughout: ctx.setting(c"appendonly") == "yes" && !ctx.circumstances().is_replica(),
            is_storage_watched: false,
            is_announced: false,
            audience: Audience::Somebody,
            search: Search::default(),
            images: HashSet::new(),
            watches_keys: false,
            timer: None,
        });
    if !began {
        return Err("the server does not load it on its main thread".to_owned());
    }
    register::options(ctx);
    register::data_type(ctx)?;
    register::commands(ctx)?;
    for (which, (setting, default)) in SETTINGS.iter().zip(arguments.defaults).enumerate() {
        config::set(which, default);
        register::number_setting(ctx, which, setting.name, default, setting.range)?;
    }
    register::grace_setting(ctx, arguments.grace)?;
    register::load_settings(ctx)?;
    register::subscriptions(ctx)?;
    register::acl_categories(ctx);
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

/// The ledger is in the server's dir, which is its working directory, under a name that tells servers in
/// one dir apart.
fn state_file(ctx: Ctx<'_>, asked_for: Option<PathBuf>) -> Result<PathBuf, String> {
    let name = asked_for.unwrap_or_else(|| format!("redlock-{}.state", ctx.port()).into());
    let dir =
        std::env::current_dir().map_err(|error| format!("the server's dir cannot be found: {error}"))?;
    Ok(dir.join(name))
}
