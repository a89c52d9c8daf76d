//! Decodes replies.
//!
//! The replies that matter for speed (integers and nil) are decoded in one pass and without allocation. Other
//! replies are measured first, to see whether they are complete and within limits, and then built. So a
//! server can make the client allocate only in proportion to the bytes that it has sent.

use super::Frame;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;
use std::ops::Range;

/// How deep arrays and maps may be nested.
const MAX_DEPTH: usize = 32;
/// The longest bulk string, in bytes. Replies to the client's commands are smaller than a thousandth of it.
const MAX_BULK: usize = 16 << 20;
/// The longest simple string or simple error, in bytes.
const MAX_LINE: usize = 64 << 10;
/// The most digits of a number: more than an `i64` needs.
const MAX_DIGITS: usize = 24;
/// How many elements one reply may have, nested ones included.
const MAX_ELEMENTS: usize = 65_536;
/// The largest reply, in bytes.
const MAX_REPLY: usize = 2 * MAX_BULK;

/// The bytes are not RESP, or exceed a limit. The caller closes the connection: frame boundaries are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError(&'static str);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ProtocolError {}

/// Takes one frame from the front of the buffer; `None`, with the buffer unchanged, if it is incomplete.
///
/// Skips attributes, which RESP3 allows before a reply.
#[inline]
pub(crate) fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
    let frame = match Head::read(buffer, 0) {
        Ok(Head { part: Part::Integer(number), end }) => (Frame::Integer(number), end),
        Ok(Head { part: Part::Nil, end }) => (Frame::Nil, end),
        Ok(_) => return decode_large(buffer),
        Err(Stop::Early) => return Ok(None),
        Err(Stop::Protocol(what)) => return Err(what),
    };
    buffer.advance(frame.1);
    Ok(Some(frame.0))
}

fn decode_large(buffer: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
    let measured = Walk { bytes: buffer, at: 0, parts_left: MAX_ELEMENTS }.measure();
    let end = match measured {
        Ok(end) if end <= MAX_REPLY => end,
        Err(Stop::Early) if buffer.len() <= MAX_REPLY => return Ok(None),
        Ok(_) | Err(Stop::Early) => return Err(ProtocolError("a reply exceeds 32 MiB")),
        Err(Stop::Protocol(what)) => return Err(what),
    };
    let bytes = buffer.split_to(end).freeze();
    match (Build { bytes, at: 0 }).frame() {
        Ok(frame) => Ok(Some(frame)),
        Err(Stop::Protocol(what)) => Err(what),
        // `measure` found a complete frame, so this is a bug of ours: close the connection.
        Err(Stop::Early) => Err(ProtocolError("a reply is shorter than its length")),
    }
}

/// Why decoding stops.
enum Stop {
    /// More bytes are needed.
    Early,
    /// The bytes are malformed.
    Protocol(ProtocolError),
}

fn malformed<T>(what: &'static str) -> Result<T, Stop> {
    Err(Stop::Protocol(ProtocolError(what)))
}

/// The start of a frame: the whole frame, or what comes before its elements.
struct Head {
    part: Part,
    /// The position of the first byte after it.
    end: usize,
}

enum Part {
    Integer(i64),
    Nil,
    Boolean(bool),
    Text(TextKind, Range<usize>),
    Items(ItemsKind, usize),
    Pairs(PairsKind, usize),
}

#[derive(Clone, Copy)]
enum TextKind {
    Simple,
    Error,
    Bulk,
    Numeral,
}

#[derive(Clone, Copy)]
enum ItemsKind {
    Array,
    Push,
}

#[derive(Clone, Copy)]
enum PairsKind {
    Map,
    Attribute,
}

impl Head {
    #[inline]
    fn read(bytes: &[u8], at: usize) -> Result<Self, Stop> {
        let Some(kind) = bytes.get(at) else { return Err(Stop::Early) };
        match kind {
            b':' => {
                let (number, end) = number(bytes, at + 1)?;
                Ok(Self { part: Part::Integer(number), end })
            }
            b'$' => match length(bytes, at + 1, MAX_BULK)? {
                (Some(size), start) => blob(bytes, TextKind::Bulk, start, size),
                (None, end) => Ok(Self { part: Part::Nil, end }),
            },
            b'_' => Ok(Self { part: Part::Nil, end: line_end(bytes, at + 1)? }),
            _ => Self::read_rare(bytes, at, *kind),
        }
    }

