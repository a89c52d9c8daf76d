//! Distributed locks with fences over a majority of independent Redis or Valkey masters.
//!
//! The nodes are three or five servers, independent of one another, with the module `libredlock.so` loaded. A
//! client holds a lock when a majority of the nodes has granted it, so that no single server is a point of
//! failure.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redlock_client::Error> {
//! use redlock_client::LockManager;
//! use std::time::Duration;
//!
//! # let real = || -> Result<LockManager, redlock_client::Error> {
//! let locks = LockManager::builder()
//!     .nodes(["redis://one:6379", "redis://two:6379", "redis://three:6379"])
//!     .build()?;
//! # Ok(locks) };
//! # let locks = LockManager::in_memory(3);
//!
//! let guard = locks.acquire("orders:42", Duration::from_secs(30)).await?;
//! // Work, and hand guard.fence() to every storage that the work writes to.
//! guard.release().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The model
//!
//! A lock is a **lease**. The client holds it for its time to live, counted from before the client sent the
//! request, minus an allowance for clocks that run at different rates. [`Guard::remaining`] returns the rest
//! of that validity. During the validity no other client holds the lock, if the rate of every clock stays
//! within the allowance ([`Drift`]). The time that the clocks *show* does not matter.
//!
//! The client measures time on clocks that no process can set. On Linux, Android and Apple systems these
//! clocks run while the machine is suspended: a lock that expires during the suspension has ended when the
//! machine resumes. On other systems the clock may stop meanwhile. A hypervisor that pauses a virtual machine
//! may hide the pause from all of its clocks.
//!
//! An operating system can pause a process at any moment, for longer than any lease, and the process
//! continues as if nothing had happened. No lock service can prevent that. So every lock has a **fence**: a
//! number that increases from holder to holder, whatever clocks and pauses do. A storage that gets the fence
//! with every write can reject an earlier holder. [`FenceGate`] is such a check for data in memory; the
//! examples show such checks in SQL and in Redis.
//!
//! # Which call?
//!
//! | you want | call |
//! |---|---|
//! | to run work under a lock, however long it takes | [`LockManager::with_lock`] |
//! | to hold a lock with a guard | [`LockManager::acquire`], [`LockManager::acquire_timeout`] |
//! | to do something only if no other client does it | [`LockManager::try_acquire`] |
//! | to lock several resources at once, without deadlock | [`LockManager::acquire_many`] |
//! | to extend a lock in the background, up to a limit | [`Guard::keep_alive`] |
//! | to see who holds a lock | [`LockManager::inspect`] |
//! | to check the health of the nodes | [`LockManager::health`], [`LockManager::ask`] |
//! | to let a replacement node vote | [`LockManager::admit_node`]; the program `redlock admit` computes its arguments |
//! | to pass a lock to another process | [`Guard::detach`], [`LockManager::detached`] |
//! | to end a program without leaving locks behind | [`Guard::release`], or drop and [`LockManager::flush`] |
//! | more locks a second than one group of nodes grants | [`ShardedLocks`] |
//! | locks in your own tests, without a server | [`LockManager::in_memory`], [`memory::MemoryNodes`] |
//! | locks in a program without async | the module `blocking`, with the feature of the same name |
//!
//! # Losing a lock
//!
//! A lock is lost when its validity ends without an extension, or when a majority of the nodes answers that
//! the client does not hold it. [`Guard::lost`] and [`Guard::cancellation_token`] signal the loss. If the
//! validity ends, they signal a little *before* the end, whatever the network does: the signal is a timer on
//! the client's own clock, not a failed request. Call [`Guard::is_valid`] before a step that needs the lock;
//! it costs nothing. [`LockManager::with_lock`] drops the work when the lock is lost.
//!
//! A lock that has ended stays ended: a late answer never revives it. A failed [`Guard::extend`] does not
//! shorten the validity of the lock.
//!
//! # Errors
//!
//! | error | meaning | retry? |
//! |---|---|---|
//! | [`Error::Contended`] | another client holds the lock | yes |
//! | [`Error::NoQuorum`] | too few nodes gave a usable answer | yes, unless a majority rejected the request |
//! | [`Error::Quarantined`] | nodes may have forgotten locks and are in quarantine | yes, after the time in the error |
//! | [`Error::Expired`] | the nodes granted the lock too late; the client released it | yes |
//! | [`Error::FencesApart`] | the client can raise no majority of the nodes to one fence; it released the lock | if a node did not answer |
//! | [`Error::Timeout`] | the time limit of the call has passed | yes |
//! | [`Error::Lost`] | the client held the lock and no longer holds it | no: first check the work |
//! | [`Error::Invalid`], [`Error::Config`], [`Error::NoRuntime`] | the call or the configuration is wrong | no |
//!
//! The first seven contain the resource and the answer of every node. [`Error::is_retryable`] returns the
//! last column.
//!
//! # Cancellation
//!
//! Every future of this crate can be dropped at any moment. After the drop of an acquire, the client releases
//! everything that the nodes may have granted. An extension or a release continues in the background.
//! Dropping a [`Guard`] releases the lock in the background and never blocks. The documentation of each
//! method repeats this.
//!
//! # Runtimes
//!
//! The driver, the task that talks to the nodes, runs on the runtime of the first call. When that runtime
//! shuts down, the next call starts a new driver on its own runtime. An acquire or a release that was in
//! flight continues there; every other call fails with [`Error::NoRuntime`].
//!
//! A runtime that exists but does not run, such as a `current_thread` runtime outside `block_on`, does not
//! run the driver: calls on other runtimes then wait for it. Use one manager per runtime, or one runtime that
//! keeps running.
//!
//! # Permissions
//!
//! A user on the nodes needs these permissions and no others (`app:` is the manager's key prefix):
//!
//! ```text
//! ACL SETUSER locks on >password resetkeys ~app:* resetchannels &redlock:grant:* -@all +redlock.acquire
//!     +redlock.extend +redlock.release +redlock.macquire +redlock.mextend +redlock.mrelease +redlock.inspect
//!     +redlock.node +subscribe
//! ```
//!
//! The user also needs `+select` for a database other than 0, and `+type` if [`LockManager::inspect`] shall
//! show locks that other clients acquired with `SET NX PX`.
//!
//! # Observability
//!
//! With the features `metrics` and `tracing`:
//!
#![doc = include_str!("../OBSERVING.md")]
//!
//! # How it works
//!
//! One task per manager talks to all nodes, over one connection per node. Commands of concurrent callers to
//! one node share a write. An acquire sends one request to each node, and succeeds at the third grant of five
//! nodes. The client does not wait again for a node that has timed out, until that node answers.
//! [`redlock_proto`] makes the decisions. It uses no sockets and no clocks, so that simulations run the same
//! code.
//!
//! # From the command line
//!
//! The program `redlock` (package `redlock-cli`) runs commands under a lock and shows the state of the nodes.
//! `CLI.md` in the directory of this crate describes it.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | `rediss://` addresses, a certificate authority and a client certificate of your own |
//! | `sentinel` | a node may be a master that Sentinel watches |
//! | `tracing` | spans and events |
//! | `metrics` | counters and histograms through the `metrics` facade |
//! | `blocking` | the same locks for programs without async |

