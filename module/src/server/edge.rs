//! Calls from the server into the module. No panic passes: it would take the server down.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis_module::raw;
use redlock_core::catalog::Verb;
use redlock_core::grammar::counted_keys;
use redlock_core::reply::Value;
use redlock_core::{LockId, Reply};

use super::api::{Ctx, ERR, Level, OK, bytes, log_line, long, server};
use super::io::Io;
use super::keys::{lock_of_key, lock_of_value, value_of_lock};
use super::register::key_flags;
use crate::commands::{Answer, Command, Outcome};
use crate::restart::Grace;
use crate::state::State;
use crate::{commands, config, events, handoff, info, load, persist, restart, state, sweep};

/// A command with at most so many words needs no allocation for them.
const USUAL_WORDS: usize = 8;

/// The words of a call, for its length. Of a command the first is its name.
pub(crate) struct Words<'a> {
    raw: &'a [*mut raw::RedisModuleString],
    bytes: &'a [&'a [u8]],
}

impl<'a> Words<'a> {
    /// All words.
    pub(crate) fn all(&self) -> &'a [&'a [u8]] {
        self.bytes
    }

    /// One word; empty if there is none.
    pub(crate) fn word(&self, number: usize) -> &'a [u8] {
        self.bytes.get(number).copied().unwrap_or(&[])
    }

    /// One word as the server has it; the name if there is none.
    pub(super) fn raw(&self, number: usize) -> *mut raw::RedisModuleString {
        self.raw.get(number).copied().unwrap_or(self.raw[0])
    }

    /// Reads the words of a call by the server from the one with number `first` on. Those before it, which
    /// are known, are left empty: each word takes a call.
    ///
    /// # Safety
    /// `argv` must point to `argc` valid strings that live until `run` returns.
    #[inline]
    unsafe fn read<R>(
        argv: *mut *mut raw::RedisModuleString,
        argc: c_int,
        first: usize,
        run: impl FnOnce(&Words<'_>) -> R,
    ) -> R {
        let count = usize::try_from(argc).unwrap_or(0);
        // SAFETY: as the caller promises; a null pointer has no words.
        let raw = if argv.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(argv, count) } };
        // SAFETY: every word is a valid string for as long as `run` runs.
        let read = |word: &*mut raw::RedisModuleString| unsafe { bytes(*word) };
        if raw.len() <= USUAL_WORDS {
            let mut usual = [const { MaybeUninit::<&[u8]>::uninit() }; USUAL_WORDS];
            for (number, (slot, word)) in usual.iter_mut().zip(raw).enumerate() {
                slot.write(if number < first { &[] } else { read(word) });
            }
            // SAFETY: as many slots as there are words were just written.
            let bytes = unsafe { std::slice::from_raw_parts(usual.as_ptr().cast::<&[u8]>(), raw.len()) };
            run(&Words { raw, bytes })
        } else {
            let all: Vec<&[u8]> = raw.iter().map(read).collect();
            run(&Words { raw, bytes: &all })
        }
    }
}

/// Runs `body`, the module's part of every call by the server. A panic becomes `None` and a line in the log, and
/// `errno` is afterwards what it was before: Redis 7.0 reads `errno` after it has told modules that loading failed,
/// and takes `ENOENT` for "there is no file".
#[inline]
fn guarded<R>(what: &str, body: impl FnOnce() -> R) -> Option<R> {
    let errno = errno::errno();
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let value = match outcome {
        Ok(value) => Some(value),
        Err(panic) => {
            log_panic(what, &*panic);
            None
        }
    };
    errno::set_errno(errno);
    value
}

#[cold]
fn log_panic(what: &str, panic: &(dyn Any + Send)) {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown");
    log_line(Level::Warning, &format!("internal error in {what}: {said}"));
}

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
        // SAFETY: so are its words.
        guarded("finding keys", || unsafe {
            Words::read(argv, argc, 1, |words| tell_keys(ctx, verb, words))
        });
        return OK;
    }
    // SAFETY: so are its words.
    let answer = guarded(verb.name(), || unsafe {
        Words::read(argv, argc, 1, |words| commands::run(ctx, words, run))
    });
    // The reply comes last and cannot fail, so a command is answered exactly once.
    match answer {
        Some(Ok(Answer::Reply(Reply::Integer(number)))) => ctx.reply_integer(number),
        answer => reply(ctx, answer),
    }
    OK
}

#[inline(never)]
fn reply(ctx: Ctx<'_>, answer: Option<Outcome>) {
    match answer {
        Some(Ok(Answer::Reply(Reply::Integer(number)))) => ctx.reply_integer(number),
        Some(Ok(Answer::Reply(Reply::Nil))) => ctx.reply_nil(),
        Some(Ok(Answer::Reply(Reply::Queued { left_ms, position, ticket }))) => {
            ctx.reply_array(3);
            ctx.reply_signed(left_ms);
            ctx.reply_integer(position);
            ctx.reply_integer(ticket);
        }
        Some(Ok(Answer::Reply(Reply::Map(pairs)))) => reply_map(ctx, &pairs),
        Some(Ok(Answer::Done)) => ctx.reply_ok(),
        Some(Err(fault)) => ctx.reply_error(&fault.to_string()),
        None => ctx.reply_error("ERR redlock: internal error; see the server's log"),
    }
}

