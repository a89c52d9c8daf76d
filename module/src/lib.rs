//! `libredlock.so`: a Redis or Valkey server around `redlock-core`.
//!
//! Nothing is decided here. A command's arguments become a request, the core decides, and its answer
//! becomes a reply, a change of the keyspace and a line for replicas and the AOF.
//!
//! | to find | look in |
//! |---|---|
//! | what happens when the module is loaded | `load.rs` |
//! | how a command runs | `commands.rs` |
//! | how locks are saved and loaded | `persist.rs` |
//! | when locks that ran out are deleted | `sweep.rs` |
//! | when values and records of locks end | `reclaim.rs` |
//! | how a lock goes on to the next in line | `handoff.rs` |
//! | how a renamed lock is found | `search.rs` |
//! | what the server tells the module | `events.rs` |
//! | who the server is, and what survives a crash | `restart.rs`, `state_file.rs` |
//! | settings | `config.rs` |
//! | everything `unsafe` | `ffi/` |

// Rust's memory is the server's: it shows in `used_memory` and obeys `maxmemory`.
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

mod commands;
mod config;
mod events;
mod ffi;
mod handoff;
mod info;
mod load;
mod persist;
mod reclaim;
mod restart;
mod search;
mod state;
mod state_file;
mod sweep;
