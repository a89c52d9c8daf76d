//! Acquiring a lock: from the call to the guard.
//!
//! | step | where |
//! |---|---|
//! | what the caller asks for | [`AcquireSpec`] |
//! | attempts, pauses between them, the deadline | [`AcquireLoop::run`] |
//! | one attempt: the driver queries the nodes, the caller waits | [`AcquireLoop::attempt`] |
//! | the caller stops waiting | [`PendingAcquire`]: its drop releases the lock |

use crate::driver::{AcquireCall, Acquired, Inbox, Message, NotAcquired, WaitPlan};
use crate::error::QuorumReport;
use crate::guard::Guard;
use crate::inspect::read_lock_info;
use crate::join_all::join_all;
use crate::keys::Keys;
use crate::lock_shared::{EXPLAIN_LIMIT, LockShared};
use crate::manager::{LockManager, ManagerShared};
use crate::owner::random;
use crate::query::Query;
use crate::queue_support::WaitPolicy;
use crate::{Error, observe, ticket};
use redlock_proto::inspection::LockInfo;
use redlock_proto::{LockMode, NodeSet, Refusal, Retry, Vote};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How many drivers one call may lose to a runtime that shuts down. The call fails when it loses one more.
const MAX_RUNTIMES_LOST: u32 = 3;

/// How long a caller whose deadline has passed still waits for the driver to report the answers of the nodes.
const DRIVER_GRACE: Duration = Duration::from_millis(100);

/// For at most this many keys of one lock, a call that has failed asks who holds them.
const MAX_KEYS_EXPLAINED: usize = 16;

/// The arguments of an acquire.
#[derive(Clone, Debug)]
pub(crate) struct AcquireSpec {
    pub(crate) keys: Keys,
    pub(crate) mode: LockMode,
    /// A note for people; `None` for the label of the manager.
    pub(crate) label: Option<Box<str>>,
    pub(crate) ttl: Duration,
    pub(crate) retry: RetryMode,
}

/// When a call gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RetryMode {
    /// When the manager's [`Retry`] gives up.
    Configured,
    /// After one attempt.
    Once,
    /// After this time, whatever the manager's [`Retry`] says about giving up.
    Within(Duration),
}

impl LockManager {
    /// Acquires a lock, and reports the outcome to metrics and tracing.
    pub(crate) async fn acquire_spec(&self, spec: AcquireSpec) -> Result<Guard, Error> {
        let acquire = async {
            let outcome = match AcquireLoop::new(self, &spec) {
                Ok(mut attempts) => match attempts.run().await {
                    Ok(guard) => Ok(guard),
                    Err(error) => Err(attempts.explain(error).await),
                },
                Err(error) => Err(error),
            };
            outcome.inspect_err(|error| observe::failed(&spec.keys, error))
        };
        observe::in_acquire_span(&spec.keys, acquire).await
    }
}

/// One call, over all its attempts.
struct AcquireLoop<'a> {
    manager: &'a LockManager,
    spec: &'a AcquireSpec,
    ttl: Duration,
    retry: Retry,
    started: Instant,
    /// When the call times out; `None` without a time limit.
    deadline: Option<Instant>,
    /// The ticket in the wait queues of the nodes. All attempts use the same ticket, so that a new attempt
    /// keeps the position. `None` for a call of one attempt.
    wait: Option<WaitPlan>,
    attempts: u32,
    runtimes_lost: u32,
    /// Whether another client held the lock at some time during the call.
    was_held: bool,
    /// The answers of the nodes to the last failed attempt.
    last_answers: Option<QuorumReport>,
    /// The state of the last attempt.
    last_attempt: Option<Arc<LockShared>>,
}

/// Why an attempt failed.
enum AttemptError {
    /// The client yielded to an older ticket, or too few nodes queue this client. The next attempt starts at
    /// once.
    Yielded,
    /// The runtime of the driver has shut down, but the caller's runtime runs. The next attempt starts at
    /// once.
    RuntimeLost,
    /// The client queued until the time limit of the call.
    QueueTimedOut(Error),
    /// The deadline of the caller has passed.
    DeadlinePassed(QuorumReport),
    /// Another attempt may succeed after this time, if the error is retryable.
    Failed(Error, Duration),
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::Failed(error, Duration::ZERO)
    }
}