fn tell_keys(ctx: Ctx<'_>, verb: Verb, words: &Words<'_>) {
    let flags = key_flags(verb.spec().access);
    for word in counted_keys(words.all()).unwrap_or(0..0) {
        ctx.key_is_at(word, flags);
    }
}

fn reply_map(ctx: Ctx<'_>, pairs: &[(&'static str, Value)]) {
    ctx.reply_map(pairs.len());
    for (name, value) in pairs {
        ctx.reply_bytes(name.as_bytes());
        match value {
            Value::Integer(number) => ctx.reply_integer(*number),
            Value::Bytes(content) => ctx.reply_bytes(content),
        }
    }
}

macro_rules! commands {
    ($($function:ident => $verb:ident),* $(,)?) => {
        $(unsafe extern "C" fn $function(ctx: *mut raw::RedisModuleCtx, argv: *mut *mut raw::RedisModuleString, argc: c_int) -> c_int {
            // SAFETY: called by the server with a live context and its words.
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

/// The server loads the module.
///
/// # Safety
/// Called by the server only.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context and the module's arguments are alive until this function returns.
    // Nothing allocates before the table of functions is there: the allocator is in it.
    unsafe {
        if raw::Export_RedisModule_Init(
            ctx,
            c"redlock".as_ptr(),
            load::MODULE_VERSION,
            raw::REDISMODULE_APIVER_1 as c_int,
        ) == ERR
        {
            return ERR;
        }
        let ctx = Ctx::new(ctx);
        match guarded("loading", || Words::read(argv, argc, 0, |words| load::load(ctx, words.all()))) {
            Some(Ok(())) => OK,
            Some(Err(why)) => {
                ctx.log(Level::Warning, &format!("not loaded: {why}"));
                ERR
            }
            None => ERR,
        }
    }
}

pub(super) unsafe extern "C" fn sweep_timer(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    // SAFETY: called by the server with a live context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded("the sweep", || sweep::on_timer(ctx));
}

pub(super) unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    let lock: Option<LockId> = guarded("loading a lock", || persist::load_lock(io, version)).flatten();
    lock.map_or(std::ptr::null_mut(), value_of_lock)
}

pub(super) unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("saving a lock", || lock_of_value(value).map(|lock| persist::save_lock(io, lock)));
}

pub(super) unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("rewriting a lock", || {
        if let Some(image) = lock_of_value(value).and_then(persist::image_of) {
            io.emit_lock(key, &image);
        }
    });
}

/// The one callback that the server may make on a background thread.
pub(super) unsafe extern "C" fn free(value: *mut c_void) {
    guarded("freeing a lock", || lock_of_value(value).map(state::note_freed));
}

pub(super) unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    guarded("measuring a lock", || lock_of_value(value).map_or(0, persist::bytes_of)).unwrap_or(0)
}

pub(super) unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guarded("digesting a lock", || {
        let Some(image) = lock_of_value(value).and_then(persist::image_of) else { return };
        // SAFETY: called by the server with a live handle; the bytes outlive the calls. Time is left
        // out: it differs between copies of one dataset.
        unsafe {
            for part in [&image.owner, &image.label] {
                server!(RedisModule_DigestAddStringBuffer)(digest, part.as_ptr().cast(), part.len());
            }
            server!(RedisModule_DigestAddLongLong)(digest, long(image.fence));
            server!(RedisModule_DigestEndSequence)(digest);
        }
    });
}

/// What servers up to 7.0 call: something must be written.
pub(super) unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _: c_int) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("saving the fences", || persist::save_fences(io));
}

/// What later servers call: a dataset that never had a lock is left without a trace of the module.
pub(super) unsafe extern "C" fn aux_save_if_any(io: *mut raw::RedisModuleIO, _: c_int) {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    guarded("saving the fences", || {
        if persist::has_fences() {
            persist::save_fences(io)
        }
    });
}

pub(super) unsafe extern "C" fn aux_load(io: *mut raw::RedisModuleIO, version: c_int, _: c_int) -> c_int {
    // SAFETY: called by the server with a live handle.
    let io = unsafe { Io::new(io) };
    match guarded("loading the fences", || persist::load_fences(io, version)) {
        Some(true) => OK,
        _ => ERR,
    }
}

/// A section of `INFO` being written.
pub(crate) struct InfoWriter(*mut raw::RedisModuleInfoCtx);

