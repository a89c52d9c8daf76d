//! The data type of lock keys: callbacks to save, load, measure and free their values.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;
use redlock_contract::TYPE_NAME;
use redlock_core::LockId;

use super::api::{ERR, OK, server};
use super::callbacks::guarded;
use super::context::Ctx;
use super::convert::{long, text};
use super::io::Io;
use crate::{persist, reclaim};

/// The version in which locks and fences are saved.
pub(crate) const ENCODING: c_int = 2;
/// The version before, without shared locks.
pub(crate) const ENCODING_1: c_int = 1;

static LOCK_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// The type of lock keys.
pub(super) fn lock_type() -> *mut raw::RedisModuleType {
    LOCK_TYPE.load(Ordering::Relaxed)
}

/// Registers the type of lock keys. It has no `copy` callback: a copied lock would be a second lock with the same owner
/// and fence.
pub(crate) fn data_type(ctx: Ctx<'_>) -> Result<(), String> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        aux_load: Some(aux_load),
        // Servers up to 7.0 use the first, later ones prefer the second.
        aux_save: Some(aux_save),
        aux_save2: Some(aux_save_if_any),
        aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as c_int,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
    };
    let name = text(TYPE_NAME);
    // SAFETY: the context is alive; name and methods outlive the call, which copies them.
    let made =
        unsafe { server!(RedisModule_CreateDataType)(ctx.raw, name.as_ptr(), ENCODING, &raw mut methods) };
    if made.is_null() {
        return Err(format!("the server refused the data type {TYPE_NAME}"));
    }
    LOCK_TYPE.store(made, Ordering::Relaxed);
    Ok(())
}

/// The value of a lock's key: the number of the lock in place of a pointer.
pub(super) fn value_of_lock(lock: LockId) -> *mut c_void {
    ptr::without_provenance_mut(lock.to_bits() as usize)
}

/// The lock that a value names.
pub(super) fn lock_of_value(value: *const c_void) -> Option<LockId> {
    u32::try_from(value.addr()).ok().filter(|bits| *bits != 0).map(LockId::from_bits)
}

/// The lock under a key, if its value is of the type of lock keys.
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

unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    let lock: Option<LockId> = guarded("loading a lock", || persist::load_lock(io, version)).flatten();
    lock.map_or(ptr::null_mut(), value_of_lock)
}

unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("saving a lock", || lock_of_value(value).map(|lock| persist::save_lock(io, lock)));
}

unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("rewriting a lock", || {
        let Some(saved) = lock_of_value(value).and_then(persist::saved_form) else { return };
        for image in &saved.holders {
            io.emit_lock(key, image, saved.is_shared);
        }
    });
}

/// The only callback that the server may call on a background thread.
unsafe extern "C" fn free(value: *mut c_void) {
    guarded("freeing a lock", || lock_of_value(value).map(reclaim::note_freed));
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    guarded("measuring a lock", || lock_of_value(value).map_or(0, persist::bytes_of)).unwrap_or(0)
}

unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guarded("digesting a lock", || {
        let Some(saved) = lock_of_value(value).and_then(persist::saved_form) else { return };
        // SAFETY: called by the server with a live handle; the bytes outlive the calls. Time is left
        // out: it differs between copies of one dataset.
        unsafe {
            for image in &saved.holders {
                for part in [&image.owner, &image.label] {
                    server!(RedisModule_DigestAddStringBuffer)(digest, part.as_ptr().cast(), part.len());
                }
                server!(RedisModule_DigestAddLongLong)(digest, long(image.fence));
                server!(RedisModule_DigestEndSequence)(digest);
            }
        }
    });
}

/// Saves the fences for servers up to 7.0, which need something to be written.
unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _: c_int) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("saving the fences", || persist::save_fences(io));
}

/// Saves the fences for later servers. A data set that never had a lock contains nothing of the module.
unsafe extern "C" fn aux_save_if_any(io: *mut raw::RedisModuleIO, _: c_int) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("saving the fences", || {
        if persist::has_fences() {
            persist::save_fences(io)
        }
    });
}

unsafe extern "C" fn aux_load(io: *mut raw::RedisModuleIO, version: c_int, _: c_int) -> c_int {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    match guarded("loading the fences", || persist::load_fences(io, version)) {
        Some(true) => OK,
        _ => ERR,
    }
}
