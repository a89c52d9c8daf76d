//! The nodes that may hold the lock for the client.

use crate::{LockReply, NodeSet};

/// The nodes that may hold the lock, or have the client queued. A release goes to all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaybeHeld {
    nodes: NodeSet,
    /// The nodes that no reply removes: the client asked them more than once, so the reply to one request
    /// does not tell the outcome of the others; or they handed the lock over.
    sticky: NodeSet,
    /// The nodes with a request in doubt: it got no reply in time, or its connection broke, and it may still
    /// arrive.
    in_doubt: NodeSet,
}

impl MaybeHeld {
    /// All nodes: the first request went to each of them.
    pub(super) fn all(count: usize) -> Self {
        Self { nodes: NodeSet::first(count), sticky: NodeSet::EMPTY, in_doubt: NodeSet::EMPTY }
    }

    pub(super) fn nodes(self) -> NodeSet {
        self.nodes
    }

    pub(super) fn is_in_doubt(self, node: usize) -> bool {
        self.in_doubt.contains(node)
    }

    /// Notes the reply of a node to a request for the lock.
    pub(super) fn note_reply(&mut self, node: usize, reply: &LockReply) {
        match reply {
            LockReply::Number(_) | LockReply::Queued { .. } => self.nodes.insert(node),
            LockReply::Failed(failure) if failure.may_have_happened() => self.in_doubt.insert(node),
            _ if self.sticky.contains(node) => {}
            _ => self.nodes.remove(node),
        }
    }

    /// Notes that a node handed the lock over.
    pub(super) fn note_grant(&mut self, node: usize) {
        self.nodes.insert(node);
        self.sticky.insert(node);
    }

    /// Notes that the client asks these nodes for the lock again.
    pub(super) fn note_asked_again(&mut self, nodes: NodeSet) {
        for node in nodes.iter() {
            if self.nodes.contains(node) {
                self.sticky.insert(node);
            }
            self.nodes.insert(node);
        }
    }
}
