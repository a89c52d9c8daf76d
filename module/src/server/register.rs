//! What the module registers with the server when it is loaded.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;
use redlock_core::catalog::{Access, Arg, ArgKind, COMMANDS, KeyWords, SINCE, Spec};

use super::api::{Ctx, OK, long, server, text};
use super::edge;
use crate::restart::Grace;

/// The type of lock keys, as `TYPE key` shows it. Nine letters, by the server's rule.
pub(crate) const TYPE_NAME: &str = "redlock-1";
/// The version in which locks and fences are saved.
pub(crate) const ENCODING: c_int = 1;

static LOCK_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// The type of lock keys.
pub(super) fn lock_type() -> *mut raw::RedisModuleType {
    LOCK_TYPE.load(Ordering::Relaxed)
}

/// The version of the server, as one number: 7.0.15 is 0x07000f.
pub(crate) fn server_version() -> Option<u32> {
    // SAFETY: a function that old servers lack; it takes nothing.
    unsafe { raw::RedisModule_GetServerVersion.map(|version| version().cast_unsigned()) }
}

/// Says how the module behaves: it checks what it reads, and it announces changed keys itself.
pub(crate) fn options(ctx: Ctx<'_>) {
    let options =
        raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    // SAFETY: the context is alive.
    unsafe { server!(RedisModule_SetModuleOptions)(ctx.raw, options as c_int) };
}

/// Registers the type of lock keys. There is no `copy`: two keys with one owner would be no lock.
pub(crate) fn data_type(ctx: Ctx<'_>) -> Result<(), String> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: Some(edge::rdb_load),
        rdb_save: Some(edge::rdb_save),
        aof_rewrite: Some(edge::aof_rewrite),
        mem_usage: Some(edge::mem_usage),
        digest: Some(edge::digest),
        free: Some(edge::free),
        aux_load: Some(edge::aux_load),
        // Servers up to 7.0 know the first, later ones prefer the second.
        aux_save: Some(edge::aux_save),
        aux_save2: Some(edge::aux_save_if_any),
        aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as c_int,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
    };
    let name = text(TYPE_NAME);
    // SAFETY: the context is alive; name and methods outlive the call, which copies them.
    let made =
        unsafe { server!(RedisModule_CreateDataType)(ctx.raw, name.as_ptr(), ENCODING, &raw mut methods) };
    if made.is_null() {
        return Err(format!("the server refused the data type {TYPE_NAME}"));
    }
    LOCK_TYPE.store(made, Ordering::Relaxed);
    Ok(())
}

/// Registers every command of the catalogue, with its documentation.
pub(crate) fn commands(ctx: Ctx<'_>) -> Result<(), String> {
    COMMANDS.iter().try_for_each(|spec| command(ctx, spec))
}

/// Puts the commands into ACL categories, where the server lets modules do so (7.2; a category of our
/// own: 7.4). Comes last: a category of our own stays behind if the load fails after it.
pub(crate) fn acl_categories(ctx: Ctx<'_>) {
    // SAFETY: functions that older servers lack; the context is alive and strings outlive the calls.
    unsafe {
        let Some(set) = raw::RedisModule_SetCommandACLCategories else { return };
        // A category that is there already, left behind by a failed load, serves as well.
        let own = raw::RedisModule_AddACLCategory.map(|add| add(ctx.raw, c"redlock".as_ptr()));
        for spec in &COMMANDS {
            let name = text(spec.name);
            let command = server!(RedisModule_GetCommand)(ctx.raw, name.as_ptr());
            let categories = text(&format!("{} redlock", spec.acl));
            if own.is_none() || set(command, categories.as_ptr()) != OK {
                set(command, text(spec.acl).as_ptr());
            }
        }
    }
}

/// Registers a setting; the server checks its range.
pub(crate) fn number_setting(
    ctx: Ctx<'_>,
    which: usize,
    name: &str,
    default: u64,
    range: (u64, u64),
) -> Result<(), String> {
    let c_name = text(name);
    // SAFETY: the context is alive, the name outlives the call; the last argument is a number that
    // comes back to the callbacks and is never followed.
    let done = unsafe {
        server!(RedisModule_RegisterNumericConfig)(
            ctx.raw,
            c_name.as_ptr(),
            long(default),
            raw::REDISMODULE_CONFIG_DEFAULT,
            long(range.0),
            long(range.1),
            Some(edge::get_number),
            Some(edge::set_number),
            None,
            ptr::without_provenance_mut::<c_void>(which),
        )
    };
    if done == OK { Ok(()) } else { Err(format!("the server refused the setting redlock.{name}")) }
}

