//! Distributed locks with fences over a majority of independent Redis or Valkey masters.
//!
//! The nodes are servers with the module `libredlock.so` loaded; three or five of them, independent of one
//! another. A lock is held when a majority of them holds it, so that no single server is a point of failure.
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
//! A lock is a **lease**: it is yours for its time to live, counted from before the request was sent, less an
//! allowance for clocks that run at different rates. [`Guard::remaining`] tells what is left. Within that time
//! nobody else holds the lock, if every clock involved keeps its rate within the allowance ([`Drift`]); what
//! the clocks *show* never matters.
//!
//! Time is measured on clocks that nobody can set. On Linux, Android and Apple systems they go on while the machine
//! sleeps, so that a lock whose time ran out under a closed lid is over when the lid is opened; elsewhere the nearest
//! clock there is may stand still meanwhile. A hypervisor that pauses a machine may hide that from all its clocks.
//!
//! A process can be paused at any moment, for longer than any lease, and go on as if nothing had happened. No
//! lock service can prevent that. So every lock comes with a **fence**, a number that only grows from holder
//! to holder whatever clocks and pauses do, and a storage that is shown the fence with every write can turn a
//! holder of the past away. [`FenceGate`] is such a check for things in memory; the examples show one
//! statement each for SQL and for Redis.
//!
//! # Which call?
//!
//! | you want | call |
//! |---|---|
//! | to run some work under a lock, however long it takes | [`LockManager::with_lock`] |
//! | a lock to hold on to yourself | [`LockManager::acquire`], [`LockManager::acquire_timeout`] |
//! | to do something only if nobody else is at it | [`LockManager::try_acquire`] |
//! | several resources at once, without deadlock | [`LockManager::acquire_many`] |
//! | to go on holding in the background, up to a bound | [`Guard::keep_alive`] |
//! | to know who holds a lock | [`LockManager::inspect`] |
//! | to know whether the nodes are well | [`LockManager::health`], [`LockManager::ask`] |
//! | to let a replacement node vote | [`LockManager::admit_node`]; the program `redlock admit` counts its arguments |
//! | to hand a lock to another process | [`Guard::detach`], [`LockManager::detached`] |
//! | to end a program without leaving locks behind | [`Guard::release`], or drop and [`LockManager::flush`] |
//! | more locks in a second than one group of nodes grants | [`ShardedLocks`] |
//! | locks in your own tests, without a server | [`LockManager::in_memory`], [`memory::MemoryNodes`] |
//! | locks in a program without async | the module `blocking`, with the feature of that name |
//!
//! # Losing a lock
//!
//! A lock is lost when its time runs out and nobody extended it, or when a majority of the nodes says that it
//! is gone. [`Guard::lost`] and [`Guard::cancellation_token`] tell, in the first case a little *before* the
//! time is up and whatever the network does: the signal is a timer on the client's own clock, not the failure
//! of a request. Ask [`Guard::is_valid`] before a step that must not be taken without the lock; it costs
//! nothing. [`LockManager::with_lock`] drops the work when the lock is lost.
//!
//! What is over stays over: a late answer never revives a lock. A failed [`Guard::extend`] takes nothing away
//! either: the lock is held for as long as it was.
//!
//! # Errors
//!
//! | error | meaning | again? |
//! |---|---|---|
//! | [`Error::Contended`] | somebody else holds it | yes |
//! | [`Error::NoQuorum`] | too few nodes gave a usable answer | yes, unless a majority turned the request down |
//! | [`Error::Quarantined`] | nodes may have forgotten locks and wait | yes, after the time it names |
//! | [`Error::Expired`] | granted too late to be of use, and given back | yes |
//! | [`Error::FencesApart`] | granted under fences that no majority can be raised to agree on, and given back | if a node did not answer |
//! | [`Error::Timeout`] | the time that you allowed is up | as you like |
//! | [`Error::Lost`] | it was held and is no longer | not blindly |
//! | [`Error::Invalid`], [`Error::Config`], [`Error::NoRuntime`] | the call or the set-up is wrong | no |
//!
//! The first seven name the resource and what every node answered. [`Error::is_retryable`] is the last column.
//!
//! # Cancelling
//!
//! Every future of this crate can be dropped at any moment. A dropped acquire frees whatever the nodes may have
//! granted; a dropped extension or release takes its course. Dropping a [`Guard`] frees the lock in the
//! background and never blocks. Each method says so again.
//!
//! # Runtimes
//!
//! The task that talks to the nodes lives on the runtime on which a manager is used first. When that runtime shuts
//! down, the next call starts another task on its own. An acquire or a release that was under way goes on there; whatever else
//! was fails with [`Error::NoRuntime`]. But a runtime that is kept and not run, such as a `current_thread` one outside `block_on`, serves nobody, and whoever uses the same
//! manager on another one waits for it: use a manager per runtime, or one runtime that goes on.
//!
//! # Rights
//!
//! A user on the nodes needs no more than this (`app:*` being the manager's key prefix):
//!
//! ```text
//! ACL SETUSER locks on >password resetkeys ~app:* resetchannels &redlock:grant:* -@all +redlock.acquire
//!     +redlock.extend +redlock.release +redlock.macquire +redlock.mextend +redlock.mrelease +redlock.inspect
//!     +redlock.node +subscribe
//! ```
//!
//! and `+select` for another database than 0, `+type` to let
//! [`LockManager::inspect`] see what others have locked with `SET NX PX`.
//!
//! # Observing
//!
//! With the features `metrics` and `tracing`:
//!
#![doc = include_str!("../OBSERVING.md")]
//!
//! # How it works
//!
//! One task per manager talks to all nodes over one connection each. Commands of concurrent callers to one node
//! share a write, and an acquire is one request to each node and done at the third answer of five. A node that
//! does not answer is not waited for again until it does. The deciding code is
//! [`redlock_proto`], without sockets or clocks, so that it runs in simulations as well.
//!
//! # From the command line
//!
//! The program `redlock` (package `redlock-cli`) runs commands under a lock and shows the state of the nodes.
//! `CLI.md` beside this crate describes it.
//!
//! # Features
//!
//! | feature | what for |
//! |---|---|
//! | `tls` | `rediss://` addresses, own certificate authority and client certificate |
//! | `sentinel` | a node may be a master that Sentinel watches |
//! | `tracing` | spans and events |
//! | `metrics` | counters and histograms through the `metrics` facade |
//! | `blocking` | the same for programs without async |

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

/// The README's code, compiled with the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
