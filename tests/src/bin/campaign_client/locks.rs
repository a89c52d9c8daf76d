//! Locks of the client and plain locks, behind one interface.

use crate::plain::{PlainGuard, PlainLocks, PlainOptions};
use redlock_client::{Error, Guard, LockManager, LostReason, Retry};
use redlock_tests::campaign::{HoldEnd, Validity, key_name, node};
use std::time::Duration;

pub(crate) enum AnyLocks {
    Client(LockManager),
    Plain(PlainLocks),
}

pub(crate) enum AnyGuard {
    Client(Guard),
    Plain(PlainGuard),
}

impl AnyLocks {
    pub(crate) fn new(nodes: &[String], votes: usize, manner: &str, ttl: Duration) -> Self {
        let options = match manner {
            "client" => return Self::client(nodes, ttl, ttl / 4),
            "short-timeout" => return Self::client(nodes, ttl, ttl / 30),
            "request" => PlainOptions::standard(votes),
            "answer" => PlainOptions { validity: Validity::FromAnswer, ..PlainOptions::standard(votes) },
            "no-expiry" => PlainOptions { expires: false, ..PlainOptions::standard(votes) },
            "counted-fences" => PlainOptions { counts_fences: true, ..PlainOptions::standard(votes) },
            other => panic!("unknown lock method: {other}"),
        };
        Self::Plain(PlainLocks::new(nodes, options, ttl / 4))
    }

    /// `node_timeout` is short compared to the time to live: the lock of a slower attempt would be of no use.
    fn client(nodes: &[String], ttl: Duration, node_timeout: Duration) -> Self {
        let retry = Retry::exponential(Duration::from_millis(2), Duration::from_millis(40));
        let locks = LockManager::builder()
            .nodes(nodes.iter().map(|address| node(address)))
            .node_timeout(node_timeout)
            .connect_timeout(ttl)
            .retry(retry.give_up_after(ttl * 2));
        Self::Client(locks.build().expect("addresses of nodes"))
    }

    /// Acquires the locks, with retries. An error is one word for the reason.
    pub(crate) async fn acquire(&self, keys: &[usize], ttl: Duration) -> Result<AnyGuard, &'static str> {
        match self {
            Self::Client(locks) => {
                let names = keys.iter().map(|key| key_name(*key));
                let outcome = match keys {
                    [key] => locks.acquire(key_name(*key), ttl).await,
                    _ => locks.acquire_many(names, ttl).await,
                };
                outcome.map(AnyGuard::Client).map_err(|error| error_word(&error))
            }
            Self::Plain(locks) => locks.acquire(keys, ttl).await.map(AnyGuard::Plain).ok_or("refused"),
        }
    }

    pub(crate) async fn flush(&self) {
        if let Self::Client(locks) = self {
            locks.flush().await;
        }
    }
}

/// The word for an error. An error that no fault may cause ends the process.
fn error_word(error: &Error) -> &'static str {
    match error {
        Error::Contended(_) => "contended",
        Error::NoQuorum(_) => "no-quorum",
        Error::Rejected(_) => "rejected",
        Error::Quarantined { .. } => "quarantined",
        Error::Expired(_) => "expired",
        Error::Timeout { .. } => "timeout",
        other => panic!("{other}"),
    }
}

impl AnyGuard {
    pub(crate) fn fence(&self) -> u64 {
        match self {
            Self::Client(guard) => guard.fence(),
            Self::Plain(hold) => hold.fence(),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::Client(guard) => guard.remaining(),
            Self::Plain(hold) => hold.remaining(),
        }
    }

    /// Extends the lock. Returns whether that succeeded.
    pub(crate) async fn extend(&self) -> bool {
        match self {
            Self::Client(guard) => guard.extend().await.is_ok(),
            Self::Plain(_) => false,
        }
    }

    pub(crate) fn keep_alive(&mut self, max_hold: Duration) {
        if let Self::Client(guard) = self {
            guard.keep_alive(max_hold).expect("a runtime");
        }
    }

    /// Returns when the lock is lost, or a little before its validity ends. For a plain lock, which gets no
    /// notification, returns when its validity ends.
    pub(crate) async fn lost(&self) -> HoldEnd {
        match self {
            Self::Client(guard) if guard.lost().await == LostReason::Gone => HoldEnd::Lost,
            Self::Client(_) => HoldEnd::Expired,
            Self::Plain(hold) => {
                tokio::time::sleep(hold.remaining()).await;
                HoldEnd::Expired
            }
        }
    }

    /// How the hold ended, once its validity is over.
    pub(crate) async fn end_reason(&self) -> HoldEnd {
        match self {
            Self::Client(guard) if guard.lost().await == LostReason::Gone => HoldEnd::Lost,
            _ => HoldEnd::Expired,
        }
    }

    pub(crate) async fn release(self) {
        match self {
            Self::Client(guard) => drop(guard.release().await),
            Self::Plain(hold) => hold.release().await,
        }
    }

    /// Releases the lock without waiting.
    pub(crate) fn drop_in_background(self) {
        match self {
            Self::Client(guard) => drop(guard),
            Self::Plain(hold) => drop(tokio::spawn(hold.release())),
        }
    }

    /// Leaves the lock to expire.
    pub(crate) fn abandon(self) {
        if let Self::Client(guard) = self {
            drop(guard.detach());
        }
    }
}
