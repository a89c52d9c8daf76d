//! Fault campaigns: several client processes on real servers, faults, and one history of all processes.
//!
//! A test starts servers and a [`Campaign`] on them. It repeatedly injects a fault and waits for a number of holds. In
//! the end the checks of the simulator run over the history. The processes understate the times for which they held
//! locks, so every violation that the checks find did happen.
//!
//! | file | subject |
//! |---|---|
//! | `process.rs` | a client process: start, pause, kill; its program is `bin/campaign_client` |
//! | `event.rs` | the events that it reports, one line each |
//! | `monotonic.rs` | the clock of the events |
//! | `log.rs` | the events of all processes |
//! | `storage.rs` | a storage that accepts writes with a fence |
//! | `history.rs` | the events and writes, ordered by time and checked |
//! | `namespaces.rs` | virtual networks in kernel namespaces, with lost and slow links |
//! | `result.rs` | the result: violations, and locks that are left on the nodes |

mod event;
mod history;
mod log;
mod monotonic;
mod namespaces;
mod process;
mod result;
mod storage;

pub use event::{CampaignEvent, EventKind, HoldEnd};
pub use history::violations;
pub use log::first_session;
pub use monotonic::now_ns;
pub use namespaces::{Host, VirtualNetwork};
pub use process::Process;
pub use redlock_sim::Violation;
pub use result::CampaignResult;
pub use storage::{Fencing, Storage, WriteRecord, Writer};

use crate::within;
use log::{EventLog, process_of};
use redlock_client::Node;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The deadline for progress, under faults and on a busy machine.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// A process starves if this many attempts in a row fail. Normally about every second attempt succeeds.
const STARVATION_FAILURES: usize = 20;

/// What the processes do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// How many processes there are.
    pub processes: u64,
    /// How many tasks each of them has.
    pub tasks: usize,
    /// The most locks that a task acquires in one call: one or two.
    pub at_once: usize,
    /// How many locks there are.
    pub keys: usize,
    /// The longest time to live. Each attempt chooses one between half of it and all of it.
    pub ttl: Duration,
    /// How the processes acquire locks.
    pub lock: LockMethod,
    /// How holds end.
    pub ends: EndPolicy,
    /// Whether the storage rejects stale fences.
    pub fencing: Fencing,
}

/// How a process acquires locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMethod {
    /// With the client.
    Client,
    /// With the client and a very short node timeout: for a control.
    ShortTimeout,
    /// With `SET NX PX` on every node, without the module: for controls.
    Plain {
        /// How many nodes must grant the lock.
        votes: usize,
        /// The moment from which the client counts the validity.
        validity: Validity,
    },
    /// As [`LockMethod::PLAIN`], with keys that never expire: for a control.
    NoExpiry,
    /// As [`LockMethod::PLAIN`], with a fence counter in a second key per lock: for a control.
    CountedFences,
}

/// How holds end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndPolicy {
    /// In every way: the holder releases most locks, extends some and abandons some.
    Mixed,
    /// The holder abandons all locks, and relies on them until they expire. For controls in which nodes forget locks:
    /// the nodes always have locks to forget.
    AllAbandoned,
}

impl EndPolicy {
    /// The argument of a client process.
    fn as_arg(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::AllAbandoned => "abandoned",
        }
    }
}

/// The moment from which a plain client counts the validity of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Before it sent the request.
    FromRequest,
    /// After it had the replies, however late they were.
    FromAnswer,
}

impl LockMethod {
    /// `SET NX PX` on a majority of five.
    pub const PLAIN: Self = Self::Plain { votes: 3, validity: Validity::FromRequest };

    /// The arguments of a client process: how many nodes must grant (0 for the client, which knows), and the method.
    fn as_args(self) -> (usize, &'static str) {
        match self {
            Self::Client => (0, "client"),
            Self::ShortTimeout => (0, "short-timeout"),
            Self::Plain { votes, validity: Validity::FromRequest } => (votes, "request"),
            Self::Plain { votes, validity: Validity::FromAnswer } => (votes, "answer"),
            Self::NoExpiry => (3, "no-expiry"),
            Self::CountedFences => (3, "counted-fences"),
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            processes: 3,
            tasks: 3,
            at_once: 2,
            keys: 5,
            ttl: Duration::from_millis(300),
            lock: LockMethod::Client,
            ends: EndPolicy::Mixed,
            fencing: Fencing::Checked,
        }
    }
}

