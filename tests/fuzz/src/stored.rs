//! What a node reads from disk: state files, stripes and locks, valid or not.

use crate::byte_reader::ByteReader;
use redlock_contract::limits::{MAX_FENCE, MAX_LABEL_BYTES, MAX_OWNER_BYTES, MAX_TTL_LIMIT_MS};
use redlock_contract::{HighWater, NonVoting};
use redlock_core::durable::{DurableState, FileId, ID_DIGITS, LocksDigest, StoredState, Unreadable};
use redlock_core::fence::{Stripe, Stripes};
use redlock_core::image::{LockImage, encode_stripes, restore_stripes};
use redlock_core::{LockNode, Millis};
use xxhash_rust::xxh3::xxh3_64;

const NOT_WRITTEN: &str = "accepted a state that no node writes";

/// Runs the target.
pub fn run(bytes: &[u8]) {
    check(bytes, DurableState::decode);
}

/// Runs the target; `decode` reads a state.
///
/// # Panics
/// If a rule is broken.
pub fn check(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<StoredState, Unreadable>) {
    let mut reader = ByteReader::new(bytes);
    match reader.below(5) {
        0 => state_of_any_bytes(reader.rest(), decode),
        1 => state_with_its_digest(reader.rest(), decode),
        2 => state_of_any_numbers(&mut reader, decode),
        3 => stripes(reader.rest()),
        _ => lock(&mut reader),
    }
}

/// A state that can be read is written as the same bytes. No node writes format 1 any more.
fn state_of_any_bytes(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<StoredState, Unreadable>) {
    if let Ok(stored) = decode(bytes) {
        assert!(is_written_as(&stored, bytes), "{NOT_WRITTEN}: {stored:?}");
    }
}

fn is_written_as(stored: &StoredState, bytes: &[u8]) -> bool {
    let text = stored.file.map(|file| stored.state.encode(file));
    text.map_or_else(|| bytes.starts_with(b"redlock-ledger 1\n"), |text| text.as_bytes() == bytes)
}

/// Content that may be wrong, with a correct digest, so that the parser reads it.
fn state_with_its_digest(content: &[u8], decode: impl Fn(&[u8]) -> Result<StoredState, Unreadable>) {
    let mut bytes = content.to_vec();
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    let digest = format!("digest {:016x}\n", xxh3_64(&bytes));
    bytes.extend_from_slice(digest.as_bytes());
    match decode(&bytes) {
        Ok(stored) => assert!(is_written_as(&stored, &bytes), "{NOT_WRITTEN}: {stored:?}"),
        Err(Unreadable::Version(version)) => {
            let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let said = first.strip_prefix(b"redlock-state ").and_then(|text| std::str::from_utf8(text).ok());
            assert!(version > 2 && said.and_then(|text| text.trim_end().parse().ok()) == Some(version));
        }
        Err(Unreadable::Damaged) => {}
    }
}

/// A written state is read unchanged, and the change of any byte is detected.
fn state_of_any_numbers(
    reader: &mut ByteReader<'_>,
    decode: impl Fn(&[u8]) -> Result<StoredState, Unreadable>,
) {
    let digits = b"0123456789abcdefABCDEF";
    let node_id = (0..ID_DIGITS).map(|_| char::from(*reader.pick(digits))).collect();
    let mut state = DurableState::new(node_id, reader.number());
    state.incarnation = reader.sized_number();
    state.high_water = HighWater::new(reader.sized_number());
    state.longest_lease_ms = reader.sized_number();
    state.locks_at_shutdown =
        reader.one_in(2).then(|| LocksDigest { locks: reader.sized_number(), digest: reader.number() });
    for _ in 0..reader.below(4) {
        let key = [reader.byte(), reader.byte()];
        let fence = reader.sized_number().min(MAX_FENCE);
        state = state.reserving([Stripe::of(&key)], fence, 0).unwrap_or(state);
    }
    if reader.one_in(3) {
        let reasons =
            [NonVoting::Replica, NonVoting::CopiedState, NonVoting::ForeignData, NonVoting::NoState];
        state = state.without_vote(*reader.pick(&reasons), state.node_id.clone());
    } else if reader.one_in(3) {
        let mut floor = HighWater::new(reader.sized_number());
        floor.raise(u16::from(reader.byte()), reader.sized_number());
        state = state.admitted(&floor, &Stripes::default(), reader.sized_number()).0;
    }
    let file = FileId { inode: reader.number(), born_ns: reader.number().into() };
    let mut bytes = state.encode(file).into_bytes();
    assert_eq!(decode(&bytes), Ok(StoredState { state, file: Some(file) }));
    let place = usize::from(u16::from_le_bytes([reader.byte(), reader.byte()])) % bytes.len();
    bytes[place] ^= reader.byte().max(1);
    assert!(decode(&bytes).is_err(), "{NOT_WRITTEN}: byte {place} was changed");
}

