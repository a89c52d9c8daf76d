//! Locks over several groups of nodes.
//!
//! | file | subject |
//! |---|---|
//! | `builder.rs` | groups before they are put together |
//! | `set.rs` | which group has a resource, and which sets of groups cannot be |
//! | `guard.rs` | a lock that is held in one group, or in two |
//! | `both.rs` | one resource locked in two groups, under one number |
//! | `carry_over.rs` | numbers of resources that nobody locked during a move |
//! | `report.rs` | how the groups are |

mod both;
mod builder;
mod carry_over;
mod guard;
mod report;
mod set;

pub use builder::GroupsBuilder;
pub use guard::{GroupGuard, GroupHeld, GroupRelease};
pub use report::{GroupHealth, GroupsHealth};

use crate::keys::Keys;
use crate::manager::{Effort, LockManager};
use crate::under::work_under;
use crate::{Error, Inspection};
use set::{Group, GroupSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Takes locks over several groups of nodes, of which every resource has one.
///
/// One group of three or five nodes grants so many locks in a second and no more. Resources are spread over
/// groups by their names, so that twice as many groups grant about twice as many. Everything that is promised for
/// one [`LockManager`] holds for the resources of each group; when too many nodes of a group are down, its
/// resources cannot be locked, and no others.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_client::Error> {
/// use redlock_client::{LockGroups, LockManager};
/// use std::time::Duration;
///
/// # let real = || -> Result<LockGroups, redlock_client::Error> {
/// let nodes = |names: [&str; 3]| LockManager::builder().nodes(names.map(|name| format!("redis://{name}:6379")));
/// let locks = LockGroups::builder()
///     .group("eu-1", nodes(["one", "two", "three"]).build()?)
///     .group("eu-2", nodes(["four", "five", "six"]).build()?)
///     .build()?;
/// # Ok(locks) };
/// # let group = || LockManager::in_memory(3);
/// # let locks = LockGroups::builder().group("eu-1", group()).group("eu-2", group()).build()?;
///
/// let guard = locks.acquire("orders:42", Duration::from_secs(30)).await?;
/// // Work, and hand guard.fence() to every storage that the work writes to.
/// guard.release().await;
/// # Ok(())
/// # }
/// ```
///
/// Which group has a resource is decided by the names of the groups and by the key; if the key has a part in
/// braces, as in `{orders}:42`, by that part alone. Every client must know the same groups under the same
/// names; to change them see [`LockGroups::moving`].
///
/// Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct LockGroups {
    shared: Arc<Mode>,
}

enum Mode {
    Steady(GroupSet),
    Moving { old: GroupSet, new: GroupSet },
}

/// Where a resource is locked.
enum Homes<'a> {
    One(&'a Group),
    Both { old: &'a Group, new: &'a Group },
}

impl LockGroups {
    /// Describes groups before they are put together.
    pub fn builder() -> GroupsBuilder {
        GroupsBuilder::default()
    }

    fn steady(groups: GroupSet) -> Self {
        Self { shared: Arc::new(Mode::Steady(groups)) }
    }

    /// For the time in which clients change from some groups to others, more or fewer.
    ///
    /// A resource that has another group in `new` than in `old` is locked in both. So whoever moves excludes those
    /// who know only the old groups as well as those who know only the new ones, and its fences are larger than
    /// theirs before it and smaller than theirs after it. These two must never be there at the same time:
    ///
    /// 1. Every client goes from `old` to `moving(old, new)`, one after the other.
    /// 2. When the last lock of a client that knew only `old` is over, one client calls
    ///    [`LockGroups::carry_over`], once.
    /// 3. Every client goes from `moving(old, new)` to `new`, one after the other.
    ///
    /// Until the first client knows only `new`, the way back is to let every client go back to `old`. From then on
    /// it is a move of its own, `moving(new, old)`, whose clients get along with those of this one. Meanwhile a
    /// lock costs a second round trip if its resource moves, and a third when its number has to be raised in one of
    /// the groups.
    ///
    /// # Errors
    /// [`Error::Config`] if one of the two is itself a move, if a group of both has different nodes in one than in
    /// the other, if a node is in two groups, or if key prefixes differ.
    pub fn moving(old: &Self, new: &Self) -> Result<Self, Error> {
        let (Mode::Steady(old), Mode::Steady(new)) = (&*old.shared, &*new.shared) else {
            return Err(set::config("one move must be over before the next begins"));
        };
        old.check_successor(new)?;
        Ok(Self { shared: Arc::new(Mode::Moving { old: old.clone(), new: new.clone() }) })
    }