/// The key of a lock on the nodes.
#[must_use]
pub fn key_name(key: usize) -> String {
    format!("lock:{key}")
}

/// Parses a node argument of a client process: a URL, or `watched:NAME@URL` for a master that a sentinel watches.
#[must_use]
pub fn node(address: &str) -> Node {
    let watched = address.strip_prefix("watched:").and_then(|rest| rest.split_once('@'));
    // Grant pushes need RESP3; without it the client does not queue on this node.
    watched.map_or_else(|| Node::new(address), |(name, sentinel)| Node::sentinel([sentinel], name).resp3())
}

/// A running campaign: the processes, the storage and the event log.
#[derive(Debug)]
pub struct Campaign {
    work: Workload,
    program: String,
    storage: Storage,
    log: Arc<EventLog>,
    /// The running processes, in the order of their starts.
    pub processes: Vec<Process>,
    started: u64,
    faults: AtomicUsize,
}

impl Campaign {
    /// Starts the processes, all with the same node addresses. `program` is the campaign client:
    /// `env!("CARGO_BIN_EXE_campaign_client")`.
    #[must_use]
    pub fn start<U: AsRef<str>>(program: &str, nodes: &[U], work: Workload) -> Self {
        let nodes: Vec<Vec<String>> =
            (0..work.processes).map(|_| nodes.iter().map(|url| url.as_ref().to_owned()).collect()).collect();
        Self::start_with_routes(program, &nodes, work)
    }

    /// Starts one process for each list of addresses. All lists lead to the same nodes, by different routes.
    #[must_use]
    pub fn start_with_routes(program: &str, ways: &[Vec<String>], work: Workload) -> Self {
        let storage = Storage::open(work.fencing);
        let mut campaign = Self {
            work,
            program: program.to_owned(),
            storage,
            log: Arc::default(),
            processes: Vec::new(),
            started: 0,
            faults: AtomicUsize::new(0),
        };
        for nodes in ways {
            campaign.add_process(nodes);
        }
        campaign
    }

    /// Starts one more process.
    pub fn add_process(&mut self, nodes: &[String]) {
        let program = self.program.clone();
        self.add_process_with(Command::new(program), nodes);
    }

    /// As [`Campaign::add_process`], with a command that runs the campaign client, for example on another host of a
    /// virtual network.
    pub fn add_process_with(&mut self, mut command: Command, nodes: &[String]) {
        let work = &self.work;
        let (votes, manner) = work.lock.as_args();
        command
            .arg(self.started.to_string())
            .arg(work.tasks.to_string())
            .arg(work.at_once.to_string())
            .arg(work.keys.to_string())
            .arg(work.ttl.as_millis().to_string())
            .arg(votes.to_string())
            .arg(manner)
            .arg(work.ends.as_arg())
            .arg(self.storage.socket_path())
            .args(nodes);
        self.processes.push(Process::start(self.started, command, &self.log));
        self.started += 1;
    }

    /// Kills a process, as a crash does: it releases nothing. The indexes of later processes decrease by one.
    pub fn kill(&mut self, process: usize) {
        self.processes.remove(process).kill();
    }

    /// Counts a fault, for the report.
    pub fn count_fault(&self) {
        self.faults.fetch_add(1, Relaxed);
    }

    /// Waits until `more` further attempts have held their locks.
    ///
    /// # Panics
    /// At the deadline, or when a process has ended by itself.
    pub fn wait_for_holds(&mut self, more: usize) {
        let goal = self.log.holds() + more;
        let log = Arc::clone(&self.log);
        self.wait_until(&format!("{more} more locks were held"), || log.holds() >= goal);
    }

