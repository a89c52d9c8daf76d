//! The client crate, used as its documentation shows.

use redlock_client::LockManager;

use super::lock_client::{LockClient, TTL};

/// A manager with default settings.
pub(crate) struct RedlockClient {
    manager: LockManager,
}

impl LockClient for RedlockClient {
    const NAME: &'static str = "redlock-client";
    const WITH_MODULE: bool = true;
    const ACQUIRES: &'static [&'static str] = &["redlock.acquire", "redlock.extend"];
    const RELEASES: &'static str = "redlock.release";

    async fn connect(urls: Vec<String>) -> Self {
        let manager = LockManager::builder().nodes(urls).build();
        Self { manager: manager.expect("addresses of the bench itself") }
    }

    async fn cycle(&self, key: &str) -> bool {
        let Ok(guard) = self.manager.try_acquire(key, TTL).await else { return false };
        guard.release().await.is_free_on_a_majority()
    }
}
