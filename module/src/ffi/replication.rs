//! Replication of the effects of commands to replicas and the AOF.

use std::ffi::c_longlong;

use redis_module::raw;
use redlock_contract::commands::{Verb, option};
use redlock_core::Effect;

use super::api::server;
use super::context::Ctx;
use super::convert::{c_text, long};

/// Whether anything receives the effects of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicationTarget {
    /// An AOF or a replica receives them, or may.
    Present,
    /// Nothing receives them. To replicate an effect takes as long as the rest of a command.
    Absent,
}

/// Sends the present state of a lock to replicas and the AOF.
#[cold]
pub(super) fn replicate_effect(
    ctx: Ctx<'_>,
    effect: Effect<'_>,
    raw_name: impl Fn(usize) -> *mut raw::RedisModuleString,
) {
    let (to, name) = (ctx.raw, c_text!(Verb::Apply.name()).as_ptr());
    // SAFETY: the context is alive; `s` takes a string of the server, `b` bytes and their length, `l`
    // a long long, `c` a C string, in the order of the format.
    unsafe {
        let send = server!(RedisModule_Replicate);
        match effect {
            Effect::Granted { key, owner, fence, left_ms, label } => {
                // The last three arguments are the label's: without one the format ends before them.
                let format = if label.is_empty() { c"sbll" } else { c"sbllcb" };
                let (key, token) = (raw_name(key), c_text!(option::LABEL).as_ptr());
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
            Effect::Extended { key, owner, fence, left_ms, held_ms, extensions } => {
                let (format, key) = (c"sbllclcl".as_ptr(), raw_name(key));
                let (fence, left, held) = (long(fence), long(left_ms), long(held_ms));
                let (owner, owner_len, count) = (owner.as_ptr(), owner.len(), c_longlong::from(extensions));
                let (since, times) = (c_text!(option::HELD).as_ptr(), c_text!(option::EXTENSIONS).as_ptr());
                send(to, name, format, key, owner, owner_len, fence, left, since, held, times, count);
            }
            Effect::Dataset { id, high_water } => {
                let name = c_text!(Verb::Dataset.name()).as_ptr();
                send(to, name, c"ll".as_ptr(), long(id), long(high_water));
            }
            Effect::Released => {}
        }
    }
}
