//! Frames to bytes: a reply as a server would have written it.

use crate::wire::{Decimal, Frame};
use bytes::{BufMut, BytesMut};

/// Appends one reply. What is read from these bytes is the same frame again.
pub(super) fn encode(buffer: &mut BytesMut, frame: &Frame) {
    match frame {
        Frame::Integer(number) => {
            buffer.put_slice(if *number < 0 { b":-" } else { b":" });
            end_line(buffer, Decimal::new(number.unsigned_abs()).as_bytes());
        }
        Frame::Nil => buffer.put_slice(b"$-1\r\n"),
        Frame::Simple(text) => line(buffer, b'+', text),
        Frame::Error(text) if text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) => {
            blob(buffer, b'!', text)
        }
        Frame::Error(text) => line(buffer, b'-', text),
        Frame::Bulk(bytes) => blob(buffer, b'$', bytes),
        Frame::Array(items) => list(buffer, b'*', items),
        Frame::Push(items) => list(buffer, b'>', items),
        Frame::Map(pairs) => {
            count(buffer, b'%', pairs.len());
            for (name, value) in pairs {
                encode(buffer, name);
                encode(buffer, value);
            }
        }
        Frame::Boolean(truth) => buffer.put_slice(if *truth { b"#t\r\n" } else { b"#f\r\n" }),
        Frame::Numeral(text) => line(buffer, b',', text),
    }
}

fn end_line(buffer: &mut BytesMut, text: &[u8]) {
    buffer.put_slice(text);
    buffer.put_slice(b"\r\n");
}

fn line(buffer: &mut BytesMut, kind: u8, text: &[u8]) {
    buffer.put_u8(kind);
    end_line(buffer, text);
}

fn count(buffer: &mut BytesMut, kind: u8, count: usize) {
    line(buffer, kind, Decimal::new(count as u64).as_bytes());
}

fn blob(buffer: &mut BytesMut, kind: u8, bytes: &[u8]) {
    count(buffer, kind, bytes.len());
    end_line(buffer, bytes);
}

fn list(buffer: &mut BytesMut, kind: u8, items: &[Frame]) {
    count(buffer, kind, items.len());
    items.iter().for_each(|item| encode(buffer, item));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::decode;
    use bytes::Bytes;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn replies_look_like_those_of_a_server() {
        let cases: [(Frame, &[u8]); 7] = [
            (Frame::Integer(7), b":7\r\n"),
            (Frame::Integer(i64::MIN), b":-9223372036854775808\r\n"),
            (Frame::Nil, b"$-1\r\n"),
            (Frame::Error(text("CROSSSLOT no")), b"-CROSSSLOT no\r\n"),
            (Frame::Bulk(text("a\r\nb")), b"$4\r\na\r\nb\r\n"),
            (
                Frame::Array(vec![Frame::Bulk(text("fence")), Frame::Integer(1)]),
                b"*2\r\n$5\r\nfence\r\n:1\r\n",
            ),
            (Frame::Map(vec![(Frame::Bulk(text("fence")), Frame::Nil)]), b"%1\r\n$5\r\nfence\r\n$-1\r\n"),
        ];
        for (frame, bytes) in cases {
            let mut buffer = BytesMut::new();
            encode(&mut buffer, &frame);
            assert_eq!(buffer, bytes, "{frame:?}");
        }
    }

    #[test]
    fn what_was_written_is_read_as_the_same() {
        let frames = [
            Frame::Integer(0),
            Frame::Integer(i64::MAX),
            Frame::Integer(i64::MIN),
            Frame::Nil,
            Frame::Simple(text("OK")),
            Frame::Error(text("ERR two\r\nlines")),
            Frame::Error(text("")),
            Frame::Bulk(text("")),
            Frame::Boolean(true),
            Frame::Boolean(false),
            Frame::Numeral(text("1.5")),
            Frame::Push(vec![Frame::Simple(text("hello"))]),
            Frame::Array(vec![]),
            Frame::Map(vec![(Frame::Bulk(text("list")), Frame::Array(vec![Frame::Nil, Frame::Integer(-1)]))]),
        ];
        let mut buffer = BytesMut::new();
        frames.iter().for_each(|frame| encode(&mut buffer, frame));
        for frame in frames {
            assert_eq!(decode(&mut buffer), Ok(Some(frame)));
        }
        assert!(buffer.is_empty());
    }
}
