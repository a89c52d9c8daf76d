//! Calls from the module into the server.

use std::ffi::{CStr, CString, c_int, c_longlong};
use std::marker::PhantomData;

use redis_module::raw;

/// Why a member of a cluster does not carry out a module's write: the slot is not its own, the cluster can only be read,
/// or it is down. The server has other reasons to carry nothing out, and they say nothing of the slot.
const SENT_AWAY: [c_int; 3] = [libc::EPERM, libc::EROFS, libc::ENETDOWN];

/// A function of the server that [`require_all`] has seen; one that it does not ask for does not compile.
/// The table of functions is written once, while the module is loaded; reading it and calling from it are
/// unsafe together.
macro_rules! server {
    ($name:ident) => {{
        let () = $crate::server::api::required::$name;
        raw::$name.unwrap_unchecked()
    }};
}
pub(crate) use server;

/// Asks for functions of the server, by name.
macro_rules! require {
    ($($name:ident)*) => {
        /// The functions that [`require_all`] asks for.
        #[allow(non_upper_case_globals, reason = "the server's names")]
        pub(crate) mod required {
            $(pub(crate) const $name: () = ();)*
        }

        /// Whether the functions are there without which the module does not load. The first that is missing
        /// is named.
        pub(crate) fn require_all() -> Result<(), &'static str> {
            // SAFETY: the table of functions was written just before, by the server's own code.
            $(if unsafe { raw::$name }.is_none() { return Err(stringify!($name)); })*
            Ok(())
        }
    };
}

require! {
    RedisModule_AvoidReplicaTraffic RedisModule_Call RedisModule_CallReplyArrayElement
    RedisModule_CallReplyStringPtr RedisModule_CloseKey RedisModule_FreeCallReply RedisModule_CreateCommand RedisModule_CreateDataType RedisModule_CreateString
    RedisModule_CreateTimer RedisModule_DeleteKey RedisModule_DigestAddLongLong
    RedisModule_DigestAddStringBuffer RedisModule_DigestEndSequence RedisModule_EmitAOF
    RedisModule_Free RedisModule_FreeString RedisModule_GetClientId RedisModule_GetCommand
    RedisModule_GetContextFlags RedisModule_GetDbIdFromIO RedisModule_GetKeyNameFromIO
    RedisModule_GetRandomHexChars RedisModule_GetSelectedDb RedisModule_InfoAddFieldCString
    RedisModule_InfoAddFieldULongLong RedisModule_InfoAddSection RedisModule_IsIOError
    RedisModule_IsKeysPositionRequest RedisModule_KeyAtPosWithFlags
    RedisModule_KeyType RedisModule_LoadConfigs RedisModule_LoadStringBuffer RedisModule_LoadUnsigned
    RedisModule_Log RedisModule_ModuleTypeGetType RedisModule_ModuleTypeGetValue
    RedisModule_ModuleTypeSetValue RedisModule_OpenKey RedisModule_RegisterEnumConfig
    RedisModule_RegisterInfoFunc RedisModule_RegisterNumericConfig RedisModule_Replicate RedisModule_ReplicateVerbatim
    RedisModule_PublishMessage RedisModule_ReplyWithArray RedisModule_ReplyWithError RedisModule_ReplyWithLongLong
    RedisModule_ReplyWithMap RedisModule_ReplyWithNull RedisModule_ReplyWithSimpleString
    RedisModule_ReplyWithStringBuffer
    RedisModule_SaveStringBuffer RedisModule_SaveUnsigned RedisModule_SelectDb
    RedisModule_SetCommandInfo RedisModule_SetModuleOptions RedisModule_SignalModifiedKey
    RedisModule_StopTimer RedisModule_StringPtrLen RedisModule_SubscribeToKeyspaceEvents
    RedisModule_SubscribeToServerEvent
    RedisModule_FreeServerInfo RedisModule_GetServerInfo RedisModule_Scan RedisModule_ScanCursorCreate
    RedisModule_ScanCursorDestroy RedisModule_ServerInfoGetFieldUnsigned
}

/// The server's word for success.
pub(super) const OK: c_int = raw::REDISMODULE_OK as c_int;
/// The server's word for failure.
pub(super) const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// How important a log line is.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Notice,
    Warning,
}

/// Where a command comes from and what the server is doing, as far as it matters.
pub(crate) struct Circumstances(c_int);

impl Circumstances {
    /// The command came from the master or from the AOF: it is an effect, not a request.
    pub(crate) fn is_replay(&self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED) || self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Effects are written to an AOF, or may have to follow a slot to another node.
    pub(crate) fn keeps_effects(&self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF) || self.is_cluster()
    }

    /// The server is a member of a cluster.
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

