//! The push that grants a waiter its lock, and the proof that a node wrote it.
//!
//! Every user with the permission to `PUBLISH` can write to the channel of a waiter. Ticket, stamp and fence
//! are not secret. The owner is secret: only the waiter and the nodes know it. So a node signs the message
//! with the owner. It also signs its node id, so that a user who can read the message of one node cannot
//! publish it on another node:
//!
//! ```text
//! stamped <ticket> <fence> <stamp> <waited-ms> <claim-ms> <proof> <key>
//! grant <ticket> <fence> <proof> <key>
//! ```
//!
//! The proof is HMAC-SHA256, with the owner as key, over the node id, a blank, and the message without
//! `<proof> `. The message contains the first 16 bytes of the HMAC, as 32 lower-case hexadecimal digits. The
//! signed text is unambiguous: no node id and no number contains a blank, the word after the node id
//! determines how many numbers follow, and the key is the rest. Node and client share this file, so there is
//! one copy of the rule.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write;

/// The number of bytes of the HMAC in a message. To guess them takes 2^127 messages on average.
const PROOF_BYTES: usize = 16;

/// The message by which a node grants a lock to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantMessage<'a> {
    /// The ticket of the waiter.
    pub ticket: u64,
    /// The fence of the lock.
    pub fence: u64,
    /// The stamp and times, if the request had a stamp.
    pub stamped: Option<Stamped>,
    /// The key of the request; the first one if the request has several.
    pub key: &'a [u8],
}

/// The numbers that a node adds if the request had a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// The stamp of the request.
    pub stamp: u64,
    /// How long the request waited, in milliseconds.
    pub waited_ms: u64,
    /// The claim window in milliseconds: how long the node keeps the lock if the waiter does not claim it.
    pub claim_ms: u64,
}

impl GrantMessage<'_> {
    /// The bytes that the node with this id publishes, signed with the owner.
    #[must_use]
    pub fn sign(&self, node_id: &str, owner: &[u8]) -> Vec<u8> {
        let Self { ticket, fence, stamped, key } = self;
        let mut message = match stamped {
            None => format!("grant {ticket} {fence} "),
            Some(Stamped { stamp, waited_ms, claim_ms }) => {
                format!("stamped {ticket} {fence} {stamp} {waited_ms} {claim_ms} ")
            }
        };
        let proof = mac(node_id, owner, message.as_bytes(), key).map(|mac| mac.finalize().into_bytes());
        for byte in proof.iter().flatten().take(PROOF_BYTES) {
            // Writing to a string cannot fail.
            let _ = write!(message, "{byte:02x}");
        }
        let mut message = message.into_bytes();
        message.push(b' ');
        message.extend_from_slice(key);
        message
    }
}

/// A message that may be forged. Only its ticket is readable: the receiver needs it to find the owner.
#[derive(Clone, Copy, Debug)]
pub struct Unverified<'a> {
    said: GrantMessage<'a>,
    /// The message up to the proof.
    head: &'a [u8],
    proof: [u8; PROOF_BYTES],
}

impl<'a> Unverified<'a> {
    /// Parses a message; `None` if the bytes are not a grant message.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut rest = message;
        let mut word = || {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            let (word, after) = rest.split_at_checked(end)?;
            rest = after.get(1..)?;
            std::str::from_utf8(word).ok()
        };
        let is_stamped = match word()? {
            "stamped" => true,
            "grant" => false,
            _ => return None,
        };
        let mut number = || word()?.parse::<u64>().ok();
        let (ticket, fence) = (number()?, number()?);
        let stamped = match is_stamped {
            true => Some(Stamped { stamp: number()?, waited_ms: number()?, claim_ms: number()? }),
            false => None,
        };
        let proof = word()?;
        let head = message.len().checked_sub(rest.len() + 1 + proof.len())?;
        let said = GrantMessage { ticket, fence, stamped, key: rest };
        Some(Self { said, head: message.get(..head)?, proof: bytes(proof)? })
    }

    /// The ticket in the message.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.said.ticket
    }

    /// The message, if the node with this id has written it, which knows this owner. The check takes the same
    /// time for every proof.
    #[must_use]
    pub fn verify(self, node_id: &str, owner: &[u8]) -> Option<GrantMessage<'a>> {
        let mac = mac(node_id, owner, self.head, self.said.key)?;
        mac.verify_truncated_left(&self.proof).ok()?;
        Some(self.said)
    }
}

/// The HMAC of a node id and a message without its proof. HMAC accepts keys of any length, so the result is
/// never `None`.
fn mac(node_id: &str, owner: &[u8], head: &[u8], key: &[u8]) -> Option<Hmac<Sha256>> {
    let mac = Hmac::<Sha256>::new_from_slice(owner).ok()?;
    Some(mac.chain_update(node_id).chain_update(b" ").chain_update(head).chain_update(key))
}