/// Registers the setting `redlock.restart-grace`.
pub(crate) fn grace_setting(ctx: Ctx<'_>, default: Grace) -> Result<(), String> {
    let names = Grace::NAMES.map(text);
    let mut name_starts = names.each_ref().map(|name| name.as_ptr());
    let numbers: [c_int; Grace::NAMES.len()] = [0, 1, 2];
    // SAFETY: the context is alive; names and numbers outlive the call, which copies them.
    let done = unsafe {
        server!(RedisModule_RegisterEnumConfig)(
            ctx.raw,
            c"restart-grace".as_ptr(),
            c_int::try_from(default as usize).unwrap_or(0),
            raw::REDISMODULE_CONFIG_DEFAULT,
            name_starts.as_mut_ptr(),
            numbers.as_ptr(),
            c_int::try_from(numbers.len()).unwrap_or(0),
            Some(edge::get_grace),
            Some(edge::set_grace),
            None,
            ptr::null_mut(),
        )
    };
    if done == OK { Ok(()) } else { Err("the server refused the setting redlock.restart-grace".to_owned()) }
}

/// Takes the values that the server's configuration has for the settings.
pub(crate) fn load_settings(ctx: Ctx<'_>) -> Result<(), String> {
    // SAFETY: the context is alive.
    let done = unsafe { server!(RedisModule_LoadConfigs)(ctx.raw) };
    if done == OK { Ok(()) } else { Err("a redlock.* setting has a value that is not allowed".to_owned()) }
}

/// Asks to be told what happens in the server.
pub(crate) fn subscriptions(ctx: Ctx<'_>) -> Result<(), String> {
    // Each in its first version.
    for id in [
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_CRON_LOOP,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_SHUTDOWN,
    ] {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is alive; the callback is a function.
        if unsafe { server!(RedisModule_SubscribeToServerEvent)(ctx.raw, event, Some(edge::server_event)) }
            != OK
        {
            return Err(format!("the server refused the subscription to event {id}"));
        }
    }
    // SAFETY: as above.
    unsafe {
        // Of single keys only evictions: for more the server would pay at every `DEL` and `EXPIRE`.
        let evictions = raw::REDISMODULE_NOTIFY_EVICTED;
        server!(RedisModule_SubscribeToKeyspaceEvents)(ctx.raw, evictions, Some(edge::key_evicted));
        server!(RedisModule_RegisterInfoFunc)(ctx.raw, Some(edge::info_section));
    }
    Ok(())
}

/// Asks to be told of keys that go away and of connections that close.
pub(crate) fn subscriptions_for_waiters(ctx: Ctx<'_>) {
    let closings = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_CLIENT_CHANGE, dataver: 1 };
    let savings = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_PERSISTENCE, dataver: 1 };
    // A key is free after `DEL`, `RENAME`, `MOVE` and their like, and when a plain client's lock runs out.
    let departures = raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EXPIRED;
    // SAFETY: the context is alive; the callbacks are functions.
    unsafe {
        server!(RedisModule_SubscribeToServerEvent)(ctx.raw, closings, Some(edge::server_event));
        server!(RedisModule_SubscribeToServerEvent)(ctx.raw, savings, Some(edge::server_event));
        server!(RedisModule_SubscribeToKeyspaceEvents)(ctx.raw, departures, Some(edge::key_changed));
    }
}