impl InfoWriter {
    pub(crate) fn number(&self, name: &str, value: u64) {
        let name = super::api::text(name);
        // SAFETY: called by the server with a live handle; the name outlives the call.
        unsafe { server!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), value) };
    }

    pub(crate) fn text(&self, name: &str, value: &str) {
        let (name, value) = (super::api::text(name), super::api::text(value));
        // SAFETY: as above.
        unsafe { server!(RedisModule_InfoAddFieldCString)(self.0, name.as_ptr(), value.as_ptr()) };
    }
}

pub(super) unsafe extern "C" fn info_section(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // A crash report is written from a signal handler, in the middle of anything.
    if for_crash_report != 0 {
        return;
    }
    guarded("INFO", || {
        // SAFETY: called by the server with a live handle; the section takes the module's name.
        if unsafe { server!(RedisModule_InfoAddSection)(ctx, std::ptr::null()) } == OK {
            info::write(&InfoWriter(ctx));
        }
    });
}

pub(super) unsafe extern "C" fn get_number(_: *const c_char, which: *mut c_void) -> c_longlong {
    guarded("CONFIG GET", || config::get(which.addr())).and_then(|value| value.try_into().ok()).unwrap_or(0)
}

pub(super) unsafe extern "C" fn set_number(
    _: *const c_char,
    value: c_longlong,
    which: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server has checked the range.
    let value = u64::try_from(value).unwrap_or(0);
    if guarded("CONFIG SET", || config::set(which.addr(), value)).is_some() { OK } else { ERR }
}

pub(super) unsafe extern "C" fn get_grace(_: *const c_char, _: *mut c_void) -> c_int {
    let grace = guarded("CONFIG GET", config::grace).unwrap_or_default();
    c_int::try_from(grace as usize).unwrap_or(0)
}

pub(super) unsafe extern "C" fn set_grace(
    _: *const c_char,
    value: c_int,
    _: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    let grace = Grace::from_number(usize::try_from(value).unwrap_or(0));
    if guarded("CONFIG SET", || config::set_grace(grace)).is_some() { OK } else { ERR }
}

pub(super) unsafe extern "C" fn server_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    // SAFETY: called by the server with a live context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded("a server event", || match event.id {
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
            events::role_changed(ctx, sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA);
        }
        raw::REDISMODULE_EVENT_LOADING => match sub {
            raw::REDISMODULE_SUBEVENT_LOADING_ENDED => events::loading(ctx, false),
            raw::REDISMODULE_SUBEVENT_LOADING_FAILED => events::loading_failed(),
            _ => events::loading(ctx, true),
        },
        raw::REDISMODULE_EVENT_CRON_LOOP => events::cron(ctx),
        raw::REDISMODULE_EVENT_FORK_CHILD => events::forked(),
        raw::REDISMODULE_EVENT_PERSISTENCE => handoff::forget_images(),
        raw::REDISMODULE_EVENT_SHUTDOWN => restart::shut_down(),
        raw::REDISMODULE_EVENT_FLUSHDB
            if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START && !data.is_null() =>
        {
            // SAFETY: for this event the server passes this structure.
            let flush = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
            restart::flushed(ctx, u16::try_from(flush.dbnum).ok());
        }
        raw::REDISMODULE_EVENT_CLIENT_CHANGE
            if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED && !data.is_null() =>
        {
            // SAFETY: for this event the server passes this structure.
            let client = unsafe { &*data.cast::<raw::RedisModuleClientInfo>() };
            handoff::connection_closed(ctx, client.id);
        }
        raw::REDISMODULE_EVENT_SWAPDB if !data.is_null() => {
            // SAFETY: for this event the server passes this structure.
            let swap = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
            events::databases_swapped(swap.dbnum_first, swap.dbnum_second);
        }
        _ => {}
    });
}

pub(super) unsafe extern "C" fn key_evicted(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    _: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: called by the server with a live context and a string of its own.
    let (ctx, key) = unsafe { (Ctx::new(ctx), bytes(key)) };
    guarded("an eviction", || restart::evicted(ctx, u16::try_from(ctx.database()).unwrap_or(0), key));
    OK
}

pub(super) unsafe extern "C" fn key_changed(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: called by the server with a live context, a text that ends with NUL and a string of its own.
    let (ctx, event, key) = unsafe { (Ctx::new(ctx), CStr::from_ptr(event), bytes(key)) };
    guarded("a change of a key", || {
        let database = u16::try_from(ctx.database()).unwrap_or(0);
        handoff::key_changed(ctx, event.to_bytes(), database, key);
    });
    OK
}

pub(super) unsafe extern "C" fn scanned_key(
    _: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    found: *mut c_void,
) {
    guarded("a search", || {
        // SAFETY: called by the server, during `Scan::step`, with a live key (or none), its name, and
        // the list that `step` has passed.
        unsafe {
            if let Some(lock) = lock_of_key(key) {
                (*found.cast::<Vec<(LockId, Vec<u8>)>>()).push((lock, bytes(name).to_vec()));
            }
        }
    });
}
