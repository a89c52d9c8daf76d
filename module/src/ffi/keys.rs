//! Keys that are open in the server.

use std::ffi::c_int;

use redis_module::raw;
use redlock_core::durable::DurableState;
use redlock_core::table::Database;
use redlock_core::{CommandError, Effect, KeyState, Keyspace, LockEvent, LockId};

use super::api::server;
use super::context::Ctx;
use super::convert::OwnedText;
use super::data_type::{lock_of_key, lock_type, value_of_lock};
use super::notifications::EventsOfKeys;
use super::replication::replicate_effect;
use crate::reclaim::remove_value;
use crate::state_file;

const READ: c_int = raw::REDISMODULE_READ as c_int;
const READ_WRITE: c_int = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;

/// How a caller uses a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Look,
    Change,
}

/// One open key.
pub(super) struct OpenKey {
    /// Null for a key that does not exist and was opened for reading.
    raw: *mut raw::RedisModuleKey,
    /// Read once: nothing else changes the key while it is open.
    key_state: KeyState,
}

impl Drop for OpenKey {
    fn drop(&mut self) {
        // SAFETY: the key was opened during the present call and is closed once; null is allowed.
        unsafe { server!(RedisModule_CloseKey)(self.raw) };
    }
}

impl OpenKey {
    /// # Safety
    /// `name` must be a valid string of the server.
    #[inline]
    pub(super) unsafe fn open(ctx: Ctx<'_>, name: *mut raw::RedisModuleString, intent: Intent) -> Self {
        let mode = if intent == Intent::Change { READ_WRITE } else { READ };
        // SAFETY: the context is alive, the name valid; the key is open from then on.
        unsafe {
            let raw = server!(RedisModule_OpenKey)(ctx.raw, name, mode);
            Self { raw, key_state: state_of_key(raw) }
        }
    }

    pub(super) fn key_state(&self) -> KeyState {
        self.key_state
    }

    /// Sets the key to a lock. Returns the lock that was there, if its value is freed.
    pub(super) fn put(&mut self, lock: LockId) -> Option<LockId> {
        let raw = self.raw;
        self.replace(KeyState::Lock(lock), || {
            // SAFETY: the key is open for writing. The value is a number that only this module reads.
            unsafe { server!(RedisModule_ModuleTypeSetValue)(raw, lock_type(), value_of_lock(lock)) };
        })
    }

    /// Deletes the key. Returns the lock that was there, if its value is freed.
    pub(super) fn delete(&mut self) -> Option<LockId> {
        let raw = self.raw;
        self.replace(KeyState::Empty, || {
            // SAFETY: the key is open for writing.
            unsafe { server!(RedisModule_DeleteKey)(raw) };
        })
    }

    fn replace(&mut self, by: KeyState, change: impl FnOnce()) -> Option<LockId> {
        match std::mem::replace(&mut self.key_state, by) {
            KeyState::Lock(old) => remove_value(old, change),
            _ => {
                change();
                None
            }
        }
    }
}

/// What the keyspace holds under a key.
///
/// # Safety
/// `key` must be an open key or null.
unsafe fn state_of_key(key: *mut raw::RedisModuleKey) -> KeyState {
    // SAFETY: as the caller promises; null reads as empty.
    unsafe {
        let kind = server!(RedisModule_KeyType)(key);
        match kind.try_into().unwrap_or(raw::REDISMODULE_KEYTYPE_MODULE) {
            raw::REDISMODULE_KEYTYPE_EMPTY => KeyState::Empty,
            raw::REDISMODULE_KEYTYPE_STRING => KeyState::ForeignString,
            raw::REDISMODULE_KEYTYPE_MODULE => lock_of_key(key).map_or(KeyState::OtherType, KeyState::Lock),
            _ => KeyState::OtherType,
        }
    }
}

/// Keys outside of a command, by their names, in the selected database.
pub(crate) struct NamedKeys<'a> {
    ctx: Ctx<'a>,
    database: Database,
    // Closed before the events are sent, and the strings are freed after that: fields are dropped in this order.
    open: Vec<OpenKey>,
    events: EventsOfKeys<'a>,
    strings: Vec<OwnedText<'a>>,
    names: Vec<Vec<u8>>,
}

impl<'a> NamedKeys<'a> {
    pub(crate) fn open(ctx: Ctx<'a>, database: Database, names: Vec<Vec<u8>>) -> Self {
        let strings: Vec<_> = names.iter().map(|name| OwnedText::new(ctx, name)).collect();
        // SAFETY: the strings were just made.
        let open = |name: &OwnedText<'_>| unsafe { OpenKey::open(ctx, name.raw, Intent::Change) };
        let open = strings.iter().map(open).collect();
        Self { ctx, database, open, events: EventsOfKeys::none(ctx), strings, names }
    }

    fn changed(&self, key: usize) {
        // SAFETY: the context is alive, the name valid.
        unsafe { server!(RedisModule_SignalModifiedKey)(self.ctx.raw, self.strings[key].raw) };
    }
}

impl Keyspace for NamedKeys<'_> {
    fn count(&self) -> usize {
        self.names.len()
    }

    fn database(&self) -> Database {
        self.database
    }

    /// `None`: neither a hand-off nor the sweep has a connection.
    fn connection(&self) -> Option<u64> {
        None
    }

    fn name(&self, key: usize) -> &[u8] {
        self.names.get(key).map_or(&[], Vec::as_slice)
    }

    fn key_state(&self, key: usize) -> KeyState {
        self.open[key].key_state()
    }

    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        let gone = self.open[key].put(lock);
        self.changed(key);
        gone
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        let gone = self.open[key].delete();
        self.changed(key);
        gone
    }

    fn touched(&mut self, key: usize) {
        self.changed(key);
    }

    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        state_file::store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        replicate_effect(self.ctx, effect, |key| self.strings[key].raw);
    }

    fn notify(&mut self, key: usize, event: LockEvent) {
        // SAFETY: the string is freed after the events are sent.
        unsafe { self.events.add(self.strings[key].raw, event) };
    }
}
