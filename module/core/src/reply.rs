//! The replies of a node.

/// A reply, before it is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A fence; or 1 if the command changed something, 0 if not.
    Integer(u64),
    /// The node did not grant the lock, or the lock does not exist.
    Nil,
    /// The node did not grant the lock and queued the request: a list of three numbers.
    Queued {
        /// The time left of the held lock, in milliseconds; -1 if the node does not know its deadline.
        left_ms: i64,
        /// The position in the wait queue, counted from 1.
        position: u64,
        /// The holder's ticket; 0 if it has none.
        ticket: u64,
    },
    /// A map of names to values; a flat list on RESP2.
    Map(Fields),
}

/// Names and values of a map.
pub type Fields = Vec<(&'static str, Value)>;

/// A value in a [`Reply::Map`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Integer(u64),
    /// Any bytes.
    Bytes(Vec<u8>),
    /// A list of maps; on RESP2 each is a flat list.
    Maps(Vec<Fields>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}
