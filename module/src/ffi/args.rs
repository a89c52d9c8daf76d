//! The arguments of a call, as the server passes them. `redlock_core::grammar` parses them.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use redis_module::raw;

use super::convert::bytes;

/// The largest number of arguments that need no allocation.
const USUAL_ARGS: usize = 8;

/// The arguments of a call, valid until it returns. The first argument of a command is its name.
pub(crate) struct CallArgs<'a> {
    raw: &'a [*mut raw::RedisModuleString],
    bytes: &'a [&'a [u8]],
}

impl<'a> CallArgs<'a> {
    /// All arguments.
    pub(crate) fn all(&self) -> &'a [&'a [u8]] {
        self.bytes
    }

    /// One argument; empty if it does not exist.
    pub(crate) fn arg(&self, number: usize) -> &'a [u8] {
        self.bytes.get(number).copied().unwrap_or(&[])
    }

    /// One argument as a string of the server; the first argument if it does not exist.
    pub(super) fn raw(&self, number: usize) -> *mut raw::RedisModuleString {
        self.raw.get(number).copied().unwrap_or(self.raw[0])
    }

    /// Reads the arguments of a call from index `first` on. The arguments before it stay empty: the caller knows them,
    /// and each read costs a call of the server.
    ///
    /// # Safety
    /// `argv` must point to `argc` valid strings that live until `run` returns.
    #[inline]
    pub(super) unsafe fn read<R>(
        argv: *mut *mut raw::RedisModuleString,
        argc: c_int,
        first: usize,
        run: impl FnOnce(&CallArgs<'_>) -> R,
    ) -> R {
        let count = usize::try_from(argc).unwrap_or(0);
        // SAFETY: as the caller promises; a null pointer has no arguments.
        let raw = if argv.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(argv, count) } };
        // SAFETY: every argument is a valid string for as long as `run` runs.
        let read = |arg: &*mut raw::RedisModuleString| unsafe { bytes(*arg) };
        if raw.len() <= USUAL_ARGS {
            let mut usual = [const { MaybeUninit::<&[u8]>::uninit() }; USUAL_ARGS];
            for (number, (slot, arg)) in usual.iter_mut().zip(raw).enumerate() {
                slot.write(if number < first { &[] } else { read(arg) });
            }
            // SAFETY: as many slots as there are arguments were just written.
            let bytes = unsafe { std::slice::from_raw_parts(usual.as_ptr().cast::<&[u8]>(), raw.len()) };
            run(&CallArgs { raw, bytes })
        } else {
            let all: Vec<&[u8]> = raw.iter().map(read).collect();
            run(&CallArgs { raw, bytes: &all })
        }
    }
}