/// Writes a line to the server's log where no call of the server is at hand.
pub(crate) fn log_line(level: Level, line: &str) {
    log(std::ptr::null_mut(), level, line);
}

fn log(ctx: *mut raw::RedisModuleCtx, level: Level, line: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let line = text(line);
    // The line goes as an argument, never as the format: it may contain anything.
    // SAFETY: the context is alive or null, all strings end with NUL and outlive the call.
    unsafe { server!(RedisModule_Log)(ctx, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()) };
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
        log(self.raw, level, line);
    }

    pub(crate) fn reply_integer(self, number: u64) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithLongLong)(self.raw, long(number)) };
    }

    pub(crate) fn reply_nil(self) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithNull)(self.raw) };
    }

    pub(crate) fn reply_ok(self) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithSimpleString)(self.raw, c"OK".as_ptr()) };
    }

    pub(crate) fn reply_error(self, line: &str) {
        let line = text(line);
        // SAFETY: the context is alive, the string ends with NUL and outlives the call.
        unsafe { server!(RedisModule_ReplyWithError)(self.raw, line.as_ptr()) };
    }

    /// Begins a map of so many pairs; on RESP2 it is a flat list.
    pub(crate) fn reply_map(self, pairs: usize) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithMap)(self.raw, pairs.try_into().unwrap_or(0)) };
    }

    /// Begins a list of so many.
    pub(crate) fn reply_array(self, length: usize) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithArray)(self.raw, length.try_into().unwrap_or(0)) };
    }

    pub(crate) fn reply_signed(self, number: i64) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplyWithLongLong)(self.raw, number) };
    }

    /// Says something on a channel.
    pub(crate) fn publish(self, channel: &[u8], message: &[u8]) {
        let (channel, message) = (OwnedText::new(self, channel), OwnedText::new(self, message));
        // SAFETY: the context is alive, both strings are valid and outlive the call.
        unsafe { server!(RedisModule_PublishMessage)(self.raw, channel.raw, message.raw) };
    }

    pub(crate) fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: the context is alive, the bytes outlive the call.
        unsafe { server!(RedisModule_ReplyWithStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Whether the server only wants to know which words of a command are keys.
    pub(super) fn asks_for_keys(self) -> bool {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_IsKeysPositionRequest)(self.raw) != 0 }
    }

    /// Tells the server that a word of the command is a key, and what happens to it.
    pub(super) fn key_is_at(self, word: usize, flags: u32) {
        // SAFETY: the context is alive, and that of a request for the keys.
        unsafe {
            let word = c_int::try_from(word).unwrap_or(0);
            server!(RedisModule_KeyAtPosWithFlags)(self.raw, word, flags.cast_signed());
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

    /// Goes on in another database; false if there is none with this number.
    pub(crate) fn select(self, database: u16) -> bool {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_SelectDb)(self.raw, c_int::from(database)) == OK }
    }

    pub(crate) fn circumstances(self) -> Circumstances {
        // SAFETY: the context is alive.
        Circumstances(unsafe { server!(RedisModule_GetContextFlags)(self.raw) })
    }

    /// Hands the command on to replicas and the AOF as it came.
    pub(crate) fn replicate_verbatim(self) {
        // SAFETY: the context is alive.
        unsafe { server!(RedisModule_ReplicateVerbatim)(self.raw) };
    }

    /// Whether the server holds writes back at present: during `CLIENT PAUSE` and failovers. A change
    /// that is replicated then stops the server.
    pub(crate) fn is_paused(self) -> bool {
        // SAFETY: takes nothing.
        unsafe { server!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// Whether a member of a cluster would carry out a client's write to a key, of the selected database, here and now. If
    /// not, the slot is another member's, or on its way there, or the cluster is down.
    ///
    /// There is no function for that on all servers. But what a module calls is sent away as a client's command is,
    /// and to write nothing at the start of a string changes nothing, whatever the key is. On a server on which that
    /// command has another name nobody can tell, and every key counts as its own.
    pub(crate) fn serves_slot_of(self, key: &[u8]) -> bool {
        let key = OwnedText::new(self, key);
        // SAFETY: the context is alive, the strings are valid and outlive the call; the reply is freed once.
        unsafe {
            let (start, nothing) = (c"0".as_ptr(), c"".as_ptr());
            let reply = server!(RedisModule_Call)(
                self.raw,
                c"SETRANGE".as_ptr(),
                c"scc".as_ptr(),
                key.raw,
                start,
                nothing,
            );
            if reply.is_null() {
                let why = std::io::Error::last_os_error().raw_os_error();
                return !why.is_some_and(|why| SENT_AWAY.contains(&why));
            }
            server!(RedisModule_FreeCallReply)(reply);
            true
        }
    }

    /// Whether the server has replicas, or keeps a backlog for one that may come back.
    pub(crate) fn has_replicas(self) -> bool {
        // What cannot be read counts as yes: then effects are sent in vain, never missed.
        self.info(c"replication", [c"connected_slaves", c"repl_backlog_active"])
            .into_iter()
            .any(|value| value.is_none_or(|value| value > 0))
    }

    /// The value of a setting of the server; empty if it has none of that name.
    pub(crate) fn setting(self, name: &CStr) -> String {
        // SAFETY: the context is alive, the strings end with NUL; the text is copied before the reply is
        // freed, once.
        unsafe {
            let get = c"GET".as_ptr();
            let reply =
                server!(RedisModule_Call)(self.raw, c"CONFIG".as_ptr(), c"cc".as_ptr(), get, name.as_ptr());
            if reply.is_null() {
                return String::new();
            }
            let mut value = String::new();
            let element = server!(RedisModule_CallReplyArrayElement)(reply, 1);
            if !element.is_null() {
                let mut len = 0;
                let start = server!(RedisModule_CallReplyStringPtr)(element, &raw mut len);
                if !start.is_null() {
                    value =
                        String::from_utf8_lossy(std::slice::from_raw_parts(start.cast(), len)).into_owned();
                }
            }
            server!(RedisModule_FreeCallReply)(reply);
            value
        }
    }

    /// Whether the server may throw away keys without a TTL of its own, and so locks, to make room.
    pub(crate) fn may_evict_locks(self) -> bool {
        self.setting(c"maxmemory-policy").starts_with("allkeys")
    }

    /// Numbers that `INFO` tells; `None` for each that it does not.
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

    /// Starts a timer of the sweep. It follows the wall clock: it may fire early or late.
    pub(crate) fn start_sweep_timer(self, after_ms: u64) -> Timer {
        let after = after_ms.try_into().unwrap_or(i64::MAX / 1_000_000);
        let callback: raw::RedisModuleTimerProc = Some(super::edge::sweep_timer);
        // SAFETY: the context is alive; the callback is a function and takes no data.
        Timer(unsafe { server!(RedisModule_CreateTimer)(self.raw, after, callback, std::ptr::null_mut()) })
    }

    /// Stops a timer. One that has fired is left alone.
    pub(crate) fn stop_timer(self, timer: Timer) {
        // SAFETY: the context is alive; the server checks the number.
        unsafe { server!(RedisModule_StopTimer)(self.raw, timer.0, std::ptr::null_mut()) };
    }
}

/// A string that the module has made.
pub(super) struct OwnedText<'a> {
    ctx: Ctx<'a>,
    pub(super) raw: *mut raw::RedisModuleString,
}

