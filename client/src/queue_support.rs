//! Whether this client can queue on a node for a lock that another client holds.

use std::fmt;

/// Whether this client can queue on a node, and hear of the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueSupport {
    /// The node queues this client and pushes the grant.
    Yes,
    /// The client polls instead.
    No(NoQueue),
    /// The client is not connected yet, or the node has not confirmed the subscription yet.
    Unknown,
}

/// Why this client polls a node instead of queueing on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoQueue {
    /// [`Builder::wait_in_line`](crate::Builder::wait_in_line) is off.
    TurnedOff,
    /// The module on the node is too old.
    OldModule,
    /// The connection speaks RESP2, which cannot push.
    Resp2,
    /// The node refused the subscription to the channel of grants: mostly for want of permission.
    SubscribeRefused,
}

impl fmt::Display for NoQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TurnedOff => "queueing is turned off",
            Self::OldModule => "the node's module is too old to queue clients",
            Self::Resp2 => "the connection speaks RESP2, which cannot push grants",
            Self::SubscribeRefused => {
                "the node refused SUBSCRIBE: the user needs +subscribe and &redlock:grant:*"
            }
        })
    }
}
