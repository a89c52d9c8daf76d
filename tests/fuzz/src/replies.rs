//! The client's parser of server replies, on any bytes.
//!
//! The parser gives the same frames for pieces of any size as for one piece. It allocates at most a multiple of the
//! received bytes. A frame that is written and read again is the same.

use crate::allocation::measured;
use crate::byte_reader::ByteReader;
use crate::wire::{self, Frame, ProtocolError};
use bytes::BytesMut;
use redlock_contract::grant::Unverified;

/// The most bytes that may be allocated for each received byte; a list of empty lists needs the most.
const MOST_FOR_A_BYTE: usize = 128;
/// The bytes that may be allocated in addition, also for an empty input.
const MOST_FOR_NOTHING: usize = 4096;
/// The length of the longest error message, in characters.
const MAX_ERROR_MESSAGE: usize = 300;

/// The owner of a waiter.
const OWNER: &[u8] = b"00112233445566778899aabbccddeeff";
const NODE_ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// A parser: takes one frame off the front of a buffer.
pub(crate) trait Decoder: Fn(&mut BytesMut) -> Result<Option<Frame>, ProtocolError> {}
impl<D: Fn(&mut BytesMut) -> Result<Option<Frame>, ProtocolError>> Decoder for D {}

/// Runs the target on the client's parser.
pub fn run(bytes: &[u8]) {
    check(bytes, wire::decode);
}

/// Runs the target on a parser.
pub(crate) fn check(bytes: &[u8], decode: impl Decoder) {
    let mut reader = ByteReader::new(bytes);
    let count = reader.below(8);
    let sizes = reader.take(count);
    let stream = reader.rest();

    let (whole, requested) = measured(|| read(stream, &[], &decode));
    let limit = MOST_FOR_NOTHING + MOST_FOR_A_BYTE * stream.len();
    assert!(requested <= limit, "{requested} bytes were allocated for {} received", stream.len());
    assert!(whole == read(stream, sizes, &decode), "in pieces of {sizes:?} the frames are different");

    for frame in &whole.frames {
        look_at(frame);
        let mut again = BytesMut::new();
        write(frame, &mut again);
        assert!(
            decode(&mut again) == Ok(Some(frame.clone())) && again.is_empty(),
            "written and read again, the frame is different: {frame:?}"
        );
    }
    commands_are_frames(stream, sizes, &decode);
}

/// The result of reading a stream.
#[derive(PartialEq)]
struct StreamOutcome {
    frames: Vec<Frame>,
    /// The bytes of an incomplete frame at the end, or the error.
    end: Result<Vec<u8>, ProtocolError>,
}

/// Reads a stream in pieces of these sizes, in a cycle; in one piece if there are no sizes.
fn read(stream: &[u8], sizes: &[u8], decode: &impl Decoder) -> StreamOutcome {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    let mut rest = stream;
    let mut sizes = sizes.iter().map(|size| 1 + usize::from(*size)).cycle();
    loop {
        let (piece, later) = rest.split_at(sizes.next().unwrap_or(usize::MAX).min(rest.len()));
        buffer.extend_from_slice(piece);
        rest = later;
        loop {
            let before = buffer.len();
            match decode(&mut buffer) {
                Ok(Some(frame)) => {
                    assert!(buffer.len() < before, "a frame of no bytes");
                    frames.push(frame);
                }
                Ok(None) => {
                    assert_eq!(buffer.len(), before, "the parser removed bytes without returning a frame");
                    break;
                }
                Err(error) => return StreamOutcome { frames, end: Err(error) },
            }
        }
        if rest.is_empty() {
            return StreamOutcome { frames, end: Ok(buffer.to_vec()) };
        }
    }
}

/// Calls every accessor of a frame that the client uses.
fn look_at(frame: &Frame) {
    assert!(!format!("{frame:?}").is_empty());
    if let (Some(message), Frame::Error(bytes)) = (frame.error_message(), frame) {
        // The message quotes the received bytes after these words.
        let before =
            String::from_utf8_lossy(bytes).split("with args").next().map_or(0, |text| text.chars().count());
        let shown = message.chars().count();
        assert!(shown <= before.min(MAX_ERROR_MESSAGE) && !message.contains(char::is_control), "{message}");
    }
    for (name, value) in frame.fields() {
        let found = name.as_text().map(|name| frame.field(name).is_some());
        assert_ne!(found, Some(false), "a field is not found by its name: {name:?} {value:?}");
    }
    let _ = (frame.as_integer(), frame.as_items(), frame.as_text());
    if let Some((message, read)) = frame.as_bytes().and_then(|bytes| Some((bytes, Unverified::parse(bytes)?)))
    {
        // The client accepts only messages that a node writes.
        let said = read.verify(NODE_ID, OWNER);
        assert!(said.is_none_or(|said| said.sign(NODE_ID, OWNER) == message), "{message:?}");
    }
}

/// Writes a frame in RESP3, as a server does.
fn write(frame: &Frame, into: &mut BytesMut) {
    let blob = |into: &mut BytesMut, kind: char, bytes: &[u8]| {
        into.extend_from_slice(format!("{kind}{}\r\n", bytes.len()).as_bytes());
        into.extend_from_slice(bytes);
        into.extend_from_slice(b"\r\n");
    };
    let line = |into: &mut BytesMut, kind: u8, bytes: &[u8]| {
        into.extend_from_slice(&[&[kind], bytes, b"\r\n"].concat());
    };
    let head = |into: &mut BytesMut, kind: u8, count: usize| line(into, kind, count.to_string().as_bytes());
    match frame {
        Frame::Integer(number) => line(into, b':', number.to_string().as_bytes()),
        Frame::Nil => line(into, b'_', b""),
        Frame::Simple(bytes) => line(into, b'+', bytes),
        Frame::Error(bytes) => blob(into, '!', bytes),
        Frame::Bulk(bytes) => blob(into, '$', bytes),
        Frame::Numeral(bytes) => line(into, b',', bytes),
        Frame::Boolean(truth) => line(into, b'#', if *truth { b"t" } else { b"f" }),
        Frame::Array(items) => {
            head(into, b'*', items.len());
            items.iter().for_each(|item| write(item, into));
        }
        Frame::Push(items) => {
            head(into, b'>', items.len());
            items.iter().for_each(|item| write(item, into));
        }
        Frame::Map(pairs) => {
            head(into, b'%', pairs.len());
            for (name, value) in pairs {
                write(name, into);
                write(value, into);
            }
        }
    }
}

/// Checks that a command with any arguments is written as a list of strings.
fn commands_are_frames(stream: &[u8], sizes: &[u8], decode: &impl Decoder) {
    let size = 1 + usize::from(sizes.first().copied().unwrap_or(16));
    let words: Vec<&[u8]> = stream.chunks(size).collect();
    let mut buffer = BytesMut::new();
    wire::command(&mut buffer, &words);
    let Ok(Some(Frame::Array(items))) = decode(&mut buffer) else { panic!("a command is not a list") };
    assert!(buffer.is_empty() && items.len() == words.len());
    let is_same = |(item, word): (&Frame, &&[u8])| matches!(item, Frame::Bulk(bytes) if bytes == word);
    assert!(items.iter().zip(&words).all(is_same), "an argument was not written unchanged");
}
