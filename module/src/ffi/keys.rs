//! Keys that are open in the server.

use std::ffi::c_int;

use redis_module::raw;
use redlock_core::durable::DurableState;
use redlock_core::table::Database;
use redlock_core::{CommandError, Effect, KeyState, Keyspace, LockId};

use super::api::server;
use super::context::Ctx;
use super::convert::OwnedText;
use super::data_type::{lock_of_key, lock_type, value_of_lock};
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

/// A key outside of a command, by its name.
pub(crate) struct NamedKey<'a> {
    ctx: Ctx<'a>,
    // Closed before its name is freed: fields are dropped in this order.
    open: OpenKey,
    name: OwnedText<'a>,
}

impl<'a> NamedKey<'a> {
    pub(crate) fn open(ctx: Ctx<'a>, name: &[u8], intent: Intent) -> Self {
        let name = OwnedText::new(ctx, name);
        // SAFETY: the string was just made.
        let open = unsafe { OpenKey::open(ctx, name.raw, intent) };
        Self { ctx, open, name }
    }

    pub(crate) fn key_state(&self) -> KeyState {
        self.open.key_state()
    }

    /// Deletes the key, here and on replicas. Returns the lock that was there, if its value is freed.
    pub(crate) fn delete(&mut self) -> Option<LockId> {
        let gone = self.open.delete();
        self.changed();
        // SAFETY: the context is alive; `s` takes a string of the server.
        unsafe {
            server!(RedisModule_Replicate)(self.ctx.raw, c"DEL".as_ptr(), c"s".as_ptr(), self.name.raw);
        };
        gone
    }

    fn changed(&self) {
        // SAFETY: the context is alive, the name valid.
        unsafe { server!(RedisModule_SignalModifiedKey)(self.ctx.raw, self.name.raw) };
    }
}

/// The keys of a waiter, in the selected database.
pub(crate) struct NamedKeys<'a> {
    ctx: Ctx<'a>,
    database: Database,
    names: Vec<Vec<u8>>,
    open: Vec<NamedKey<'a>>,
}

impl<'a> NamedKeys<'a> {
    pub(crate) fn open(ctx: Ctx<'a>, database: Database, names: Vec<Vec<u8>>) -> Self {
        let open = names.iter().map(|name| NamedKey::open(ctx, name, Intent::Change)).collect();
        Self { ctx, database, names, open }
    }
}

impl Keyspace for NamedKeys<'_> {
    fn count(&self) -> usize {
        self.names.len()
    }

    fn database(&self) -> Database {
        self.database
    }

    /// `None`: a hand-off has no connection.
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
        let gone = self.open[key].open.put(lock);
        self.open[key].changed();
        gone
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        self.open[key].delete()
    }

    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        state_file::store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        replicate_effect(self.ctx, effect, |key| self.open[key].name.raw);
    }
}
