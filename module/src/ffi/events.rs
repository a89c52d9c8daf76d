//! Subscriptions to events of the server, of connections and of keys.

use std::ffi::{CStr, c_char, c_int, c_void};

use redis_module::raw;

use super::api::{OK, server};
use super::callbacks::guarded;
use super::context::Ctx;
use super::convert::bytes;
use super::info::info_section;
use crate::{events, handoff, restart};

/// Subscribes to events of the server.
pub(crate) fn subscriptions(ctx: Ctx<'_>) -> Result<(), String> {
    // Each event in its first version.
    for id in [
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_CRON_LOOP,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_SHUTDOWN,
    ] {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is alive; the callback is a function.
        if unsafe { server!(RedisModule_SubscribeToServerEvent)(ctx.raw, event, Some(server_event)) } != OK {
            return Err(format!("the server refused the subscription to event {id}"));
        }
    }
    // SAFETY: as above.
    unsafe {
        // Of key events only evictions: more would cost the server time at every `DEL` and `EXPIRE`.
        let evictions = raw::REDISMODULE_NOTIFY_EVICTED;
        server!(RedisModule_SubscribeToKeyspaceEvents)(ctx.raw, evictions, Some(key_evicted));
        server!(RedisModule_RegisterInfoFunc)(ctx.raw, Some(info_section));
    }
    Ok(())
}

/// Subscribes to deleted keys and closed connections.
pub(crate) fn subscriptions_for_waiters(ctx: Ctx<'_>) {
    let closings = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_CLIENT_CHANGE, dataver: 1 };
    let savings = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_PERSISTENCE, dataver: 1 };
    // A key is free after `DEL`, `RENAME`, `MOVE` and the like, and when a plain client's lock expires.
    let departures = raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EXPIRED;
    // SAFETY: the context is alive; the callbacks are functions.
    unsafe {
        server!(RedisModule_SubscribeToServerEvent)(ctx.raw, closings, Some(server_event));
        server!(RedisModule_SubscribeToServerEvent)(ctx.raw, savings, Some(server_event));
        server!(RedisModule_SubscribeToKeyspaceEvents)(ctx.raw, departures, Some(key_changed));
    }
}

unsafe extern "C" fn server_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    // SAFETY: called by the server with a live context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded("a server event", || match event.id {
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
            events::role_changed(ctx, sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA);
        }
        raw::REDISMODULE_EVENT_LOADING => match sub {
            raw::REDISMODULE_SUBEVENT_LOADING_ENDED => events::loading(ctx, false),
            raw::REDISMODULE_SUBEVENT_LOADING_FAILED => events::loading_failed(),
            _ => events::loading(ctx, true),
        },
        raw::REDISMODULE_EVENT_CRON_LOOP => events::cron(ctx),
        raw::REDISMODULE_EVENT_FORK_CHILD => events::forked(),
        raw::REDISMODULE_EVENT_PERSISTENCE => handoff::forget_images(),
        raw::REDISMODULE_EVENT_SHUTDOWN => restart::shut_down(),
        raw::REDISMODULE_EVENT_FLUSHDB
            if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START && !data.is_null() =>
        {
            // SAFETY: for this event the server passes this structure.
            let flush = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
            restart::flushed(ctx, u16::try_from(flush.dbnum).ok());
        }
        raw::REDISMODULE_EVENT_CLIENT_CHANGE
            if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED && !data.is_null() =>
        {
            // SAFETY: for this event the server passes this structure.
            let client = unsafe { &*data.cast::<raw::RedisModuleClientInfo>() };
            handoff::connection_closed(ctx, client.id);
        }
        raw::REDISMODULE_EVENT_SWAPDB if !data.is_null() => {
            // SAFETY: for this event the server passes this structure.
            let swap = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
            events::databases_swapped(swap.dbnum_first, swap.dbnum_second);
        }
        _ => {}
    });
}

unsafe extern "C" fn key_evicted(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    _: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: called by the server with a live context and a string of its own.
    let (ctx, key) = unsafe { (Ctx::new(ctx), bytes(key)) };
    guarded("an eviction", || restart::evicted(ctx, u16::try_from(ctx.database()).unwrap_or(0), key));
    OK
}

unsafe extern "C" fn key_changed(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: called by the server with a live context, a text that ends with NUL and a string of its own.
    let (ctx, event, key) = unsafe { (Ctx::new(ctx), CStr::from_ptr(event), bytes(key)) };
    guarded("a change of a key", || {
        let database = u16::try_from(ctx.database()).unwrap_or(0);
        handoff::key_changed(ctx, event.to_bytes(), database, key);
    });
    OK
}
