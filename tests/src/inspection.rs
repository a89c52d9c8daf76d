//! The reply to `REDLOCK.INSPECT`.

use crate::{Answer, Wire};

/// The reply to `REDLOCK.INSPECT`. The fields may come in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectReply {
    /// The fence of the lock.
    pub fence: i64,
    /// The label that the holder passed; empty if none.
    pub label: Vec<u8>,
    /// Time left, in milliseconds.
    pub pttl: i64,
    /// Time since the lock was granted, in milliseconds.
    pub held_ms: i64,
    /// How often the holder has extended the lock.
    pub extensions: i64,
    /// How many waiters are queued.
    pub waiters: i64,
    /// For each holder of a shared lock, in the order of the grants: label, time left and time since the grant in
    /// milliseconds, extensions. Empty for an exclusive lock.
    pub holders: Vec<HolderReply>,
}

/// One holder of a shared lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderReply {
    /// The label that the holder passed; empty if none.
    pub label: Vec<u8>,
    /// Time left, in milliseconds.
    pub pttl: i64,
    /// Time since the holder got the lock, in milliseconds.
    pub held_ms: i64,
    /// How often the holder has extended its lease.
    pub extensions: i64,
}

impl Wire {
    /// Inspects a lock. `None` when the key is not a held lock.
    ///
    /// # Panics
    /// When the reply is neither nil nor a map of exactly the known fields.
    pub fn inspect(&mut self, key: impl AsRef<[u8]>) -> Option<InspectReply> {
        let answer = self.call(&[b"REDLOCK.INSPECT", key.as_ref()]);
        if answer == Answer::Nil {
            return None;
        }
        // An older module knows no shared locks.
        let is_older = answer.field("mode").is_none();
        assert_eq!(answer.pairs().len(), if is_older { 6 } else { 8 }, "fields of {answer:?}");
        let field = |name: &str| answer.field(name).unwrap_or_else(|| panic!("no {name} in {answer:?}"));
        let Answer::Text(label) = field("label") else { panic!("the label is not a text: {answer:?}") };
        let holder = |holder: &Answer| {
            assert_eq!(holder.pairs().len(), 4, "fields of {holder:?}");
            let field = |name: &str| holder.field(name).unwrap_or_else(|| panic!("no {name} in {holder:?}"));
            HolderReply {
                label: field("label").string().into_bytes(),
                pttl: field("pttl").int(),
                held_ms: field("held-ms").int(),
                extensions: field("extensions").int(),
            }
        };
        let mut holders = Vec::new();
        if !is_older {
            holders.extend(field("holders").list().iter().map(holder));
            let mode = if holders.is_empty() { "exclusive" } else { "shared" };
            assert_eq!(field("mode"), &Answer::text(mode), "{answer:?}");
        }
        Some(InspectReply {
            fence: field("fence").int(),
            label: label.clone(),
            pttl: field("pttl").int(),
            held_ms: field("held-ms").int(),
            extensions: field("extensions").int(),
            waiters: field("waiters").int(),
            holders,
        })
    }
}
