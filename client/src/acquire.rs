//! Taking a lock: from the call to the guard.
//!
//! | step | where |
//! |---|---|
//! | what the caller asks for | [`AcquireSpec`] |
//! | attempts, pauses between them, the deadline | [`AcquireLoop::run`] |
//! | one attempt: the driver asks the nodes, the caller waits | [`AcquireLoop::attempt`] |
//! | a caller that stops waiting | [`PendingAcquire`], whose drop gives the lock back |

use crate::driver::{AcquireCall, Acquired, Inbox, Message, NotAcquired, WaitPlan};
use crate::error::QuorumReport;
use crate::guard::Guard;
use crate::keys::Keys;
use crate::lock_shared::LockShared;
use crate::manager::{LockManager, ManagerShared};
use crate::owner::random;
use crate::queue_support::WaitPolicy;
use crate::{Error, observe, ticket};
use redlock_proto::{Refusal, Retry};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How many times one call outlives the runtime that served it before the call fails.
const MAX_RUNTIMES_LOST: u32 = 3;

/// How long the driver may take to report what the nodes have said when the caller's time is up.
const DRIVER_GRACE: Duration = Duration::from_millis(100);

/// What the caller asks for.
#[derive(Clone, Debug)]
pub(crate) struct AcquireSpec {
    pub(crate) keys: Keys,
    pub(crate) ttl: Duration,
    pub(crate) retry: RetryMode,
}

/// How long a call goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RetryMode {
    /// As the manager's [`Retry`] says.
    Configured,
    /// One attempt.
    Once,
    /// For this long, whatever the manager's [`Retry`] says about giving up.
    Within(Duration),
}

impl LockManager {
    /// Takes a lock.
    pub(crate) async fn acquire_spec(&self, spec: AcquireSpec) -> Result<Guard, Error> {
        let acquire = async {
            let outcome = match AcquireLoop::new(self, &spec) {
                Ok(mut attempts) => attempts.run().await,
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
    /// The end of the time that the caller allowed, if the caller allowed a time.
    deadline: Option<Instant>,
    /// The ticket in the nodes' queues, the same for all attempts: a new attempt keeps its position. `None`
    /// for a call of one attempt.
    wait: Option<WaitPlan>,
    attempts: u32,
    runtimes_lost: u32,
    /// Whether another client held the lock at some time during the call.
    was_held: bool,
    /// What the nodes answered to the last attempt that failed.
    last_answers: Option<QuorumReport>,
}

/// Why an attempt did not lead to a lock.
enum AttemptError {
    /// The client yielded to an older ticket, or too few nodes queue this client: try again at once.
    Yielded,
    /// The runtime of the driver has shut down, and the caller's has not: try again at once.
    RuntimeLost,
    /// The client queued for as long as the call may take.
    QueueTimedOut(Error),
    /// The caller's time is up.
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
        // Pauses between attempts need a timer: fail before the first attempt, not at the second.
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
            // A time too long for the clock never comes.
            deadline: allowed.and_then(|allowed| started.checked_add(allowed)),
            wait: ticket.map(|ticket| WaitPlan { ticket, queue_until, yields: 0 }),
            attempts: 0,
            runtimes_lost: 0,
            was_held: false,
            last_answers: None,
        })
    }

    /// Tries until the lock is held, another attempt cannot succeed, or the policy gives up.
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

    /// One attempt, under an owner of its own.
    async fn attempt(&self) -> Result<Guard, AttemptError> {
        let (shared, settings) = (self.manager.shared(), self.manager.settings());
        let hold = Arc::new(LockShared::new(self.spec.keys.clone(), self.ttl, settings));
        let inbox = shared.inbox()?;
        let (answer, acquired) = oneshot::channel();
        let (ttl, wait) = (self.ttl, self.wait);
        let call = AcquireCall { hold: Arc::clone(&hold), ttl, wait, answer };
        inbox.send(Message::Acquire(call)).map_err(|_| Error::NoRuntime)?;
        let mut pending = PendingAcquire {
            acquired,
            ticket: wait.map(|wait| wait.ticket),
            inbox: &inbox,
            shared,
            hold: Arc::clone(&hold),
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
                let guard = Guard::new(Arc::clone(shared), inbox, lock, Arc::clone(&hold));
                // This task may have been suspended between the grant and here.
                if guard.is_valid() {
                    return Ok(guard);
                }
                let answers = self.answers(Some(&hold.last_words(settings.quorum)));
                Err(Error::Expired(Box::new(answers)).into())
            }
            Ok(Err(refused)) if !is_in_time => {
                Err(AttemptError::DeadlinePassed(self.answers(Some(&refused.ballot))))
            }
            Ok(Err(refused)) => Err(self.refused(refused)),
        }
    }

    /// What the driver answers to a call whose time is up: it knows what the nodes have said so far.
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
            AttemptError::Failed(error, ballot.no_use_before())
        }
    }

    /// How long to wait before the next attempt; `None` if the policy gives up.
    fn pause(&self, retry_after: Duration) -> Option<Duration> {
        let elapsed = self.started.elapsed();
        let next = |retry: &Retry| retry.next_at_least(self.attempts, elapsed, random(), retry_after);
        next(&self.retry).or_else(|| match self.spec.retry {
            RetryMode::Configured | RetryMode::Once => None,
            // The caller said how long to go on; a policy that gives up earlier does not decide.
            RetryMode::Within(_) => {
                next(&Retry::exponential(Duration::from_millis(5), Duration::from_millis(250)))
            }
        })
    }

    fn report_success(&self, guard: &Guard) {
        let elapsed = self.started.elapsed();
        observe::acquired(&self.spec.keys, guard.fence(), elapsed, self.attempts);
        if self.was_held || guard.had_to_wait() {
            observe::waited(elapsed);
        }
    }

    /// What every node answered to this attempt.
    fn answers(&self, ballot: Option<&redlock_proto::Ballot>) -> QuorumReport {
        self.manager.shared().report(&self.spec.keys, ballot).after(self.attempts)
    }

    /// The error of the call. A call with a time limit that found the lock held has timed out.
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

/// An attempt that a caller waits for. Dropped, it gives up the position in the queues, and gives back a lock
/// that was granted meanwhile.
struct PendingAcquire<'a> {
    acquired: oneshot::Receiver<Acquired>,
    /// The position in the queues that is given up with it.
    ticket: Option<u64>,
    inbox: &'a Inbox,
    shared: &'a ManagerShared,
    hold: Arc<LockShared>,
    is_answered: bool,
}

impl Drop for PendingAcquire<'_> {
    fn drop(&mut self) {
        self.acquired.close();
        if !self.is_answered && self.inbox.is_closed() {
            // The runtime of the driver has shut down; another runtime may release the lock.
            let ttl = self.hold.ttl();
            return self.shared.free(Arc::clone(&self.hold), ttl);
        }
        if let Ok(Ok(lock)) = self.acquired.try_recv() {
            let _ = self.inbox.send(Message::Release { lock, answer: None });
        } else if let Some(ticket) = self.ticket {
            let _ = self.inbox.send(Message::Cancel { ticket });
        }
    }
}
