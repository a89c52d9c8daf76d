//! Ways to acquire a contended lock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redlock_client::{Guard, LockManager, Retry};
use tokio::sync::{Mutex, MutexGuard};

use crate::client::lock_client::TTL;
use crate::peers::foreign::ForeignLibrary;

/// A way to acquire the lock. Its text form is an argument of the client process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMethod {
    /// The client queues on the nodes, its default.
    InLine,
    /// Tasks of one process queue at a mutex for an uncontended lock: the upper bound.
    Fifo,
    /// The `rslock` crate, with this longest pause between attempts; `None` for its defaults.
    Rslock { pause_ms: Option<u64> },
    /// A library in another language, with its defaults.
    Foreign(ForeignLibrary),
}

impl fmt::Display for LockMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InLine => write!(f, "in-line"),
            Self::Fifo => write!(f, "fifo"),
            Self::Rslock { pause_ms: None } => write!(f, "rslock"),
            Self::Rslock { pause_ms: Some(ms) } => write!(f, "rslock:{ms}"),
            Self::Foreign(foreign) => write!(f, "{}", foreign.name()),
        }
    }
}

impl FromStr for LockMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "in-line" => Ok(Self::InLine),
            None if text == "fifo" => Ok(Self::Fifo),
            None if text == "rslock" => Ok(Self::Rslock { pause_ms: None }),
            Some(("rslock", ms)) => {
                Ok(Self::Rslock { pause_ms: Some(ms.parse().map_err(|_| text.to_owned())?) })
            }
            _ => Err(text.to_owned()),
        }
    }
}

impl LockMethod {
    /// Whether its nodes have the module.
    pub(crate) fn with_module(self) -> bool {
        !matches!(self, Self::Rslock { .. } | Self::Foreign(_))
    }

    /// The commands that it sends to nodes, by their names in `INFO commandstats`. The first acquires.
    pub(crate) fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Rslock { .. } | Self::Foreign(ForeignLibrary::Pottery) => &["set", "eval", "evalsha"],
            Self::Foreign(ForeignLibrary::NodeRedlock) => &["evalsha", "eval"],
            _ => &["redlock.acquire", "redlock.extend", "redlock.release"],
        }
    }
}

/// A way with connections to its nodes.
pub(crate) enum ConnectedLock {
    InLine(LockManager),
    Fifo { manager: LockManager, line: Mutex<()> },
    Rslock(rslock::LockManager),
}

/// A held lock.
pub(crate) enum HeldLock<'a> {
    Guard(Guard),
    InTurn(Guard, MutexGuard<'a, ()>),
    Rslock(rslock::Lock),
}

impl HeldLock<'_> {
    /// Whether the lock is still valid; always true for a library that does not tell.
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Guard(guard) | Self::InTurn(guard, _) => guard.is_valid(),
            Self::Rslock(_) => true,
        }
    }
}

impl ConnectedLock {
    pub(crate) async fn connect(name: LockMethod, urls: Vec<String>) -> Self {
        let count = urls.len();
        let manager = |urls| {
            let retry = Retry::exponential(Duration::from_millis(5), Duration::from_millis(250));
            LockManager::builder().nodes(urls).retry(retry).build().expect("addresses of the bench itself")
        };
        let way = match name {
            LockMethod::InLine => Self::InLine(manager(urls)),
            LockMethod::Fifo => Self::Fifo { manager: manager(urls), line: Mutex::new(()) },
            LockMethod::Rslock { pause_ms } => {
                let mut manager = rslock::LockManager::new(urls);
                if let Some(pause_ms) = pause_ms {
                    manager.set_retry(u32::MAX, Duration::from_millis(pause_ms));
                }
                Self::Rslock(manager)
            }
            LockMethod::Foreign(_) => unreachable!("a foreign library has its own program"),
        };
        // The first locks wait until every node is connected or known to be down.
        let key = format!("connect:{:016x}", fastrand::u64(..));
        for _ in 0..count {
            let held = way.acquire(&key).await;
            way.release(held).await;
        }
        way
    }

    pub(crate) async fn acquire(&self, key: &str) -> HeldLock<'_> {
        match self {
            Self::InLine(manager) => loop {
                if let Ok(guard) = manager.acquire(key, TTL).await {
                    return HeldLock::Guard(guard);
                }
            },
            Self::Fifo { manager, line } => {
                let turn = line.lock().await;
                loop {
                    if let Ok(guard) = manager.try_acquire(key, TTL).await {
                        return HeldLock::InTurn(guard, turn);
                    }
                }
            }
            Self::Rslock(manager) => loop {
                if let Ok(lock) = manager.lock(key, TTL).await {
                    return HeldLock::Rslock(lock);
                }
            },
        }
    }

    pub(crate) async fn release(&self, held: HeldLock<'_>) {
        match (self, held) {
            (_, HeldLock::Guard(guard)) => drop(guard.release().await),
            (_, HeldLock::InTurn(guard, turn)) => {
                guard.release().await;
                drop(turn);
            }
            (Self::Rslock(manager), HeldLock::Rslock(lock)) => manager.unlock(&lock).await,
            (_, HeldLock::Rslock(_)) => unreachable!("the lock of another method"),
        }
    }
}