/// Decodes lower-case hexadecimal digits.
fn bytes(digits: &str) -> Option<[u8; PROOF_BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; PROOF_BYTES];
    if digits.len() != 2 * PROOF_BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNER: &[u8] = b"00112233445566778899aabbccddeeff";
    const NODE: &str = "0123456789abcdef0123456789abcdef01234567";
    const STAMPED: GrantMessage<'_> = GrantMessage {
        ticket: 20,
        fence: 2,
        stamped: Some(Stamped { stamp: 7, waited_ms: 1500, claim_ms: 40 }),
        key: b"k",
    };
    const PLAIN: GrantMessage<'_> = GrantMessage { ticket: 7, fence: 2, stamped: None, key: b"orders:42" };

    fn verified<'a>(message: &'a [u8], owner: &[u8]) -> Option<GrantMessage<'a>> {
        Unverified::parse(message)?.verify(NODE, owner)
    }

    /// The proofs come from another implementation:
    /// `printf "$NODE stamped 20 2 7 1500 40 k" | openssl dgst -sha256 -hmac "$OWNER"`, the first 32 digits.
    #[test]
    fn messages_are_spelled_as_other_languages_expect_them() {
        let table = [
            (STAMPED, "stamped 20 2 7 1500 40 6d7e6fcc48ea679ffb98c4a3bf15f9b6 k"),
            (PLAIN, "grant 7 2 397a204dc6ba9d3c0c3019c16acf720a orders:42"),
        ];
        for (message, text) in table {
            assert_eq!(String::from_utf8(message.sign(NODE, OWNER)).unwrap(), text);
            assert_eq!(verified(text.as_bytes(), OWNER), Some(message));
        }
    }

    #[test]
    fn any_change_makes_a_proof_invalid() {
        for message in [STAMPED, PLAIN] {
            let signed = message.sign(NODE, OWNER);
            for (place, byte) in signed.iter().enumerate() {
                for other in [b'0', b'9', b' ', b'k', byte ^ 1] {
                    let mut changed = signed.clone();
                    changed[place] = other;
                    let is_same = changed == signed;
                    assert_eq!(verified(&changed, OWNER).is_some(), is_same, "byte {place}: {changed:?}");
                }
                assert_eq!(verified(&signed[..place], OWNER), None, "cut off at {place}");
            }
            assert_eq!(verified(&signed, b"00112233445566778899aabbccddeefe"), None, "another owner");
            for other in ["", "0", "1123456789abcdef0123456789abcdef01234567"] {
                let read = Unverified::parse(&signed).unwrap().verify(other, OWNER);
                assert_eq!(read, None, "published on another node: {other}");
            }
            assert_eq!(verified(&[&signed[..], b"k"].concat(), OWNER), None, "another key");
        }
    }

    #[test]
    fn a_proof_of_one_message_proves_no_other() {
        let proof = |message: &[u8]| -> Vec<u8> {
            message.split(|byte| *byte == b' ').nth(6).unwrap_or_default().to_vec()
        };
        let genuine = proof(&STAMPED.sign(NODE, OWNER));
        let stamped = |stamp, waited_ms, claim_ms| Some(Stamped { stamp, waited_ms, claim_ms });
        for forged in [
            GrantMessage { ticket: 21, ..STAMPED },
            GrantMessage { fence: 3, ..STAMPED },
            GrantMessage { stamped: stamped(8, 1500, 40), ..STAMPED },
            GrantMessage { stamped: stamped(7, 1501, 40), ..STAMPED },
            GrantMessage { stamped: stamped(7, 1500, 41), ..STAMPED },
            GrantMessage { key: b"j", ..STAMPED },
            // The same digits, split differently.
            GrantMessage { ticket: 2, fence: 2, stamped: stamped(7, 1500, 40), ..STAMPED },
        ] {
            let own = forged.sign(NODE, b"a guess");
            let text = String::from_utf8(own.clone()).unwrap();
            let text = text
                .replace(std::str::from_utf8(&proof(&own)).unwrap(), std::str::from_utf8(&genuine).unwrap());
            assert_eq!(verified(text.as_bytes(), OWNER), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_message_is_not_read() {
        let proof = "0".repeat(32);
        for text in [
            String::new(),
            "stamped".into(),
            format!("stamped 20 2 7 1500 {proof} k"),
            format!("stamped 20 2 7 -1 40 {proof} k"),
            format!("stamped 20 2 7 1500 18446744073709551616 {proof} k"),
            format!("grants 7 2 {proof} k"),
            format!("grant 7 2 {proof}"),
            format!("grant 7 2 {}0 k", &proof[..30]),
            format!("grant 7 2 {proof}00 k"),
            format!("grant 7 2 {} k", "A".repeat(32)),
            // The messages of an older node, without a proof.
            "stamped 20 2 7 1500 40 k".into(),
            "grant 7 2 orders:42".into(),
        ] {
            assert!(Unverified::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Unverified::parse(format!("grant 7 2 {proof} ").as_bytes()).is_some(), "a key may be empty");
    }

    proptest! {
        #[test]
        fn every_message_is_read_as_it_was_written(
            (ticket, fence) in any::<(u64, u64)>(),
            times in any::<Option<(u64, u64, u64)>>(),
            key in any::<Vec<u8>>(),
            owner in proptest::collection::vec(any::<u8>(), 1..=256),
        ) {
            let stamped = times.map(|(stamp, waited_ms, claim_ms)| Stamped { stamp, waited_ms, claim_ms });
            let message = GrantMessage { ticket, fence, stamped, key: &key };
            let signed = message.sign(NODE, &owner);
            prop_assert_eq!(Unverified::parse(&signed).map(|read| read.ticket()), Some(ticket));
            prop_assert_eq!(verified(&signed, &owner), Some(message));
        }
    }
}
