//! What a node answers.

/// A reply, before it is put into bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A fence, or 1 and 0 for done and not done.
    Integer(u64),
    /// Not granted, or nothing there.
    Nil,
    /// Not granted, and queued: a list of three numbers.
    Queued {
        /// What is left to the holder; -1 if it has no deadline that this node knows.
        left_ms: i64,
        /// The place in the line, counted from 1.
        position: u64,
        /// The holder's ticket; 0 if it has none.
        ticket: u64,
    },
    /// Named values; a flat list on RESP2.
    Map(Vec<(&'static str, Value)>),
}

/// A value in a [`Reply::Map`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Integer(u64),
    /// Any bytes.
    Bytes(Vec<u8>),
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
