//! Reading and writing the data set.

use std::ffi::c_void;
use std::marker::PhantomData;

use redis_module::raw;
use redlock_contract::commands::{Verb, option};
use redlock_core::image::LockImage;

use super::api::server;
use super::convert::{bytes, c_text, long};

/// A data set that the server loads, saves or rewrites, valid for one call.
#[derive(Clone, Copy)]
pub(crate) struct Io<'a> {
    raw: *mut raw::RedisModuleIO,
    call: PhantomData<&'a ()>,
}

impl<'a> Io<'a> {
    /// # Safety
    /// `raw` must be the handle of a call by the server that lasts at least as long as `'a`.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleIO) -> Self {
        Self { raw, call: PhantomData }
    }

    /// The key being loaded or saved.
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: the handle is alive; the name lives as long as the call.
        unsafe {
            let name = server!(RedisModule_GetKeyNameFromIO)(self.raw);
            if name.is_null() { &[] } else { bytes(name) }
        }
    }

    /// The database being loaded or saved.
    pub(crate) fn database(self) -> u16 {
        // SAFETY: the handle is alive.
        u16::try_from(unsafe { server!(RedisModule_GetDbIdFromIO)(self.raw) }).unwrap_or(0)
    }

    pub(crate) fn save_number(self, number: u64) {
        // SAFETY: the handle is alive.
        unsafe { server!(RedisModule_SaveUnsigned)(self.raw, number) };
    }

    pub(crate) fn save_bytes(self, content: &[u8]) {
        // SAFETY: the handle is alive, the bytes outlive the call.
        unsafe { server!(RedisModule_SaveStringBuffer)(self.raw, content.as_ptr().cast(), content.len()) };
    }

    /// `None` when the dataset ends or is broken here.
    pub(crate) fn load_number(self) -> Option<u64> {
        // SAFETY: the handle is alive.
        let number = unsafe { server!(RedisModule_LoadUnsigned)(self.raw) };
        self.is_sound().then_some(number)
    }

    /// `None` when the dataset ends or is broken here.
    pub(crate) fn load_bytes(self) -> Option<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the handle is alive, `len` outlives the call.
        let start = unsafe { server!(RedisModule_LoadStringBuffer)(self.raw, &raw mut len) };
        if start.is_null() {
            return None;
        }
        // SAFETY: the server passes a buffer of `len` bytes, which the module frees with the server's allocator.
        let content = unsafe {
            let content = std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec();
            server!(RedisModule_Free)(start.cast::<c_void>());
            content
        };
        self.is_sound().then_some(content)
    }

    fn is_sound(self) -> bool {
        // SAFETY: the handle is alive.
        unsafe { server!(RedisModule_IsIOError)(self.raw) == 0 }
    }

    /// Writes one holder of a lock to the AOF as the command that restores it.
    pub(super) fn emit_lock(self, key: *mut raw::RedisModuleString, lock: &LockImage, is_shared: bool) {
        // The last argument is the one of a shared lock: otherwise the format ends before it.
        let format = if is_shared { c"sbllclclcbc" } else { c"sbllclclcb" };
        // SAFETY: the handle is alive; `s` takes a string of the server, `b` bytes and their length, `l`
        // a long long, `c` a C string, in the order of the format.
        unsafe {
            server!(RedisModule_EmitAOF)(
                self.raw,
                c_text!(Verb::Apply.name()).as_ptr(),
                format.as_ptr(),
                key,
                lock.owner.as_ptr(),
                lock.owner.len(),
                long(lock.fence),
                long(lock.left_ms),
                c_text!(option::HELD).as_ptr(),
                long(lock.held_ms),
                c_text!(option::EXTENSIONS).as_ptr(),
                long(u64::from(lock.extensions)),
                c_text!(option::LABEL).as_ptr(),
                lock.label.as_ptr(),
                lock.label.len(),
                c_text!(option::SHARED).as_ptr(),
            );
        }
    }
}
