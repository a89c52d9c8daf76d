//! Owners kept small: a UUID in its usual spelling has 36 bytes of text and 16 of content.
//!
//! Most owners are random values written in hexadecimal. Packing them pays for the whole bookkeeping
//! of a lock. It is exact: only the one spelling that unpacking gives back is packed.

/// The longest hexadecimal owner that is packed, in text bytes.
const LONGEST_HEX: usize = 64;

/// Where the hyphens of a UUID stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// How an owner's bytes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// As given.
    Raw = 0,
    /// Lower-case hexadecimal, two digits a byte.
    Hex = 1,
    /// A lower-case UUID with hyphens.
    Uuid = 2,
}

impl Form {
    /// The form with this number; anything unknown reads as raw.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Hex,
            2 => Self::Uuid,
            _ => Self::Raw,
        }
    }
}

/// An owner in the form in which it is stored and compared.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    form: Form,
    raw: &'a [u8],
    dense: [u8; LONGEST_HEX / 2],
    dense_len: usize,
}

impl<'a> Packed<'a> {
    /// Packs an owner, if it can be.
    #[must_use]
    pub fn new(owner: &'a [u8]) -> Self {
        let mut packed = Self { form: Form::Raw, raw: owner, dense: [0; LONGEST_HEX / 2], dense_len: 0 };
        if let Some(uuid) = as_uuid(owner) {
            packed.form = Form::Uuid;
            packed.dense[..uuid.len()].copy_from_slice(&uuid);
            packed.dense_len = uuid.len();
        } else if owner.len() <= LONGEST_HEX && owner.len().is_multiple_of(2) && !owner.is_empty() {
            let len = owner.len() / 2;
            if decode(owner, &mut packed.dense[..len]) {
                packed.form = Form::Hex;
                packed.dense_len = len;
            }
        }
        packed
    }

    /// The length of the owner as spelled.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.raw.len()
    }

    /// How the bytes are to be read.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// The bytes to store.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self.form {
            Form::Raw => self.raw,
            Form::Hex | Form::Uuid => &self.dense[..self.dense_len],
        }
    }
}

/// How many bytes an owner of `text_len` bytes takes in `form`.
#[must_use]
pub fn stored_len(form: Form, text_len: usize) -> usize {
    match form {
        Form::Raw => text_len,
        Form::Hex => text_len / 2,
        Form::Uuid => 16,
    }
}

/// The owner as its holder spells it.
#[must_use]
pub fn unpack(form: Form, bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    if form == Form::Raw {
        return bytes.to_vec();
    }
    let mut text = Vec::with_capacity(bytes.len() * 2 + HYPHENS.len());
    for byte in bytes {
        if form == Form::Uuid && HYPHENS.contains(&text.len()) {
            text.push(b'-');
        }
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text
}

/// The 16 bytes of a UUID in its canonical spelling.
fn as_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    if HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let four =
        |at: usize| u64::from(u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]));
    let eight = |low: usize, high: usize| decode_eight(four(low) | four(high) << 32);
    let [(a, a_sound), (b, b_sound), (c, c_sound), (d, d_sound)] =
        [eight(0, 4), eight(9, 14), eight(19, 24), eight(28, 32)];
    let mut bytes = [0; 16];
    for (part, word) in bytes.as_chunks_mut().0.iter_mut().zip([a, b, c, d]) {
        *part = word.to_le_bytes();
    }
    (a_sound & b_sound & c_sound & d_sound).then_some(bytes)
}

/// Decodes lower-case hexadecimal; false if some digit is none.
fn decode(text: &[u8], into: &mut [u8]) -> bool {
    let (eights, rest) = text.as_chunks::<8>();
    let (fours, last) = into.as_chunks_mut::<4>();
    let mut valid = true;
    for (digits, bytes) in eights.iter().zip(fours.iter_mut()) {
        let (decoded, sound) = decode_eight(u64::from_le_bytes(*digits));
        *bytes = decoded.to_le_bytes();
        valid &= sound;
    }
    for (pair, byte) in rest.chunks_exact(2).zip(last) {
        let (high, low) = (NIBBLE[usize::from(pair[0])], NIBBLE[usize::from(pair[1])]);
        valid &= high | low < 16;
        *byte = high << 4 | (low & 15);
    }
    valid
}

