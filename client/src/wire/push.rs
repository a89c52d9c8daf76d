//! What a node says without being asked: that it has given a lock to somebody who waits.

use super::Frame;
use bytes::Bytes;

/// What a message that answers no command says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// From now on one is told.
    Subscribed,
    /// Something for those who wait.
    Message(Bytes),
    Other,
}

/// Reads the parts of such a message: a push in RESP3, a plain list in RESP2.
pub(crate) fn push(parts: &[Frame]) -> Push {
    let kind = parts.first().and_then(Frame::as_bytes);
    match (kind, parts.get(2)) {
        (Some(b"subscribe"), _) => Push::Subscribed,
        (Some(b"message"), Some(Frame::Bulk(message))) => Push::Message(message.clone()),
        _ => Push::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_those_who_wait_is_heard() {
        let bulk = |text: &'static str| Frame::Bulk(Bytes::from_static(text.as_bytes()));
        let cases = [
            (vec![bulk("subscribe"), bulk("c"), Frame::Integer(1)], Push::Subscribed),
            (
                vec![bulk("message"), bulk("c"), bulk("stamped 1")],
                Push::Message(Bytes::from_static(b"stamped 1")),
            ),
            (vec![bulk("message"), bulk("c")], Push::Other),
            (vec![bulk("message"), bulk("c"), Frame::Integer(1)], Push::Other),
            (vec![bulk("unsubscribe"), bulk("c"), Frame::Integer(0)], Push::Other),
            (vec![bulk("pong"), bulk("")], Push::Other),
            (vec![], Push::Other),
        ];
        for (parts, expected) in cases {
            assert_eq!(push(&parts), expected, "{parts:?}");
        }
    }
}