    /// The types that replies to lock commands rarely have.
    fn read_rare(bytes: &[u8], at: usize, kind: u8) -> Result<Self, Stop> {
        let at = at + 1;
        match kind {
            b'+' => line(bytes, TextKind::Simple, at),
            b'-' => line(bytes, TextKind::Error, at),
            b',' | b'(' => line(bytes, TextKind::Numeral, at),
            b'#' => match bytes.get(at) {
                None => Err(Stop::Early),
                Some(b't') => Ok(Self { part: Part::Boolean(true), end: line_end(bytes, at + 1)? }),
                Some(b'f') => Ok(Self { part: Part::Boolean(false), end: line_end(bytes, at + 1)? }),
                Some(_) => malformed("a boolean is neither true nor false"),
            },
            b'!' => match length(bytes, at, MAX_BULK)? {
                (Some(size), start) => blob(bytes, TextKind::Error, start, size),
                (None, _) => malformed("an error has no length"),
            },
            b'=' => match length(bytes, at, MAX_BULK)? {
                (Some(size), start) => verbatim(bytes, start, size),
                (None, _) => malformed("a verbatim string has no length"),
            },
            b'*' => match length(bytes, at, MAX_ELEMENTS)? {
                (Some(count), end) => Ok(Self { part: Part::Items(ItemsKind::Array, count), end }),
                (None, end) => Ok(Self { part: Part::Nil, end }),
            },
            b'~' | b'>' | b'%' | b'|' => match length(bytes, at, MAX_ELEMENTS)? {
                (Some(count), end) => {
                    let part = match kind {
                        b'~' => Part::Items(ItemsKind::Array, count),
                        b'>' => Part::Items(ItemsKind::Push, count),
                        b'%' => Part::Pairs(PairsKind::Map, count),
                        _ => Part::Pairs(PairsKind::Attribute, count),
                    };
                    Ok(Self { part, end })
                }
                (None, _) => malformed("a collection has no length"),
            },
            _ => malformed("unknown reply type"),
        }
    }
}

/// A number and its line end.
#[inline]
fn number(bytes: &[u8], start: usize) -> Result<(i64, usize), Stop> {
    let (negative, first) = match bytes.get(start) {
        Some(b'-') => (true, start + 1),
        Some(b'+') => (false, start + 1),
        _ => (false, start),
    };
    let mut number: i64 = 0;
    let mut at = first;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'0'..=b'9' => {
                // Summed as a negative number: `i64::MIN` has no positive counterpart.
                let digit = i64::from(byte - b'0');
                number = match number.checked_mul(10).and_then(|tens| tens.checked_sub(digit)) {
                    Some(number) if at - start < MAX_DIGITS => number,
                    _ => return malformed("a number is too large"),
                };
            }
            b'\r' if at > first => {
                let end = line_end(bytes, at)?;
                let number = if negative { Some(number) } else { number.checked_neg() };
                return number.map_or_else(|| malformed("a number is too large"), |number| Ok((number, end)));
            }
            _ => return malformed("a number has a character that is not a digit"),
        }
        at += 1;
    }
    Err(Stop::Early)
}

/// A length within its limit; `None` for -1, the length of nil in RESP2.
#[inline]
fn length(bytes: &[u8], start: usize, limit: usize) -> Result<(Option<usize>, usize), Stop> {
    let (number, end) = number(bytes, start)?;
    match usize::try_from(number) {
        Ok(size) if size <= limit => Ok((Some(size), end)),
        Ok(_) => malformed("a length exceeds the limit"),
        Err(_) if number == -1 => Ok((None, end)),
        Err(_) => malformed("a length is negative"),
    }
}

/// Skips a line end.
#[inline]
fn line_end(bytes: &[u8], at: usize) -> Result<usize, Stop> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) => Ok(at + 2),
        (None, _) | (Some(b'\r'), None) => Err(Stop::Early),
        _ => malformed("a line end is missing"),
    }
}

