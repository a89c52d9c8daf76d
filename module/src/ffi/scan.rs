//! Scanning the keyspace a few keys at a time.

use std::ffi::c_void;

use redis_module::raw;
use redlock_core::LockId;

use super::api::server;
use super::callbacks::guarded;
use super::context::Ctx;
use super::convert::bytes;
use super::data_type::lock_of_key;

/// A scan of one database. It sees every key that exists throughout the scan, and perhaps others.
pub(crate) struct KeyspaceScan(*mut raw::RedisModuleScanCursor);

impl KeyspaceScan {
    pub(crate) fn begin() -> Self {
        // SAFETY: takes nothing and gives a cursor of our own.
        Self(unsafe { server!(RedisModule_ScanCursorCreate)() })
    }

    /// Scans a few keys of the selected database and adds the locks among them, with their keys, to `found`. Returns
    /// false at the end.
    pub(crate) fn step(&mut self, ctx: Ctx<'_>, found: &mut Vec<(LockId, Vec<u8>)>) -> bool {
        let list = std::ptr::from_mut(found).cast::<c_void>();
        // SAFETY: context and cursor are alive; the callback gets the list back, during this call only.
        unsafe { server!(RedisModule_Scan)(ctx.raw, self.0, Some(scanned_key), list) != 0 }
    }
}

impl Drop for KeyspaceScan {
    fn drop(&mut self) {
        // SAFETY: the cursor is ours and is destroyed once.
        unsafe { server!(RedisModule_ScanCursorDestroy)(self.0) };
    }
}

unsafe extern "C" fn scanned_key(
    _: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    found: *mut c_void,
) {
    guarded("a search", || {
        // SAFETY: called by the server, during `KeyspaceScan::step`, with a live key (or none), its name, and
        // the list that `step` has passed.
        unsafe {
            if let Some(lock) = lock_of_key(key) {
                (*found.cast::<Vec<(LockId, Vec<u8>)>>()).push((lock, bytes(name).to_vec()));
            }
        }
    });
}
