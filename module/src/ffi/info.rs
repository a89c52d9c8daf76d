//! Writing a section of `INFO`.

use std::ffi::c_int;
use std::ptr;

use redis_module::raw;

use super::api::{OK, server};
use super::callbacks::guarded;
use super::convert::text;
use crate::info;

/// A section of `INFO` being written.
pub(crate) struct InfoWriter(*mut raw::RedisModuleInfoCtx);

impl InfoWriter {
    pub(crate) fn number(&self, name: &str, value: u64) {
        let name = text(name);
        // SAFETY: called by the server with a live handle; the name outlives the call.
        unsafe { server!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), value) };
    }

    pub(crate) fn text(&self, name: &str, value: &str) {
        let (name, value) = (text(name), text(value));
        // SAFETY: as above.
        unsafe { server!(RedisModule_InfoAddFieldCString)(self.0, name.as_ptr(), value.as_ptr()) };
    }
}

pub(super) unsafe extern "C" fn info_section(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // A crash report is written from a signal handler, in the middle of anything.
    if for_crash_report != 0 {
        return;
    }
    guarded("INFO", || {
        // SAFETY: called by the server with a live handle; the section takes the module's name.
        if unsafe { server!(RedisModule_InfoAddSection)(ctx, ptr::null()) } == OK {
            info::write(&InfoWriter(ctx));
        }
    });
}
