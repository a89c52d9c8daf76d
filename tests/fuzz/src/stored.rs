//! What a node finds on disk: ledgers, stripes and locks that were saved, or something else altogether.

use crate::tape::Tape;
use redlock_core::fence::{MAX_FENCE, Stripes};
use redlock_core::image::{LockImage, encode_stripes, restore_stripes};
use redlock_core::ledger::{ID_DIGITS, Ledger, Seal, Unreadable};
use redlock_core::request::{MAX_LABEL_BYTES, MAX_OWNER_BYTES};
use redlock_core::{Millis, Node};
use xxhash_rust::xxh3::xxh3_64;

/// The last moment that a table can tell, some thousands of years away.
pub(crate) const LATEST: Millis = Millis((1 << 48) - 1);

const NOT_WRITTEN: &str = "a ledger was read that nobody wrote";

/// Tries one of them.
pub fn run(bytes: &[u8]) {
    check(bytes, Ledger::decode);
}

/// Tries one of them, where ledgers are read in this way.
///
/// # Panics
/// When a promise is broken.
pub fn check(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<Ledger, Unreadable>) {
    let mut tape = Tape::new(bytes);
    match tape.below(5) {
        0 => ledger_of_any_bytes(tape.rest(), decode),
        1 => ledger_with_its_digest(tape.rest(), decode),
        2 => ledger_of_any_numbers(&mut tape, decode),
        3 => stripes(tape.rest()),
        _ => lock(&mut tape),
    }
}

/// What is read as a ledger is written the same.
fn ledger_of_any_bytes(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<Ledger, Unreadable>) {
    if let Ok(ledger) = decode(bytes) {
        assert!(ledger.encode().as_bytes() == bytes, "{NOT_WRITTEN}: {ledger:?}");
    }
}

/// A digest that is right, under content that may be wrong: nothing else stands in the way of the parser.
fn ledger_with_its_digest(content: &[u8], decode: impl Fn(&[u8]) -> Result<Ledger, Unreadable>) {
    let mut bytes = content.to_vec();
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    let digest = format!("digest {:016x}\n", xxh3_64(&bytes));
    bytes.extend_from_slice(digest.as_bytes());
    match decode(&bytes) {
        Ok(ledger) => assert!(ledger.encode().as_bytes() == bytes, "{NOT_WRITTEN}: {ledger:?}"),
        Err(Unreadable::Version(version)) => {
            let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let said = first.strip_prefix(b"redlock-ledger ").and_then(|text| std::str::from_utf8(text).ok());
            assert!(version > 1 && said.and_then(|text| text.trim_end().parse().ok()) == Some(version));
        }
        Err(Unreadable::Damaged) => {}
    }
}

/// What is written is read the same, and no change of a byte goes unseen.
fn ledger_of_any_numbers(tape: &mut Tape<'_>, decode: impl Fn(&[u8]) -> Result<Ledger, Unreadable>) {
    let digits = b"0123456789abcdefABCDEF";
    let ledger = Ledger {
        node_id: (0..ID_DIGITS).map(|_| char::from(*tape.pick(digits))).collect(),
        mark: tape.sized_number(),
        longest_ttl_ms: tape.sized_number(),
        seal: tape.one_in(2).then(|| Seal { locks: tape.sized_number(), digest: tape.number() }),
        grants_are_stored: tape.one_in(2),
    };
    let mut bytes = ledger.encode().into_bytes();
    assert_eq!(decode(&bytes), Ok(ledger));
    let place = usize::from(u16::from_le_bytes([tape.byte(), tape.byte()])) % bytes.len();
    bytes[place] ^= tape.byte().max(1);
    assert!(decode(&bytes).is_err(), "{NOT_WRITTEN}: byte {place} is another");
}

/// What cannot be read changes nothing; what can be read is kept, and what is written is what was kept.
fn stripes(bytes: &[u8]) {
    let mut stripes = Stripes::default();
    let Some((mark, longest_ttl_ms)) = restore_stripes(&mut stripes, bytes) else {
        assert_eq!((stripes.largest(), stripes.used().count()), (0, 0), "refused, and yet taken over");
        return;
    };
    let ledger = Ledger { mark, longest_ttl_ms, ..Ledger::new(String::new()) };
    let written = encode_stripes(&stripes, &ledger);
    assert!(written.len() <= bytes.len(), "every stripe once");
    let mut again = Stripes::default();
    assert_eq!(restore_stripes(&mut again, &written), Some((mark, longest_ttl_ms)));
    assert!(again.used().eq(stripes.used()) && again.largest() == stripes.largest());
    // Read once more over what is there: nothing is lowered.
    assert!(restore_stripes(&mut stripes, bytes).is_some());
    assert!(again.used().eq(stripes.used()));
}

/// A lock that was saved comes back as it was, or not at all.
fn lock(tape: &mut Tape<'_>) {
    let mut now = Millis::START;
    let length = |tape: &mut Tape<'_>| usize::from(u16::from_le_bytes([tape.byte(), tape.byte()])) % 300;
    let text = |tape: &mut Tape<'_>, length| {
        // Owners are stored in fewer bytes if they are of few characters: hexadecimal, base 64, any.
        let alphabet: &[u8] = match tape.below(4) {
            0 => b"0123456789abcdef",
            1 => b"0123456789ABCDEF-",
            2 => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=",
            _ => return tape.take(length).to_vec(),
        };
        (0..length).map(|_| *tape.pick(alphabet)).collect::<Vec<u8>>()
    };
    let (owner_length, label_length, key_length) = (length(tape), length(tape), length(tape));
    let image = LockImage {
        fence: tape.sized_number().clamp(1, MAX_FENCE),
        left_ms: tape.sized_number(),
        held_ms: tape.sized_number(),
        extensions: u32::try_from(tape.sized_number()).unwrap_or(u32::MAX),
        owner: text(tape, owner_length),
        label: text(tape, label_length),
    };
    let key = text(tape, key_length);
    let mut node = Node::new(Ledger::new(String::new()), 0);
    let is_legal = (1..=MAX_OWNER_BYTES).contains(&image.owner.len()) && image.label.len() <= MAX_LABEL_BYTES;
    let Ok(id) = node.load(3, &key, &image, &mut now) else {
        assert!(!is_legal && node.held() == 0, "refused, and yet there");
        return;
    };
    assert!(is_legal, "an image that is not of a lock");
    assert_eq!(node.place(id), (3, &key[..]));
    // A clock starts late enough for any lock that a node can have granted; others are cut down to it.
    let expected = LockImage {
        left_ms: image.left_ms.min(now.left_until(LATEST)),
        held_ms: image.held_ms.min(now.0),
        ..image
    };
    assert_eq!(node.image(id, &mut now), expected);
}
