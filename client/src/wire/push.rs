//! RESP3 pushes: messages that answer no command.

use super::Frame;
use bytes::Bytes;

/// A push, as far as a client that queues needs it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// The server confirms `SUBSCRIBE`.
    Subscribed,
    /// A message on the channel.
    Message(Bytes),
    /// Any other push.
    Other,
}

impl Push {
    /// Reads the elements of a push.
    pub(crate) fn parse(parts: &[Frame]) -> Self {
        let kind = parts.first().and_then(Frame::as_bytes);
        match (kind, parts.get(2)) {
            (Some(b"subscribe"), _) => Self::Subscribed,
            (Some(b"message"), Some(Frame::Bulk(message))) => Self::Message(message.clone()),
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmations_and_messages_are_read_and_other_pushes_ignored() {
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
            assert_eq!(Push::parse(&parts), expected, "{parts:?}");
        }
    }
}