    /// Waits until every running process has had `more` further holds.
    ///
    /// # Panics
    /// As [`Campaign::wait_for_holds`].
    pub fn wait_for_holds_by_each(&mut self, more: usize) {
        let goals: Vec<(u64, usize)> = self
            .processes
            .iter()
            .map(|process| (process.number, self.log.holds_of(process.number) + more))
            .collect();
        let log = Arc::clone(&self.log);
        self.wait_until(&format!("every process has held {more} more locks"), || {
            goals.iter().all(|(process, goal)| log.holds_of(*process) >= *goal)
        });
    }

    /// Waits until every running process has had `more` further holds, or until one of them starves. Returns false if
    /// one starves.
    ///
    /// # Panics
    /// As [`Campaign::wait_for_holds`].
    #[must_use]
    pub fn all_make_progress(&mut self, more: usize) -> bool {
        let numbers = self.processes.iter().map(|process| process.number);
        let goals: Vec<(u64, usize)> =
            numbers.map(|process| (process, self.log.holds_of(process) + more)).collect();
        let log = Arc::clone(&self.log);
        let all_hold = || goals.iter().all(|(process, goal)| log.holds_of(*process) >= *goal);
        let starves =
            || goals.iter().any(|(process, _)| log.consecutive_failures(*process) >= STARVATION_FAILURES);
        let what = format!("every process has held {more} more locks, or one starves");
        self.wait_until(&what, || all_hold() || starves());
        all_hold()
    }

    /// Waits until one process has had `more` further holds.
    ///
    /// # Panics
    /// As [`Campaign::wait_for_holds`].
    pub fn wait_for_holds_by(&mut self, process: u64, more: usize) {
        let log = Arc::clone(&self.log);
        let goal = log.holds_of(process) + more;
        self.wait_until(&format!("process {process} has held {more} more locks"), || {
            log.holds_of(process) >= goal
        });
    }

    /// Waits until `more` further attempts of one process, or of all processes together, have failed.
    ///
    /// # Panics
    /// As [`Campaign::wait_for_holds`].
    pub fn wait_for_failures(&mut self, process: Option<u64>, more: usize) {
        let log = Arc::clone(&self.log);
        let failures = move || {
            log.count(|event| {
                process.is_none_or(|process| process_of(event.session) == process)
                    && matches!(event.kind, EventKind::Failed { .. })
            })
        };
        let goal = failures() + more;
        self.wait_until(&format!("{more} more attempts have failed"), || failures() >= goal);
    }

    /// Waits until `failures` further attempts have failed, while no majority of nodes is available.
    ///
    /// # Panics
    /// When an attempt that began meanwhile got its lock, and as [`Campaign::wait_for_holds`].
    pub fn wait_for_failures_only(&mut self, failures: usize) {
        let since_ns = now_ns();
        self.wait_for_failures(None, failures);
        let granted: usize =
            (0..self.started).map(|process| self.holds_between(process, since_ns, now_ns())).sum();
        assert_eq!(granted, 0, "clients got locks without a majority: {}", self.summary());
    }

    /// Waits until `more` further attempts have got their locks or failed.
    ///
    /// # Panics
    /// As [`Campaign::wait_for_holds`].
    pub fn wait_for_attempts(&mut self, more: usize) {
        let log = Arc::clone(&self.log);
        let attempts = move || {
            log.count(|event| matches!(event.kind, EventKind::Held { .. } | EventKind::Failed { .. }))
        };
        let goal = attempts() + more;
        self.wait_until(&format!("{more} more attempts have ended"), || attempts() >= goal);
    }

    /// Whether a process is not paused.
    #[must_use]
    pub fn any_running(&self) -> bool {
        self.processes.iter().any(|process| !process.is_paused())
    }

