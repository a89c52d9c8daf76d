//! The server's log.

use redis_module::raw;

use super::api::server;
use super::convert::text;

/// How important a log line is.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Notice,
    Warning,
}

/// Writes a line to the server's log without a context.
pub(crate) fn log_line(level: Level, line: &str) {
    log(std::ptr::null_mut(), level, line);
}

/// Writes a line to the server's log. `ctx` is the context of the present call, or null.
pub(super) fn log(ctx: *mut raw::RedisModuleCtx, level: Level, line: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let line = text(line);
    // The line goes as an argument, never as the format: it may contain anything.
    // SAFETY: the context is alive or null, all strings end with NUL and outlive the call.
    unsafe { server!(RedisModule_Log)(ctx, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()) };
}