/// Stripes that cannot be read change nothing. Stripes that can be read are stored and written unchanged.
fn stripes(bytes: &[u8]) {
    let mut stripes = Stripes::default();
    let Some(dataset) = restore_stripes(&mut stripes, bytes) else {
        assert_eq!((stripes.largest(), stripes.used().count()), (0, 0), "refused stripes were loaded");
        return;
    };
    let mut state = DurableState::new(String::new(), dataset.id.unwrap_or(0));
    state.high_water = HighWater::new(dataset.high_water);
    let written = encode_stripes(&stripes, &state);
    assert!(written.len() <= bytes.len(), "a stripe was written twice");
    let mut again = Stripes::default();
    let read = restore_stripes(&mut again, &written);
    assert_eq!(
        read.map(|read| (read.id, read.highest_fence)),
        Some((Some(dataset.id.unwrap_or(0)), dataset.highest_fence))
    );
    assert!(again.used().eq(stripes.used()) && again.largest() == stripes.largest());
    // Loading the same stripes again lowers no fence.
    assert!(restore_stripes(&mut stripes, bytes).is_some());
    assert!(again.used().eq(stripes.used()));
}

/// A stored lock is loaded unchanged, or not at all.
fn lock(reader: &mut ByteReader<'_>) {
    let mut now = Millis::START;
    let length =
        |reader: &mut ByteReader<'_>| usize::from(u16::from_le_bytes([reader.byte(), reader.byte()])) % 300;
    let text = |reader: &mut ByteReader<'_>, length| {
        // The format stores owners with a small alphabet in fewer bytes: hexadecimal, base 64, any.
        let alphabet: &[u8] = match reader.below(4) {
            0 => b"0123456789abcdef",
            1 => b"0123456789ABCDEF-",
            2 => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=",
            _ => return reader.take(length).to_vec(),
        };
        (0..length).map(|_| *reader.pick(alphabet)).collect::<Vec<u8>>()
    };
    let (owner_length, label_length, key_length) = (length(reader), length(reader), length(reader));
    let image = LockImage {
        fence: reader.sized_number().clamp(1, MAX_FENCE),
        left_ms: reader.sized_number(),
        held_ms: reader.sized_number(),
        extensions: u32::try_from(reader.sized_number()).unwrap_or(u32::MAX),
        owner: text(reader, owner_length),
        label: text(reader, label_length),
    };
    let key = text(reader, key_length);
    let mut node = LockNode::new(DurableState::new(String::new(), 0), Stripes::default());
    let is_legal = (1..=MAX_OWNER_BYTES).contains(&image.owner.len()) && image.label.len() <= MAX_LABEL_BYTES;
    let Ok(id) = node.load(3, &key, &image, &mut now) else {
        assert!(!is_legal && node.held() == 0, "a valid image was refused, or a refused lock is held");
        return;
    };
    assert!(is_legal, "loaded an image that is not of a lock");
    assert_eq!(node.location(id), (3, &key[..]));
    // The clock starts late enough for any lock that a node can have granted; longer times are reduced to the limit.
    let expected = LockImage {
        left_ms: image.left_ms.min(MAX_TTL_LIMIT_MS),
        held_ms: image.held_ms.min(now.0),
        ..image
    };
    assert_eq!(node.image(id, &mut now), expected);
}
