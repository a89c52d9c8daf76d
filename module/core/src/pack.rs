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
    if text.len() != 36 || HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut bytes = [0; 16];
    let mut valid = true;
    for (from, to, at) in [(0, 8, 0), (9, 13, 4), (14, 18, 6), (19, 23, 8), (24, 36, 10)] {
        valid &= decode(&text[from..to], &mut bytes[at..at + (to - from) / 2]);
    }
    valid.then_some(bytes)
}

/// Decodes lower-case hexadecimal; false if some digit is none.
fn decode(text: &[u8], into: &mut [u8]) -> bool {
    let mut seen = 0;
    for (pair, byte) in text.chunks_exact(2).zip(into) {
        let (high, low) = (NIBBLE[usize::from(pair[0])], NIBBLE[usize::from(pair[1])]);
        seen |= high | low;
        *byte = high << 4 | (low & 15);
    }
    seen < 16
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

        #[test]
        fn different_owners_stay_different(a in "[0-9a-f-]{1,40}", b in "[0-9a-f-]{1,40}") {
            let (x, y) = (Packed::new(a.as_bytes()), Packed::new(b.as_bytes()));
            prop_assert_eq!(a == b, x.form() == y.form() && x.bytes() == y.bytes());
        }
    }
}
