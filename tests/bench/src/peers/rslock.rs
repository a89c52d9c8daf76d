//! The `rslock` crate, used as its documentation shows.

use crate::client::lock_client::{LockClient, TTL};

/// A manager with default settings.
pub(super) struct Rslock {
    manager: rslock::LockManager,
}

impl LockClient for Rslock {
    const NAME: &'static str = "rslock";
    const WITH_MODULE: bool = false;
    const ACQUIRES: &'static [&'static str] = &["set"];
    const RELEASES: &'static str = "eval";

    async fn connect(urls: Vec<String>) -> Self {
        Self { manager: rslock::LockManager::new(urls) }
    }

    async fn cycle(&self, key: &str) -> bool {
        let Ok(lock) = self.manager.lock(key, TTL).await else { return false };
        self.manager.unlock(&lock).await;
        true
    }
}
