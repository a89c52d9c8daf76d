//! One reply in RESP2 or RESP3.

use bytes::Bytes;
use redlock_contract::code::without_quoted_arguments;
use std::fmt;

/// One reply. Where RESP2 and RESP3 encode the same value differently, the frame is the same.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// An integer: a fence, a time in milliseconds, 1 or 0.
    Integer(i64),
    /// Nil, in any of its three encodings.
    Nil,
    /// A simple string, such as `OK`.
    Simple(Bytes),
    /// An error. Its text may quote arguments of the command: use [`Frame::error_message`] to show it.
    Error(Bytes),
    /// A bulk string, or a verbatim string without its format.
    Bulk(Bytes),
    /// An array or a set.
    Array(Vec<Frame>),
    /// A map, in the order of the server.
    Map(Vec<(Frame, Frame)>),
    /// A message that answers no command.
    Push(Vec<Frame>),
    /// A boolean.
    Boolean(bool),
    /// A double or a big number, as text: the client does not compute with them.
    Numeral(Bytes),
}

/// The longest error message that is shown, in characters.
const MAX_ERROR_MESSAGE: usize = 300;

impl Frame {
    /// The value of an integer.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The value of an integer that is not negative.
    pub(crate) fn as_count(&self) -> Option<u64> {
        u64::try_from(self.as_integer()?).ok()
    }

    /// The bytes of a string.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(bytes) | Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a string that is UTF-8.
    pub(crate) fn as_text(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The elements of an array.
    pub(crate) fn as_items(&self) -> Option<&[Frame]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The fields of a map (RESP3), or of the flat array that stands for one (RESP2). A frame of another type
    /// has none. A last name without a value is ignored.
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

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&Frame> {
        self.fields().find_map(|(key, value)| (key.as_bytes() == Some(name.as_bytes())).then_some(value))
    }

    /// The text of an error, safe to show: one line of limited length; `None` if the frame is not an error.
    ///
    /// A server quotes the arguments of an unknown command, which may be secret: the text ends before them.
    pub(crate) fn error_message(&self) -> Option<String> {
        let Self::Error(bytes) = self else { return None };
        let text = String::from_utf8_lossy(bytes);
        let shown = without_quoted_arguments(&text).chars();
        Some(shown.take(MAX_ERROR_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect())
    }
}

/// Leaves out the arguments that an error may quote, as [`Frame::error_message`] does.
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
    fn a_map_and_its_flat_array_have_the_same_fields() {
        let map = Frame::Map(vec![(text("fence"), Frame::Integer(7)), (text("label"), text("x"))]);
        let flat = Frame::Array(vec![text("fence"), Frame::Integer(7), text("label"), text("x")]);
        assert!(map.fields().eq(flat.fields()));
        for frame in [map, flat] {
            assert_eq!(frame.field("fence").and_then(Frame::as_integer), Some(7));
            assert_eq!(frame.field("label").and_then(Frame::as_text), Some("x"));
            assert_eq!(frame.field("fence").and_then(Frame::as_count), Some(7));
            assert_eq!(frame.field("label").and_then(Frame::as_count), None);
            assert_eq!(frame.field("pttl"), None);
        }
    }

    #[test]
    fn a_negative_number_is_no_count() {
        assert_eq!(Frame::Integer(i64::MAX).as_count(), Some(i64::MAX.unsigned_abs()));
        assert_eq!(Frame::Integer(0).as_count(), Some(0));
        assert_eq!(Frame::Integer(-1).as_count(), None);
    }

    #[test]
    fn only_maps_and_flat_arrays_have_fields() {
        for frame in [Frame::Nil, Frame::Integer(1), text("fence"), Frame::Array(vec![text("fence")])] {
            assert_eq!(frame.fields().count(), 0, "{frame:?}");
        }
    }

    #[test]
    fn an_error_message_does_not_quote_the_arguments() {
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
    fn an_error_message_is_one_short_line() {
        let long = Frame::Error(Bytes::from([b"a\nb\x1b\xff".as_slice(), &[b'x'; 9999]].concat()));
        let shown = long.error_message().expect("a message");
        assert_eq!(shown.chars().count(), MAX_ERROR_MESSAGE);
        assert!(shown.starts_with("a b \u{fffd}x"), "{shown}");
    }
}