    /// The groups that count in the end.
    fn last(&self) -> &GroupSet {
        match &*self.shared {
            Mode::Steady(groups) => groups,
            Mode::Moving { new, .. } => new,
        }
    }

    /// All groups, each once.
    fn all(&self) -> Vec<&Group> {
        let leaving = match &*self.shared {
            Mode::Steady(_) => &[],
            Mode::Moving { old, .. } => old.groups.as_slice(),
        };
        let last = self.last();
        last.groups.iter().chain(leaving.iter().filter(|group| last.named(&group.name).is_none())).collect()
    }

    fn homes(&self, keys: &Keys) -> Result<Homes<'_>, Error> {
        let new = self.last().home_of_all(keys)?;
        let Mode::Moving { old, .. } = &*self.shared else { return Ok(Homes::One(new)) };
        let old = old.home_of_all(keys)?;
        Ok(if old.name == new.name { Homes::One(new) } else { Homes::Both { old, new } })
    }

    fn key(&self, resource: &[u8]) -> Result<Keys, Error> {
        self.last().any_manager()?.key(resource)
    }

    fn keys<R: AsRef<[u8]>>(&self, resources: impl IntoIterator<Item = R>) -> Result<Keys, Error> {
        self.last().any_manager()?.keys(resources)
    }

    /// The name of the group that has a resource; during a move the one that it moves to.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a resource without a name.
    pub fn group_of(&self, resource: impl AsRef<[u8]>) -> Result<&str, Error> {
        let keys = self.key(resource.as_ref())?;
        Ok(&self.last().home_of_all(&keys)?.name)
    }

    /// Every group with its manager; during a move those that are left behind as well, last.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &LockManager)> {
        self.all().into_iter().map(|group| (&*group.name, &group.manager))
    }

    async fn take(&self, keys: Keys, ttl: Duration, effort: Effort) -> Result<GroupGuard, Error> {
        match self.homes(&keys)? {
            Homes::One(home) => Ok(GroupGuard::new(home.manager.take(keys, ttl, effort, None).await?, None)),
            Homes::Both { old, new } => both::take_both(old, new, keys, ttl, effort).await,
        }
    }

    /// Takes a lock, waiting for it for as long as the [`Retry`](crate::Retry) of its group's manager says; during
    /// a move as long for each of two groups. As [`LockManager::acquire`].
    ///
    /// Cancel safe: if the future is dropped, everything that the nodes may have granted is freed.
    ///
    /// # Errors
    /// That of the last attempt, when the policy gives up or trying again is no use.
    pub async fn acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<GroupGuard, Error> {
        self.take(self.key(resource.as_ref())?, ttl, Effort::AsConfigured).await
    }

    /// Tries once to take a lock. Cancel safe, as [`LockGroups::acquire`].
    ///
    /// # Errors
    /// [`Error::Contended`] if somebody else holds it, and all others.
    pub async fn try_acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<GroupGuard, Error> {
        self.take(self.key(resource.as_ref())?, ttl, Effort::Once).await
    }

    /// Takes a lock, waiting for it for at most `wait`, whatever the manager's policy says about giving up.
    /// Cancel safe, as [`LockGroups::acquire`].
    ///
    /// # Errors
    /// [`Error::Timeout`] when the time is up, with what the nodes said last.
    pub async fn acquire_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<GroupGuard, Error> {
        self.take(self.key(resource.as_ref())?, ttl, Effort::Within(wait)).await
    }

    /// Takes several locks as one: all of them or none, in any order given, without deadlock.
    ///
    /// All resources must belong to one group. A common part in braces sees to that, as in `{orders}:1` and
    /// `{orders}:2`. Over several groups there is no such step that all of their nodes take as one, and no number
    /// that is larger than all before it in each. Cancel safe, as [`LockGroups::acquire`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for resources of different groups; otherwise as [`LockGroups::acquire`].
    pub async fn acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<GroupGuard, Error> {
        self.take(self.keys(resources)?, ttl, Effort::AsConfigured).await
    }

    /// Tries once to take several locks as one; as [`LockGroups::acquire_many`]. Cancel safe, as
    /// [`LockGroups::acquire`].
    ///
    /// # Errors
    /// As [`LockGroups::acquire_many`].
    pub async fn try_acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<GroupGuard, Error> {
        self.take(self.keys(resources)?, ttl, Effort::Once).await
    }

    /// Takes several locks as one, waiting for at most `wait`; as [`LockGroups::acquire_many`]. Cancel safe, as
    /// [`LockGroups::acquire`].
    ///
    /// # Errors
    /// As [`LockGroups::acquire_many`], and [`Error::Timeout`] when the time is up.
    pub async fn acquire_many_timeout<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<GroupGuard, Error> {
        self.take(self.keys(resources)?, ttl, Effort::Within(wait)).await
    }

    /// Runs `work` while holding a lock, and frees it afterwards; as [`LockManager::with_lock`].
    ///
    /// Cancel safe: if the future is dropped, so is the work, and the lock is freed.
    ///
    /// # Errors
    /// The work's own, or why the lock was not had or not kept.
    pub async fn with_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(GroupHeld) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let keys = self.key(resource.as_ref())?;
        let max_hold = self.last().home_of_all(&keys)?.manager.settings().max_hold;
        let mut guard = self.take(keys, ttl, Effort::AsConfigured).await?;
        guard.keep_alive(max_hold)?;
        let work = work(guard.held());
        work_under(guard, work).await
    }

    /// Asks every node of a resource's group about its lock; during a move those of the group that holds it, the
    /// old one first. As [`LockManager::inspect`]. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a resource without a name. Nodes that do not answer are part of the report.
    pub async fn inspect(&self, resource: impl AsRef<[u8]>) -> Result<Inspection, Error> {
        let resource = resource.as_ref();
        match self.homes(&self.key(resource)?)? {
            Homes::One(home) => home.manager.inspect(resource).await,
            Homes::Both { old, new } => {
                let inspection = old.manager.inspect(resource).await?;
                if inspection.is_held() { Ok(inspection) } else { new.manager.inspect(resource).await }
            }
        }
    }

    /// Asks every node of every group how it is. Changes nothing. Cancel safe.
    ///
    /// # Errors
    /// Only for want of a runtime: nodes that do not answer are part of the report.
    pub async fn health(&self) -> Result<GroupsHealth, Error> {
        report::health(&self.all()).await
    }

    /// In the middle of a move, makes every later number of a resource larger than all that it had in its old
    /// group, also if nobody locks it during the move. To be called by one client when no lock is left that was
    /// taken without knowing of the move, and before any client knows only the new groups; see
    /// [`LockGroups::moving`].
    ///
    /// It takes and frees locks on many names that begin with `redlock:carry-over:` (and the key prefix), in
    /// each group that is given resources: some seventy requests to each of its nodes. It may be called
    /// again, and must be if it fails. Cancel safe, and to be
    /// called again then, too.
    ///
    /// # Errors
    /// [`Error::Invalid`] where nothing moves; otherwise why a group could not be asked, or not be lifted.
    pub async fn carry_over(&self) -> Result<(), Error> {
        match &*self.shared {
            Mode::Steady(_) => {
                Err(Error::invalid("there is no move in whose course numbers are carried over"))
            }
            Mode::Moving { old, new } => carry_over::carry_over(old, new).await,
        }
    }

    /// Waits until nothing is left to be freed of what was begun before, in all groups; as [`LockManager::close`].
    /// Cancel safe.
    pub async fn close(&self) {
        let closing = self.all().into_iter().map(|group| group.manager.close());
        report::together(closing).await;
    }
}

impl fmt::Debug for LockGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            |groups: &GroupSet| groups.groups.iter().map(|group| Arc::clone(&group.name)).collect::<Vec<_>>();
        let mut shown = f.debug_struct("LockGroups");
        if let Mode::Moving { old, .. } = &*self.shared {
            shown.field("moving_from", &names(old));
        }
        shown.field("groups", &names(self.last())).finish_non_exhaustive()
    }
}
