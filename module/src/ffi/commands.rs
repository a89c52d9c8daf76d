//! The functions that the server calls for the commands.

use std::ffi::c_int;

use redis_module::raw;
use redlock_contract::commands::Verb;
use redlock_core::grammar::counted_keys;

use super::api::OK;
use super::args::CallArgs;
use super::callbacks::guarded;
use super::command_info::key_flags;
use super::context::Ctx;
use super::reply::reply;
use crate::commands::{self, CommandFn};
use crate::state::ModuleState;

/// Runs a command. The compiler makes one copy for each command, so its constants cost nothing at run time.
#[inline]
unsafe fn command(
    verb: Verb,
    run: impl CommandFn,
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context is alive until this function returns.
    let ctx = unsafe { Ctx::new(ctx) };
    if verb.counts_its_keys() && ctx.asks_for_keys() {
        // SAFETY: so are its arguments.
        guarded("finding keys", || unsafe {
            CallArgs::read(argv, argc, 1, |args| report_keys(ctx, verb, args))
        });
        return OK;
    }
    // SAFETY: so are its arguments.
    let answer = guarded(verb.name(), || unsafe {
        CallArgs::read(argv, argc, 1, |args| commands::run(ctx, args, run))
    });
    // The reply comes last and cannot fail, so every command gets exactly one reply.
    reply(ctx, answer);
    OK
}

/// Reports which arguments of a command are keys.
fn report_keys(ctx: Ctx<'_>, verb: Verb, args: &CallArgs<'_>) {
    let flags = key_flags(verb.spec().access);
    for arg in counted_keys(args.all()).unwrap_or(0..0) {
        ctx.key_is_at(arg, flags);
    }
}

macro_rules! commands {
    ($($function:ident => $verb:ident),* $(,)?) => {
        $(unsafe extern "C" fn $function(ctx: *mut raw::RedisModuleCtx, argv: *mut *mut raw::RedisModuleString, argc: c_int) -> c_int {
            // SAFETY: called by the server with a live context and its arguments.
            unsafe { command(Verb::$verb, ModuleState::$function, ctx, argv, argc) }
        })*

        /// The function that the server calls for a command.
        pub(super) fn function_of(verb: Verb) -> raw::RedisModuleCmdFunc {
            match verb { $(Verb::$verb => Some($function)),* }
        }
    };
}

commands! {
    acquire => Acquire, extend => Extend, release => Release, inspect => Inspect, macquire => Macquire,
    mextend => Mextend, mrelease => Mrelease, node => Node, apply => Apply, dataset => Dataset, mark => Mark, admit => Admit,
    break_lock => Break,
}
