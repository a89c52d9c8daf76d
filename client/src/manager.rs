//! The lock manager: where locks come from.

use crate::builder::Builder;
use crate::driver::{self, Acquired, Inbox, Message, NotAcquired, Wait};
use crate::error::Evidence;
use crate::guard::Guard;
use crate::held::Held;
use crate::hold::Hold;
use crate::keys::Keys;
use crate::memory::Nodes;
use crate::owner::random;
use crate::settings::Settings;
use crate::under::work_under;
use crate::{Error, observe, ticket};
use redlock_proto::{Ballot, MAX_NODES, Refusal, Retry};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Takes locks on a majority of independent nodes.
///
/// Cheap to clone; clones share connections. One manager serves any number of tasks, and the more of them
/// there are, the less each costs: their commands travel together. See the [crate documentation](crate) for
/// how to choose between its methods, and for what happens if several [runtimes](crate#runtimes) share a manager.
#[derive(Clone)]
pub struct LockManager {
    shared: Arc<Shared>,
}

/// What clones, guards and background tasks share.
pub(crate) struct Shared {
    pub(crate) settings: Arc<Settings>,
    /// The way to the driver, once there is one.
    inbox: Mutex<Option<Inbox>>,
}

impl Shared {
    /// The way to a driver that lives. Starts one on the current runtime if there is none, or if the
    /// runtime of the last one has shut down.
    pub(crate) fn inbox(&self) -> Result<Inbox, Error> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = inbox.as_ref().filter(|inbox| !inbox.is_closed()) {
            return Ok(inbox.clone());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let fresh = driver::start(&self.settings, &runtime);
        *inbox = Some(fresh.clone());
        Ok(fresh)
    }

    /// Sends a call to the driver and waits for the answer.
    pub(crate) async fn call<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Message,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.inbox()?.send(message(answer)).map_err(|_| Error::NoRuntime)?;
        answered.await.map_err(|_| Error::NoRuntime)
    }

    /// Frees a lock that no driver keeps any more, if there is a runtime to do it.
    pub(crate) fn free(&self, hold: Arc<Hold>, ttl: Duration) {
        if let Ok(inbox) = self.inbox() {
            let _ = inbox.send(Message::Free { hold, ttl });
        }
    }

    pub(crate) fn evidence(&self, keys: &Keys, ballot: Option<&Ballot>) -> Evidence {
        Evidence::new(keys, &self.settings.names, ballot)
    }
}

