//! What a server tells about one lock.

use crate::{Answer, Wire};

/// The reply to `REDLOCK.INSPECT`, read by field name so that the order of fields is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectReply {
    /// The number handed out with the lock.
    pub fence: i64,
    /// The holder's remark about itself; empty when it made none.
    pub label: Vec<u8>,
    /// Time left, in milliseconds.
    pub pttl: i64,
    /// Time since the lock was granted, in milliseconds.
    pub held_ms: i64,
    /// How often the holder has moved the deadline.
    pub extensions: i64,
    /// Who queues for it.
    pub waiters: i64,
}

impl Wire {
    /// Asks for a lock; nothing when the key is not a held lock.
    ///
    /// # Panics
    /// When the reply is neither nil nor a map of exactly the known fields.
    pub fn inspect(&mut self, key: impl AsRef<[u8]>) -> Option<InspectReply> {
        let answer = self.call(&[b"REDLOCK.INSPECT", key.as_ref()]);
        if answer == Answer::Nil {
            return None;
        }
        assert_eq!(answer.pairs().len(), 6, "fields of {answer:?}");
        let field = |name: &str| answer.field(name).unwrap_or_else(|| panic!("no {name} in {answer:?}"));
        let Answer::Text(label) = field("label") else { panic!("a label is a text: {answer:?}") };
        Some(InspectReply {
            fence: field("fence").int(),
            label: label.clone(),
            pttl: field("pttl").int(),
            held_ms: field("held-ms").int(),
            extensions: field("extensions").int(),
            waiters: field("waiters").int(),
        })
    }
}