impl<'a> AcquireLoop<'a> {
    fn new(manager: &'a LockManager, spec: &'a AcquireSpec) -> Result<Self, Error> {
        let settings = manager.settings();
        let ttl = settings.check_ttl(spec.ttl)?;
        // The pauses between attempts need a timer. Without one, the call fails before the first attempt.
        tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (retry, allowed, queue_for) = match spec.retry {
            RetryMode::Once => (Retry::none(), None, None),
            RetryMode::Configured => (settings.retry.clone(), None, settings.retry.patience()),
            RetryMode::Within(wait) => {
                (settings.retry.clone().give_up_after(Duration::MAX), Some(wait), Some(wait))
            }
        };
        let queue_for = queue_for.filter(|_| settings.wait_policy == WaitPolicy::Queue);
        let queue_until = queue_for.map(|queue_for| settings.clock.now().plus(queue_for));
        let ticket = queue_for.or(allowed).map(|_| ticket::next());
        let started = Instant::now();
        Ok(Self {
            manager,
            spec,
            ttl,
            retry,
            started,
            // A deadline beyond the range of the clock never passes.
            deadline: allowed.and_then(|allowed| started.checked_add(allowed)),
            wait: ticket.map(|ticket| WaitPlan { ticket, queue_until, yields: 0 }),
            attempts: 0,
            runtimes_lost: 0,
            was_held: false,
            last_answers: None,
            last_attempt: None,
        })
    }

    /// Makes attempts until the client holds the lock, the error is not retryable, or the policy gives up.
    async fn run(&mut self) -> Result<Guard, Error> {
        loop {
            self.attempts += 1;
            observe::attempt(&self.spec.keys);
            let (error, retry_after) = match self.attempt().await {
                Ok(guard) => {
                    self.report_success(&guard);
                    return Ok(guard);
                }
                Err(AttemptError::Yielded) => {
                    self.was_held = true;
                    self.wait =
                        self.wait.map(|wait| WaitPlan { yields: wait.yields.saturating_add(1), ..wait });
                    continue;
                }
                Err(AttemptError::RuntimeLost) if self.runtimes_lost < MAX_RUNTIMES_LOST => {
                    self.runtimes_lost += 1;
                    continue;
                }
                Err(AttemptError::RuntimeLost) => return Err(Error::NoRuntime),
                Err(AttemptError::QueueTimedOut(error)) => return Err(self.final_error(error)),
                Err(AttemptError::DeadlinePassed(answers)) => {
                    let earlier = self.last_answers.take().filter(|_| !answers.has_answers());
                    return Err(self.timed_out(earlier.unwrap_or(answers)));
                }
                // An answer that is still to come may show that the nodes rejected the request.
                Err(AttemptError::Failed(error, retry_after)) if error.may_be_rejected() => {
                    (self.explain(error).await, retry_after)
                }
                Err(AttemptError::Failed(error, retry_after)) => (error, retry_after),
            };
            self.was_held |= matches!(error, Error::Contended(_));
            let pause = self.pause(retry_after).filter(|_| error.is_retryable());
            let Some(pause) = pause else { return Err(self.final_error(error)) };
            if let Some(deadline) = self.deadline.filter(|deadline| *deadline <= Instant::now() + pause) {
                tokio::time::sleep_until(deadline).await;
                let answers = error.report().cloned().unwrap_or_else(|| self.answers(None));
                return Err(self.timed_out(answers));
            }
            self.last_answers = error.report().cloned();
            tokio::time::sleep(pause).await;
        }
    }

