//! Owners kept small: a UUID in its usual spelling has 36 bytes of text and 16 of content.
//!
//! Most owners are random values written in hexadecimal. Packing them pays for the whole bookkeeping
//! of a lock. It is exact: only the one spelling that unpacking gives back is packed.

/// The longest hexadecimal owner that is packed, in text bytes.
const LONGEST_HEX: usize = 64;

/// How many bytes a UUID takes.
const UUID_BYTES: usize = 16;

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
    raw: &'a [u8],
    dense: Dense,
}

/// The bytes of an owner that can be packed: its digits, the first half of them in the upper halves of the
/// bytes and the second half in the lower. So packed, digits need not change places.
#[derive(Clone, Copy, Debug)]
enum Dense {
    None,
    Hex([u8; LONGEST_HEX / 2]),
    Uuid([u8; UUID_BYTES]),
}

impl<'a> Packed<'a> {
    /// Packs an owner, if it can be.
    #[must_use]
    #[inline]
    pub fn new(owner: &'a [u8]) -> Self {
        let dense = as_uuid(owner).map_or_else(|| as_hex(owner), Dense::Uuid);
        Self { raw: owner, dense }
    }

    /// The length of the owner as spelled.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.raw.len()
    }

    /// How the bytes are to be read.
    #[must_use]
    pub fn form(&self) -> Form {
        match self.dense {
            Dense::None => Form::Raw,
            Dense::Hex(_) => Form::Hex,
            Dense::Uuid(_) => Form::Uuid,
        }
    }

    /// The bytes to store.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.dense {
            Dense::None => self.raw,
            Dense::Hex(dense) => dense.get(..self.raw.len() / 2).unwrap_or(dense),
            Dense::Uuid(dense) => dense,
        }
    }

    /// The bytes to store, if the owner is a UUID, as most are.
    #[must_use]
    pub fn as_uuid(&self) -> Option<&[u8; UUID_BYTES]> {
        match &self.dense {
            Dense::Uuid(dense) => Some(dense),
            _ => None,
        }
    }
}

/// How many bytes an owner of `text_len` bytes takes in `form`.
#[must_use]
pub fn stored_len(form: Form, text_len: usize) -> usize {
    match form {
        Form::Raw => text_len,
        Form::Hex => text_len / 2,
        Form::Uuid => UUID_BYTES,
    }
}

/// The owner as its holder spells it.
#[must_use]
pub fn unpack(form: Form, bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    if form == Form::Raw {
        return bytes.to_vec();
    }
    let halves = bytes.iter().map(|byte| byte >> 4).chain(bytes.iter().map(|byte| byte & 15));
    let mut text = Vec::with_capacity(bytes.len() * 2 + HYPHENS.len());
    for value in halves {
        if form == Form::Uuid && HYPHENS.contains(&text.len()) {
            text.push(b'-');
        }
        text.push(DIGITS[usize::from(value)]);
    }
    text
}

/// The digits of a UUID in its canonical spelling.
#[inline]
fn as_uuid(text: &[u8]) -> Option<[u8; UUID_BYTES]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    let four =
        |at: usize| u64::from(u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]));
    let eight = |low: usize, high: usize| values_of(four(low) | four(high) << 32);
    let [(a, a_wrong), (b, b_wrong), (c, c_wrong), (d, d_wrong)] =
        [eight(0, 4), eight(9, 14), eight(19, 24), eight(28, 32)];
    let hyphens_wrong = HYPHENS.iter().fold(0, |wrong, at| wrong | (text[*at] ^ b'-'));
    if a_wrong | b_wrong | c_wrong | d_wrong | u64::from(hyphens_wrong) != 0 {
        return None;
    }
    let mut bytes = [0; UUID_BYTES];
    for (part, word) in bytes.as_chunks_mut().0.iter_mut().zip([a << 4 | c, b << 4 | d]) {
        *part = word.to_le_bytes();
    }
    Some(bytes)
}

/// The digits of lower-case hexadecimal, an even number of them.
fn as_hex(text: &[u8]) -> Dense {
    let mut dense = [0; LONGEST_HEX / 2];
    let is_whole = text.len().is_multiple_of(2) && !text.is_empty();
    let (high, low) = text.split_at(text.len() / 2);
    let is_hex = is_whole && dense.get_mut(..high.len()).is_some_and(|bytes| decode(high, low, bytes));
    if is_hex { Dense::Hex(dense) } else { Dense::None }
}

/// Decodes lower-case hexadecimal from two texts of one length; false if some digit is none.
fn decode(high: &[u8], low: &[u8], into: &mut [u8]) -> bool {
    let ((high, high_rest), (low, low_rest)) = (high.as_chunks::<8>(), low.as_chunks::<8>());
    let (into, into_rest) = into.as_chunks_mut::<8>();
    let mut wrong = 0;
    for ((high, low), bytes) in high.iter().zip(low).zip(into) {
        let (high, high_wrong) = values_of(u64::from_le_bytes(*high));
        let (low, low_wrong) = values_of(u64::from_le_bytes(*low));
        *bytes = (high << 4 | low).to_le_bytes();
        wrong |= high_wrong | low_wrong;
    }
    for ((high, low), byte) in high_rest.iter().zip(low_rest).zip(into_rest) {
        let (high, low) = (NIBBLE[usize::from(*high)], NIBBLE[usize::from(*low)]);
        wrong |= u64::from((high | low) & 0xf0);
        *byte = high << 4 | (low & 15);
    }
    wrong == 0
}

/// The values of eight digits at once, one in each byte of a word, and zero if they are digits all of them.
#[inline]
fn values_of(digits: u64) -> (u64, u64) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Letters have bit 6; `a` is 0x61 and stands for ten.
    let letters = (digits >> 6) & EACH;
    let values = (digits & (EACH * 15)) + letters * 9;
    // Right if the values spell the same digits again.
    let over_nine = ((values + EACH * 6) >> 4) & EACH;
    let spelled = values.wrapping_add(EACH * 0x30).wrapping_add(over_nine * 0x27);
    (values, (spelled ^ digits) | (values & (EACH * 0xf0)))
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
