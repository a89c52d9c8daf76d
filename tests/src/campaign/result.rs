//! The result of a campaign: the violations, the locks left on the nodes, and whether every lock can be acquired again.

use super::event::{CampaignEvent, EventKind, HoldEnd};
use super::log::first_session;
use super::{Campaign, Violation, key_name, node, now_ns};
use crate::{Fleet, SOON, Server, within};
use redlock_client::{LockManager, blocking};
use std::time::Duration;

/// How many violations a failure prints with their events.
const MAX_EXPLAINED: usize = 5;

/// The result of a campaign.
#[derive(Debug)]
#[must_use = "call `assert_clean` or check the violations"]
pub struct CampaignResult {
    /// The violations that the checks found.
    pub violations: Vec<Violation>,
    /// How many locks the nodes have handed to waiters, each since its last start.
    pub handoffs: u64,
    summary: String,
    events: Vec<CampaignEvent>,
}

impl Campaign {
    /// Ends the processes and checks the nodes: every lock must expire, and must then be acquired again.
    pub fn finish(self, fleet: &Fleet) -> CampaignResult {
        self.finish_on(fleet.iter(), &fleet.urls())
    }

    /// As [`Campaign::finish`], for servers that this process reaches at other addresses.
    pub fn finish_on<'a>(
        mut self,
        nodes: impl IntoIterator<Item = &'a Server>,
        addresses: &[String],
    ) -> CampaignResult {
        self.stop_processes();
        let (mut left, mut handoffs) = (Vec::new(), 0);
        for (node, server) in nodes.into_iter().enumerate() {
            let count =
                server.info("redlock", "redlock_handoffs").and_then(|count| count.parse::<u64>().ok());
            // An older module has no hand-offs, and no such counter.
            handoffs += count.unwrap_or_default();
            let mut wire = server.connect();
            for key in 0..self.work.keys {
                let name = key_name(key);
                // The deadline is longer than any time to live: a lock that is still there will never expire.
                if within(SOON, || wire.inspect(&name).is_none().then_some(())).is_none() {
                    left.push(Violation::Ghost { node, key });
                }
            }
        }
        self.check(left, handoffs, addresses)
    }

    fn stop_processes(&mut self) {
        for process in &mut self.processes {
            process.stop();
        }
    }

    fn check(self, mut violations: Vec<Violation>, handoffs: u64, nodes: &[String]) -> CampaignResult {
        let locks = LockManager::builder().nodes(nodes.iter().map(|address| node(address)));
        let locks = locks.connect_timeout(SOON).node_timeout(SOON).build_blocking();
        let locks = locks.expect("addresses of nodes");
        for key in 0..self.work.keys {
            if !self.acquire_after_faults(&locks, key) {
                violations.push(Violation::NotFreeAgain { key });
            }
        }
        violations.extend(self.violations());
        CampaignResult { violations, handoffs, summary: self.summary(), events: self.log.read() }
    }

    /// Acquires a lock after the faults. The checks compare its fence with all others.
    fn acquire_after_faults(&self, locks: &blocking::LockManager, key: usize) -> bool {
        let session = first_session(self.started) + key as u64;
        let record = |kind| self.log.record(CampaignEvent { at_ns: now_ns(), session, kind });
        record(EventKind::Started { keys: vec![key] });
        match locks.acquire_timeout(key_name(key), Duration::from_secs(5), SOON * 2) {
            Ok(guard) => {
                let until_ns = now_ns() + 1;
                record(EventKind::Held { fence: guard.fence(), until_ns });
                record(EventKind::Ended(HoldEnd::Released));
                guard.release();
                true
            }
            Err(error) => {
                eprintln!("{} cannot be acquired again: {error}", key_name(key));
                false
            }
        }
    }
}

impl CampaignResult {
    /// Removes violations that this campaign allows, and adds their number to the summary.
    pub fn ignoring(mut self, what: &str, is_meant: impl Fn(&Violation) -> bool) -> Self {
        let all = self.violations.len();
        self.violations.retain(|violation| !is_meant(violation));
        self.summary = format!("{}, {} {what}", self.summary, all - self.violations.len());
        self
    }

    /// Prints the counts and asserts that there is no violation and at least one hand-off.
    ///
    /// # Panics
    /// When there is a violation, or no hand-off.
    pub fn assert_clean(self, what: &str) {
        let (handoffs, counts) = (self.handoffs, self.summary.clone());
        self.assert_no_violations(what);
        assert!(handoffs > 0, "{what}: no lock was handed to a waiter: {counts}");
    }

    /// As [`CampaignResult::assert_clean`], for campaigns in which no client can queue.
    ///
    /// # Panics
    /// When there is a violation.
    pub fn assert_no_violations(self, what: &str) {
        let (count, handoffs) = (self.violations.len(), self.handoffs);
        println!(
            "{what}: {}, {handoffs} hand-offs since the nodes' last starts, {count} violations",
            self.summary
        );
        assert!(self.violations.is_empty(), "{what}: {count} violations\n{}", self.explain_violations());
    }

    /// The first violations, with the events of the attempts that contradict each other.
    fn explain_violations(&self) -> String {
        let mut lines = Vec::new();
        for violation in self.violations.iter().take(MAX_EXPLAINED) {
            lines.push(violation.to_string());
            let concerned = match violation {
                Violation::Overlap { holder, newcomer, .. } => vec![*holder, *newcomer],
                Violation::LossToldLate { session } | Violation::Revived { session } => vec![*session],
                _ => continue,
            };
            let of_them = |event: &&CampaignEvent| concerned.contains(&event.session);
            let mut events: Vec<&CampaignEvent> = self.events.iter().filter(of_them).collect();
            events.sort_by_key(|event| event.at_ns);
            lines.extend(events.iter().map(|event| format!("  {event}")));
        }
        lines.join("\n")
    }
}