    /// Makes one attempt, with a new owner.
    async fn attempt(&mut self) -> Result<Guard, AttemptError> {
        let (manager, settings) = (self.manager.shared(), self.manager.settings());
        let AcquireSpec { keys, mode, label, .. } = self.spec;
        let shared = LockShared::new(keys.clone(), *mode, self.ttl, settings);
        let shared = Arc::new(shared.with_label(label.clone()));
        self.last_attempt = Some(Arc::clone(&shared));
        let inbox = manager.inbox()?;
        let (answer, acquired) = oneshot::channel();
        let (ttl, wait) = (self.ttl, self.wait);
        let call = AcquireCall { shared: Arc::clone(&shared), ttl, wait, answer };
        inbox.send(Message::Acquire(call)).map_err(|_| Error::NoRuntime)?;
        let mut pending = PendingAcquire {
            acquired,
            ticket: wait.map(|wait| wait.ticket),
            inbox: &inbox,
            manager,
            shared: Arc::clone(&shared),
            is_answered: false,
        };
        let (outcome, is_in_time) = match self.deadline {
            None => ((&mut pending.acquired).await, true),
            Some(deadline) => match tokio::time::timeout_at(deadline, &mut pending.acquired).await {
                Ok(outcome) => (outcome, true),
                Err(_) => (self.last_outcome(&mut pending).await?, false),
            },
        };
        pending.is_answered = outcome.is_ok();
        pending.ticket = None;
        drop(pending);
        match outcome {
            // The runtime of the driver has shut down.
            Err(_) => Err(AttemptError::RuntimeLost),
            Ok(Ok(lock)) => {
                let guard = Guard::new(Arc::clone(manager), inbox, lock, Arc::clone(&shared));
                // The task may have been suspended between the grant and this line.
                if guard.is_valid() {
                    return Ok(guard);
                }
                let answers = self.answers(Some(&shared.last_votes(settings.quorum)));
                Err(Error::Expired(Box::new(answers)).into())
            }
            Ok(Err(refused)) if !is_in_time => {
                Err(AttemptError::DeadlinePassed(self.answers(Some(&refused.ballot))))
            }
            Ok(Err(refused)) => Err(self.refused(refused)),
        }
    }

    /// Asks the driver for the outcome of a call whose deadline has passed. The driver knows the answers so
    /// far.
    async fn last_outcome(
        &self,
        pending: &mut PendingAcquire<'_>,
    ) -> Result<Result<Acquired, oneshot::error::RecvError>, AttemptError> {
        if let Some(ticket) = pending.ticket {
            let _ = pending.inbox.send(Message::DeadlinePassed { ticket });
        }
        let answer = tokio::time::timeout(DRIVER_GRACE, &mut pending.acquired).await;
        answer.map_err(|_| AttemptError::DeadlinePassed(self.answers(None)))
    }

    fn refused(&self, refused: NotAcquired) -> AttemptError {
        let NotAcquired { refusal, ballot, has_waited } = refused;
        if refusal == Refusal::Yielded {
            return AttemptError::Yielded;
        }
        let error = Error::refused(refusal, self.answers(Some(&ballot)));
        if has_waited && refusal == Refusal::Contended {
            AttemptError::QueueTimedOut(error)
        } else {
            AttemptError::Failed(error, ballot.retry_after_quarantine())
        }
    }

    /// Adds to a final error the answers that came after the attempt had failed, and what the nodes know about the
    /// holder.
    ///
    /// A majority of answers decides an attempt, so a healthy node may not have answered yet: the call waits for
    /// its vote, and sends it nothing. Then it asks the nodes on which another client holds the lock, once for each key.
    async fn explain(&self, mut error: Error) -> Error {
        let Some(report) = error.report_mut() else { return error };
        if let Some(attempt) = &self.last_attempt {
            let pending = report.with_vote(&Vote::Pending);
            let late = attempt.wait_for_late_votes(&pending);
            let _ = tokio::time::timeout(EXPLAIN_LIMIT, late).await;
            pending.into_iter().for_each(|node| report.add_late_vote(node, attempt.late_vote(node)));
        }
        let keys = &self.spec.keys;
        let asked: Vec<(usize, usize)> = (report.with_vote(&Vote::Refused).into_iter())
            .flat_map(|node| (0..keys.names().len().min(MAX_KEYS_EXPLAINED)).map(move |key| (node, key)))
            .collect();
        let infos = join_all(asked.iter().map(|(node, key)| self.ask_for_holder(*node, *key))).await;
        for ((node, key), info) in asked.into_iter().zip(infos) {
            let resource = keys.resources().nth(key).filter(|_| keys.names().len() > 1);
            if let Some(info) = info {
                report.add_holder(node, resource, info);
            }
        }
        error.settled()
    }

