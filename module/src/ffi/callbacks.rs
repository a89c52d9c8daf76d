//! The guard around every call from the server into the module, and the function that loads the module. The guard stops
//! every panic: it would crash the server.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis_module::raw;

use super::api::{ERR, OK};
use super::args::CallArgs;
use super::context::Ctx;
use super::log::{Level, log_line};
use crate::load;

/// Runs `body`, the module's part of every call by the server. A panic becomes `None` and a line in the log.
/// `errno` has the same value before and after: Redis 7.0 reads `errno` after it has notified modules of a
/// failed load, and takes `ENOENT` for a missing file.
#[inline]
pub(super) fn guarded<R>(what: &str, body: impl FnOnce() -> R) -> Option<R> {
    let errno = errno::errno();
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let value = match outcome {
        Ok(value) => Some(value),
        Err(panic) => {
            log_panic(what, &*panic);
            None
        }
    };
    errno::set_errno(errno);
    value
}

#[cold]
fn log_panic(what: &str, panic: &(dyn Any + Send)) {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown");
    log_line(Level::Warning, &format!("internal error in {what}: {message}"));
}

/// Loads the module; the server calls it.
///
/// # Safety
/// Called by the server only.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context and the module's arguments are alive until this function returns.
    // Nothing allocates before `Export_RedisModule_Init` has filled the table of functions: the allocator is in it.
    unsafe {
        if raw::Export_RedisModule_Init(
            ctx,
            c"redlock".as_ptr(),
            load::MODULE_VERSION,
            raw::REDISMODULE_APIVER_1 as c_int,
        ) == ERR
        {
            return ERR;
        }
        let ctx = Ctx::new(ctx);
        match guarded("loading", || CallArgs::read(argv, argc, 0, |args| load::load(ctx, args.all()))) {
            Some(Ok(())) => OK,
            Some(Err(why)) => {
                ctx.log(Level::Warning, &format!("not loaded: {why}"));
                ERR
            }
            None => ERR,
        }
    }
}
