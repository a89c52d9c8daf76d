//! What all processes and the storage saw, brought into true order and put before the simulator's checks.

use super::event::{CampaignEvent, EventKind, HoldEnd};
use super::storage::WriteRecord;
use redlock_sim::{Checks, SessionId, Violation};
use std::collections::HashMap;

/// A process that does not run for so long is asleep. A holder is told 2 ms before its time is up, or more: nobody
/// who was kept from it for less is told too late.
pub(super) const STALL_NS: u64 = 1_000_000;

/// One attempt, put together from what was told of it.
#[derive(Debug, Default)]
struct Attempt {
    keys: Vec<usize>,
    held: Option<(u64, u64)>,
    /// When its holder last knew that it was valid, and until when.
    believed: (u64, u64),
    end: Option<(u64, HoldEnd)>,
}

impl Attempt {
    fn read(&mut self, event: &CampaignEvent) {
        let at_ns = event.at_ns;
        match &event.kind {
            EventKind::Started { keys } => self.keys.clone_from(keys),
            EventKind::Failed { .. } | EventKind::Extended | EventKind::LossNotified { .. } => {}
            EventKind::Held { fence, until_ns } => {
                self.held = Some((at_ns, *fence));
                self.believed = (at_ns, *until_ns);
            }
            EventKind::StillValid { until_ns } => self.believed = (at_ns, *until_ns),
            EventKind::Ended(end) => self.end = Some((at_ns, *end)),
        }
    }

    /// The last moment at which its holder certainly believed in it.
    fn until(&self) -> u64 {
        let (seen, until) = self.believed;
        match self.end {
            Some((at_ns, HoldEnd::Released)) => at_ns,
            // It may have been gone since any moment after it was last seen to be there.
            Some((_, HoldEnd::Lost)) => seen,
            // A holder is told a little before its time is up, and may let go at once.
            Some((at_ns, HoldEnd::Expired)) => until.min(at_ns),
            // A process that was killed relies on nothing, but whatever it has set going may.
            Some((_, HoldEnd::Abandoned)) | None => until,
        }
    }

    fn is_valid_at(&self, at_ns: u64) -> bool {
        self.held.is_some_and(|(since, _)| since <= at_ns && at_ns < self.until())
    }
}

/// One thing that happened, to an attempt or to the storage.
enum Entry<'a> {
    CampaignEvent(&'a CampaignEvent),
    Write(&'a WriteRecord),
}

impl Entry<'_> {
    fn at_ns(&self) -> u64 {
        match self {
            Self::CampaignEvent(event) => event.at_ns,
            Self::Write(write) => write.at_ns,
        }
    }
}

/// Everything that is wrong with a history, as far as it is known.
#[must_use]
pub fn violations(events: &[CampaignEvent], writes: &[WriteRecord]) -> Vec<Violation> {
    let mut attempts = HashMap::<SessionId, Attempt>::new();
    for event in events {
        attempts.entry(event.session).or_default().read(event);
    }
    let mut entries: Vec<Entry<'_>> =
        events.iter().map(Entry::CampaignEvent).chain(writes.iter().map(Entry::Write)).collect();
    // Stable: what one process tells stays in its order.
    entries.sort_by_key(Entry::at_ns);
    // Nobody touches the rates of the clocks, and all processes have the same.
    let mut checks = Checks::new(true);
    let mut holders = HashMap::<usize, Vec<SessionId>>::new();
    for entry in entries {
        match entry {
            Entry::CampaignEvent(event) => read(&mut checks, &mut holders, &attempts, event),
            Entry::Write(write) => {
                let was_valid =
                    attempts.get(&write.session).is_some_and(|attempt| attempt.is_valid_at(write.at_ns));
                checks.wrote(write.key, write.fence, write.accepted, was_valid);
            }
        }
    }
    checks.violations
}

