//! What a process tells about its locks: one line for each thing, with the time at which it was so.
//!
//! Times are chosen so that they understate: a lock is said to be held from a moment at which it was, until a
//! moment at which it still was. What two processes say then contradicts only if they did hold it together.

use redlock_sim::SessionId;
use std::fmt;
use std::str::FromStr;

/// Something that happened to one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by [`now_ns`](super::now_ns).
    pub at_ns: u64,
    /// Which attempt; no two of a campaign have the same.
    pub session: SessionId,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The attempt begins; nothing has been sent yet.
    Asked {
        /// For which locks.
        keys: Vec<usize>,
    },
    /// It came to nothing.
    Failed {
        /// In a word, why.
        why: String,
    },
    /// The locks are held, since this moment at the latest.
    Held {
        /// Under which number.
        fence: u64,
        /// Until when they may be believed, as far as is known now. Not after this moment if it was too late.
        until_ns: u64,
    },
    /// The holder has asked, and was told that it still holds them.
    Believes {
        /// Until when, as far as is known now.
        until_ns: u64,
    },
    /// An extension succeeded.
    Extended,
    /// The holder, which did nothing but wait for it, was told that its time is nearly up.
    Told {
        /// When its time is up, as far as was known a moment before.
        until_ns: u64,
        /// The longest time for which the process did not run while it waited.
        stood_still_ns: u64,
    },
    /// From now on the holder does not rely on them any more.
    Ended(End),
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The holder let go while they were still its own.
    LetGo,
    /// Their time ran out.
    RanOut,
    /// The holder was told that they are gone, some time ago.
    Gone,
    /// The holder leaves them to run out, and believes in them until then.
    LeftBehind,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at_ns, self.session)?;
        match &self.what {
            What::Asked { keys } => {
                let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
                write!(f, "asked {}", keys.join(","))
            }
            What::Failed { why } => write!(f, "failed {why}"),
            What::Held { fence, until_ns } => write!(f, "held {fence} {until_ns}"),
            What::Believes { until_ns } => write!(f, "believes {until_ns}"),
            What::Extended => f.write_str("extended"),
            What::Told { until_ns, stood_still_ns } => write!(f, "told {until_ns} {stood_still_ns}"),
            What::Ended(End::LetGo) => f.write_str("let-go"),
            What::Ended(End::RanOut) => f.write_str("ran-out"),
            What::Ended(End::Gone) => f.write_str("gone"),
            What::Ended(End::LeftBehind) => f.write_str("left-behind"),
        }
    }
}

/// A line that tells of nothing.
#[derive(Debug)]
pub struct Unreadable;

impl FromStr for Event {
    type Err = Unreadable;

    fn from_str(line: &str) -> Result<Self, Unreadable> {
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or(Unreadable);
        let at_ns = number(word()?)?;
        let session = number(word()?)?;
        let what = match word()? {
            "asked" => {
                let keys = word()?.split(',').map(|key| key.parse().map_err(|_| Unreadable));
                What::Asked { keys: keys.collect::<Result<_, _>>()? }
            }
            "failed" => What::Failed { why: word()?.to_owned() },
            "held" => What::Held { fence: number(word()?)?, until_ns: number(word()?)? },
            "believes" => What::Believes { until_ns: number(word()?)? },
            "extended" => What::Extended,
            "told" => What::Told { until_ns: number(word()?)?, stood_still_ns: number(word()?)? },
            "let-go" => What::Ended(End::LetGo),
            "ran-out" => What::Ended(End::RanOut),
            "gone" => What::Ended(End::Gone),
            "left-behind" => What::Ended(End::LeftBehind),
            _ => return Err(Unreadable),
        };
        Ok(Self { at_ns, session, what })
    }
}

fn number(word: &str) -> Result<u64, Unreadable> {
    word.parse().map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_all_of_an_event() {
        let whats = [
            What::Asked { keys: vec![0, 12] },
            What::Failed { why: "contended".into() },
            What::Held { fence: 7, until_ns: 9 },
            What::Believes { until_ns: 8 },
            What::Extended,
            What::Told { until_ns: 11, stood_still_ns: 2 },
            What::Ended(End::LetGo),
            What::Ended(End::RanOut),
            What::Ended(End::Gone),
            What::Ended(End::LeftBehind),
        ];
        for what in whats {
            let event = Event { at_ns: 5, session: 3, what };
            assert_eq!(event.to_string().parse::<Event>().ok().as_ref(), Some(&event), "{event}");
        }
        for line in ["", "1", "1 2", "1 2 rested", "1 2 held 3", "1 2 asked 3,", "x 2 extended"] {
            assert!(line.parse::<Event>().is_err(), "{line}");
        }
    }
}
