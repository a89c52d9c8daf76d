//! Loading the module: all of it, or none with a reason.

use std::ffi::c_int;

use redlock_core::Node;

use crate::config::{self, SETTINGS};
use crate::server::api::{self, Ctx, Level};
use crate::server::clock::MachineClock;
use crate::server::confined::this_is_the_main_thread;
use crate::server::keys::Audience;
use crate::server::register;
use crate::state::{self, State};

/// The module's version as `MODULE LIST` shows it: 0.1.0 is 100.
pub(crate) const MODULE_VERSION: c_int = 100;

/// The oldest server that has what the module needs, settings and key specifications above all.
const OLDEST_SERVER: u32 = 0x07_00_00;

/// How long a node's identity is, in hexadecimal digits.
const ID_DIGITS: usize = 40;

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
    let defaults = config::defaults(arguments)?;

    this_is_the_main_thread();
    let began = state::begin(State {
        node: Node::new(ctx.random_hex::<ID_DIGITS>()),
        clock: MachineClock::start(),
        is_replica: ctx.circumstances().is_replica(),
        is_loading: false,
        audience: Audience::Somebody,
        search: None,
        timer: None,
    });
    if !began {
        return Err("it is loaded already".to_owned());
    }
    register::options(ctx);
    register::data_type(ctx)?;
    register::commands(ctx)?;
    for (which, (setting, default)) in SETTINGS.iter().zip(defaults).enumerate() {
        config::set(which, default);
        register::number_setting(ctx, which, setting.name, default, setting.range)?;
    }
    register::load_settings(ctx)?;
    register::subscriptions(ctx)?;
    register::acl_categories(ctx);
    ctx.log(Level::Notice, &format!("version {} is ready", redlock_core::node::VERSION));
    Ok(())
}
