//! Locks over several shards. Each shard is a quorum group with its own nodes.

use crate::guard::Guard;
use crate::join_all::join_all;
use crate::keys::Keys;
use crate::lock_handle::LockHandle;
use crate::manager::LockManager;
use crate::settings::Places;
use crate::{Error, Health, Inspection};
use redlock_proto::Rendezvous;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Spreads resources over several shards. Each shard is a quorum group with its own nodes and
/// [`LockManager`].
///
/// One group of three or five nodes grants a limited number of locks a second. Twice as many shards grant
/// about twice as many. Each shard gives the guarantees of a [`LockManager`] for its resources. When a shard
/// loses its majority, clients cannot lock its resources; they can lock the resources of the other shards.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_client::Error> {
/// use redlock_client::{LockManager, ShardedLocks};
/// use std::time::Duration;
///
/// # let real = || -> Result<ShardedLocks, redlock_client::Error> {
/// let nodes = |names: [&str; 3]| LockManager::builder().nodes(names.map(|name| format!("redis://{name}:6379")));
/// let locks = ShardedLocks::new([
///     ("eu-1", nodes(["one", "two", "three"]).build()?),
///     ("eu-2", nodes(["four", "five", "six"]).build()?),
/// ])?;
/// # Ok(locks) };
/// # let shard = || LockManager::in_memory(3);
/// # let locks = ShardedLocks::new([("eu-1", shard()), ("eu-2", shard())])?;
///
/// let guard = locks.acquire("orders:42", Duration::from_secs(30)).await?;
/// // Work, and pass guard.fence() to your storage with every write.
/// guard.release().await;
/// # Ok(())
/// # }
/// ```
///
/// The names of the shards and the key decide which shard has a resource. If the key has a part in braces, as
/// in `{orders}:42`, only that part counts. Every client must configure the same shards under the same names:
/// two clients that differ can hold one resource at the same time.
///
/// To change the shards, stop all clients, wait until the last lock has expired, and start the clients with
/// the new shards. The fences of a resource that moves keep growing only if an operator admits the nodes of
/// its new shard with a floor above the fences of the old shards: see "Adding a shard" in
/// `module/OPERATIONS.md`. Otherwise its fences start again, and storage that remembers larger fences rejects
/// the writes of new holders.
///
/// Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct ShardedLocks {
    inner: Arc<Inner>,
}

struct Inner {
    shards: Vec<Shard>,
    rendezvous: Rendezvous,
}

struct Shard {
    name: Arc<str>,
    manager: LockManager,
}

impl ShardedLocks {
    /// Combines shards, each with a name and the manager of its nodes. Needs no runtime and opens no
    /// connection.
    ///
    /// The names and the key decide which shard has a resource. The order of the shards and the addresses of
    /// the nodes do not matter. A shard must keep its name: a new name moves all of its resources.
    ///
    /// # Errors
    /// [`Error::Config`] for no shard, an empty name, two shards with one name, a node in two shards, and
    /// managers with different key prefixes.
    pub fn new<N: AsRef<str>>(shards: impl IntoIterator<Item = (N, LockManager)>) -> Result<Self, Error> {
        let shard = |(name, manager): (N, LockManager)| Shard { name: name.as_ref().into(), manager };
        let shards: Vec<Shard> = shards.into_iter().map(shard).collect();
        let rendezvous = Rendezvous::of(shards.iter().map(|shard| &*shard.name))
            .map_err(|misnamed| config(misnamed.to_string()))?;
        for (place, shard) in shards.iter().enumerate() {
            for other in shards.iter().take(place) {
                check_pair(other, shard)?;
            }
        }
        Ok(Self { inner: Arc::new(Inner { shards, rendezvous }) })
    }

    /// Every shard, with its name and manager.
    pub fn shards(&self) -> impl Iterator<Item = (&str, &LockManager)> {
        self.inner.shards.iter().map(|shard| (&*shard.name, &shard.manager))
    }

    /// Returns the name of the shard that has a resource.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty resource name.
    pub fn shard_of(&self, resource: impl AsRef<[u8]>) -> Result<&str, Error> {
        Ok(&self.shard([resource])?.name)
    }

