//! The table of the server's functions. Every call from the module into the server goes through [`server!`].

use std::ffi::c_int;

use redis_module::raw;

use super::context::Ctx;

/// A function of the server that [`require_all`] has checked; the name of any other function does not
/// compile. The table of functions is written once, while the module is loaded. Reading the table and calling
/// the function are both unsafe.
macro_rules! server {
    ($name:ident) => {{
        let () = $crate::ffi::api::required::$name;
        raw::$name.unwrap_unchecked()
    }};
}
pub(crate) use server;

/// Declares the functions of the server that the module needs.
macro_rules! require {
    ($($name:ident)*) => {
        /// The functions that [`require_all`] checks.
        #[allow(non_upper_case_globals, reason = "the server's names")]
        pub(crate) mod required {
            $(pub(crate) const $name: () = ();)*
        }

        /// Checks that the server has every function the module needs. The error is the name of the first missing one.
        pub(crate) fn require_all() -> Result<(), &'static str> {
            // SAFETY: the table of functions was written just before, by the server's own code.
            $(if unsafe { raw::$name }.is_none() { return Err(stringify!($name)); })*
            Ok(())
        }
    };
}

require! {
    RedisModule_AvoidReplicaTraffic RedisModule_CloseKey RedisModule_CreateCommand
    RedisModule_CreateDataType RedisModule_CreateString RedisModule_CreateTimer RedisModule_DeleteKey
    RedisModule_DigestAddLongLong RedisModule_DigestAddStringBuffer RedisModule_DigestEndSequence
    RedisModule_EmitAOF RedisModule_Free RedisModule_FreeServerInfo RedisModule_FreeString
    RedisModule_GetClientId RedisModule_GetCommand RedisModule_GetContextFlags RedisModule_GetDbIdFromIO
    RedisModule_GetKeyNameFromIO RedisModule_GetRandomHexChars RedisModule_GetSelectedDb
    RedisModule_GetServerInfo RedisModule_InfoAddFieldCString RedisModule_InfoAddFieldULongLong
    RedisModule_InfoAddSection RedisModule_IsIOError RedisModule_IsKeysPositionRequest
    RedisModule_KeyAtPosWithFlags RedisModule_KeyType RedisModule_LoadConfigs
    RedisModule_LoadStringBuffer RedisModule_LoadUnsigned RedisModule_Log RedisModule_ModuleTypeGetType
    RedisModule_ModuleTypeGetValue RedisModule_ModuleTypeSetValue RedisModule_NotifyKeyspaceEvent
    RedisModule_OpenKey
    RedisModule_PublishMessage RedisModule_RegisterEnumConfig RedisModule_RegisterInfoFunc
    RedisModule_RegisterNumericConfig RedisModule_Replicate RedisModule_ReplicateVerbatim
    RedisModule_ReplyWithArray RedisModule_ReplyWithError RedisModule_ReplyWithLongLong
    RedisModule_ReplyWithMap RedisModule_ReplyWithNull RedisModule_ReplyWithSimpleString
    RedisModule_ReplyWithStringBuffer RedisModule_SaveStringBuffer RedisModule_SaveUnsigned
    RedisModule_Scan RedisModule_ScanCursorCreate RedisModule_ScanCursorDestroy RedisModule_SelectDb
    RedisModule_ServerInfoGetFieldC RedisModule_ServerInfoGetFieldUnsigned RedisModule_SetCommandInfo
    RedisModule_SetModuleOptions RedisModule_SignalModifiedKey RedisModule_StopTimer
    RedisModule_StringPtrLen RedisModule_SubscribeToKeyspaceEvents RedisModule_SubscribeToServerEvent
}

/// The server's status for success.
pub(super) const OK: c_int = raw::REDISMODULE_OK as c_int;
/// The server's status for failure.
pub(super) const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// The version of the server, as one number: 7.0.15 is 0x07000f.
pub(crate) fn server_version() -> Option<u32> {
    // SAFETY: a function that old servers lack; it takes nothing.
    unsafe { raw::RedisModule_GetServerVersion.map(|version| version().cast_unsigned()) }
}

/// Sets the module's options: it handles I/O errors, and signals changed keys itself.
pub(crate) fn options(ctx: Ctx<'_>) {
    let options =
        raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    // SAFETY: the context is alive.
    unsafe { server!(RedisModule_SetModuleOptions)(ctx.raw, options as c_int) };
}
