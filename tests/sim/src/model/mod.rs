//! Everything that can happen on a small scale: the production code of client and node, explored state by state.
//!
//! The simulator draws histories at random; this goes through all of them, as far as a few nodes, a few clients
//! and a few faults go. It starts from one state, does everything that can be done there, and goes on from every
//! state that is new, breadth first. So it ends when there is nothing new (the report says so), and the first
//! violation that it finds comes with a shortest way to it.
//!
//! Nothing of the rules is written again here. Nodes are [`redlock_core::MemoryNode`], clients
//! [`redlock_proto::LockState`]; requests pass between them as the words of commands.
//!
//! | file | subject |
//! |---|---|
//! | `bounds.rs` | how much may happen, what is looked for, and which rule is left out on purpose |
//! | `node.rs` | every distinct state of a node once, and each step from it |
//! | `client.rs` | every distinct state of a session once, with what its driver and its holder do |
//! | `link.rs` | what is on its way between a client and a node |
//! | `speech.rs` | requests and replies as small numbers |
//! | `state.rs` | a state of the whole world, and how it is kept |
//! | `world.rs` | what can happen next, what comes of it, and what must be true of every state |
//! | `freedom.rs` | whether the lock can be had again, from every state |
//! | `search.rs` | goes through all states, and tells how a bad one comes about |
//!
//! # What can happen
//!
//! A client asks, extends, releases or gives up at any time; it goes on after its short wait for an answer that may
//! spare a second round, or later. Messages take any time, and are lost if they never arrive. They overtake each
//! other except on one connection in one direction. A node may be counted as silent while its answer is on its way, a
//! connection may break with requests on their way that still arrive, a request may arrive a second time. A node
//! loses its memory at any time. A tick of the clock comes between any two of these, as often as it likes: there is
//! no last tick, because nothing is kept but what is left of each time.
//!
//! # What must be true
//!
//! In every state: at most one client believes in the lock; no two holders have had the same number, and who began
//! after another held has the larger one; no client that stopped believing believes again. And from every state,
//! if all that is on its way is lost: no lock is left after its time to live, and the lock can be had again, with
//! any one node away, under a larger number than any before. These are the rules of `checks.rs` as far as one lock
//! has them; its [`Violation`](crate::Violation) says which was broken.
//!
//! # What is left out
//!
//! - One key, no label. Several keys, waiting, replicas, persistence and the storage are not here.
//! - All clocks run at one rate, in ticks; drift is the simulator's. The time to live is chosen such that client,
//!   node and quarantine all round to the same tick, so that there is no slack.
//! - A client makes one attempt. One that tries again is another client here, so that the order between its
//!   attempts, which a real connection keeps, is not relied on.
//! - A node that is down is one whose messages do not arrive; it loses its memory when it comes back. What was on
//!   its way to it survives that, which a real connection would not allow: more can happen here, not less.
//! - How long a quarantine still lasts is not told to clients, who would only use it to choose when to try again.
//! - Whatever a client hears once it has ended is not delivered. Instead, whenever one ends, every answer known so
//!   far is tried on it at once, and none may bring it back.
//! - Releases and extensions of a client that has ended are taken out where they can change nothing any more, unless
//!   the bounds let requests come late.
//!
//! # Why states may be merged
//!
//! Nodes are alike, so of all orders of the nodes one is kept; clients are numbered in the order in which they
//! begin. A client is compared by the whole of its session, on a clock that starts with it. A node is compared by a
//! summary: the lock, the number, the durable state, what is left of its quarantine, and which late requests it bars.
//! That a summary says enough is not taken on trust: after each exploration, nodes that came to one summary by
//! different ways are taken through everything that was tried there, and must answer the same.

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