#![forbid(unsafe_code)]

mod acquire;
mod admit;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod clock;
mod connect;
mod detached;
mod driver;
mod error;
mod extender;
mod fence_gate;
mod guard;
mod health;
mod inspect;
mod keep_alive;
mod keys;
mod lease;
mod lock_handle;
mod lock_shared;
mod manager;
pub mod memory;
mod node;
mod observe;
mod owner;
mod query;
mod queue_support;
mod report;
mod run_locked;
mod settings;
mod sharded;
mod ticket;
mod wire;

pub use builder::Builder;
pub use error::{Error, NodeAnswer, QuorumReport};
pub use fence_gate::{FenceGate, StaleFence};
pub use guard::{Detached, Guard};
pub use health::{Health, NodeHealth, NodeState};
pub use inspect::{Inspection, NodeInspection};
pub use lease::LostReason;
pub use lock_handle::LockHandle;
pub use manager::LockManager;
pub use node::Node;
#[cfg(feature = "tls")]
pub use node::Tls;
pub use owner::Owner;
pub use query::{NodeReply, Query, Response};
pub use queue_support::WaitPolicy;
pub use redlock_contract::{ErrorCode, Origin};
pub use redlock_proto::admission;
pub use redlock_proto::inspection::{LockInfo, LockStatus};
pub use redlock_proto::retry::RetryContext;
pub use redlock_proto::{Drift, Failure, FailureKind, ReleaseOutcome, Retry, Vote};
pub use report::{NodeRelease, ReleaseReport};
pub use sharded::{ShardHealth, ShardedLocks};

/// Compiles the code of the README with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