fn line(bytes: &[u8], kind: TextKind, start: usize) -> Result<Head, Stop> {
    let rest = bytes.get(start..).unwrap_or_default();
    let size = rest.iter().take(MAX_LINE + 1).position(|byte| matches!(byte, b'\r' | b'\n'));
    match size {
        Some(size) => {
            let end = line_end(bytes, start + size)?;
            Ok(Head { part: Part::Text(kind, start..start + size), end })
        }
        None if rest.len() > MAX_LINE => malformed("a line exceeds 64 KiB"),
        None => Err(Stop::Early),
    }
}

fn blob(bytes: &[u8], kind: TextKind, start: usize, size: usize) -> Result<Head, Stop> {
    let end = line_end(bytes, start + size)?;
    Ok(Head { part: Part::Text(kind, start..start + size), end })
}

/// A verbatim string: its format in three letters, a colon and the text, as in `txt:abc`.
fn verbatim(bytes: &[u8], start: usize, size: usize) -> Result<Head, Stop> {
    let head = blob(bytes, TextKind::Bulk, start, size)?;
    if size < 4 || bytes.get(start + 3) != Some(&b':') {
        return malformed("a verbatim string has no format");
    }
    Ok(Head { part: Part::Text(TextKind::Bulk, start + 4..start + size), end: head.end })
}

/// Measures a frame without allocation.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    parts_left: usize,
}

impl Walk<'_> {
    /// The position after the frame.
    fn measure(mut self) -> Result<usize, Stop> {
        self.step_over(0)?;
        Ok(self.at)
    }

    fn step_over(&mut self, depth: usize) -> Result<(), Stop> {
        loop {
            let head = Head::read(self.bytes, self.at)?;
            self.at = head.end;
            match head.part {
                // The reply follows its attribute.
                Part::Pairs(PairsKind::Attribute, count) => self.step_over_all(2 * count, depth + 1)?,
                Part::Pairs(PairsKind::Map, count) => return self.step_over_all(2 * count, depth + 1),
                Part::Items(_, count) => return self.step_over_all(count, depth + 1),
                _ => return Ok(()),
            }
        }
    }

    fn step_over_all(&mut self, count: usize, depth: usize) -> Result<(), Stop> {
        if depth > MAX_DEPTH {
            return malformed("a reply is nested deeper than 32 levels");
        }
        let Some(parts_left) = self.parts_left.checked_sub(count) else {
            return malformed("a reply has more than 65,536 elements");
        };
        self.parts_left = parts_left;
        (0..count).try_for_each(|_| self.step_over(depth))
    }
}

/// Builds a frame that is complete.
struct Build {
    bytes: Bytes,
    at: usize,
}

impl Build {
    fn frame(&mut self) -> Result<Frame, Stop> {
        loop {
            let head = Head::read(&self.bytes, self.at)?;
            self.at = head.end;
            return Ok(match head.part {
                Part::Integer(number) => Frame::Integer(number),
                Part::Nil => Frame::Nil,
                Part::Boolean(truth) => Frame::Boolean(truth),
                Part::Text(TextKind::Simple, range) => Frame::Simple(self.bytes.slice(range)),
                Part::Text(TextKind::Error, range) => Frame::Error(self.bytes.slice(range)),
                Part::Text(TextKind::Bulk, range) => Frame::Bulk(self.bytes.slice(range)),
                Part::Text(TextKind::Numeral, range) => Frame::Numeral(self.bytes.slice(range)),
                Part::Items(ItemsKind::Array, count) => Frame::Array(self.items(count)?),
                Part::Items(ItemsKind::Push, count) => Frame::Push(self.items(count)?),
                Part::Pairs(PairsKind::Map, count) => Frame::Map(self.pairs(count)?),
                Part::Pairs(PairsKind::Attribute, count) => {
                    for _ in 0..count {
                        self.frame()?;
                        self.frame()?;
                    }
                    continue;
                }
            });
        }
    }

    fn items(&mut self, count: usize) -> Result<Vec<Frame>, Stop> {
        (0..count).map(|_| self.frame()).collect()
    }

    fn pairs(&mut self, count: usize) -> Result<Vec<(Frame, Frame)>, Stop> {
        (0..count).map(|_| Ok((self.frame()?, self.frame()?))).collect()
    }
}

#[cfg(test)]
mod tests;
