//! The timer of the sweep.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::api::server;
use super::callbacks::guarded;
use super::context::Ctx;
use crate::sweep;

/// A started timer.
#[derive(Clone, Copy)]
pub(crate) struct Timer(raw::RedisModuleTimerID);

impl Ctx<'_> {
    /// Starts a timer of the sweep. It follows the wall clock: it may fire early or late.
    pub(crate) fn start_sweep_timer(self, after_ms: u64) -> Timer {
        let after = after_ms.try_into().unwrap_or(i64::MAX / 1_000_000);
        let callback: raw::RedisModuleTimerProc = Some(sweep_timer);
        // SAFETY: the context is alive; the callback is a function and takes no data.
        Timer(unsafe { server!(RedisModule_CreateTimer)(self.raw, after, callback, ptr::null_mut()) })
    }

    /// Stops a timer. A timer that has fired stays as it is.
    pub(crate) fn stop_timer(self, timer: Timer) {
        // SAFETY: the context is alive; the server checks the number.
        unsafe { server!(RedisModule_StopTimer)(self.raw, timer.0, ptr::null_mut()) };
    }
}

unsafe extern "C" fn sweep_timer(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    // SAFETY: called by the server with a live context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded("the sweep", || sweep::on_timer(ctx));
}