/// Decodes eight digits at once, one in each byte of a word, the first one lowest.
#[allow(clippy::cast_possible_truncation, reason = "the upper half is zero")]
fn decode_eight(digits: u64) -> (u32, bool) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Letters have bit 6; `a` is 0x61 and stands for ten.
    let letters = (digits >> 6) & EACH;
    let values = (digits & (EACH * 15)) + letters * 9;
    // Right if the values spell the same digits again.
    let over_nine = ((values + EACH * 6) >> 4) & EACH;
    let spelled = values.wrapping_add(EACH * 0x30).wrapping_add(over_nine * 0x27);
    let sound = spelled == digits && values & (EACH * 0xf0) == 0;
    // Two digits to a byte, then the bytes together.
    let pairs = ((values << 4) | (values >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | (pairs >> 8)) & 0x0000_ffff_0000_ffff;
    ((fours | (fours >> 16)) as u32, sound)
}

/// The value of each hexadecimal digit, 255 for every other byte.
const NIBBLE: [u8; 256] = {
    let mut table = [255; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(owner: &[u8]) -> Form {
        let packed = Packed::new(owner);
        assert_eq!(unpack(packed.form(), packed.bytes()), owner);
        assert_eq!(stored_len(packed.form(), owner.len()), packed.bytes().len());
        packed.form()
    }

    #[test]
    fn known_spellings_are_packed() {
        assert_eq!(round_trip(b"0f8fad5b-d9cb-469f-a165-70867728950e"), Form::Uuid);
        assert_eq!(round_trip(b"0f8fad5bd9cb469fa16570867728950e"), Form::Hex);
        assert_eq!(round_trip(&[b'a'; 64]), Form::Hex);
    }

    #[test]
    fn whatever_would_not_come_back_stays_as_it_is() {
        for owner in [
            &b"0F8FAD5B-D9CB-469F-A165-70867728950E"[..],
            b"0f8fad5b-d9cb-469f-a165-70867728950",
            b"0f8fad5b+d9cb-469f-a165-70867728950e",
            b"0f8fad5b-d9cb-469f-a165-7086772-950e",
            b"alice",
            b"abc",
            b"",
            &[b'a'; 66],
        ] {
            assert_eq!(round_trip(owner), Form::Raw, "{}", owner.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_owner_comes_back(owner in proptest::collection::vec(any::<u8>(), 1..=256)) {
            round_trip(&owner);
        }

        #[test]
        fn any_text_like_an_owner_comes_back(owner in "[0-9a-fA-F-]{1,70}") {
            round_trip(owner.as_bytes());
        }

        /// One digit of a UUID replaced by anything: packed only if it is a digit again.
        #[test]
        fn a_wrong_digit_is_seen(at in 0usize..36, byte in any::<u8>()) {
            let mut owner = *b"0f8fad5b-d9cb-469f-a165-70867728950e";
            owner[at] = byte;
            let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f') && !HYPHENS.contains(&at);
            let is_hyphen = byte == b'-' && HYPHENS.contains(&at);
            prop_assert_eq!(round_trip(&owner) == Form::Uuid, is_digit || is_hyphen);
        }

        #[test]
        fn different_owners_stay_different(a in "[0-9a-f-]{1,40}", b in "[0-9a-f-]{1,40}") {
            let (x, y) = (Packed::new(a.as_bytes()), Packed::new(b.as_bytes()));
            prop_assert_eq!(a == b, x.form() == y.form() && x.bytes() == y.bytes());
        }
    }
}
