//! What the client reads from a server, or from whatever answers at its address.
//!
//! Any bytes, in pieces of any size, are read as they are in one piece; they cost no more memory than a multiple of
//! what was really sent; and what was read is written and read again the same.

use crate::allocation::measured;
use crate::byte_reader::ByteReader;
use crate::wire::{self, Frame, ProtocolError};
use bytes::BytesMut;
use redlock_contract::grant::Unverified;

/// How many bytes may be asked for, for each that was sent: a list of empty lists is the dearest.
const MOST_FOR_A_BYTE: usize = 128;
/// And for none at all.
const MOST_FOR_NOTHING: usize = 4096;
/// The longest complaint that is shown, in characters.
const MAX_ERROR_MESSAGE: usize = 300;

/// Who waits for a lock.
const OWNER: &[u8] = b"00112233445566778899aabbccddeeff";

/// Takes one frame off the front of a buffer.
pub(crate) trait Decoder: Fn(&mut BytesMut) -> Result<Option<Frame>, ProtocolError> {}
impl<D: Fn(&mut BytesMut) -> Result<Option<Frame>, ProtocolError>> Decoder for D {}

/// Tries the client's parser.
pub fn run(bytes: &[u8]) {
    check(bytes, wire::decode);
}

/// Tries a parser.
pub(crate) fn check(bytes: &[u8], decode: impl Decoder) {
    let mut reader = ByteReader::new(bytes);
    let count = reader.below(8);
    let sizes = reader.take(count);
    let stream = reader.rest();

    let (whole, requested) = measured(|| read(stream, &[], &decode));
    let limit = MOST_FOR_NOTHING + MOST_FOR_A_BYTE * stream.len();
    assert!(requested <= limit, "{requested} bytes were asked for, {} were sent", stream.len());
    assert!(whole == read(stream, sizes, &decode), "in pieces of {sizes:?} it means something else");

    for frame in &whole.frames {
        look_at(frame);
        let mut again = BytesMut::new();
        write(frame, &mut again);
        assert!(decode(&mut again) == Ok(Some(frame.clone())) && again.is_empty(), "written anew: {frame:?}");
    }
    commands_are_frames(stream, sizes, &decode);
}

/// What became of a stream.
#[derive(PartialEq)]
struct StreamOutcome {
    frames: Vec<Frame>,
    /// How it ended, and what was left over if it ended in good order.
    end: Result<Vec<u8>, ProtocolError>,
}

/// Reads a stream that comes in pieces of these sizes, over and over; all at once if there are none.
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
                    assert!(buffer.len() < before, "a frame without a byte");
                    frames.push(frame);
                }
                Ok(None) => {
                    assert_eq!(buffer.len(), before, "something was taken off and nothing was made of it");
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

/// Asks a frame everything that the client asks.
fn look_at(frame: &Frame) {
    assert!(!format!("{frame:?}").is_empty());
    if let (Some(complaint), Frame::Error(bytes)) = (frame.error_message(), frame) {
        // What was sent is quoted after these words.
        let before =
            String::from_utf8_lossy(bytes).split("with args").next().map_or(0, |text| text.chars().count());
        let shown = complaint.chars().count();
        assert!(
            shown <= before.min(MAX_ERROR_MESSAGE) && !complaint.contains(char::is_control),
            "{complaint}"
        );
    }
    for (name, value) in frame.fields() {
        let found = name.as_text().map(|name| frame.field(name).is_some());
        assert_ne!(found, Some(false), "a field cannot be found by its name: {name:?} {value:?}");
    }
    let _ = (frame.as_integer(), frame.as_items(), frame.as_text());
    if let Some((message, read)) = frame.as_bytes().and_then(|bytes| Some((bytes, Unverified::parse(bytes)?)))
    {
        // What is taken for a node's message is what a node writes.
        let said = read.verify(OWNER);
        assert!(said.is_none_or(|said| said.sign(OWNER) == message), "{message:?}");
    }
}

/// Writes a frame as a server would, in RESP3.
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

/// A command, whatever its words, is written as a list of strings.
fn commands_are_frames(stream: &[u8], sizes: &[u8], decode: &impl Decoder) {
    let size = 1 + usize::from(sizes.first().copied().unwrap_or(16));
    let words: Vec<&[u8]> = stream.chunks(size).collect();
    let mut buffer = BytesMut::new();
    wire::command(&mut buffer, &words);
    let Ok(Some(Frame::Array(items))) = decode(&mut buffer) else { panic!("a command is no list") };
    assert!(buffer.is_empty() && items.len() == words.len());
    let is_same = |(item, word): (&Frame, &&[u8])| matches!(item, Frame::Bulk(bytes) if bytes == word);
    assert!(items.iter().zip(&words).all(is_same), "a word was not written as it is");
}
