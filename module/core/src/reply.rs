//! What a node answers.

/// A reply, before it is put into bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A fence, or 1 and 0 for done and not done.
    Integer(u64),
    /// Not granted, or nothing there.
    Nil,
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
