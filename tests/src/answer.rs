//! A reply of a server, in a form that is easy to compare and print.

use std::fmt;

/// One reply. Rare kinds of the protocol map to the nearest of these: a set or a push is a `List`; a double, big number
/// or verbatim string is a `Text`; a boolean is an `Int`.
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
    /// A map of RESP3. RESP2 sends a flat `List` instead.
    Map(Vec<(Answer, Answer)>),
    /// An error: the whole line, with its first word. Invalid UTF-8 is replaced.
    Error(String),
}

impl Answer {
    /// The status `OK`.
    #[must_use]
    pub fn ok() -> Self {
        Self::Status("OK".into())
    }

    /// A `Text`.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    /// The value of an integer reply, or of a text that is an integer.
    ///
    /// # Panics
    /// On any other reply.
    #[must_use]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Text(_) => self.string().parse().unwrap_or_else(|_| panic!("not an integer: {self:?}")),
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

    /// The value of the field `name` in a map of RESP2 or RESP3.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Answer> {
        self.pairs()
            .into_iter()
            .find(|(key, _)| **key == Self::text(name) || key.is_status(name))
            .map(|(_, v)| v)
    }

    /// The keys and values of a map of RESP2 or RESP3.
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

    /// The first word of an error: its code, which stays the same in every release.
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

/// Prints similar to `redis-cli`, on one line: `5`, `nil`, `"a\xff"`, `+OK`, `[1, nil]`, `{"a": 1}`, `-ERR …`.
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
