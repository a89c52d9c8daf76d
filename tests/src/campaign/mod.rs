//! Real faults under real clients: several processes on real servers, and one history of them all.
//!
//! A test starts its servers and a [`Campaign`] against them, does harm, waits until so many more locks were
//! held and does harm again. In the end the history goes through the checks of the simulator; what the
//! processes tell understates what they held, so whatever is found did happen.
//!
//! | file | subject |
//! |---|---|
//! | `process.rs` | a client process: start, pause, kill; its program is `bin/campaign_client` |
//! | `event.rs` | the lines in which it tells what it does |
//! | `monotonic.rs` | the clock of those lines |
//! | `log.rs` | the lines of all processes |
//! | `storage.rs` | what the locks are for: writes, with a fence |
//! | `history.rs` | all of it in true order, and what is wrong with it |
//! | `namespaces.rs` | networks of the kernel's own, which can be cut and narrowed |
//! | `result.rs` | the end: what was found, what is left on the nodes |

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

/// Time enough for progress, however much goes wrong and however busy the machine is.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that fails so often in a row gets no locks. Where they can be had, about every second attempt succeeds.
const STARVATION_FAILURES: usize = 20;

/// What the processes are to do, and how.
#[derive(Clone, Debug)]
pub struct Workload {
    /// How many processes there are.
    pub processes: u64,
    /// How many tasks each of them has.
    pub tasks: usize,
    /// How many locks a task takes together now and then: one or two.
    pub at_once: usize,
    /// How many locks there are.
    pub keys: usize,
    /// The longest time to live; most are shorter.
    pub ttl: Duration,
    /// How the locks are taken.
    pub lock: LockMethod,
    /// What becomes of them.
    pub ends: EndPolicy,
    /// Whether the storage turns stale holders away.
    pub fencing: Fencing,
}

/// How locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMethod {
    /// With the client, as users do.
    Client,
    /// With the client, which gives a node hardly any time to answer: for a control.
    ShortTimeout,
    /// With `SET NX PX` on every node, as one would do without a module: for controls.
    Plain {
        /// How many nodes it takes.
        votes: usize,
        /// From when its time counts.
        validity: Validity,
    },
    /// As [`LockMethod::PLAIN`], with keys that never run out: for a control.
    NoExpiry,
    /// As [`LockMethod::PLAIN`], with fences that are counted by keys beside the locks: for a control.
    CountedFences,
}

/// How holds end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndPolicy {
    /// In every way there is: most are released, some are extended, some are left behind.
    Mixed,
    /// All of them are left to run out, and believed in until then: for controls in which nodes forget, so that they
    /// always have something to forget.
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

/// From when a lock's time counts, for a client that gets to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// From before it was asked for.
    FromRequest,
    /// From when it was there, however long that took.
    FromAnswer,
}

impl LockMethod {
    /// `SET NX PX` on a majority of five.
    pub const PLAIN: Self = Self::Plain { votes: 3, validity: Validity::FromRequest };

    /// The argument of a client process: how many nodes it takes, unless the client knows, and a word for the rest.
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

/// A node as a client process is told of it: its URL, or `watched:NAME@URL` for a master that a sentinel watches.
#[must_use]
pub fn node(address: &str) -> Node {
    let watched = address.strip_prefix("watched:").and_then(|rest| rest.split_once('@'));
    // What nodes tell by themselves, to those who wait in line, comes in RESP3; without that nobody waits there.
    watched.map_or_else(|| Node::new(address), |(name, sentinel)| Node::sentinel([sentinel], name).resp3())
}

/// Processes at work.
#[derive(Debug)]
pub struct Campaign {
    work: Workload,
    program: String,
    storage: Storage,
    log: Arc<EventLog>,
    /// The processes of the beginning, in order; those started later come after.
    pub processes: Vec<Process>,
    started: u64,
    faults: AtomicUsize,
}

impl Campaign {
    /// Starts the processes, all on the same nodes. `program` is the campaign client:
    /// `env!("CARGO_BIN_EXE_campaign_client")`.
    #[must_use]
    pub fn start<U: AsRef<str>>(program: &str, nodes: &[U], work: Workload) -> Self {
        let nodes: Vec<Vec<String>> =
            (0..work.processes).map(|_| nodes.iter().map(|url| url.as_ref().to_owned()).collect()).collect();
        Self::start_with_routes(program, &nodes, work)
    }

    /// Starts one process for each list of addresses, which lead to the same nodes on ways of their own.
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

    /// As [`Campaign::add_process`], by a command of one's own that becomes the campaign client: say, elsewhere on the
    /// network.
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

    /// Kills one of the processes, as a crash does: nothing is released. Those after it move up.
    pub fn kill(&mut self, process: usize) {
        self.processes.remove(process).kill();
    }

    /// Counts a fault, for the report.
    pub fn count_fault(&self) {
        self.faults.fetch_add(1, Relaxed);
    }

    /// Waits until so many more locks were held.
    ///
    /// # Panics
    /// When that does not happen, or a process has ended by itself.
    pub fn wait_for_holds(&mut self, more: usize) {
        let goal = self.log.holds() + more;
        let log = Arc::clone(&self.log);
        self.wait_until(&format!("{more} more locks were held"), || log.holds() >= goal);
    }

