//! The events of all processes and the writes to the storage, ordered by time and checked with the simulator's checks.

use super::event::{CampaignEvent, EventKind, HoldEnd};
use super::storage::WriteRecord;
use redlock_sim::{Checks, SessionId, Violation};
use std::collections::HashMap;

/// A stall of a process that is longer than this, in ns, excuses a late notification. The client notifies a holder at
/// least 2 ms before the validity ends, so a shorter stall never makes the notification late.
pub(super) const STALL_NS: u64 = 1_000_000;

/// One attempt, according to its events.
#[derive(Debug, Default)]
struct Attempt {
    keys: Vec<usize>,
    /// When the locks were held first, and their fence.
    held: Option<(u64, u64)>,
    /// When the holder last knew that the locks were valid, and until when.
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

    /// The last moment at which the holder certainly relied on the locks.
    fn until(&self) -> u64 {
        let (seen, until) = self.believed;
        match self.end {
            Some((at_ns, HoldEnd::Released)) => at_ns,
            // The locks may have been lost at any moment after the holder last knew that they were valid.
            Some((_, HoldEnd::Lost)) => seen,
            // The client notifies the holder a little before the end, and the holder may stop at once.
            Some((at_ns, HoldEnd::Expired)) => until.min(at_ns),
            // A killed process relies on nothing, but work that it has started elsewhere may.
            Some((_, HoldEnd::Abandoned)) | None => until,
        }
    }

    fn is_valid_at(&self, at_ns: u64) -> bool {
        self.held.is_some_and(|(since, _)| since <= at_ns && at_ns < self.until())
    }
}

/// An event of an attempt or a write to the storage.
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

/// All violations in a history.
#[must_use]
pub fn violations(events: &[CampaignEvent], writes: &[WriteRecord]) -> Vec<Violation> {
    let mut attempts = HashMap::<SessionId, Attempt>::new();
    for event in events {
        attempts.entry(event.session).or_default().read(event);
    }
    let mut entries: Vec<Entry<'_>> =
        events.iter().map(Entry::CampaignEvent).chain(writes.iter().map(Entry::Write)).collect();
    // A stable sort keeps the order of each process.
    entries.sort_by_key(Entry::at_ns);
    // No test changes the rates of the clocks, and all processes have the same clock.
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

    /// The violations of a history of event lines and write lines: `write at session key fence taken`.
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
    fn a_correct_history_has_no_violations() {
        let quiet: [&[&str]; 8] = [
            &[
                "0 1 started 0",
                "1 1 held 1 10",
                "5 1 released",
                "4 2 started 0",
                "6 2 held 2 16",
                "7 2 released",
            ],
            // Two different locks.
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 1", "3 2 held 1 12"],
            // Granted after the expiry, even if the old holder notices later.
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 0", "10 2 held 2 20", "30 1 expired"],
            // The holder was notified a little early, and stopped at once.
            &["0 1 started 0", "1 1 held 1 10", "8 1 expired", "2 2 started 0", "9 2 held 2 19"],
            // The lock was lost after the holder last knew that it was valid.
            &["0 1 started 0", "1 1 held 1 10", "2 2 started 0", "3 2 held 2 12", "4 1 lost"],
            // The lock had expired when it arrived.
            &["0 1 started 0", "1 1 held 1 10", "0 2 started 0", "5 2 held 2 5"],
            // Two concurrent attempts may get their fences in either order.
            &["0 1 started 0", "0 2 started 0", "1 1 held 2 9", "2 1 released", "3 2 held 1 9"],
            &["0 1 started 0", "1 1 held 1 10", "write 5 1 0 1 taken", "12 1 expired"],
        ];
        for lines in quiet {
            assert_eq!(found(lines), [], "{lines:?}");
        }
    }

    #[test]
    fn two_holders_at_one_time_are_a_violation() {
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
    fn bad_fences_stale_writes_and_late_notifications_are_violations() {
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
