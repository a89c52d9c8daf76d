//! Bytes to frames.
//!
//! The replies that matter for speed (a fence, a nil, 1 or 0) are read in one look at their few bytes, with
//! nothing allocated. All others are walked over once to see whether they are complete and within bounds, and
//! only then built, so that a server can make the client allocate no more than it has really sent.

use super::Frame;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;
use std::ops::Range;

/// How deep lists may be nested.
const DEEPEST: usize = 32;
/// The longest string. No command of ours is answered with as much as a thousandth of it.
const LONGEST_BLOB: usize = 16 << 20;
/// The longest text on a line of its own.
const LONGEST_LINE: usize = 64 << 10;
/// The longest number: more than any `i64` or length needs.
const LONGEST_NUMBER: usize = 24;
/// How many frames one frame may be made of.
const MOST_PARTS: usize = 65_536;
/// How many bytes one frame may be made of.
const LARGEST: usize = 2 * LONGEST_BLOB;

/// What came is no RESP, or exceeds all measure. Nothing after it can be trusted: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError(&'static str);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ProtocolError {}

/// Takes one frame off the front; `None`, with the buffer as it was, if it has not come in full.
///
/// Attributes, which RESP3 may put before a reply, are dropped.
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
    let measured = Walk { bytes: buffer, at: 0, parts_left: MOST_PARTS }.measure();
    let end = match measured {
        Ok(end) if end <= LARGEST => end,
        Err(Stop::Early) if buffer.len() <= LARGEST => return Ok(None),
        Ok(_) | Err(Stop::Early) => return Err(ProtocolError("a reply is too large")),
        Err(Stop::Protocol(what)) => return Err(what),
    };
    let bytes = buffer.split_to(end).freeze();
    match (Build { bytes, at: 0 }).frame() {
        Ok(frame) => Ok(Some(frame)),
        Err(Stop::Protocol(what)) => Err(what),
        // It was measured just now; should the two ever disagree, the stream is not to be trusted.
        Err(Stop::Early) => Err(ProtocolError("a reply is shorter than it says")),
    }
}

/// Why reading cannot go on.
enum Stop {
    /// More bytes are needed.
    Early,
    /// More bytes would not help.
    Protocol(ProtocolError),
}

fn malformed<T>(what: &'static str) -> Result<T, Stop> {
    Err(Stop::Protocol(ProtocolError(what)))
}

/// The part of a frame that can be told from its first bytes, up to where its items begin.
struct Head {
    part: Part,
    /// The first byte that does not belong to it.
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
            b'$' => match length(bytes, at + 1, LONGEST_BLOB)? {
                (Some(size), start) => blob(bytes, TextKind::Bulk, start, size),
                (None, end) => Ok(Self { part: Part::Nil, end }),
            },
            b'_' => Ok(Self { part: Part::Nil, end: line_end(bytes, at + 1)? }),
            _ => Self::read_rare(bytes, at, *kind),
        }
    }

    /// What a lock in good order is not answered with.
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
            b'!' => match length(bytes, at, LONGEST_BLOB)? {
                (Some(size), start) => blob(bytes, TextKind::Error, start, size),
                (None, _) => malformed("an error has no length"),
            },
            b'=' => match length(bytes, at, LONGEST_BLOB)? {
                (Some(size), start) => verbatim(bytes, start, size),
                (None, _) => malformed("a verbatim string has no length"),
            },
            b'*' => match length(bytes, at, MOST_PARTS)? {
                (Some(count), end) => Ok(Self { part: Part::Items(ItemsKind::Array, count), end }),
                (None, end) => Ok(Self { part: Part::Nil, end }),
            },
            b'~' | b'>' | b'%' | b'|' => match length(bytes, at, MOST_PARTS)? {
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
            _ => malformed("a reply is of no known kind"),
        }
    }
}

/// A number and its line end. `\r` ends it, so no byte is looked at twice.
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
                // Summed up below zero, where there is room for one number more.
                let digit = i64::from(byte - b'0');
                number = match number.checked_mul(10).and_then(|tens| tens.checked_sub(digit)) {
                    Some(number) if at - start < LONGEST_NUMBER => number,
                    _ => return malformed("a number is too large"),
                };
            }
            b'\r' if at > first => {
                let end = line_end(bytes, at)?;
                let number = if negative { Some(number) } else { number.checked_neg() };
                return number.map_or_else(|| malformed("a number is too large"), |number| Ok((number, end)));
            }
            _ => return malformed("a number has something else in it"),
        }
        at += 1;
    }
    Err(Stop::Early)
}

/// A length within its limit; RESP2 writes −1 for the length of nothing.
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

/// Steps over the line end that must be there.
#[inline]
fn line_end(bytes: &[u8], at: usize) -> Result<usize, Stop> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) => Ok(at + 2),
        (None, _) | (Some(b'\r'), None) => Err(Stop::Early),
        _ => malformed("a line does not end where it should"),
    }
}

fn line(bytes: &[u8], kind: TextKind, start: usize) -> Result<Head, Stop> {
    let rest = bytes.get(start..).unwrap_or_default();
    let size = rest.iter().take(LONGEST_LINE + 1).position(|byte| matches!(byte, b'\r' | b'\n'));
    match size {
        Some(size) => {
            let end = line_end(bytes, start + size)?;
            Ok(Head { part: Part::Text(kind, start..start + size), end })
        }
        None if rest.len() > LONGEST_LINE => malformed("a line is too long"),
        None => Err(Stop::Early),
    }
}

fn blob(bytes: &[u8], kind: TextKind, start: usize, size: usize) -> Result<Head, Stop> {
    let end = line_end(bytes, start + size)?;
    Ok(Head { part: Part::Text(kind, start..start + size), end })
}

/// A verbatim string names its format in three letters first, as in `txt:`.
fn verbatim(bytes: &[u8], start: usize, size: usize) -> Result<Head, Stop> {
    let head = blob(bytes, TextKind::Bulk, start, size)?;
    if size < 4 || bytes.get(start + 3) != Some(&b':') {
        return malformed("a verbatim string does not name its format");
    }
    Ok(Head { part: Part::Text(TextKind::Bulk, start + 4..start + size), end: head.end })
}

/// Walks over a frame to see whether it is all there, and allocates nothing.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    parts_left: usize,
}

impl Walk<'_> {
    /// Where the frame ends.
    fn measure(mut self) -> Result<usize, Stop> {
        self.step_over(0)?;
        Ok(self.at)
    }

    fn step_over(&mut self, depth: usize) -> Result<(), Stop> {
        loop {
            let head = Head::read(self.bytes, self.at)?;
            self.at = head.end;
            match head.part {
                // The reply that the attribute speaks of is still to come.
                Part::Pairs(PairsKind::Attribute, count) => self.step_over_all(2 * count, depth + 1)?,
                Part::Pairs(PairsKind::Map, count) => return self.step_over_all(2 * count, depth + 1),
                Part::Items(_, count) => return self.step_over_all(count, depth + 1),
                _ => return Ok(()),
            }
        }
    }

    fn step_over_all(&mut self, count: usize, depth: usize) -> Result<(), Stop> {
        if depth > DEEPEST {
            return malformed("a reply is nested too deeply");
        }
        let Some(parts_left) = self.parts_left.checked_sub(count) else {
            return malformed("a reply has too many parts");
        };
        self.parts_left = parts_left;
        (0..count).try_for_each(|_| self.step_over(depth))
    }
}

/// Builds a frame that was measured: every item that a list claims to have is there.
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
