//! Conversions of strings and numbers between the server and Rust.

use std::ffi::{CString, c_longlong};

use redis_module::raw;

use super::api::server;
use super::context::Ctx;

/// A string of the server that the module has created.
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
    // SAFETY: the server returns the start and the length; both are valid as long as the string.
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

/// A text of the contract as a C string, made by the compiler.
macro_rules! c_text {
    ($text:expr) => {{
        const TEXT: &str = $text;
        const BYTES: [u8; TEXT.len() + 1] = {
            let mut bytes = [0; TEXT.len() + 1];
            let mut at = 0;
            while at < TEXT.len() {
                bytes[at] = TEXT.as_bytes()[at];
                at += 1;
            }
            bytes
        };
        const C_TEXT: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(&BYTES) {
            Ok(text) => text,
            Err(_) => panic!("a text of the contract has no NUL in it"),
        };
        C_TEXT
    }};
}
pub(super) use c_text;
