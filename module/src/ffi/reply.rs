//! The encoding of replies. No other file sends a reply.

use redis_module::raw;
use redlock_core::CommandError;
use redlock_core::Reply;
use redlock_core::reply::{Fields, Value};

use super::api::server;
use super::context::Ctx;
use super::convert::{long, text};
use crate::commands::{CommandReply, CommandResult};

/// Replies to a command, exactly once; `None` is a command that panicked.
#[inline]
pub(super) fn reply(ctx: Ctx<'_>, outcome: Option<CommandResult>) {
    match outcome {
        Some(Ok(CommandReply::Reply(Reply::Integer(number)))) => ctx.reply_integer(number),
        outcome => reply_other(ctx, outcome),
    }
}

#[inline(never)]
fn reply_other(ctx: Ctx<'_>, outcome: Option<CommandResult>) {
    match outcome {
        Some(Ok(CommandReply::Reply(Reply::Integer(number)))) => ctx.reply_integer(number),
        Some(Ok(CommandReply::Reply(Reply::Nil))) => ctx.reply_nil(),
        Some(Ok(CommandReply::Reply(Reply::Queued { left_ms, position, ticket }))) => {
            ctx.reply_array(3);
            ctx.reply_signed(left_ms);
            ctx.reply_integer(position);
            ctx.reply_integer(ticket);
        }
        Some(Ok(CommandReply::Reply(Reply::Map(pairs)))) => reply_map(ctx, &pairs),
        Some(Ok(CommandReply::Done)) => ctx.reply_ok(),
        Some(Err(fault)) => ctx.reply_error(&fault.to_string()),
        None => ctx.reply_error(&CommandError::Panicked.to_string()),
    }
}

fn reply_map(ctx: Ctx<'_>, pairs: &Fields) {
    ctx.reply_map(pairs.len());
    for (name, value) in pairs {
        ctx.reply_bytes(name.as_bytes());
        match value {
            Value::Integer(number) => ctx.reply_integer(*number),
            Value::Bytes(content) => ctx.reply_bytes(content),
            Value::Maps(maps) => {
                ctx.reply_array(maps.len());
                maps.iter().for_each(|fields| reply_map(ctx, fields));
            }
        }
    }
}

impl Ctx<'_> {
    fn reply_integer(self, number: u64) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithLongLong)(self.raw, long(number)) };
    }

    fn reply_nil(self) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithNull)(self.raw) };
    }

    fn reply_ok(self) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithSimpleString)(self.raw, c"OK".as_ptr()) };
    }

    fn reply_error(self, line: &str) {
        let line = text(line);
        // SAFETY: the context is alive, the string ends with NUL and outlives the call.
        unsafe { server!(RedisModule_ReplyWithError)(self.raw, line.as_ptr()) };
    }

    /// Begins a map of `pairs` pairs; on RESP2 it is a flat list.
    fn reply_map(self, pairs: usize) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithMap)(self.raw, pairs.try_into().unwrap_or(0)) };
    }

    /// Begins a list of `length` elements.
    fn reply_array(self, length: usize) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithArray)(self.raw, length.try_into().unwrap_or(0)) };
    }

    fn reply_signed(self, number: i64) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithLongLong)(self.raw, number) };
    }

    fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: the context is alive, the bytes outlive the call.
        unsafe { server!(RedisModule_ReplyWithStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len()) };
    }
}
