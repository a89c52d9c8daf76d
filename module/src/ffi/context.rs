//! The context of one call by the server.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;

use redis_module::raw;

use super::api::{OK, server};
use super::convert::OwnedText;
use super::log::{self, Level};

/// The context flags: the source of a command and the state of the server.
pub(crate) struct ContextFlags(c_int);

impl ContextFlags {
    /// The command came from the master or from the AOF: it is an effect, not a request.
    pub(crate) fn is_replay(&self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED) || self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Effects are written to an AOF.
    pub(crate) fn has_aof(&self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    /// The server has `cluster-enabled yes`.
    pub(crate) fn is_cluster(&self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// The command is part of a script.
    pub(crate) fn is_script(&self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// The server is a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    fn has(&self, flag: u32) -> bool {
        self.0.cast_unsigned() & flag != 0
    }
}

/// The server, for the length of one call.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    pub(super) raw: *mut raw::RedisModuleCtx,
    call: PhantomData<&'a ()>,
}

impl Ctx<'_> {
    /// # Safety
    /// `raw` must be the context of a call by the server that lasts at least as long as `'a`.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, call: PhantomData }
    }

    /// Writes a line to the server's log.
    pub(crate) fn log(self, level: Level, line: &str) {
        log::log(self.raw, level, line);
    }

    /// Publishes a message on a channel.
    pub(crate) fn publish(self, channel: &[u8], message: &[u8]) {
        let (channel, message) = (OwnedText::new(self, channel), OwnedText::new(self, message));
        // SAFETY: the context is alive, both strings are valid and outlive the call.
        unsafe { server!(RedisModule_PublishMessage)(self.raw, channel.raw, message.raw) };
    }

    /// Whether the server only asks which arguments of a command are keys.
    pub(super) fn asks_for_keys(self) -> bool {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_IsKeysPositionRequest)(self.raw) != 0 }
    }

    /// Reports to the server that an argument of the command is a key, and how the command accesses it.
    pub(super) fn key_is_at(self, position: usize, flags: u32) {
        // SAFETY: the context is alive, and that of a request for the keys.
        unsafe {
            let position = c_int::try_from(position).unwrap_or(0);
            server!(RedisModule_KeyAtPosWithFlags)(self.raw, position, flags.cast_signed());
        }
    }

    /// The connection that sent the command.
    pub(crate) fn connection(self) -> u64 {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_GetClientId)(self.raw) }
    }

    /// The database in which the command runs.
    pub(crate) fn database(self) -> c_int {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_GetSelectedDb)(self.raw) }
    }

    /// Selects a database. Returns false if it does not exist.
    pub(crate) fn select(self, database: u16) -> bool {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_SelectDb)(self.raw, c_int::from(database)) == OK }
    }

    pub(crate) fn flags(self) -> ContextFlags {
        // SAFETY: the context is alive.
        ContextFlags(unsafe { server!(RedisModule_GetContextFlags)(self.raw) })
    }

    /// Sends the command to replicas and the AOF as the client sent it.
    pub(crate) fn replicate_verbatim(self) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplicateVerbatim)(self.raw) };
    }

    /// Whether the server pauses writes at present, during `CLIENT PAUSE` and failovers. A change that is
    /// replicated then stops the server.
    pub(crate) fn is_paused(self) -> bool {
        // SAFETY: takes nothing.
        unsafe { server!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// Whether the server has replicas, or keeps a backlog for one that may come back.
    pub(crate) fn has_replicas(self) -> bool {
        // A field that cannot be read counts as yes: an effect may be sent to no receiver, but is never missing.
        self.info(c"replication", [c"connected_slaves", c"repl_backlog_active"])
            .into_iter()
            .any(|value| value.is_none_or(|value| value > 0))
    }

    /// Whether the server may evict keys without a TTL of their own, and so locks.
    ///
    /// Reads `INFO` and not `CONFIG GET`: a command that the module calls is in the server's slow log and command
    /// statistics.
    pub(crate) fn may_evict_locks(self) -> bool {
        // SAFETY: the context is alive, the names end with NUL; the text is read before the information is freed,
        // once, by the server that made it.
        unsafe {
            let info = server!(RedisModule_GetServerInfo)(self.raw, c"memory".as_ptr());
            let policy = server!(RedisModule_ServerInfoGetFieldC)(info, c"maxmemory_policy".as_ptr());
            let may_evict = !policy.is_null() && CStr::from_ptr(policy).to_bytes().starts_with(b"allkeys");
            server!(RedisModule_FreeServerInfo)(self.raw, info);
            may_evict
        }
    }

    /// Numeric fields of `INFO`; `None` for a field that does not exist.
    fn info<const N: usize>(self, section: &CStr, fields: [&CStr; N]) -> [Option<u64>; N] {
        // SAFETY: the context is alive, the names end with NUL; the information is freed once, by the server
        // that made it, after the last look at it.
        unsafe {
            let info = server!(RedisModule_GetServerInfo)(self.raw, section.as_ptr());
            let values = fields.map(|field| {
                let mut failed = 0;
                let value =
                    server!(RedisModule_ServerInfoGetFieldUnsigned)(info, field.as_ptr(), &raw mut failed);
                (failed == 0).then_some(value)
            });
            server!(RedisModule_FreeServerInfo)(self.raw, info);
            values
        }
    }

    /// Random text of `LEN` hexadecimal digits.
    pub(crate) fn random_hex<const LEN: usize>(self) -> String {
        let mut digits = [0_u8; LEN];
        // SAFETY: the buffer has exactly the length that is passed.
        unsafe { server!(RedisModule_GetRandomHexChars)(digits.as_mut_ptr().cast(), LEN) };
        String::from_utf8_lossy(&digits).into_owned()
    }
}
