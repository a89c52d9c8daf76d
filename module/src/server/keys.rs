//! Keys that are open in the server.

use std::ffi::{c_int, c_longlong, c_void};

use redis_module::raw;
use redlock_core::durable::DurableState;
use redlock_core::table::Database;
use redlock_core::{Effect, Fault, Keyspace, LockId, Occupant};

use super::api::{Ctx, OwnedText, long, server};
use super::register::lock_type;
use crate::state::see_off;
use crate::state_file;

const READ: c_int = raw::REDISMODULE_READ as c_int;
const READ_WRITE: c_int = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;

/// What a command wants of its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Look,
    Change,
}

/// One open key.
pub(super) struct OpenKey {
    /// Null when a key that is not there was opened to look.
    raw: *mut raw::RedisModuleKey,
    /// Asked once: while the key is open nobody else changes it.
    occupant: Occupant,
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
            Self { raw, occupant: occupant_of_key(raw) }
        }
    }

    pub(super) fn occupant(&self) -> Occupant {
        self.occupant
    }

    /// Puts a lock under the key; tells the lock that is gone by that.
    pub(super) fn put(&mut self, lock: LockId) -> Option<LockId> {
        let raw = self.raw;
        self.replace(Occupant::Lock(lock), || {
            // SAFETY: the key is open for writing. The value is a number that only this module reads.
            unsafe { server!(RedisModule_ModuleTypeSetValue)(raw, lock_type(), value_of_lock(lock)) };
        })
    }

    /// Deletes the key; tells the lock that is gone by that.
    pub(super) fn delete(&mut self) -> Option<LockId> {
        let raw = self.raw;
        self.replace(Occupant::Empty, || {
            // SAFETY: the key is open for writing.
            unsafe { server!(RedisModule_DeleteKey)(raw) };
        })
    }

    fn replace(&mut self, by: Occupant, change: impl FnOnce()) -> Option<LockId> {
        match std::mem::replace(&mut self.occupant, by) {
            Occupant::Lock(old) => see_off(old, change),
            _ => {
                change();
                None
            }
        }
    }
}

/// What stands under a key.
///
/// # Safety
/// `key` must be an open key or null.
unsafe fn occupant_of_key(key: *mut raw::RedisModuleKey) -> Occupant {
    // SAFETY: as the caller promises; null reads as empty.
    unsafe {
        let kind = server!(RedisModule_KeyType)(key);
        match kind.try_into().unwrap_or(raw::REDISMODULE_KEYTYPE_MODULE) {
            raw::REDISMODULE_KEYTYPE_EMPTY => Occupant::Empty,
            raw::REDISMODULE_KEYTYPE_STRING => Occupant::ForeignString,
            raw::REDISMODULE_KEYTYPE_MODULE => lock_of_key(key).map_or(Occupant::OtherType, Occupant::Lock),
            _ => Occupant::OtherType,
        }
    }
}

/// A lock's name as the server keeps it: where a pointer would be, there is a number.
pub(super) fn value_of_lock(lock: LockId) -> *mut c_void {
    std::ptr::without_provenance_mut(lock.to_bits() as usize)
}

/// The lock that a value names.
pub(super) fn lock_of_value(value: *const c_void) -> Option<LockId> {
    u32::try_from(value.addr()).ok().filter(|bits| *bits != 0).map(LockId::from_bits)
}

/// The lock that is a key's value, if the value is of our type.
///
/// # Safety
/// `key` must be an open key or null.
pub(super) unsafe fn lock_of_key(key: *mut raw::RedisModuleKey) -> Option<LockId> {
    // SAFETY: as the caller promises. The value is a number, not an address.
    unsafe {
        if key.is_null() || server!(RedisModule_ModuleTypeGetType)(key) != lock_type() {
            return None;
        }
        lock_of_value(server!(RedisModule_ModuleTypeGetValue)(key))
    }
}

/// Who hears of effects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// An AOF, replicas, or perhaps one of them.
    Somebody,
    /// Nobody for certain. Spelling an effect out takes as long as the rest of a command.
    Nobody,
}

/// Hands a lock as it now stands on to replicas and the AOF.
#[cold]
pub(super) fn spell_out(
    ctx: Ctx<'_>,
    effect: Effect<'_>,
    raw_name: impl Fn(usize) -> *mut raw::RedisModuleString,
) {
    let (to, name) = (ctx.raw, c"REDLOCK.APPLY".as_ptr());
    // SAFETY: the context is alive; `s` takes a string of the server, `b` bytes and their length, `l`
    // a long long, `c` a C string, in the order of the format.
    unsafe {
        let send = server!(RedisModule_Replicate);
        match effect {
            Effect::Granted { key, owner, fence, left_ms, label } => {
                // The last three arguments are the label's: without one the format ends before them.
                let format = if label.is_empty() { c"sbll" } else { c"sbllcb" };
                let (key, token) = (raw_name(key), c"LABEL".as_ptr());
                let (fence, left) = (long(fence), long(left_ms));
                send(
                    to,
                    name,
                    format.as_ptr(),
                    key,
                    owner.as_ptr(),
                    owner.len(),
                    fence,
                    left,
                    token,
                    label.as_ptr(),
                    label.len(),
                );
            }
            Effect::Prolonged { key, owner, fence, left_ms, held_ms, extensions } => {
                let (format, key) = (c"sbllclcl".as_ptr(), raw_name(key));
                let (fence, left, held) = (long(fence), long(left_ms), long(held_ms));
                let (owner, owner_len, count) = (owner.as_ptr(), owner.len(), c_longlong::from(extensions));
                let (since, times) = (c"HELD".as_ptr(), c"EXT".as_ptr());
                send(to, name, format, key, owner, owner_len, fence, left, since, held, times, count);
            }
            Effect::Dataset { id, high_water } => {
                let name = c"REDLOCK.DATASET".as_ptr();
                send(to, name, c"ll".as_ptr(), long(id), long(high_water));
            }
            Effect::Released => {}
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

    pub(crate) fn occupant(&self) -> Occupant {
        self.open.occupant()
    }

    /// Deletes the key, here and on replicas; tells the lock that is gone by that.
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

/// The keys that somebody waits for, in the selected database.
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

    /// Nobody asks: it was asked for before.
    fn connection(&self) -> Option<u64> {
        None
    }

    fn name(&self, key: usize) -> &[u8] {
        self.names.get(key).map_or(&[], Vec::as_slice)
    }

    fn occupant(&self, key: usize) -> Occupant {
        self.open[key].occupant()
    }

    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        let gone = self.open[key].open.put(lock);
        self.open[key].changed();
        gone
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        self.open[key].delete()
    }

    fn store(&mut self, state: &DurableState) -> Result<(), Fault> {
        state_file::store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        spell_out(self.ctx, effect, |key| self.open[key].name.raw);
    }
}