impl LockManager {
    /// Describes a manager before it is built.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A manager over so many nodes in memory: no server, for examples and tests.
    ///
    /// Its clones share the nodes. For several managers over the same nodes, and for nodes that fail, see
    /// [`memory::Nodes`](crate::memory::Nodes). There is at least one node, and at most 63.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_client::Error> {
    /// use redlock_client::LockManager;
    /// use std::time::Duration;
    ///
    /// let locks = LockManager::in_memory(5);
    /// let guard = locks.acquire("orders:42", Duration::from_secs(30)).await?;
    /// assert_eq!(guard.fence(), 1);
    /// guard.release().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn in_memory(nodes: usize) -> Self {
        Builder::new().over_memory(&Nodes::new(nodes.clamp(1, MAX_NODES)))
    }

    pub(crate) fn new(settings: Settings) -> Self {
        Self { shared: Arc::new(Shared { settings: Arc::new(settings), inbox: Mutex::new(None) }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub(crate) fn key(&self, resource: &[u8]) -> Result<Keys, Error> {
        Keys::one(&self.settings().key_prefix, resource).map_err(Error::invalid)
    }

    pub(crate) fn keys<R: AsRef<[u8]>>(&self, resources: impl IntoIterator<Item = R>) -> Result<Keys, Error> {
        Keys::many(&self.settings().key_prefix, resources).map_err(Error::invalid)
    }

    /// Takes a lock, waiting for it for as long as the manager's [`Retry`] says.
    ///
    /// If somebody else holds it, one stands in line at the nodes: whoever frees the lock hands it to the one who
    /// has waited longest, at once. While too few nodes answer, or where they do not let us wait
    /// ([`Builder::wait_in_line`]), it is asked for again.
    ///
    /// Cancel safe: if the future is dropped, everything that the nodes may have granted is freed.
    ///
    /// # Errors
    /// That of the last attempt, when the policy gives up or trying again is no use.
    pub async fn acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.take(self.key(resource.as_ref())?, ttl, Effort::AsConfigured, None).await
    }

    /// Tries once to take a lock.
    ///
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Contended`] if somebody else holds it, and all others.
    pub async fn try_acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.take(self.key(resource.as_ref())?, ttl, Effort::Once, None).await
    }

    /// Takes a lock, waiting for it for at most `wait`, whatever the manager's policy says about giving up.
    ///
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Timeout`] when the time is up, with what the nodes said last.
    pub async fn acquire_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        self.take(self.key(resource.as_ref())?, ttl, Effort::Within(wait), None).await
    }

    /// Takes several locks as one: all of them or none, in any order given, without deadlock.
    ///
    /// The guard has one fence for all. At most 1,024 resources, with a mebibyte of names. Cancel
    /// safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire`].
    pub async fn acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        self.take(self.keys(resources)?, ttl, Effort::AsConfigured, None).await
    }

    /// Tries once to take several locks as one. Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::try_acquire`].
    pub async fn try_acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        self.take(self.keys(resources)?, ttl, Effort::Once, None).await
    }

    /// Takes several locks as one, trying again for at most `wait`. Cancel safe, as
    /// [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire_timeout`].
    pub async fn acquire_many_timeout<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        self.take(self.keys(resources)?, ttl, Effort::Within(wait), None).await
    }

    /// Runs `work` while holding a lock, and frees it afterwards.
    ///
    /// The lock is extended for as long as the work goes on, up to the manager's `max_hold`. If it is lost,
    /// the work is dropped where it stands, and the result is [`Error::Lost`]; if the lock's time ran out, that
    /// is before somebody else can hold it. If the work fails, its own error is returned, whatever happened to
    /// the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use redlock_client::{Error, LockManager};
    /// # use std::time::Duration;
    /// # let locks = LockManager::in_memory(5);
    /// let total = locks
    ///     .with_lock("orders:42", Duration::from_secs(10), async |held| {
    ///         // Hand held.fence() to the storage with every write.
    ///         Ok::<_, Error>(40 + held.fence())
    ///     })
    ///     .await?;
    /// assert_eq!(total, 41);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel safe: if the future is dropped, so is the work, and the lock is freed.
    ///
    /// # Errors
    /// The work's own, or why the lock was not had or not kept.
    pub async fn with_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(Held) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let mut guard = self.acquire(resource, ttl).await?;
        guard.keep_alive(self.settings().max_hold)?;
        let work = work(guard.held());
        work_under(guard, work).await
    }

    /// Waits until nothing is left to be freed of what was begun before: every release has been answered, or has
    /// waited for its node in vain. For the end of a program, after the last guard is gone.
    ///
    /// Takes a node timeout at the most, or the time to connect if the nodes were never reached. The manager
    /// can still be used afterwards. Cancel safe.
    pub async fn close(&self) {
        // With no driver there is nothing under way.
        let running = {
            let inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.clone()
        };
        if let Some(inbox) = running {
            let (answer, at_rest) = oneshot::channel();
            if inbox.send(Message::Close { answer }).is_ok() {
                let _ = at_rest.await;
            }
        }
    }

    /// Takes a lock with so much effort. With a floor, the nodes are asked for a number that is not smaller;
    /// that is a wish, and whoever needs it looks at what came.
    pub(crate) async fn take(
        &self,
        keys: Keys,
        ttl: Duration,
        effort: Effort,
        floor: Option<u64>,
    ) -> Result<Guard, Error> {
        let wish = Wish { keys, ttl, floor };
        match effort {
            Effort::AsConfigured => self.acquire_by(wish, &self.settings().retry).await,
            Effort::Once => self.acquire_by(wish, &Retry::none()).await,
            Effort::Within(wait) => {
                observe::in_acquire_span(&wish.keys, self.attempts_within(&wish, wait)).await
            }
        }
    }

    /// Tries until the lock is held or the time is up.
    async fn attempts_within(&self, wish: &Wish, wait: Duration) -> Result<Guard, Error> {
        let keys = &wish.keys;
        tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let policy = self.settings().retry.clone().give_up_after(Duration::MAX);
        // The caller has said how long to go on; a policy that gives up before does not.
        let on_and_on = Retry::exponential(Duration::from_millis(5), Duration::from_millis(250));
        let pause = |attempts, elapsed, at_least| {
            let pause = policy.next_at_least(attempts, elapsed, random(), at_least);
            pause.or_else(|| on_and_on.next_at_least(attempts, elapsed, random(), at_least))
        };
        let patience = self.settings().waits_in_line.then_some(wait);
        let outcome = match self.attempts(wish, patience, Some(wait), pause).await {
            Err(Error::Contended(evidence)) => Err(Error::timed_out(wait, *evidence)),
            outcome => outcome,
        };
        outcome.inspect_err(|error| observe::failed(keys, error))
    }

    async fn acquire_by(&self, wish: Wish, retry: &Retry) -> Result<Guard, Error> {
        let pause = |attempts, elapsed, at_least| retry.next_at_least(attempts, elapsed, random(), at_least);
        let patience = retry.patience().filter(|_| self.settings().waits_in_line);
        let attempts = async {
            let outcome = self.attempts(&wish, patience, None, pause).await;
            outcome.inspect_err(|error| observe::failed(&wish.keys, error))
        };
        observe::in_acquire_span(&wish.keys, attempts).await
    }

    /// Tries until the lock is held, trying again is no use, or `pause` says that it is enough: it is told how
    /// many attempts were made, how long they took and how long the nodes want to be left alone. With
    /// `patience`, every attempt waits in line for what is left of it; after `allowed` all is over.
    async fn attempts(
        &self,
        wish: &Wish,
        patience: Option<Duration>,
        allowed: Option<Duration>,
        pause: impl Fn(u32, Duration, Duration) -> Option<Duration>,
    ) -> Result<Guard, Error> {
        let keys = &wish.keys;
        let ttl = self.settings().check_ttl(wish.ttl)?;
        // Pauses between attempts need a timer: better no attempt at all than a panic at the second.
        tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let started = Instant::now();
        let in_line_until = patience.map(|patience| self.settings().clock.now().plus(patience));
        // The same for all attempts: whoever has to ask again does not lose its place.
        let ticket = patience.or(allowed).map(|_| ticket::next());
        let mut wait = ticket.map(|ticket| Wait { ticket, in_line_until, yields: 0 });
        // A time too long for the clock never comes.
        let deadline = allowed.and_then(|allowed| started.checked_add(allowed));
        let time_is_up = |evidence| Err(Error::timed_out(allowed.unwrap_or_default(), evidence));
        let mut last_words: Option<Evidence> = None;
        let mut was_held = false;
        let (mut attempts, mut abandoned) = (0, 0);
        loop {
            attempts += 1;
            observe::attempt(keys);
            let (error, at_least) = match self.attempt(wish, ttl, wait, deadline, attempts).await {
                Ok(guard) => {
                    observe::acquired(keys, guard.fence(), started.elapsed(), attempts);
                    if was_held || guard.had_to_wait() {
                        observe::waited(started.elapsed());
                    }
                    return Ok(guard);
                }
                Err(Refused::Yielded) => {
                    was_held = true;
                    wait = wait.map(|wait| Wait { yields: wait.yields.saturating_add(1), ..wait });
                    continue;
                }
                Err(Refused::Abandoned) if abandoned < MOST_ABANDONED => {
                    abandoned += 1;
                    continue;
                }
                Err(Refused::Abandoned) => return Err(Error::NoRuntime),
                Err(Refused::WaitedInVain(error)) => return Err(error),
                Err(Refused::TimeIsUp(evidence)) => {
                    let said = if evidence.has_answers() { None } else { last_words };
                    return time_is_up(said.unwrap_or(evidence));
                }
                Err(Refused::For(error, at_least)) => (error, at_least),
            };
            was_held |= matches!(error, Error::Contended(_));
            let pause = pause(attempts, started.elapsed(), at_least).filter(|_| error.is_retryable());
            let Some(pause) = pause else { return Err(error) };
            if let Some(deadline) =
                deadline.filter(|deadline| deadline.saturating_duration_since(Instant::now()) <= pause)
            {
                tokio::time::sleep_until(deadline).await;
                return time_is_up(
                    error.evidence().cloned().unwrap_or_else(|| self.shared.evidence(keys, None)),
                );
            }
            last_words = error.evidence().cloned();
            tokio::time::sleep(pause).await;
        }
    }

    /// Tries once, with an owner of its own.
    async fn attempt(
        &self,
        wish: &Wish,
        ttl: Duration,
        wait: Option<Wait>,
        deadline: Option<Instant>,
        attempts: u32,
    ) -> Result<Guard, Refused> {
        let (settings, keys, floor) = (self.settings(), &wish.keys, wish.floor);
        let hold = Arc::new(Hold::new(keys.clone(), ttl, settings));
        let inbox = self.shared.inbox()?;
        let (answer, acquired) = oneshot::channel();
        let call = Message::Acquire { hold: Arc::clone(&hold), ttl, floor, wait, answer };
        inbox.send(call).map_err(|_| Error::NoRuntime)?;
        let ticket = wait.map(|wait| wait.ticket);
        let (shared, hold_of_call) = (&self.shared, Arc::clone(&hold));
        let mut awaited =
            Awaited { acquired, ticket, inbox: &inbox, shared, hold: hold_of_call, is_settled: false };
        let in_time = match deadline {
            None => Some((&mut awaited.acquired).await),
            Some(deadline) => tokio::time::timeout_at(deadline, &mut awaited.acquired).await.ok(),
        };
        let is_in_time = in_time.is_some();
        let acquired = match in_time {
            Some(acquired) => acquired,
            // The driver knows what the nodes have said so far.
            None => {
                let _ = ticket.map(|ticket| inbox.send(Message::TimeUp { ticket }));
                let answer = tokio::time::timeout(DRIVER_GRACE, &mut awaited.acquired).await;
                answer.map_err(|_| Refused::TimeIsUp(self.shared.evidence(keys, None).after(attempts)))?
            }
        };
        // A driver that is gone has settled nothing.
        awaited.is_settled = acquired.is_ok();
        awaited.ticket = None;
        drop(awaited);
        match acquired {
            Ok(Ok(session)) => {
                let guard = Guard::new(Arc::clone(&self.shared), inbox, session, Arc::clone(&hold));
                // This task may have been held up on its way here.
                if guard.is_valid() {
                    return Ok(guard);
                }
                let said = hold.last_words(settings.quorum);
                Err(Error::Expired(Box::new(self.shared.evidence(keys, Some(&said)).after(attempts))).into())
            }
            Ok(Err(NotAcquired { ballot, .. })) if !is_in_time => {
                Err(Refused::TimeIsUp(self.shared.evidence(keys, Some(&ballot)).after(attempts)))
            }
            Ok(Err(NotAcquired { refusal: Refusal::Yielded, .. })) => Err(Refused::Yielded),
            Ok(Err(NotAcquired { refusal, ballot, has_waited })) => {
                let evidence = self.shared.evidence(keys, Some(&ballot)).after(attempts);
                let error = Error::refused(refusal, evidence);
                let in_vain = has_waited && refusal == Refusal::Contended;
                Err(if in_vain {
                    Refused::WaitedInVain(error)
                } else {
                    Refused::For(error, ballot.no_use_before())
                })
            }
            Err(_) => Err(Refused::Abandoned),
        }
    }
}

