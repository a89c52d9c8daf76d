//! Encodes a command as an array of bulk strings.

use bytes::{BufMut, BytesMut};
use redlock_proto::Decimal;

/// Room for `$`, the digits of a length and two line ends: a command grows the buffer at most once.
const FRAMING: usize = 26;

/// Appends one command to a buffer.
pub(crate) fn command(buffer: &mut BytesMut, words: &[&[u8]]) {
    buffer.reserve(words.iter().map(|word| word.len() + FRAMING).sum::<usize>() + FRAMING);
    count(buffer, b'*', words.len());
    for word in words {
        count(buffer, b'$', word.len());
        buffer.put_slice(word);
        buffer.put_slice(b"\r\n");
    }
}

fn count(buffer: &mut BytesMut, kind: u8, count: usize) {
    // Names, owners and times are short: nearly every count has one or two digits.
    match u8::try_from(count) {
        Ok(count @ 0..10) => buffer.put_slice(&[kind, b'0' + count, b'\r', b'\n']),
        Ok(count @ 10..100) => {
            buffer.put_slice(&[kind, b'0' + count / 10, b'0' + count % 10, b'\r', b'\n']);
        }
        _ => {
            buffer.put_u8(kind);
            buffer.put_slice(Decimal::new(count as u64).as_bytes());
            buffer.put_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(words: &[&[u8]]) -> Vec<u8> {
        let mut buffer = BytesMut::new();
        command(&mut buffer, words);
        buffer.to_vec()
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let long = vec![b'x'; 12_345];
        let cases: [(&[&[u8]], Vec<u8>); 5] = [
            (&[], b"*0\r\n".to_vec()),
            (&[b"PING"], b"*1\r\n$4\r\nPING\r\n".to_vec()),
            (&[b"SET", b"", b"\r\n\0"], b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\n\r\n\0\r\n".to_vec()),
            (&[b"ECHO", b"0123456789"], b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n".to_vec()),
            (&[&long], [b"*1\r\n$12345\r\n", &long[..], b"\r\n"].concat()),
        ];
        for (words, bytes) in cases {
            assert_eq!(encoded(words), bytes);
        }
    }

    #[test]
    fn a_command_is_appended() {
        let mut buffer = BytesMut::from(&b"before"[..]);
        command(&mut buffer, &[b"A"]);
        assert_eq!(&buffer[..], b"before*1\r\n$1\r\nA\r\n");
    }

    proptest! {
        #[test]
        fn numbers_are_written_in_decimal(number: u64) {
            prop_assert_eq!(Decimal::new(number).as_bytes().to_vec(), number.to_string().into_bytes());
        }

        #[test]
        fn every_length_is_right(size in 0_usize..3000) {
            let word = vec![b'.'; size];
            let text = [format!("*1\r\n${size}\r\n").as_bytes(), &word, b"\r\n"].concat();
            prop_assert_eq!(encoded(&[&word]), text);
        }
    }
}
