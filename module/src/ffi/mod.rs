//! The safe interface to the server's C functions. All unsafe code of the module is in this folder.
//!
//! Every `unsafe` block here relies on three facts:
//!
//! 1. The server calls the module on its main thread only, with two exceptions. The `free` callback of the
//!    data type may run on a background thread; it gets no context. And another module may call a command
//!    from a thread of its own while that thread holds the server's global lock. [`confined`] enforces it.
//! 2. Pointers that come with a call (context, arguments, open keys, I/O handles) are valid until that
//!    call returns. The types that wrap them have a lifetime and are made in this folder only.
//! 3. The server has all functions of [`api::require_all`]; otherwise the module is not loaded.
//!
//! | to find | look in |
//! |---|---|
//! | the server's functions, and the check that they exist | `api.rs` |
//! | the guard around every call by the server, and `RedisModule_OnLoad` | `callbacks.rs` |
//! | the context of a call: databases, flags, messages, `INFO` of the server | `context.rs` |
//! | conversions of strings and numbers | `convert.rs` |
//! | log lines | `log.rs` |
//! | a command: its arguments, its keys, its reply | `commands.rs`, `args.rs`, `command_keys.rs`, `reply.rs` |
//! | the documentation of the commands | `command_info.rs` |
//! | an open key | `keys.rs` |
//! | keyspace notifications | `notifications.rs` |
//! | the data type of lock keys, and its saved form | `data_type.rs`, `io.rs` |
//! | effects for replicas and the AOF | `replication.rs` |
//! | events of the server, of connections and of keys | `events.rs` |
//! | settings, the section of `INFO`, the timer, a scan of the keys | `settings.rs`, `info.rs`, `timer.rs`, `scan.rs` |
//! | data that only the main thread uses | `confined.rs` |
//! | the machine: clocks, file locks, the processor's cache | `clock.rs`, `file_lock.rs`, `cache.rs` |

#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "bindgen widens the server's small constants")]

pub(crate) mod api;
pub(crate) mod args;
pub(crate) mod cache;
pub(crate) mod callbacks;
pub(crate) mod clock;
pub(crate) mod command_info;
pub(crate) mod command_keys;
pub(crate) mod commands;
pub(crate) mod confined;
pub(crate) mod context;
pub(crate) mod convert;
pub(crate) mod data_type;
pub(crate) mod events;
pub(crate) mod file_lock;
pub(crate) mod info;
pub(crate) mod io;
pub(crate) mod keys;
pub(crate) mod log;
mod notifications;
pub(crate) mod replication;
pub(crate) mod reply;
pub(crate) mod scan;
pub(crate) mod settings;
pub(crate) mod timer;