    /// Returns the manager of the shard that has all of these resources. Use it for the calls that this type
    /// lacks.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no resource, an empty resource name, and resources of different shards.
    pub fn manager_of<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
    ) -> Result<&LockManager, Error> {
        Ok(&self.shard(resources)?.manager)
    }

    fn shard<R: AsRef<[u8]>>(&self, resources: impl IntoIterator<Item = R>) -> Result<&Shard, Error> {
        let Inner { shards, rendezvous } = &*self.inner;
        let first = shards.first().ok_or_else(|| config("ShardedLocks needs at least one shard"))?;
        // All managers have the same key prefix.
        let keys: Keys = first.manager.keys(resources)?;
        let mut chosen = keys.names().iter().map(|key| rendezvous.choose(key)).zip(keys.resources());
        let (place, one) = chosen.next().unwrap_or_default();
        match chosen.find(|(other, _)| *other != place) {
            None => shards.get(place).ok_or_else(|| config("ShardedLocks needs at least one shard")),
            Some((_, other)) => Err(Error::invalid(format!(
                "{} and {} are on different shards and cannot be locked together; a common part in braces keeps resources \
                 together, as in {{orders}}:1 and {{orders}}:2",
                one.escape_ascii(),
                other.escape_ascii()
            ))),
        }
    }

    /// Acquires a lock on the resource's shard; as [`LockManager::acquire`]. Cancel safe.
    ///
    /// # Errors
    /// As [`LockManager::acquire`].
    pub async fn acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.shard([&resource])?.manager.acquire(resource, ttl).await
    }

    /// Tries once to acquire a lock on the resource's shard; as [`LockManager::try_acquire`]. Cancel safe.
    ///
    /// # Errors
    /// As [`LockManager::try_acquire`].
    pub async fn try_acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.shard([&resource])?.manager.try_acquire(resource, ttl).await
    }

    /// Acquires a lock on the resource's shard, and waits for it at most `wait`; as
    /// [`LockManager::acquire_timeout`]. Cancel safe.
    ///
    /// # Errors
    /// As [`LockManager::acquire_timeout`].
    pub async fn acquire_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        self.shard([&resource])?.manager.acquire_timeout(resource, ttl, wait).await
    }

    /// Acquires several locks of one shard as one; as [`LockManager::acquire_many`]. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Invalid`] for resources of different shards, and as [`LockManager::acquire_many`].
    pub async fn acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        let resources: Vec<R> = resources.into_iter().collect();
        self.shard(&resources)?.manager.acquire_many(resources, ttl).await
    }

    /// Runs `work` while the client holds a lock on the resource's shard; as [`LockManager::with_lock`].
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`LockManager::with_lock`].
    pub async fn with_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.shard([&resource])?.manager.with_lock(resource, ttl, work).await
    }

    /// Runs `work` if the client acquires the lock at the first attempt; as [`LockManager::try_with_lock`].
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`LockManager::try_with_lock`].
    pub async fn try_with_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<Option<T>, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.shard([&resource])?.manager.try_with_lock(resource, ttl, work).await
    }

    /// Runs `work` under a lock, and waits for the lock at most `wait`; as [`LockManager::with_lock_timeout`].
    /// Cancel safe.
    ///
    /// # Errors
    /// As [`LockManager::with_lock_timeout`].
    pub async fn with_lock_timeout<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.shard([&resource])?.manager.with_lock_timeout(resource, ttl, wait, work).await
    }

    /// Runs `work` under several locks of one shard; as [`LockManager::with_lock_many`]. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Invalid`] for resources of different shards, and as [`LockManager::with_lock_many`].
    pub async fn with_lock_many<R, T, E, W>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        R: AsRef<[u8]>,
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let resources: Vec<R> = resources.into_iter().collect();
        self.shard(&resources)?.manager.with_lock_many(resources, ttl, work).await
    }

    /// Reads the state of a lock from the nodes of the resource's shard; as [`LockManager::inspect`]. Cancel
    /// safe.
    ///
    /// # Errors
    /// As [`LockManager::inspect`].
    pub async fn inspect(&self, resource: impl AsRef<[u8]>) -> Result<Inspection, Error> {
        self.shard([&resource])?.manager.inspect(resource).await
    }

    /// Reads the health of every node of every shard, all at the same time. Changes nothing. Cancel safe.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] without a tokio runtime. A node that does not answer is part of the report, not
    /// an error.
    pub async fn health(&self) -> Result<Vec<ShardHealth>, Error> {
        let asked = join_all(self.inner.shards.iter().map(|shard| shard.manager.health())).await;
        let named = self.inner.shards.iter().zip(asked);
        named
            .map(|(shard, health)| Ok(ShardHealth { shard: Arc::clone(&shard.name), health: health? }))
            .collect()
    }

    /// Waits until the releases of all shards are answered or have timed out; as [`LockManager::flush`].
    /// Cancel safe.
    pub async fn flush(&self) {
        join_all(self.inner.shards.iter().map(|shard| shard.manager.flush())).await;
    }
}

/// The health of one shard.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardHealth {
    /// The name of the shard.
    pub shard: Arc<str>,
    /// The health of its nodes.
    pub health: Health,
}

/// The name of the shard, how many nodes grant, then one line per node.
impl fmt::Display for ShardHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.shard, self.health)
    }
}

fn config(what: impl Into<Arc<str>>) -> Error {
    Error::Config(what.into())
}

/// Rejects a node in two shards, and two key prefixes. The key decides the shard, so one resource must have
/// the same key everywhere.
fn check_pair(one: &Shard, other: &Shard) -> Result<(), Error> {
    let (first, second) = (one.manager.settings(), other.manager.settings());
    let shared = match (&first.places, &second.places) {
        (Places::Memory(nodes), Places::Memory(others)) => {
            nodes.are(others).then(|| first.names.first()).flatten()
        }
        (Places::Servers(_), Places::Servers(_)) => {
            first.names.iter().find(|name| second.names.contains(name))
        }
        _ => None,
    };
    if let Some(node) = shared {
        return Err(config(format!(
            "{node} is a node of both {} and {}: a node belongs to one shard",
            one.name, other.name
        )));
    }
    if first.key_prefix != second.key_prefix {
        return Err(config(format!("{} and {} have different key prefixes", one.name, other.name)));
    }
    Ok(())
}

impl fmt::Debug for ShardedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.shards().map(|(name, _)| name).collect();
        f.debug_struct("ShardedLocks").field("shards", &names).finish_non_exhaustive()
    }
}