    /// Waits until every process that runs has held so many more locks.
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

    /// Waits until every process that runs has held so many more locks, or one of them fails again and again and
    /// gets none: then false.
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

    /// Waits until one process has held so many more locks.
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

    /// Waits until one process has failed so many more times to get a lock, or all of them together.
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

    /// Waits until so many more attempts have failed. None that began meanwhile may have got its lock: call it
    /// when no majority can be had.
    ///
    /// # Panics
    /// When one has, and as [`Campaign::wait_for_holds`].
    pub fn wait_for_failures_only(&mut self, failures: usize) {
        let since_ns = now_ns();
        self.wait_for_failures(None, failures);
        let granted: usize =
            (0..self.started).map(|process| self.holds_between(process, since_ns, now_ns())).sum();
        assert_eq!(granted, 0, "locks were had without a majority: {}", self.summary());
    }

    /// Waits until so many more attempts have come to an end, with a lock or without.
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

    /// Whether there is a process that is not paused.
    #[must_use]
    pub fn any_running(&self) -> bool {
        self.processes.iter().any(|process| !process.is_paused())
    }

    /// How many attempts have held their locks so far.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.log.holds()
    }

    /// How many locks a process has got of those that it asked for after one moment and had before another.
    #[must_use]
    pub fn holds_between(&self, process: u64, after_ns: u64, before_ns: u64) -> usize {
        let events = self.log.read();
        let asked_since: std::collections::HashSet<_> = events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::Started { .. }) && event.at_ns > after_ns)
            .map(|event| event.session)
            .collect();
        let is_meant = |event: &&CampaignEvent| {
            process_of(event.session) == process
                && matches!(event.kind, EventKind::Held { .. })
                && event.at_ns < before_ns
                && asked_since.contains(&event.session)
        };
        events.iter().filter(is_meant).count()
    }

    /// What is wrong so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        violations(&self.log.read(), &self.storage.writes())
    }

    /// Does harm again and again, until the checks have seen what they must see: for a control, which has
    /// its protection off. Hands over what was seen.
    ///
    /// # Panics
    /// When the checks see nothing of it.
    pub fn inject_until_violation(
        &mut self,
        is_meant: impl Fn(&Violation) -> bool,
        mut harm: impl FnMut(&mut Self),
    ) -> Violation {
        let found = within(PROGRESS_TIMEOUT, || {
            harm(self);
            self.count_fault();
            self.violations().into_iter().find(&is_meant)
        });
        let seen = found.unwrap_or_else(|| panic!("the checks see nothing: {}", self.summary()));
        println!("control: {} and {seen:?}", self.summary());
        seen
    }

    /// How many writes of holders of the past the storage has turned away.
    #[must_use]
    pub fn rejected_writes(&self) -> usize {
        self.storage.writes().iter().filter(|write| !write.accepted).count()
    }

    /// How many holders that ran all the time were told that theirs is nearly up.
    #[must_use]
    pub fn timely_loss_notifications(&self) -> usize {
        self.log.count(|event| {
            matches!(event.kind, EventKind::LossNotified { longest_stall_ns, .. } if longest_stall_ns <= history::STALL_NS)
        })
    }

    /// How many holders of a process that stood still from one moment to another learned afterwards that their
    /// locks are over.
    ///
    /// # Panics
    /// When one of them was told that it still has a lock whose time had run out meanwhile.
    #[must_use]
    pub fn losses_noticed_after_pause(&self, process: u64, paused_ns: u64, resumed_ns: u64) -> usize {
        let events = self.log.read();
        let of = |session| events.iter().filter(move |event| event.session == session);
        let ends =
            events.iter().filter(|event| process_of(event.session) == process && event.at_ns > resumed_ns);
        let mut learned = 0;
        for event in ends {
            let EventKind::Ended(end) = event.kind else { continue };
            let before = of(event.session).filter(|event| event.at_ns < paused_ns);
            let mut believed = before.filter_map(|event| match event.kind {
                EventKind::Held { until_ns, .. } | EventKind::StillValid { until_ns } => Some(until_ns),
                _ => None,
            });
            let ran_out = believed.next_back().is_some_and(|until_ns| until_ns < resumed_ns);
            // One that was extended at the last moment has told so.
            let was_extended = of(event.session).any(|event| {
                event.at_ns > paused_ns
                    && matches!(event.kind, EventKind::Extended | EventKind::StillValid { .. })
            });
            if ran_out && !was_extended {
                assert_ne!(
                    end,
                    HoldEnd::Released,
                    "a lock that ran out at {paused_ns} to {resumed_ns}: {event}"
                );
                learned += usize::from(matches!(end, HoldEnd::Expired | HoldEnd::Lost));
            }
        }
        learned
    }

    /// In figures, what has happened so far.
    #[must_use]
    pub fn summary(&self) -> String {
        let writes = self.storage.writes();
        format!(
            "{} processes, {} acquires, {} holds, {} extensions, {} told in time, {} writes of which {} were turned \
             away, {} faults",
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
        assert!(reached.is_some(), "waited in vain until {what}: {}", self.summary());
    }
}
