//! A minimal lock module, the lower bound of the benchmark: a value in the keyspace and a comparison of owners.
//!
//! No time to live, no fence, no replication, no limits, no state that outlives the key. A pair of its commands costs
//! what the server needs for the commands of any module that keeps values in the keyspace. The benchmark shows how
//! far the real module is above this bound.

// A module is loaded through C functions and calls the server through others.
#![allow(unsafe_code, missing_docs)]

use redis_module::raw;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

const OWNER_BYTES: usize = 36;

type Owner = [u8; OWNER_BYTES];

static LOCK: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

/// A function of the server.
macro_rules! server {
    ($function:ident) => {
        raw::$function.expect("a function that every server exports")
    };
}

/// Opens the key of a command for writing.
unsafe fn open(ctx: *mut raw::RedisModuleCtx, key: *mut raw::RedisModuleString) -> *mut raw::RedisModuleKey {
    let mode = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;
    // SAFETY: the server's own context and string.
    unsafe { server!(RedisModule_OpenKey)(ctx, key, mode) }
}

/// The owner in the arguments of a command, if it has the length that the bench sends.
unsafe fn owner(text: *mut raw::RedisModuleString) -> Option<Owner> {
    let mut len = 0;
    // SAFETY: the server's own string, which lives as long as the command.
    let text = unsafe {
        let text = server!(RedisModule_StringPtrLen)(text, &raw mut len).cast::<u8>();
        std::slice::from_raw_parts(text, len)
    };
    text.try_into().ok()
}

unsafe extern "C" fn acquire(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server calls this with a live context and its arguments, and owns the value from then on.
    unsafe {
        let Some(owner) = (argc >= 3).then(|| owner(*argv.add(2))).flatten() else {
            return server!(RedisModule_WrongArity)(ctx);
        };
        let key = open(ctx, *argv.add(1));
        let is_free = server!(RedisModule_KeyType)(key) as isize == raw::REDISMODULE_KEYTYPE_EMPTY;
        if is_free {
            let value = server!(RedisModule_Alloc)(OWNER_BYTES).cast::<Owner>();
            value.write(owner);
            server!(RedisModule_ModuleTypeSetValue)(key, LOCK.load(Relaxed), value.cast());
        }
        server!(RedisModule_CloseKey)(key);
        server!(RedisModule_ReplyWithLongLong)(ctx, is_free.into())
    }
}

unsafe extern "C" fn release(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: as above; `acquire` made every value of our type.
    unsafe {
        let Some(owner) = (argc >= 3).then(|| owner(*argv.add(2))).flatten() else {
            return server!(RedisModule_WrongArity)(ctx);
        };
        let key = open(ctx, *argv.add(1));
        let is_lock = server!(RedisModule_ModuleTypeGetType)(key) == LOCK.load(Relaxed);
        let is_ours = is_lock && *server!(RedisModule_ModuleTypeGetValue)(key).cast::<Owner>() == owner;
        if is_ours {
            server!(RedisModule_DeleteKey)(key);
        }
        server!(RedisModule_CloseKey)(key);
        server!(RedisModule_ReplyWithLongLong)(ctx, is_ours.into())
    }
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: a value that `acquire` allocated.
    unsafe { server!(RedisModule_Free)(value) };
}

/// The server loads the module.
///
/// # Safety
/// Called by the server only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    let version = raw::REDISMODULE_APIVER_1 as c_int;
    // SAFETY: the server's context; all strings end with NUL. The bench never saves a dataset, so the type needs
    // no load function.
    unsafe {
        raw::Export_RedisModule_Init(ctx, c"floor".as_ptr(), 1, version);
        let mut methods = raw::RedisModuleTypeMethods {
            version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
            free: Some(free),
            ..std::mem::zeroed()
        };
        let create_type = server!(RedisModule_CreateDataType);
        LOCK.store(create_type(ctx, c"floorlock".as_ptr(), 0, &raw mut methods), Relaxed);
        command(ctx, c"REDLOCK.ACQUIRE".as_ptr(), Some(acquire), c"write deny-oom fast".as_ptr())
            | command(ctx, c"REDLOCK.RELEASE".as_ptr(), Some(release), c"write fast".as_ptr())
    }
}

unsafe fn command(
    ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    function: raw::RedisModuleCmdFunc,
    flags: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { server!(RedisModule_CreateCommand)(ctx, name, function, flags, 1, 1, 1) }
}
