//! The events that a client process reports about its locks, one line each, with a time.
//!
//! The times understate: a process reports a lock as held from a moment at which it already held the lock until a
//! moment at which it still held it. So if the reports of two processes overlap, both did hold the lock.

use redlock_sim::SessionId;
use std::fmt;
use std::str::FromStr;

/// One event of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignEvent {
    /// When it happened, by [`now_ns`](super::now_ns).
    pub at_ns: u64,
    /// The attempt; unique in a campaign.
    pub session: SessionId,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The attempt begins. The client has sent nothing yet.
    Started {
        /// The locks that it requests.
        keys: Vec<usize>,
    },
    /// The attempt got no lock.
    Failed {
        /// The reason, as one word.
        why: String,
    },
    /// The attempt holds its locks, since this moment at the latest.
    Held {
        /// The fence of the locks.
        fence: u64,
        /// When their validity ends, as known now. Not after this moment if the locks came too late.
        until_ns: u64,
    },
    /// The client says that the holder still holds the locks.
    StillValid {
        /// When their validity ends, as known now.
        until_ns: u64,
    },
    /// An extension succeeded.
    Extended,
    /// The holder only waited for a loss, and the client notified it that the validity is about to end.
    LossNotified {
        /// When the validity ends, as known a moment before.
        until_ns: u64,
        /// The longest time for which the process did not run during the wait, in ns.
        longest_stall_ns: u64,
    },
    /// From now on the holder does not rely on the locks.
    Ended(HoldEnd),
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// The holder released the locks while they were valid.
    Released,
    /// Their validity ended.
    Expired,
    /// The client found that the locks were lost, at an earlier, unknown time.
    Lost,
    /// The holder does not release the locks, and relies on them until they expire.
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

/// A line that is not an event.
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
    fn an_event_survives_a_round_trip_as_a_line() {
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
