//! Going through the keyspace a little at a time.

use std::ffi::c_void;

use redis_module::raw;
use redlock_core::LockId;

use super::api::{Ctx, server};
use super::edge;

/// A walk through one database. Keys that stay there all the time are seen, others perhaps.
pub(crate) struct Scan(*mut raw::RedisModuleScanCursor);

impl Scan {
    pub(crate) fn begin() -> Self {
        // SAFETY: takes nothing and gives a cursor of our own.
        Self(unsafe { server!(RedisModule_ScanCursorCreate)() })
    }

    /// Looks at a few keys of the selected database and adds the locks among them, with their keys, to
    /// `found`. False at the end.
    pub(crate) fn step(&mut self, ctx: Ctx<'_>, found: &mut Vec<(LockId, Vec<u8>)>) -> bool {
        let list = std::ptr::from_mut(found).cast::<c_void>();
        // SAFETY: context and cursor are alive; the callback gets the list back, during this call only.
        unsafe { server!(RedisModule_Scan)(ctx.raw, self.0, Some(edge::scanned_key), list) != 0 }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // SAFETY: the cursor is ours and is destroyed once.
        unsafe { server!(RedisModule_ScanCursorDestroy)(self.0) };
    }
}
