//! One reply, and how to read it.

use bytes::Bytes;
use std::fmt;

/// One reply of a node, in RESP2 or RESP3; where both have a form for the same thing, it is the same frame.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// An integer: a fence, a time left, 1 or 0.
    Integer(i64),
    /// Nothing, in any of its three spellings.
    Nil,
    /// A short text without line ends, such as `OK`.
    Simple(Bytes),
    /// A refusal. Its text may quote what was sent: show it with [`Frame::error_message`].
    Error(Bytes),
    /// A string of any bytes; a verbatim string without its format.
    Bulk(Bytes),
    /// A list, or RESP3's set.
    Array(Vec<Frame>),
    /// Pairs, in the order in which they came.
    Map(Vec<(Frame, Frame)>),
    /// A message that answers no command.
    Push(Vec<Frame>),
    /// RESP3's true or false.
    Boolean(bool),
    /// RESP3's doubles and big numbers, as they were spelled: no command of ours computes with them.
    Numeral(Bytes),
}

/// The longest complaint that is shown. What follows is of no use to a reader.
const MAX_ERROR_MESSAGE: usize = 300;

impl Frame {
    /// The number, if it is one.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The bytes of a string.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(bytes) | Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a string, if it is text.
    pub(crate) fn as_text(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The items of a list.
    pub(crate) fn as_items(&self) -> Option<&[Frame]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Names and values, of a map (RESP3) or of the flat list that stands for one (RESP2).
    ///
    /// Anything else has no fields, and a last name without a value is none.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&Frame, &Frame)> {
        let (pairs, flat) = match self {
            Self::Map(pairs) => (pairs.as_slice(), &[][..]),
            Self::Array(items) => (&[][..], items.as_slice()),
            _ => (&[][..], &[][..]),
        };
        let pairs = pairs.iter().map(|(name, value)| (name, value));
        let flat = flat.chunks_exact(2).filter_map(|pair| match pair {
            [name, value] => Some((name, value)),
            _ => None,
        });
        pairs.chain(flat)
    }

    /// The value of the field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&Frame> {
        self.fields().find_map(|(key, value)| (key.as_bytes() == Some(name.as_bytes())).then_some(value))
    }

    /// What the server complained of, fit to be shown; `None` if it did not.
    ///
    /// A server that does not know a command quotes its arguments, and ours carry owners and passwords: the
    /// text ends before them.
    pub(crate) fn error_message(&self) -> Option<String> {
        let Self::Error(bytes) = self else { return None };
        let text = String::from_utf8_lossy(bytes);
        let told = text.split("with args").next().unwrap_or_default();
        let told = told.trim_end_matches([' ', ',']).chars();
        Some(told.take(MAX_ERROR_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect())
    }
}

/// As [`Frame::error_message`] does, it keeps the arguments that an error may quote to itself.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "Integer({number})"),
            Self::Nil => f.write_str("Nil"),
            Self::Simple(bytes) => write!(f, "Simple({bytes:?})"),
            Self::Error(_) => write!(f, "Error({:?})", self.error_message().unwrap_or_default()),
            Self::Bulk(bytes) => write!(f, "Bulk({bytes:?})"),
            Self::Array(items) => f.debug_tuple("Array").field(items).finish(),
            Self::Map(pairs) => f.debug_tuple("Map").field(pairs).finish(),
            Self::Push(items) => f.debug_tuple("Push").field(items).finish(),
            Self::Boolean(truth) => write!(f, "Boolean({truth})"),
            Self::Numeral(bytes) => write!(f, "Numeral({bytes:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Frame {
        Frame::Bulk(Bytes::from_static(text.as_bytes()))
    }

    fn error(text: &'static str) -> Frame {
        Frame::Error(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_map_and_its_flat_form_have_the_same_fields() {
        let map = Frame::Map(vec![(text("fence"), Frame::Integer(7)), (text("label"), text("x"))]);
        let flat = Frame::Array(vec![text("fence"), Frame::Integer(7), text("label"), text("x")]);
        assert!(map.fields().eq(flat.fields()));
        for frame in [map, flat] {
            assert_eq!(frame.field("fence").and_then(Frame::as_integer), Some(7));
            assert_eq!(frame.field("label").and_then(Frame::as_text), Some("x"));
            assert_eq!(frame.field("pttl"), None);
        }
    }

    #[test]
    fn what_is_no_map_has_no_fields() {
        for frame in [Frame::Nil, Frame::Integer(1), text("fence"), Frame::Array(vec![text("fence")])] {
            assert_eq!(frame.fields().count(), 0, "{frame:?}");
        }
    }

    #[test]
    fn a_complaint_does_not_quote_the_arguments() {
        let known = [
            (
                "ERR unknown command 'REDLOCK.ACQUIRE', with args beginning with: 'k' 'hush' ",
                "ERR unknown command 'REDLOCK.ACQUIRE'",
            ),
            (
                "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `hush`, ",
                "ERR unknown command `HELLO`",
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                "LOADING Redis is loading the dataset in memory",
            ),
        ];
        for (said, shown) in known {
            assert_eq!(error(said).error_message().as_deref(), Some(shown));
            assert!(!format!("{:?}", error(said)).contains("hush"), "{said}");
        }
        assert_eq!(Frame::Nil.error_message(), None);
    }

    #[test]
    fn a_complaint_is_one_short_line() {
        let long = Frame::Error(Bytes::from([b"a\nb\x1b\xff".as_slice(), &[b'x'; 9999]].concat()));
        let shown = long.error_message().expect("a complaint");
        assert_eq!(shown.chars().count(), MAX_ERROR_MESSAGE);
        assert!(shown.starts_with("a b \u{fffd}x"), "{shown}");
    }
}
