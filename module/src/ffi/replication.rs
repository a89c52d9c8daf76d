//! Replication of the effects of commands to replicas and the AOF.

use std::ffi::{CStr, c_longlong};

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
            Effect::Granted { key, owner, fence, left_ms, label, is_handed_off, is_shared } => {
                let format = grant_format(!label.is_empty(), is_handed_off, is_shared).as_ptr();
                let (key, fence, left) = (raw_name(key), long(fence), long(left_ms));
                let (owner, owner_len) = (owner.as_ptr(), owner.len());
                let (token, label, label_len) =
                    (c_text!(option::LABEL).as_ptr(), label.as_ptr(), label.len());
                let handed_off = c_text!(option::HANDED_OFF).as_ptr();
                let shared = c_text!(option::SHARED).as_ptr();
                match (is_handed_off, is_shared) {
                    (false, false) => {
                        send(to, name, format, key, owner, owner_len, fence, left, token, label, label_len);
                    }
                    (true, true) => {
                        send(
                            to, name, format, key, owner, owner_len, fence, left, handed_off, shared, token,
                            label, label_len,
                        );
                    }
                    (true, false) | (false, true) => {
                        let flag = if is_shared { shared } else { handed_off };
                        send(
                            to, name, format, key, owner, owner_len, fence, left, flag, token, label,
                            label_len,
                        );
                    }
                }
            }
            Effect::Extended { key, owner, fence, left_ms, held_ms, extensions, is_shared } => {
                // The last argument is the one of a shared lock: otherwise the format ends before it.
                let format = if is_shared { c"sbllclclc" } else { c"sbllclcl" }.as_ptr();
                let (key, shared) = (raw_name(key), c_text!(option::SHARED).as_ptr());
                let (fence, left, held) = (long(fence), long(left_ms), long(held_ms));
                let (owner, owner_len, count) = (owner.as_ptr(), owner.len(), c_longlong::from(extensions));
                let (since, times) = (c_text!(option::HELD).as_ptr(), c_text!(option::EXTENSIONS).as_ptr());
                send(to, name, format, key, owner, owner_len, fence, left, since, held, times, count, shared);
            }
            Effect::Expired { key, owner, fence, is_shared } => {
                let (key, owner, owner_len) = (raw_name(key), owner.as_ptr(), owner.len());
                let (fence, left) = (long(fence), long(0));
                let format = if is_shared { c"sbllc" } else { c"sbll" }.as_ptr();
                let shared = c_text!(option::SHARED).as_ptr();
                send(to, name, format, key, owner, owner_len, fence, left, shared);
            }
            Effect::Dataset { id, high_water } => {
                let name = c_text!(Verb::Dataset.name()).as_ptr();
                send(to, name, c"ll".as_ptr(), long(id), long(high_water));
            }
            Effect::Released => {}
        }
    }
}

/// The types of the arguments of a grant. The last three belong to the label: without one, the format ends before them.
fn grant_format(has_label: bool, is_handed_off: bool, is_shared: bool) -> &'static CStr {
    match (has_label, u8::from(is_handed_off) + u8::from(is_shared)) {
        (false, 0) => c"sbll",
        (true, 0) => c"sbllcb",
        (false, 1) => c"sbllc",
        (true, 1) => c"sbllccb",
        (false, _) => c"sbllcc",
        (true, _) => c"sbllcccb",
    }
}