    /// Asks a node who holds one of the keys; `None` if no client holds it, or if the node does not answer in time.
    async fn ask_for_holder(&self, node: usize, key: usize) -> Option<LockInfo> {
        let words = Query::inspect(self.spec.keys.names().get(key)?.to_vec()).into_words();
        let asked = self.manager.send_to(words, NodeSet::one(node));
        let replies = tokio::time::timeout(EXPLAIN_LIMIT, asked).await.ok()?.ok()?;
        read_lock_info(&replies.into_iter().next()?.frame.ok()?)
    }

    /// How long to wait before the next attempt; `None` if the policy gives up.
    fn pause(&self, retry_after: Duration) -> Option<Duration> {
        let elapsed = self.started.elapsed();
        let next = |retry: &Retry| retry.next_at_least(self.attempts, elapsed, random(), retry_after);
        next(&self.retry).or_else(|| match self.spec.retry {
            RetryMode::Configured | RetryMode::Once => None,
            // The caller's time limit decides, even if the policy gives up earlier.
            RetryMode::Within(_) => next(&Retry::without_limit()),
        })
    }

    fn report_success(&self, guard: &Guard) {
        let elapsed = self.started.elapsed();
        observe::acquired(&self.spec.keys, guard.fence(), elapsed, self.attempts);
        if self.was_held || guard.had_to_wait() {
            observe::waited(elapsed);
        }
    }

    /// The answers of all nodes to this attempt.
    fn answers(&self, ballot: Option<&redlock_proto::Ballot>) -> QuorumReport {
        self.manager.shared().report(&self.spec.keys, ballot).after(self.attempts)
    }

    /// The error that the call returns: `Contended` becomes `Timeout` if the call has a time limit; other errors
    /// stay as they are.
    fn final_error(&self, error: Error) -> Error {
        match (self.spec.retry, error) {
            (RetryMode::Within(_), Error::Contended(answers)) => self.timed_out(*answers),
            (_, error) => error,
        }
    }

    fn timed_out(&self, answers: QuorumReport) -> Error {
        let waited = match self.spec.retry {
            RetryMode::Within(wait) => wait,
            RetryMode::Configured | RetryMode::Once => Duration::ZERO,
        };
        Error::timed_out(waited, answers)
    }
}

/// An attempt that a caller waits for. Its drop removes the client from the wait queues, and releases a lock
/// that the nodes granted meanwhile.
struct PendingAcquire<'a> {
    acquired: oneshot::Receiver<Acquired>,
    /// The ticket in the wait queues, until the driver has answered.
    ticket: Option<u64>,
    inbox: &'a Inbox,
    manager: &'a ManagerShared,
    shared: Arc<LockShared>,
    is_answered: bool,
}

impl Drop for PendingAcquire<'_> {
    fn drop(&mut self) {
        self.acquired.close();
        if !self.is_answered && self.inbox.is_closed() {
            // The runtime of the driver has shut down; the current runtime releases the lock.
            let ttl = self.shared.ttl();
            return self.manager.free(Arc::clone(&self.shared), ttl);
        }
        if let Ok(Ok(lock)) = self.acquired.try_recv() {
            let _ = self.inbox.send(Message::Release { lock, answer: None });
        } else if let Some(ticket) = self.ticket {
            let _ = self.inbox.send(Message::Cancel { ticket });
        }
    }
}
