//! The module's settings in the server's `CONFIG`.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::ptr;

use redis_module::raw;
use redlock_contract::settings::{PREFIX, RESTART_GRACE};
use redlock_core::start::Grace;

use super::api::{ERR, OK, server};
use super::callbacks::guarded;
use super::context::Ctx;
use super::convert::{long, text};
use crate::config;

/// Registers a setting; the server checks its range.
pub(crate) fn number_setting(
    ctx: Ctx<'_>,
    which: usize,
    name: &str,
    default: u64,
    range: (u64, u64),
) -> Result<(), String> {
    let c_name = text(name);
    // SAFETY: the context is alive, the name outlives the call; the last argument is a number that the server passes to
    // the callbacks and that is never dereferenced.
    let done = unsafe {
        server!(RedisModule_RegisterNumericConfig)(
            ctx.raw,
            c_name.as_ptr(),
            long(default),
            raw::REDISMODULE_CONFIG_DEFAULT,
            long(range.0),
            long(range.1),
            Some(get_number),
            Some(set_number),
            None,
            ptr::without_provenance_mut::<c_void>(which),
        )
    };
    if done == OK { Ok(()) } else { Err(refused(name)) }
}

/// Registers the setting `redlock.restart-grace`.
pub(crate) fn grace_setting(ctx: Ctx<'_>, default: Grace) -> Result<(), String> {
    let name = text(RESTART_GRACE);
    let names = Grace::NAMES.map(text);
    let mut name_starts = names.each_ref().map(|name| name.as_ptr());
    let numbers: [c_int; Grace::NAMES.len()] = [0, 1, 2];
    // SAFETY: the context is alive; name, names and numbers outlive the call, which copies them.
    let done = unsafe {
        server!(RedisModule_RegisterEnumConfig)(
            ctx.raw,
            name.as_ptr(),
            c_int::try_from(default as usize).unwrap_or(0),
            raw::REDISMODULE_CONFIG_DEFAULT,
            name_starts.as_mut_ptr(),
            numbers.as_ptr(),
            c_int::try_from(numbers.len()).unwrap_or(0),
            Some(get_grace),
            Some(set_grace),
            None,
            ptr::null_mut(),
        )
    };
    if done == OK { Ok(()) } else { Err(refused(RESTART_GRACE)) }
}

fn refused(name: &str) -> String {
    format!("the server refused the setting {PREFIX}{name}")
}

/// Loads the values of the settings from the server's configuration.
pub(crate) fn load_settings(ctx: Ctx<'_>) -> Result<(), String> {
    // SAFETY: the context is alive.
    let done = unsafe { server!(RedisModule_LoadConfigs)(ctx.raw) };
    if done == OK { Ok(()) } else { Err("a redlock.* setting has a value that is not allowed".to_owned()) }
}

unsafe extern "C" fn get_number(_: *const c_char, which: *mut c_void) -> c_longlong {
    guarded("CONFIG GET", || config::get(which.addr())).and_then(|value| value.try_into().ok()).unwrap_or(0)
}

unsafe extern "C" fn set_number(
    _: *const c_char,
    value: c_longlong,
    which: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server has checked the range.
    let value = u64::try_from(value).unwrap_or(0);
    if guarded("CONFIG SET", || config::set(which.addr(), value)).is_some() { OK } else { ERR }
}

unsafe extern "C" fn get_grace(_: *const c_char, _: *mut c_void) -> c_int {
    let grace = guarded("CONFIG GET", config::grace).unwrap_or_default();
    c_int::try_from(grace as usize).unwrap_or(0)
}

unsafe extern "C" fn set_grace(
    _: *const c_char,
    value: c_int,
    _: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    let grace = Grace::from_number(usize::try_from(value).unwrap_or(0));
    if guarded("CONFIG SET", || config::set_grace(grace)).is_some() { OK } else { ERR }
}
