//! What a node says without being asked: that it has given a lock to somebody who waits.

use super::Frame;
use bytes::Bytes;

/// What a message that answers no command says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// From now on one is told.
    Subscribed,
    /// Something for those who wait.
    News(Bytes),
    Nothing,
}

/// Reads the parts of such a message: a push in RESP3, a plain list in RESP2.
pub(crate) fn said(parts: &[Frame]) -> Said {
    let kind = parts.first().and_then(Frame::as_bytes);
    match (kind, parts.get(2)) {
        (Some(b"subscribe"), _) => Said::Subscribed,
        (Some(b"message"), Some(Frame::Bulk(message))) => Said::News(message.clone()),
        _ => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_those_who_wait_is_heard() {
        let bulk = |text: &'static str| Frame::Bulk(Bytes::from_static(text.as_bytes()));
        let cases = [
            (vec![bulk("subscribe"), bulk("c"), Frame::Integer(1)], Said::Subscribed),
            (
                vec![bulk("message"), bulk("c"), bulk("stamped 1")],
                Said::News(Bytes::from_static(b"stamped 1")),
            ),
            (vec![bulk("message"), bulk("c")], Said::Nothing),
            (vec![bulk("message"), bulk("c"), Frame::Integer(1)], Said::Nothing),
            (vec![bulk("unsubscribe"), bulk("c"), Frame::Integer(0)], Said::Nothing),
            (vec![bulk("pong"), bulk("")], Said::Nothing),
            (vec![], Said::Nothing),
        ];
        for (parts, expected) in cases {
            assert_eq!(said(&parts), expected, "{parts:?}");
        }
    }
}
