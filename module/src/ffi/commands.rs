//! The functions that the server calls for the commands.

use std::ffi::c_int;

use redis_module::raw;
use redlock_contract::commands::Verb;
use redlock_core::grammar::counted_keys;

use super::api::OK;
use super::args::Args;
use super::callbacks::guarded;
use super::command_info::key_flags;
use super::context::Ctx;
use super::reply::reply;
use crate::commands::{self, Command};
use crate::state::State;

/// Runs a command. Compiled for each of them, so that what is known of one costs nothing when it runs.
#[inline]
unsafe fn command(
    verb: Verb,
    run: impl Command,
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context is alive until this function returns.
    let ctx = unsafe { Ctx::new(ctx) };
    if verb.counts_its_keys() && ctx.asks_for_keys() {
        // SAFETY: so are its arguments.
        guarded("finding keys", || unsafe { Args::read(argv, argc, 1, |args| tell_keys(ctx, verb, args)) });
        return OK;
    }
    // SAFETY: so are its arguments.
    let answer =
        guarded(verb.name(), || unsafe { Args::read(argv, argc, 1, |args| commands::run(ctx, args, run)) });
    // The reply comes last and cannot fail, so a command is answered exactly once.
    reply(ctx, answer);
    OK
}

fn tell_keys(ctx: Ctx<'_>, verb: Verb, args: &Args<'_>) {
    let flags = key_flags(verb.spec().access);
    for arg in counted_keys(args.all()).unwrap_or(0..0) {
        ctx.key_is_at(arg, flags);
    }
}

macro_rules! commands {
    ($($function:ident => $verb:ident),* $(,)?) => {
        $(unsafe extern "C" fn $function(ctx: *mut raw::RedisModuleCtx, argv: *mut *mut raw::RedisModuleString, argc: c_int) -> c_int {
            // SAFETY: called by the server with a live context and its arguments.
            unsafe { command(Verb::$verb, State::$function, ctx, argv, argc) }
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
}