/// How hard to try.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effort {
    /// As the manager's [`Retry`] says.
    AsConfigured,
    Once,
    /// For so long, whatever the policy says about giving up.
    Within(Duration),
}

/// What is asked for.
struct Wish {
    keys: Keys,
    ttl: Duration,
    floor: Option<u64>,
}

/// How often a call outlives the runtime that served it before it gives up.
const MOST_ABANDONED: u32 = 3;

/// How long a driver that has been told that time is up may take to say what the nodes said.
const DRIVER_GRACE: Duration = Duration::from_millis(100);

/// Why an attempt did not bring the lock.
enum Refused {
    /// Ask again at once: somebody who came before us needed our nodes, or too few of them are heard.
    Yielded,
    /// Ask again at once: the runtime of the driver has shut down, and ours has not.
    Abandoned,
    /// It was waited for until the end.
    WaitedInVain(Error),
    /// The time allowed for the call is up.
    TimeIsUp(Evidence),
    /// To be tried again after so long at the earliest.
    For(Error, Duration),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::For(error, Duration::ZERO)
    }
}

/// An attempt that somebody waits for. If nobody does any more and the lock was granted meanwhile, it is given
/// back: the answer may lie there unread.
struct Awaited<'a> {
    acquired: oneshot::Receiver<Acquired>,
    /// The place in line that is given up with it.
    ticket: Option<u64>,
    inbox: &'a Inbox,
    shared: &'a Shared,
    hold: Arc<Hold>,
    /// Whether the driver has answered.
    is_settled: bool,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.acquired.close();
        if !self.is_settled && self.inbox.is_closed() {
            // The runtime that asked the nodes has shut down; another one may be there to free what they gave.
            let ttl = self.hold.ttl();
            return self.shared.free(Arc::clone(&self.hold), ttl);
        }
        if let Ok(Ok(session)) = self.acquired.try_recv() {
            let _ = self.inbox.send(Message::Release { session, answer: None });
        } else if let Some(ticket) = self.ticket {
            let _ = self.inbox.send(Message::Cancel { ticket });
        }
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("nodes", &self.settings().names).finish_non_exhaustive()
    }
}
