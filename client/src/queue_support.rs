//! Whether this client can queue on a node for a lock that another client holds.

use std::fmt;

/// How a call waits for a lock that another client holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitPolicy {
    /// The client queues on the nodes: a release hands the lock to the longest waiter in one round trip.
    ///
    /// The user needs `+subscribe` and `&redlock:grant:*` on every node. The connections must speak RESP3,
    /// which is the default. The client polls instead in these cases:
    ///
    /// - A node refuses the subscription.
    /// - The module of a node is too old.
    /// - A call without a time limit of its own has a [`Retry::custom`](crate::Retry::custom) policy.
    #[default]
    Queue,
    /// The client polls: it retries as [`Builder::retry`](crate::Builder::retry) says.
    Poll,
}

/// Whether this client can queue on a node and receive the grant push.
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
    /// [`Builder::wait_policy`](crate::Builder::wait_policy) is [`WaitPolicy::Poll`].
    TurnedOff,
    /// The module on the node is too old.
    OldModule,
    /// The connection speaks RESP2, which cannot push.
    Resp2,
    /// The node refused the subscription to the grant channel, usually because the user lacks the permission.
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
