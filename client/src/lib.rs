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
//! // Work, and pass guard.fence() to your storage with every write.
//! guard.release().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The model
//!
//! A lock is a **lease**. The client holds it for its time to live, counted from before the client sent the
//! request, minus an allowance for clocks that run at different rates. [`Guard::remaining`] returns how much
//! of that validity is left. During the validity no other client holds the lock, except readers that share it, if
//! the rate of every clock stays within the allowance ([`Drift`]). The time that the clocks *show* does not matter.
//!
//! The client measures time on clocks that no process can set. On Linux, Android and Apple systems these
//! clocks run while the machine is suspended: a lock that expires during the suspension has ended when the
//! machine resumes. On other systems the clock may stop meanwhile. A hypervisor that pauses a virtual machine
//! may hide the pause from all of its clocks.
//!
//! An operating system can pause a process at any moment, for longer than any lease, and the process
//! continues as if nothing had happened. No lock service can prevent that. So every lock has a **fence**: a
//! number that increases from holder to holder (readers that share a lock may have the same), whatever clocks and
//! pauses do. Storage that gets the fence with every write can reject an earlier holder. [`FenceGate`] is such a
//! check for data in memory; the examples show such checks in SQL and in Redis.
//!
//! # Which call?
//!
//! | you want | call |
//! |---|---|
//! | to run work under a lock, however long it takes | [`LockManager::with_lock`] |
//! | the same, at most for a time, or on several resources | [`LockManager::with_lock_timeout`], [`LockManager::with_lock_many`] |
//! | to run a periodic job unless another client runs it | [`LockManager::try_with_lock`] |
//! | to hold a lock with a guard | [`LockManager::acquire`], [`LockManager::acquire_timeout`] |
//! | to do something only if no other client does it | [`LockManager::try_acquire`] |
//! | to let several clients hold a lock together, and exclude writers | [`LockManager::acquire_shared`], [`LockManager::with_shared_lock`] |
//! | to elect a leader among several processes | [`LockManager::election`] |
//! | to lock several resources at once, without deadlock | [`LockManager::acquire_many`] |
//! | to extend a lock in the background, up to a limit | [`Guard::keep_alive`] |
//! | to see who holds a lock | [`LockManager::inspect`] |
//! | to check the health of the nodes | [`LockManager::health`], [`LockManager::ask`] |
//! | to let a replacement node vote | [`LockManager::admit_node`]; the program `redlock admit` computes its arguments |
//! | to break a lock whose holder does not release it | [`LockManager::break_on_node`]; the program `redlock break` does it on all nodes |
//! | to pass a lock to another process | [`Guard::detach`], [`LockManager::detached`] |
//! | to be sure that a program that ends leaves no lock behind | [`Guard::release`], or drop and [`LockManager::flush`] |
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
//! | [`Error::NoQuorum`] | too few nodes gave a usable answer | yes |
//! | [`Error::Rejected`] | the nodes that did not reject the request are no majority | only if they do not vote yet |
//! | [`Error::Quarantined`] | nodes may have forgotten locks and are in quarantine | yes, after the time in the error |
//! | [`Error::Expired`] | the nodes granted the lock too late; the client released it | yes |
//! | [`Error::FencesApart`] | the client raised no majority of the nodes to one fence within the time to live; it released the lock | yes, unless a node is broken |
//! | [`Error::Timeout`] | the time limit of the call has passed | yes |
//! | [`Error::Lost`] | the client held the lock and no longer holds it | no: first check what the work has done |
//! | [`Error::Invalid`], [`Error::Config`], [`Error::NoRuntime`] | the call or the configuration is wrong | no |
//!
//! The first eight contain the resource and the answer of every node. [`Error::is_retryable`] returns the
//! last column.
//!
//! # Cancellation
//!
//! Every future of this crate can be dropped at any moment. After the drop of an acquire, the client releases
//! everything that the nodes may have granted. An extension or a release continues in the background.
//! Dropping a [`Guard`] releases the lock in the background and does not block while the runtime runs. The
//! documentation of each method repeats this.
//!
//! # The end of a program
//!
//! ```no_run
//! # use redlock_client::{Error, LockManager};
//! # use std::time::Duration;
//! # async fn work() -> Result<(), Error> { Ok(()) }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! # let locks = LockManager::builder().nodes(["redis://one"]).build()?;
//! let guard = locks.acquire("orders:42", Duration::from_secs(30)).await?;
//! let outcome = work().await; // no `?` before the release
//! guard.release().await;
//! outcome
//! # }
//! ```
//!
//! This is the sure way: `release` returns when a majority of the nodes has released the lock, and
//! [`LockManager::flush`] does the same for guards that were dropped.
//!
//! A program that ends without them also releases its locks in most cases. When a runtime shuts down, the client
//! sends the releases of all dropped guards, and waits for the replies for at most the node timeout, and at most
//! 250 ms. A guard that is dropped after its runtime sends its release over the same connections. So `?`,
//! `return` and a panic in `main` leave no lock behind on nodes that the client is connected to. Three things do: a
//! process that is killed or calls [`std::process::exit`], a runtime that ends with `shutdown_background`, and a
//! guard that is never dropped, such as a guard in a `static`. Those locks expire.
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
//! The user also needs `+select` for a database other than 0, and `+type` if [`LockManager::inspect`] is to
//! show locks that other clients acquired with `SET NX PX`.
//!
//! # Observability
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

//!
//! # Other crates in this interface
//!
//! [`Guard::cancellation_token`] returns the token of `tokio-util` 0.7, and a [`Node`] can be made from the
//! `ConnectionInfo` of `redis` 1. A new major version of one of these crates is a new major version of this crate.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod acquire;
mod acquire_shared;
mod admit;
#[cfg(feature = "blocking")]
pub mod blocking;
mod break_lock;
mod builder;
mod clock;
mod connect;
mod detached;
mod driver;
mod election;
mod error;
mod fence_gate;
mod guard;
mod health;
mod inspect;
mod join_all;
mod keep_alive;
mod keys;
mod lock_handle;
mod lock_shared;
mod manager;
pub mod memory;
mod node;
mod node_state;
mod node_watch;
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
pub use election::{Election, Leader, Leadership, Observer};
pub use error::{Error, NodeAnswer, QuorumReport};
pub use fence_gate::{FenceGate, StaleFence};
pub use guard::{Detached, Guard};
pub use health::{GroupStanding, Health, NodeHealth};
pub use inspect::{Inspection, NodeInspection};
pub use lock_handle::LockHandle;
pub use lock_shared::LostReason;
pub use manager::LockManager;
pub use node::Node;
#[cfg(feature = "tls")]
pub use node::Tls;
pub use node_state::{NodeStanding, NodeState};
pub use owner::Owner;
pub use query::{NodeReply, Query, Response};
pub use queue_support::WaitPolicy;
pub use redlock_contract::{ErrorCode, HighWater, NonVoting, NonVotingReason, Origin};
pub use redlock_proto::admission;
pub use redlock_proto::inspection::{HolderInfo, LockInfo, LockStatus};
pub use redlock_proto::retry::RetryContext;
pub use redlock_proto::{Drift, Failure, FailureKind, Quorum, ReleaseOutcome, Retry, Vote};
pub use report::{NodeRelease, ReleaseReport};
pub use sharded::{ShardHealth, ShardedLocks};

/// Compiles the code of the crate's README with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The same for the guides of shared locks and elections.
#[cfg(doctest)]
#[doc = include_str!("../SHARED.md")]
#[doc = include_str!("../ELECTION.md")]
struct Guides;
