//! Encoding of commands and decoding of replies, in RESP2 and RESP3.
//!
//! A client crate does not fit: it rejects error lines that quote invalid UTF-8 of a client, and it sends commands of
//! its own, which would change the counters under test.

use crate::Answer;
use std::io::{self, BufRead, Error, ErrorKind};

/// Appends one command to `out`, as an array of bulk strings.
pub(crate) fn encode<A: AsRef<[u8]>>(arguments: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        let bytes = argument.as_ref();
        out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads one reply.
pub(crate) fn decode(input: &mut impl BufRead) -> io::Result<Answer> {
    let line = read_line(input)?;
    let (kind, rest) = line.split_first().ok_or_else(|| bad("an empty line"))?;
    Ok(match kind {
        b'+' => Answer::Status(lossy(rest)),
        b'-' => Answer::Error(lossy(rest)),
        b':' => Answer::Int(number(rest)?),
        b'#' => Answer::Int((rest == b"t").into()),
        b'_' => Answer::Nil,
        b',' | b'(' => Answer::Text(rest.to_vec()),
        b'$' => match length(rest)? {
            Some(size) => Answer::Text(read_blob(input, size)?),
            None => Answer::Nil,
        },
        b'!' => Answer::Error(lossy(&read_blob(input, required(rest)?)?)),
        // A verbatim string begins with its format, as in `txt:…`.
        b'=' => Answer::Text(read_blob(input, required(rest)?)?.split_off(4)),
        b'*' | b'~' | b'>' => match length(rest)? {
            Some(size) => Answer::List((0..size).map(|_| decode(input)).collect::<io::Result<_>>()?),
            None => Answer::Nil,
        },
        b'%' => {
            let pair = |_| Ok((decode(input)?, decode(input)?));
            Answer::Map((0..required(rest)?).map(pair).collect::<io::Result<_>>()?)
        }
        // Attributes are metadata of the reply that follows them.
        b'|' => {
            for _ in 0..required(rest)? * 2 {
                decode(input)?;
            }
            decode(input)?
        }
        other => return Err(bad(&format!("a reply of kind {:?}", char::from(*other)))),
    })
}

fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(text.to_vec()),
        None => Err(bad("a line without CRLF")),
    }
}

fn read_blob(input: &mut impl BufRead, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size + 2];
    input.read_exact(&mut bytes)?;
    bytes.truncate(size);
    Ok(bytes)
}

/// A length, or `None` for nil, which RESP2 writes as −1.
fn length(digits: &[u8]) -> io::Result<Option<usize>> {
    Ok(usize::try_from(number(digits)?).ok())
}

fn required(digits: &[u8]) -> io::Result<usize> {
    length(digits)?.ok_or_else(|| bad("nil where nil is not allowed"))
}

fn number(digits: &[u8]) -> io::Result<i64> {
    lossy(digits).parse().map_err(|_| bad(&format!("{:?} as a number", lossy(digits))))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_decoded() {
        let cases: [(&[u8], Answer); 10] = [
            (b":-7\r\n", Answer::Int(-7)),
            (b"$-1\r\n", Answer::Nil),
            (b"*-1\r\n", Answer::Nil),
            (b"_\r\n", Answer::Nil),
            (b"$2\r\n\r\n\r\n", Answer::text("\r\n")),
            (b"*2\r\n+OK\r\n:1\r\n", Answer::List(vec![Answer::ok(), Answer::Int(1)])),
            (b"%1\r\n$1\r\na\r\n:1\r\n", Answer::Map(vec![(Answer::text("a"), Answer::Int(1))])),
            (b"=7\r\ntxt:abc\r\n", Answer::text("abc")),
            (b"|1\r\n+a\r\n+b\r\n#t\r\n", Answer::Int(1)),
            (b"-ERR \xff\r\n", Answer::Error("ERR \u{fffd}".into())),
        ];
        for (mut bytes, answer) in cases {
            assert_eq!(decode(&mut bytes).expect("a reply"), answer);
            assert!(bytes.is_empty(), "left over: {bytes:?}");
        }
    }

    #[test]
    fn incomplete_and_unknown_replies_are_errors() {
        for mut bytes in [&b""[..], b":1", b"$3\r\nab", b"*2\r\n:1\r\n", b"?\r\n"] {
            assert!(decode(&mut bytes).is_err());
        }
    }
}
