//! Keyspace notifications of the module's events.
//!
//! The server calls the handlers of other modules at once, and a handler may delete the key or call a command. So the
//! notifications are sent after the keys of the command are closed: the owner of a collection below declares it after
//! its keys and before their names, because fields are dropped in this order.

use std::ffi::c_int;

use redis_module::raw;
use redlock_core::LockEvent;

use super::api::server;
use super::context::Ctx;

/// The class of the events, `d` in `notify-keyspace-events`: events of keys of modules.
const CLASS: c_int = raw::REDISMODULE_NOTIFY_MODULE as c_int;

/// The events of a command with one key, sent on drop.
pub(super) struct KeyEvents<'a> {
    ctx: Ctx<'a>,
    name: *mut raw::RedisModuleString,
    /// How many holders have expired: more than one if it was a shared lock.
    expired: u32,
    /// What the command did after that.
    event: Option<LockEvent>,
}

impl<'a> KeyEvents<'a> {
    /// # Safety
    /// `name` must be a valid string of the server that outlives the value.
    pub(super) unsafe fn of(ctx: Ctx<'a>, name: *mut raw::RedisModuleString) -> Self {
        Self { ctx, name, expired: 0, event: None }
    }

    pub(super) fn add(&mut self, event: LockEvent) {
        match event {
            LockEvent::Expired => self.expired += 1,
            event => self.event = Some(event),
        }
    }
}

impl Drop for KeyEvents<'_> {
    fn drop(&mut self) {
        let expired = (0..self.expired).map(|_| LockEvent::Expired);
        for event in expired.chain(self.event) {
            // SAFETY: as `of` demands.
            unsafe { send(self.ctx, event, self.name) };
        }
    }
}

/// The events of several keys, sent on drop.
pub(super) struct EventsOfKeys<'a> {
    ctx: Ctx<'a>,
    events: Vec<(*mut raw::RedisModuleString, LockEvent)>,
}

impl<'a> EventsOfKeys<'a> {
    pub(super) fn none(ctx: Ctx<'a>) -> Self {
        Self { ctx, events: Vec::new() }
    }

    /// # Safety
    /// `name` must be a valid string of the server that outlives the value.
    pub(super) unsafe fn add(&mut self, name: *mut raw::RedisModuleString, event: LockEvent) {
        self.events.push((name, event));
    }
}

impl Drop for EventsOfKeys<'_> {
    fn drop(&mut self) {
        for (name, event) in self.events.drain(..) {
            // SAFETY: as `add` demands.
            unsafe { send(self.ctx, event, name) };
        }
    }
}

/// Sends an event of a key in the selected database.
///
/// # Safety
/// `name` must be a valid string of the server.
unsafe fn send(ctx: Ctx<'_>, event: LockEvent, name: *mut raw::RedisModuleString) {
    // SAFETY: the context is alive, the name valid, and the name of the event ends with NUL.
    unsafe { server!(RedisModule_NotifyKeyspaceEvent)(ctx.raw, CLASS, event.name().as_ptr(), name) };
}
