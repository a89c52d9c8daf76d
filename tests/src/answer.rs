//! What a server answered, in a form that compares and prints well.

use std::fmt;

/// One reply. The protocol's rarer kinds are folded into the nearest of these: a set is a `List`, a push a
/// `List`, a double, big number or verbatim string a `Text`, a boolean an `Int`.
#[derive(Clone, PartialEq, Eq)]
pub enum Answer {
    /// An integer.
    Int(i64),
    /// The nil of RESP2 (bulk or array) or the null of RESP3.
    Nil,
    /// A bulk string, binary safe.
    Text(Vec<u8>),
    /// A status line such as `OK` or `QUEUED`.
    Status(String),
    /// An array.
    List(Vec<Answer>),
    /// A map, as only RESP3 has it: RESP2 sends the same as a flat `List`.
    Map(Vec<(Answer, Answer)>),
    /// An error, the whole line with its first word. Bytes that are no UTF-8 are replaced.
    Error(String),
}

impl Answer {
    /// The status `OK`.
    #[must_use]
    pub fn ok() -> Self {
        Self::Status("OK".into())
    }

    /// A text, for comparing with.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    /// The number in an integer reply, or in a text that is one.
    ///
    /// # Panics
    /// On any other reply.
    #[must_use]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Text(_) => self.string().parse().unwrap_or_else(|_| panic!("no number: {self:?}")),
            _ => panic!("expected an integer, got {self:?}"),
        }
    }

    /// The characters of a text, status or error.
    ///
    /// # Panics
    /// On any other reply.
    #[must_use]
    pub fn string(&self) -> String {
        match self {
            Self::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Status(text) | Self::Error(text) => text.clone(),
            _ => panic!("expected a text, got {self:?}"),
        }
    }

    /// The members of an array.
    ///
    /// # Panics
    /// On any other reply.
    #[must_use]
    pub fn list(&self) -> &[Answer] {
        match self {
            Self::List(members) => members,
            _ => panic!("expected an array, got {self:?}"),
        }
    }

    /// The value beside `name` in a map, whichever protocol carried it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Answer> {
        self.pairs()
            .into_iter()
            .find(|(key, _)| **key == Self::text(name) || key.is_status(name))
            .map(|(_, v)| v)
    }

    /// Keys and values of a map, whichever protocol carried it.
    ///
    /// # Panics
    /// On a reply that is neither a map nor an array of even length.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&Answer, &Answer)> {
        match self {
            Self::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
            Self::List(flat) if flat.len().is_multiple_of(2) => {
                flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect()
            }
            _ => panic!("expected a map, got {self:?}"),
        }
    }

    /// The first word of an error, which is its stable part.
    #[must_use]
    pub fn error_word(&self) -> Option<&str> {
        match self {
            Self::Error(text) => text.split_whitespace().next(),
            _ => None,
        }
    }

    fn is_status(&self, text: &str) -> bool {
        matches!(self, Self::Status(own) if own == text)
    }
}

/// Prints as `redis-cli` would on one line: `5`, `nil`, `"a\xff"`, `+OK`, `[1, nil]`, `{"a": 1}`, `-ERR …`.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Nil => write!(f, "nil"),
            Self::Text(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Status(text) => write!(f, "+{text}"),
            Self::List(members) => f.debug_list().entries(members).finish(),
            Self::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
            Self::Error(text) => write!(f, "-{text}"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_in_both_protocols() {
        let flat = Answer::List(vec![Answer::text("fence"), Answer::Int(7)]);
        let map = Answer::Map(vec![(Answer::text("fence"), Answer::Int(7))]);
        assert_eq!(flat.field("fence"), Some(&Answer::Int(7)));
        assert_eq!(map.field("fence"), Some(&Answer::Int(7)));
        assert_eq!(map.field("label"), None);
    }

    #[test]
    fn prints_bytes_readably() {
        assert_eq!(format!("{:?}", Answer::Text(vec![b'a', 0xff])), "\"a\\xff\"");
        assert_eq!(format!("{}", Answer::List(vec![Answer::Nil, Answer::ok()])), "[nil, +OK]");
    }
}
