//! What a process tells about its locks: one line for each thing, with the time at which it was so.
//!
//! Times are chosen so that they understate: a lock is said to be held from a moment at which it was, until a
//! moment at which it still was. What two processes say then contradicts only if they did hold it together.

use redlock_sim::SessionId;
use std::fmt;
use std::str::FromStr;

/// Something that happened to one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignEvent {
    /// When, by [`now_ns`](super::now_ns).
    pub at_ns: u64,
    /// Which attempt; no two of a campaign have the same.
    pub session: SessionId,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The attempt begins; nothing has been sent yet.
    Started {
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
    StillValid {
        /// Until when, as far as is known now.
        until_ns: u64,
    },
    /// An extension succeeded.
    Extended,
    /// The holder, which did nothing but wait for it, was told that its time is nearly up.
    LossNotified {
        /// When its time is up, as far as was known a moment before.
        until_ns: u64,
        /// The longest time for which the process did not run while it waited.
        longest_stall_ns: u64,
    },
    /// From now on the holder does not rely on them any more.
    Ended(HoldEnd),
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// The holder let go while they were still its own.
    Released,
    /// Their time ran out.
    Expired,
    /// The holder was told that they are gone, some time ago.
    Lost,
    /// The holder leaves them to run out, and believes in them until then.
    Abandoned,
}

impl fmt::Display for CampaignEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at_ns, self.session)?;
        match &self.kind {
            EventKind::Started { keys } => {
                let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
                write!(f, "started {}", keys.join(","))
            }
            EventKind::Failed { why } => write!(f, "failed {why}"),
            EventKind::Held { fence, until_ns } => write!(f, "held {fence} {until_ns}"),
            EventKind::StillValid { until_ns } => write!(f, "still-valid {until_ns}"),
            EventKind::Extended => f.write_str("extended"),
            EventKind::LossNotified { until_ns, longest_stall_ns } => {
                write!(f, "loss-notified {until_ns} {longest_stall_ns}")
            }
            EventKind::Ended(HoldEnd::Released) => f.write_str("released"),
            EventKind::Ended(HoldEnd::Expired) => f.write_str("expired"),
            EventKind::Ended(HoldEnd::Lost) => f.write_str("lost"),
            EventKind::Ended(HoldEnd::Abandoned) => f.write_str("abandoned"),
        }
    }
}

/// A line that tells of nothing.
#[derive(Debug)]
pub struct ParseEventError;

impl FromStr for CampaignEvent {
    type Err = ParseEventError;

    fn from_str(line: &str) -> Result<Self, ParseEventError> {
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or(ParseEventError);
        let at_ns = number(word()?)?;
        let session = number(word()?)?;
        let kind = match word()? {
            "started" => {
                let keys = word()?.split(',').map(|key| key.parse().map_err(|_| ParseEventError));
                EventKind::Started { keys: keys.collect::<Result<_, _>>()? }
            }
            "failed" => EventKind::Failed { why: word()?.to_owned() },
            "held" => EventKind::Held { fence: number(word()?)?, until_ns: number(word()?)? },
            "still-valid" => EventKind::StillValid { until_ns: number(word()?)? },
            "extended" => EventKind::Extended,
            "loss-notified" => {
                EventKind::LossNotified { until_ns: number(word()?)?, longest_stall_ns: number(word()?)? }
            }
            "released" => EventKind::Ended(HoldEnd::Released),
            "expired" => EventKind::Ended(HoldEnd::Expired),
            "lost" => EventKind::Ended(HoldEnd::Lost),
            "abandoned" => EventKind::Ended(HoldEnd::Abandoned),
            _ => return Err(ParseEventError),
        };
        Ok(Self { at_ns, session, kind })
    }
}

fn number(word: &str) -> Result<u64, ParseEventError> {
    word.parse().map_err(|_| ParseEventError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_all_of_an_event() {
        let kinds = [
            EventKind::Started { keys: vec![0, 12] },
            EventKind::Failed { why: "contended".into() },
            EventKind::Held { fence: 7, until_ns: 9 },
            EventKind::StillValid { until_ns: 8 },
            EventKind::Extended,
            EventKind::LossNotified { until_ns: 11, longest_stall_ns: 2 },
            EventKind::Ended(HoldEnd::Released),
            EventKind::Ended(HoldEnd::Expired),
            EventKind::Ended(HoldEnd::Lost),
            EventKind::Ended(HoldEnd::Abandoned),
        ];
        for kind in kinds {
            let event = CampaignEvent { at_ns: 5, session: 3, kind };
            assert_eq!(event.to_string().parse::<CampaignEvent>().ok().as_ref(), Some(&event), "{event}");
        }
        for line in ["", "1", "1 2", "1 2 rested", "1 2 held 3", "1 2 started 3,", "x 2 extended"] {
            assert!(line.parse::<CampaignEvent>().is_err(), "{line}");
        }
    }
}