    /// How many attempts have held their locks so far.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.log.holds()
    }

    /// How many attempts of a process began after `after_ns` and held their locks before `before_ns`.
    #[must_use]
    pub fn holds_between(&self, process: u64, after_ns: u64, before_ns: u64) -> usize {
        let events = self.log.read();
        let started_since: std::collections::HashSet<_> = events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::Started { .. }) && event.at_ns > after_ns)
            .map(|event| event.session)
            .collect();
        let is_meant = |event: &&CampaignEvent| {
            process_of(event.session) == process
                && matches!(event.kind, EventKind::Held { .. })
                && event.at_ns < before_ns
                && started_since.contains(&event.session)
        };
        events.iter().filter(is_meant).count()
    }

    /// All violations so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        violations(&self.log.read(), &self.storage.writes())
    }

    /// Injects a fault again and again until the checks find a violation of a kind. For controls, which run without a
    /// protection. Returns the violation.
    ///
    /// # Panics
    /// When the checks find none.
    pub fn inject_until_violation(
        &mut self,
        is_meant: impl Fn(&Violation) -> bool,
        mut inject: impl FnMut(&mut Self),
    ) -> Violation {
        let found = within(PROGRESS_TIMEOUT, || {
            inject(self);
            self.count_fault();
            self.violations().into_iter().find(&is_meant)
        });
        let seen = found.unwrap_or_else(|| panic!("the checks detect nothing: {}", self.summary()));
        println!("control: {} and {seen:?}", self.summary());
        seen
    }

    /// How many stale writes the storage has rejected.
    #[must_use]
    pub fn rejected_writes(&self) -> usize {
        self.storage.writes().iter().filter(|write| !write.accepted).count()
    }

    /// How many holders were notified of the end of their validity, without a stall of their process.
    #[must_use]
    pub fn timely_loss_notifications(&self) -> usize {
        self.log.count(|event| {
            matches!(event.kind, EventKind::LossNotified { longest_stall_ns, .. } if longest_stall_ns <= history::STALL_NS)
        })
    }

    /// How many holders of a process learned after a pause of the process that their locks are over.
    ///
    /// # Panics
    /// When a holder still considered a lock valid that had expired during the pause.
    #[must_use]
    pub fn losses_noticed_after_pause(&self, process: u64, paused_ns: u64, resumed_ns: u64) -> usize {
        let events = self.log.read();
        let of = |session| events.iter().filter(move |event| event.session == session);
        let ends =
            events.iter().filter(|event| process_of(event.session) == process && event.at_ns > resumed_ns);
        let mut noticed = 0;
        for event in ends {
            let EventKind::Ended(end) = event.kind else { continue };
            let before = of(event.session).filter(|event| event.at_ns < paused_ns);
            let mut believed = before.filter_map(|event| match event.kind {
                EventKind::Held { until_ns, .. } | EventKind::StillValid { until_ns } => Some(until_ns),
                _ => None,
            });
            let ran_out = believed.next_back().is_some_and(|until_ns| until_ns < resumed_ns);
            // The process reports an extension that succeeded at the last moment.
            let was_extended = of(event.session).any(|event| {
                event.at_ns > paused_ns
                    && matches!(event.kind, EventKind::Extended | EventKind::StillValid { .. })
            });
            if ran_out && !was_extended {
                assert_ne!(
                    end,
                    HoldEnd::Released,
                    "the lock expired during the pause from {paused_ns} to {resumed_ns}: {event}"
                );
                noticed += usize::from(matches!(end, HoldEnd::Expired | HoldEnd::Lost));
            }
        }
        noticed
    }

    /// The counts of the campaign so far.
    #[must_use]
    pub fn summary(&self) -> String {
        let writes = self.storage.writes();
        format!(
            "{} processes, {} acquires, {} holds, {} extensions, {} losses notified in time, {} writes of \
             which {} were rejected, {} faults",
            self.started,
            self.log.count(|event| matches!(event.kind, EventKind::Started { .. })),
            self.log.holds(),
            self.log.count(|event| matches!(event.kind, EventKind::Extended)),
            self.timely_loss_notifications(),
            writes.len(),
            self.rejected_writes(),
            self.faults.load(Relaxed),
        )
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let reached = within(PROGRESS_TIMEOUT, || {
            for process in &mut self.processes {
                if process.has_ended() {
                    panic!("a client process has ended by itself:\n{}", process.read_to_end());
                }
            }
            is_so().then_some(())
        });
        assert!(reached.is_some(), "timed out waiting until {what}: {}", self.summary());
    }
}
