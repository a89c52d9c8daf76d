//! A command on its way into the cluster, and where it belongs.

use super::slots::{Place, slot_of};
use crate::wire::{self, Frame};
use bytes::{Bytes, BytesMut};

/// A command of the driver. Nothing shows it: it carries an owner.
pub(super) struct Command {
    /// As it is sent.
    pub(super) bytes: Bytes,
    pub(super) aim: Aim,
}

/// Whom a command is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Every master.
    Masters,
    /// Whoever serves this key.
    Key {
        key: Bytes,
        slot: usize,
        /// Whether it gives something back, which must not be left unsaid.
        frees: bool,
    },
}

impl Command {
    /// Reads a command as the driver sends it; `None` if it is none that the module has.
    ///
    /// Where the key stands is known here: servers can be asked, but other clients guess, and those that
    /// take the first word after the name for a key are wrong about the commands with several.
    pub(super) fn read(frame: &Frame) -> Option<Self> {
        let words: Option<Vec<&Bytes>> = frame
            .as_items()?
            .iter()
            .map(|word| match word {
                Frame::Bulk(bytes) => Some(bytes),
                _ => None,
            })
            .collect();
        let words = words?;
        let name = words.first()?.strip_prefix(b"REDLOCK.")?;
        let aim = match name {
            b"NODE" => Aim::Masters,
            b"ACQUIRE" | b"EXTEND" | b"RELEASE" | b"INSPECT" => Aim::key(words.get(1)?, name == b"RELEASE"),
            // Before the keys stands how many there are. If they do not share a slot, the server says so.
            b"MACQUIRE" | b"MEXTEND" | b"MRELEASE" => Aim::key(words.get(2)?, name == b"MRELEASE"),
            _ => return None,
        };
        let mut bytes = BytesMut::new();
        let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        wire::command(&mut bytes, &words);
        Some(Self { bytes: bytes.freeze(), aim })
    }
}

impl Aim {
    fn key(key: &Bytes, frees: bool) -> Self {
        Self::Key { key: key.clone(), slot: slot_of(key), frees }
    }
}

/// A refusal that says where to ask instead. Nothing has been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// The slot is served there from now on.
    Moved(usize, Place),
    /// This key may be there already: the slot is on its way.
    Ask(Place),
    /// Some of the keys are here and some are there.
    TryAgain,
}

impl Advice {
    /// What a reply advises; `speaker` is the host that it came from.
    pub(super) fn read(frame: &Frame, speaker: &str) -> Option<Self> {
        let Frame::Error(bytes) = frame else { return None };
        let mut words = std::str::from_utf8(bytes).ok()?.split_ascii_whitespace();
        let kind = words.next()?;
        if kind == "TRYAGAIN" {
            return Some(Self::TryAgain);
        }
        let (slot, place) = (words.next()?.parse().ok()?, Place::parse(words.next()?, speaker)?);
        match kind {
            "MOVED" => Some(Self::Moved(slot, place)),
            "ASK" => Some(Self::Ask(place)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Option<Command> {
        let words = line.split(' ').map(|word| Frame::Bulk(Bytes::copy_from_slice(word.as_bytes())));
        Command::read(&Frame::Array(words.collect()))
    }

    #[test]
    fn every_command_finds_its_key() {
        let cases = [
            ("REDLOCK.ACQUIRE k owner 100 FENCE 7", "k", false),
            ("REDLOCK.EXTEND k owner 100", "k", false),
            ("REDLOCK.RELEASE k owner", "k", true),
            ("REDLOCK.INSPECT k", "k", false),
            ("REDLOCK.MACQUIRE 2 k l owner 100", "k", false),
            ("REDLOCK.MEXTEND 2 k l owner 100", "k", false),
            ("REDLOCK.MRELEASE 2 k l owner", "k", true),
        ];
        for (line, expected, giving) in cases {
            let Some(Command { aim: Aim::Key { key, slot, frees }, .. }) = command(line) else {
                panic!("no key in {line}")
            };
            assert_eq!((&key[..], slot, frees), (expected.as_bytes(), slot_of(b"k"), giving), "{line}");
        }
        assert_eq!(command("REDLOCK.NODE").expect("a command").aim, Aim::Masters);
    }

    #[test]
    fn a_command_is_sent_on_as_it_came() {
        let command = command("REDLOCK.RELEASE k owner").expect("a command");
        assert_eq!(command.bytes, &b"*3\r\n$15\r\nREDLOCK.RELEASE\r\n$1\r\nk\r\n$5\r\nowner\r\n"[..]);
    }

    #[test]
    fn what_is_no_command_of_ours_goes_nowhere() {
        for line in ["FLUSHALL", "REDLOCK.ACQUIRE", "REDLOCK.MACQUIRE 2", "REDLOCK.APPLY k o 1 1"] {
            assert!(command(line).is_none(), "{line}");
        }
        assert!(Command::read(&Frame::Integer(1)).is_none());
        assert!(Command::read(&Frame::Array(vec![])).is_none());
    }

    #[test]
    fn advice_is_told_from_other_refusals() {
        let place = |text| Place::parse(text, "speaker").expect("a place");
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", Some(Advice::Moved(3999, place("127.0.0.1:6381")))),
            ("MOVED 3999 :6381", Some(Advice::Moved(3999, place("speaker:6381")))),
            ("ASK 3999 127.0.0.1:6381", Some(Advice::Ask(place("127.0.0.1:6381")))),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Advice::TryAgain)),
            ("MOVED", None),
            ("MOVED far 127.0.0.1:6381", None),
            ("ASK 1 nowhere", None),
            ("CLUSTERDOWN Hash slot not served", None),
            ("ERR 1 127.0.0.1:6381", None),
        ];
        for (text, advice) in cases {
            let frame = Frame::Error(Bytes::from_static(text.as_bytes()));
            assert_eq!(Advice::read(&frame, "speaker"), advice, "{text}");
        }
        assert_eq!(Advice::read(&Frame::Bulk(Bytes::from_static(b"TRYAGAIN")), "speaker"), None);
    }
}
