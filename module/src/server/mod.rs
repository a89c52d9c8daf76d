//! The server's C interface, with a safe face. All unsafe code of the module is in this folder.
//!
//! Three facts carry every `unsafe` block here:
//!
//! 1. The server calls the module on its main thread only, with two exceptions. The `free` callback of
//!    the data type may run on a background thread; it gets no context. And another module may call a
//!    command from a thread of its own, as long as it has the server's global lock. [`confined`] enforces it.
//! 2. Pointers that come with a call (context, arguments, open keys, I/O handles) are valid until that
//!    call returns. The types that wrap them have a lifetime and are made at the edge only.
//! 3. The functions of [`api::require_all`] were found when the module was loaded, or it was not.

#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "bindgen widens the server's small constants")]

pub(crate) mod api;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod command_keys;
pub(crate) mod confined;
pub(crate) mod edge;
pub(crate) mod file_lock;
pub(crate) mod io;
pub(crate) mod keys;
pub(crate) mod register;
pub(crate) mod scan;