fn command(ctx: Ctx<'_>, spec: &Spec) -> Result<(), String> {
    let (name, flags) = (text(spec.name), text(spec.flags));
    // SAFETY: the context is alive, the strings outlive the calls.
    let command = unsafe {
        server!(RedisModule_CreateCommand)(
            ctx.raw,
            name.as_ptr(),
            edge::function_of(spec.verb),
            flags.as_ptr(),
            0,
            0,
            0,
        );
        server!(RedisModule_GetCommand)(ctx.raw, name.as_ptr())
    };
    if command.is_null() {
        return Err(format!("the server refused the command {}", spec.name));
    }
    let mut texts = Texts::default();
    let mut key_specs = [key_spec(spec), empty_key_spec()];
    let mut args = arguments(spec.args, &mut texts);
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: texts.keep(spec.summary),
        complexity: texts.keep(spec.complexity),
        since: texts.keep(SINCE),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: spec.arity,
        key_specs: if spec.keys == KeyWords::None { ptr::null_mut() } else { key_specs.as_mut_ptr() },
        args: if spec.args.is_empty() { ptr::null_mut() } else { args.as_mut_ptr() },
    };
    // SAFETY: everything that `info` points to is alive; the server copies it.
    let done = unsafe { server!(RedisModule_SetCommandInfo)(command, &raw const info) };
    if done == OK { Ok(()) } else { Err(format!("the server refused the documentation of {}", spec.name)) }
}

/// Strings that must live until the server has copied them.
#[derive(Default)]
struct Texts {
    strings: Vec<CString>,
    blocks: Vec<Box<[raw::RedisModuleCommandArg]>>,
}

impl Texts {
    fn keep(&mut self, string: &str) -> *const c_char {
        let string = text(string);
        // The bytes of a CString stay where they are when it moves.
        let start = string.as_ptr();
        self.strings.push(string);
        start
    }
}

/// Arguments in the server's form; the last one is empty and ends the list.
fn arguments(args: &[Arg], texts: &mut Texts) -> Vec<raw::RedisModuleCommandArg> {
    let mut made: Vec<_> = args.iter().map(|arg| argument(arg, texts)).collect();
    made.push(raw::RedisModuleCommandArg {
        name: ptr::null(),
        type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        key_spec_index: 0,
        token: ptr::null(),
        summary: ptr::null(),
        since: ptr::null(),
        flags: 0,
        deprecated_since: ptr::null(),
        subargs: ptr::null_mut(),
        display_text: ptr::null(),
    });
    made
}

fn argument(arg: &Arg, texts: &mut Texts) -> raw::RedisModuleCommandArg {
    let mut flags = raw::REDISMODULE_CMD_ARG_NONE;
    if arg.token.is_some() {
        flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL;
    }
    if arg.repeats {
        flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE;
    }
    let mut subargs = ptr::null_mut();
    let type_ = match arg.kind {
        ArgKind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        ArgKind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::Block(parts) => {
            let mut block = arguments(parts, texts).into_boxed_slice();
            subargs = block.as_mut_ptr();
            texts.blocks.push(block);
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK
        }
    };
    raw::RedisModuleCommandArg {
        name: texts.keep(arg.name),
        type_,
        key_spec_index: if arg.kind == ArgKind::Key { 0 } else { -1 },
        token: arg.token.map_or(ptr::null(), |token| texts.keep(token)),
        summary: ptr::null(),
        since: ptr::null(),
        flags: c_int::try_from(flags).unwrap_or(0),
        deprecated_since: ptr::null(),
        subargs,
        display_text: ptr::null(),
    }
}

/// What a command does to its keys, in the server's words.
pub(super) fn key_flags(access: Access) -> u32 {
    let read_write = raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS;
    match access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Update => read_write | raw::REDISMODULE_CMD_KEY_UPDATE,
        Access::Delete => read_write | raw::REDISMODULE_CMD_KEY_DELETE,
    }
}

fn key_spec(spec: &Spec) -> raw::RedisModuleCommandKeySpec {
    let mut made = empty_key_spec();
    made.flags = key_flags(spec.access).into();
    made.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    made.bs.index.pos = 1;
    match spec.keys {
        KeyWords::None | KeyWords::First => {
            made.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
            made.fk.range.lastkey = 0;
            made.fk.range.keystep = 1;
            made.fk.range.limit = 0;
        }
        KeyWords::Counted => {
            made.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
            made.fk.keynum.keynumidx = 0;
            made.fk.keynum.firstkey = 1;
            made.fk.keynum.keystep = 1;
        }
    }
    made
}

/// All zero: what ends the list of key specifications.
fn empty_key_spec() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: the structure consists of integers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}
