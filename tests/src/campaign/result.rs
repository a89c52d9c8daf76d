//! The end of a campaign: what was found, what is left on the nodes, whether all locks can be had again.

use super::event::{CampaignEvent, EventKind, HoldEnd};
use super::log::first_session;
use super::{Campaign, Violation, key_name, node, now_ns};
use crate::{Fleet, SOON, Server, within};
use redlock_client::{LockManager, blocking};
use std::time::Duration;

/// How many violations are told in full.
const MAX_EXPLAINED: usize = 5;

/// What came of a campaign.
#[derive(Debug)]
#[must_use = "a verdict that nobody reads is none"]
pub struct CampaignResult {
    /// What must never be, and was.
    pub violations: Vec<Violation>,
    /// How many locks the nodes have handed to somebody in line, since each of them was last started.
    pub handoffs: u64,
    summary: String,
    events: Vec<CampaignEvent>,
}

impl Campaign {
    /// Ends the processes, and looks at what they leave: no lock may stay, and each must be had again.
    pub fn finish(self, fleet: &Fleet) -> CampaignResult {
        self.finish_on(fleet.iter(), &fleet.urls())
    }

    /// As [`Campaign::finish`], on servers that this process reaches at other addresses than their own.
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
            // A node of an older module hands nothing on, and has nothing to count.
            handoffs += count.unwrap_or_default();
            let mut wire = server.connect();
            for key in 0..self.work.keys {
                let name = key_name(key);
                // Longer than any lock lasts: what is there after that will not go by itself.
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

    /// Takes a lock when all is well again; its number counts with all others.
    fn acquire_after_faults(&self, locks: &blocking::LockManager, key: usize) -> bool {
        let session = first_session(self.started) + key as u64;
        let tell = |kind| self.log.record(CampaignEvent { at_ns: now_ns(), session, kind });
        tell(EventKind::Started { keys: vec![key] });
        match locks.acquire_timeout(key_name(key), Duration::from_secs(5), SOON * 2) {
            Ok(guard) => {
                let until_ns = now_ns() + 1;
                tell(EventKind::Held { fence: guard.fence(), until_ns });
                tell(EventKind::Ended(HoldEnd::Released));
                guard.release();
                true
            }
            Err(error) => {
                eprintln!("{} cannot be had again: {error}", key_name(key));
                false
            }
        }
    }
}

impl CampaignResult {
    /// Leaves out what the campaign had no right to expect, and says how much of it there was.
    pub fn ignoring(mut self, what: &str, is_meant: impl Fn(&Violation) -> bool) -> Self {
        let all = self.violations.len();
        self.violations.retain(|violation| !is_meant(violation));
        self.summary = format!("{}, {} {what}", self.summary, all - self.violations.len());
        self
    }

    /// Prints the counts; whatever must never be has not been, and somebody has waited for somebody.
    ///
    /// # Panics
    /// When something was found, or nothing can have been.
    pub fn assert_clean(self, what: &str) {
        let (handoffs, counts) = (self.handoffs, self.summary.clone());
        self.assert_no_violations(what);
        assert!(handoffs > 0, "{what}: nobody has waited in line: {counts}");
    }

    /// As [`CampaignResult::assert_clean`], where nobody can wait in line.
    ///
    /// # Panics
    /// When something was found.
    pub fn assert_no_violations(self, what: &str) {
        let (count, handoffs) = (self.violations.len(), self.handoffs);
        println!("{what}: {}, {handoffs} handed on in the end, {count} violations", self.summary);
        assert!(self.violations.is_empty(), "{what}: {count} violations\n{}", self.explain_violations());
    }

    /// All that was told of the first attempts that must not both have been.
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
            let mut told: Vec<&CampaignEvent> = self.events.iter().filter(of_them).collect();
            told.sort_by_key(|event| event.at_ns);
            lines.extend(told.iter().map(|event| format!("  {event}")));
        }
        lines.join("\n")
    }
}
