//! An exhaustive search of a small system: the production code of client and node, explored state by state.
//!
//! The simulator draws histories at random; the model visits all of them, within a few nodes, a few clients
//! and a few faults. It starts from one state, takes every possible step from it, and continues from every
//! new state, breadth first. It ends when there is no new state (the report says so), and the first violation
//! that it finds comes with a shortest path to it.
//!
//! The model implements none of the rules again. Nodes are [`redlock_core::MemoryNode`], clients
//! [`redlock_proto::LockState`]; requests pass between them as the arguments of commands.
//!
//! | file | subject |
//! |---|---|
//! | `bounds.rs` | the bounds, which invariants are checked, and which rule is disabled |
//! | `node.rs` | every distinct state of a node once, and each step from it |
//! | `client.rs` | every distinct state of a client once, with its driver and its holder |
//! | `link.rs` | the messages in flight between a client and a node |
//! | `speech.rs` | requests and replies as small numbers |
//! | `state.rs` | a state of the whole system, and how it is stored |
//! | `world.rs` | the possible steps, their results, and the invariants of every state |
//! | `freedom.rs` | whether the lock can be acquired again, from every state |
//! | `search.rs` | visits all states, and prints the path to a violation |
//!
//! # Steps
//!
//! A client begins, extends, releases or gives up at any time. It continues after its short wait for a reply
//! that may spare a second round, or later. Messages take any time, and are lost if they never arrive. They
//! overtake each other except on one connection in one direction. A client may count a node as silent while
//! its reply is in flight, a connection may break while requests in flight still arrive, and a request may
//! arrive a second time. A node loses its memory at any time. A clock tick comes between any two of these,
//! any number of times: there is no last tick, because a state contains only the remaining times.
//!
//! # Invariants
//!
//! In every state: at most one client believes that it holds the lock; no two holders have had the same
//! fence, and a holder that began after another one held has the larger fence; no client that stopped
//! believing believes again. From every state, if all messages in flight are lost: no lock is left after its
//! time to live, and the lock can be acquired again, with any one node unreachable, with a larger fence than
//! any before. These are the invariants of `checks.rs` for one lock; its [`Violation`](crate::Violation) says
//! which one was broken.
//!
//! # What the model does not cover
//!
//! - One key, no label. Several keys, waiting, replicas, persistence and the storage are not in the model.
//! - All clocks run at one rate, in ticks; the simulator covers drift. The time to live is chosen such that
//!   client, node and quarantine all round to the same tick, so that there is no slack.
//! - A client makes one attempt. A second attempt is another client here, so the model does not rely on the
//!   order between attempts that a real connection keeps.
//! - A node that is down is one whose messages do not arrive; it loses its memory when it restarts. Messages
//!   in flight to it survive that, which a real connection does not allow: more can happen here, not less.
//! - The replies do not contain how long a quarantine still lasts. Clients would only use it to choose when
//!   to retry.
//! - Replies to a client that has ended are not delivered. Instead, when a client ends, every reply seen so
//!   far is tried on it at once, and none may make its lock valid again.
//! - Releases and extensions of a client that has ended are removed when they can change nothing any more,
//!   unless the bounds allow late requests.
//!
//! # Why states may be merged
//!
//! Nodes are interchangeable, so one order of the nodes represents all; clients are numbered in the order in
//! which they begin. Clients are compared by their whole lock state, on a clock that starts with it. Nodes
//! are compared by a summary: the lock, the fence, the durable state, the remaining quarantine, and which
//! late requests the node rejects. An audit proves that the summary is sufficient: after each exploration,
//! nodes that reached one summary by different paths repeat everything that was tried there, and must answer
//! the same.

mod bounds;
mod client;
mod freedom;
mod link;
mod node;
mod search;
mod speech;
mod state;
mod world;

pub use bounds::{Bounds, Laws, Mistake};
pub use search::{Counterexample, Report, explore};