fn read(
    checks: &mut Checks,
    holders: &mut HashMap<usize, Vec<SessionId>>,
    attempts: &HashMap<SessionId, Attempt>,
    event: &CampaignEvent,
) {
    let session = event.session;
    let Some(attempt) = attempts.get(&session) else { return };
    match &event.kind {
        EventKind::Started { keys } => checks.began(session, keys),
        EventKind::Failed { .. } | EventKind::Ended(_) => checks.ended(session),
        EventKind::StillValid { .. } | EventKind::Extended => checks.extended(session),
        EventKind::LossNotified { until_ns, longest_stall_ns } => {
            checks.stopped(session, event.at_ns >= *until_ns, *longest_stall_ns > STALL_NS);
        }
        EventKind::Held { fence, .. } => {
            let mut believers = Vec::new();
            for key in &attempt.keys {
                let holders = holders.entry(*key).or_default();
                holders.retain(|other| attempts[other].until() > event.at_ns);
                if attempt.is_valid_at(event.at_ns) {
                    believers.extend(holders.iter().map(|other| (*other, *key)));
                    holders.push(session);
                }
            }
            checks.held(session, &attempt.keys, *fence, &believers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Violations of a history told in lines of events and of writes: `write at session key fence taken`.
    fn found(lines: &[&str]) -> Vec<Violation> {
        let (writes, events): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.starts_with("write "));
        let events: Vec<CampaignEvent> = events.iter().map(|line| line.parse().expect("an event")).collect();
        let write = |line: &str| {
            let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            WriteRecord {
                at_ns: numbers[0],
                session: numbers[1],
                key: numbers[2].try_into().expect("a key"),
                fence: numbers[3],
                accepted: line.ends_with("taken"),
            }
        };
        violations(&events, &writes.into_iter().map(write).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_in_order_is_no_violation() {
        let quiet: [&[&str]; 8] = [
            &[
                "0 1 started 0",
                "1 1 held 1 10",
                "5 1 released",
                "4 2 started 0",
                "6 2 held 2 16",
                "7 2 released",
            ],
            // Another lock.
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 1", "3 2 held 1 12"],
            // After its time, whether the holder knew or not.
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 0", "10 2 held 2 20", "30 1 expired"],
            // Told a little early, and let go at once.
            &["0 1 started 0", "1 1 held 1 10", "8 1 expired", "2 2 started 0", "9 2 held 2 19"],
            // Known to be gone after it was last seen.
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 0", "3 2 held 2 12", "4 1 lost"],
            // Too late to be believed when it came.
            &["0 1 started 0", "1 1 held 1 10", "0 2 started 0", "5 2 held 2 5"],
            // Two that asked at the same time may be numbered either way.
            &["0 1 started 0", "0 2 started 0", "1 1 held 2 9", "2 1 released", "3 2 held 1 9"],
            &["0 1 started 0", "1 1 held 1 10", "write 5 1 0 1 taken", "12 1 expired"],
        ];
        for lines in quiet {
            assert_eq!(found(lines), [], "{lines:?}");
        }
    }

    #[test]
    fn two_holders_are_seen() {
        let overlap = [Violation::Overlap { key: 0, holder: 1, newcomer: 2 }];
        let wrong: [&[&str]; 6] = [
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 0", "9 2 held 2 19"],
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 0", "9 2 held 2 19", "30 1 expired"],
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 0", "4 2 held 2 19", "5 1 released"],
            &[
                "0 1 started 0",
                "1 1 held 1 10",
                "4 1 still-valid 10",
                "2 2 started 0",
                "3 2 held 2 9",
                "6 1 lost",
            ],
            &["0 1 started 0", "1 1 held 1 10", "8 1 still-valid 20", "2 2 started 0", "15 2 held 2 19"],
            &["0 1 started 0", "1 1 held 1 10", "2 1 abandoned", "2 2 started 0", "9 2 held 2 19"],
        ];
        for lines in wrong {
            assert_eq!(found(lines), overlap, "{lines:?}");
        }
        let lines = ["0 1 started 3,4", "1 1 held 1 10", "2 2 started 4,5", "9 2 held 2 19"];
        assert_eq!(found(&lines), [Violation::Overlap { key: 4, holder: 1, newcomer: 2 }]);
    }

    #[test]
    fn numbers_and_writes_out_of_order_are_seen() {
        let lines = ["0 1 started 0", "1 1 held 5 9", "2 1 released", "3 2 started 0", "4 2 held 4 9"];
        assert_eq!(found(&lines), [Violation::FenceNotLarger { key: 0, fence: 4, before: 5 }]);
        let lines = ["0 1 started 0", "0 2 started 0", "1 1 held 5 9", "2 1 released", "4 2 held 5 9"];
        assert_eq!(found(&lines), [Violation::FenceRepeated { key: 0, fence: 5 }]);
        let lines = ["write 1 1 0 2 taken", "write 2 2 0 1 taken"];
        assert_eq!(found(&lines), [Violation::StaleWrite { key: 0, fence: 1, newest: 2 }]);
        let lines = ["0 1 started 0", "1 1 held 1 9", "write 0 2 0 2 taken", "write 2 1 0 1 stale"];
        assert_eq!(found(&lines), [Violation::ValidWriteRefused { key: 0, fence: 1, newest: 2 }]);
        let lines = ["0 1 started 0", "1 1 held 1 9", "9 1 loss-notified 9 5", "10 1 expired"];
        assert_eq!(found(&lines), [Violation::LossToldLate { session: 1 }]);
        let in_time = ["0 1 started 0", "1 1 held 1 9", "8 1 loss-notified 9 5", "10 1 expired"];
        let asleep = ["0 1 started 0", "1 1 held 1 9", "99 1 loss-notified 9 1000001", "100 1 expired"];
        assert_eq!((found(&in_time), found(&asleep)), (vec![], vec![]));
        let lines = ["0 1 started 0", "1 1 held 1 9", "2 1 expired", "3 1 extended"];
        assert_eq!(found(&lines), [Violation::Revived { session: 1 }]);
    }
}
