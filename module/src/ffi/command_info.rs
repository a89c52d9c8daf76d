//! The names, flags and documentation of the commands, as the server's `COMMAND` shows them.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use redis_module::raw;
use redlock_contract::commands::{Access, Arg, ArgKind, COMMANDS, KeyWords, SINCE, Spec};

use super::api::{OK, server};
use super::commands::function_of;
use super::context::Ctx;
use super::convert::text;

/// Registers every command of the catalogue, with its documentation.
pub(crate) fn commands(ctx: Ctx<'_>) -> Result<(), String> {
    COMMANDS.iter().try_for_each(|spec| command(ctx, spec))
}

/// Adds the commands to ACL categories, if the server supports it (7.2; a category of the module's own: 7.4). This is
/// the last step of the load: the server keeps a category of a module whose load fails afterwards.
pub(crate) fn acl_categories(ctx: Ctx<'_>) {
    // SAFETY: functions that older servers lack; the context is alive and strings outlive the calls.
    unsafe {
        let Some(set) = raw::RedisModule_SetCommandACLCategories else { return };
        // A category that a failed load has left behind is as good as a new one.
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

fn command(ctx: Ctx<'_>, spec: &Spec) -> Result<(), String> {
    let (name, flags) = (text(spec.name), text(spec.flags));
    // SAFETY: the context is alive, the strings outlive the calls.
    let command = unsafe {
        server!(RedisModule_CreateCommand)(
            ctx.raw,
            name.as_ptr(),
            function_of(spec.verb),
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
    let mut texts = OwnedTexts::default();
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

/// Strings and arguments that must live until the server has copied them.
#[derive(Default)]
struct OwnedTexts {
    strings: Vec<CString>,
    blocks: Vec<Box<[raw::RedisModuleCommandArg]>>,
}

impl OwnedTexts {
    fn keep(&mut self, string: &str) -> *const c_char {
        let string = text(string);
        // A move of a CString does not move its bytes.
        let start = string.as_ptr();
        self.strings.push(string);
        start
    }
}

/// Arguments in the server's form; the last one is empty and ends the list.
fn arguments(args: &[Arg], texts: &mut OwnedTexts) -> Vec<raw::RedisModuleCommandArg> {
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

fn argument(arg: &Arg, texts: &mut OwnedTexts) -> raw::RedisModuleCommandArg {
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
        ArgKind::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
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

/// The access of a command to its keys, as flags of the server.
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