impl<'a> OwnedText<'a> {
    pub(super) fn new(ctx: Ctx<'a>, bytes: &[u8]) -> Self {
        // SAFETY: the context is alive, the bytes outlive the call, which copies them.
        let raw = unsafe { server!(RedisModule_CreateString)(ctx.raw, bytes.as_ptr().cast(), bytes.len()) };
        Self { ctx, raw }
    }
}

impl Drop for OwnedText<'_> {
    fn drop(&mut self) {
        // SAFETY: the string was made by `new` and is freed once.
        unsafe { server!(RedisModule_FreeString)(self.ctx.raw, self.raw) };
    }
}

/// A timer that was started.
#[derive(Clone, Copy)]
pub(crate) struct Timer(raw::RedisModuleTimerID);

/// The bytes of a string of the server.
///
/// # Safety
/// `string` must be valid for `'a`.
pub(super) unsafe fn bytes<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the string is valid; `len` outlives the call.
    let start = unsafe { server!(RedisModule_StringPtrLen)(string, &raw mut len) };
    if start.is_null() {
        return &[];
    }
    // SAFETY: the server says that so many bytes are there, for as long as the string is.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// A number for the server.
pub(super) fn long(number: u64) -> c_longlong {
    c_longlong::try_from(number).unwrap_or(c_longlong::MAX)
}

/// A text for the server; it cannot have a NUL in it.
pub(super) fn text(line: &str) -> CString {
    CString::new(line.replace('\0', "\\0")).unwrap_or_default()
}
