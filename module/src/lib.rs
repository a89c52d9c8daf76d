//! `libredlock.so`: the Redis and Valkey module around `redlock-core`.
//!
//! The module makes no decision about a lock or about the identity of the node. It turns the arguments of a
//! command into a request, the core decides, and the module turns the decision into a reply, a change of the
//! keyspace and an effect for replicas and the AOF.
//!
//! | to find | look in |
//! |---|---|
//! | how the module is loaded | `load.rs` |
//! | how a command runs | `commands.rs` |
//! | how locks are saved and loaded | `persist.rs` |
//! | when expired locks are deleted | `sweep.rs` |
//! | the life cycle of a lock's value and record | `reclaim.rs` |
//! | how a lock passes to the first waiter | `handoff.rs` |
//! | how a renamed lock is found | `search.rs` |
//! | events of the server | `events.rs` |
//! | the identity of the server, quarantines, the state file | `restart.rs`, `state_file.rs` |
//! | settings | `config.rs` |
//! | everything `unsafe` | `ffi/` |

// Rust allocates from the server: the memory counts in `used_memory` and towards `maxmemory`.
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
