//! A client process of a campaign: takes locks, writes under them, and tells on its output what it held.
//!
//! `contender NUMBER TASKS AT-ONCE KEYS TTL-MS VOTES MANNER ENDS STORAGE NODE...`: `MANNER` is `client` for the
//! client itself, `hasty` for the client with no patience for slow nodes, and `request`, `answer`, `endless` or
//! `counted` for plain keys on `VOTES` nodes. `ENDS` is `every-way`, or `left-behind` for locks that are all left to run
//! out. It works until its input ends.

#![allow(clippy::expect_used, clippy::panic, reason = "part of a test: what cannot be is said and ends it")]

mod conduct;
mod locks;
mod plain;
mod tell;

use conduct::Worker;
use locks::Locks;
use redlock_tests::campaign::{Pen, first_session};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

/// What the process was told.
struct Orders {
    number: u64,
    tasks: u64,
    at_once: usize,
    keys: usize,
    ttl: Duration,
    votes: usize,
    manner: String,
    ends: String,
    storage: PathBuf,
    nodes: Vec<String>,
}

impl Orders {
    fn read() -> Self {
        let mut words = env::args().skip(1);
        let mut word =
            || words.next().expect("NUMBER TASKS AT-ONCE KEYS TTL-MS VOTES MANNER ENDS STORAGE NODE...");
        let number = |word: String| word.parse::<u64>().expect("a number");
        Self {
            number: number(word()),
            tasks: number(word()),
            at_once: number(word()).try_into().expect("few keys"),
            keys: number(word()).try_into().expect("few keys"),
            ttl: Duration::from_millis(number(word())),
            votes: number(word()).try_into().expect("few nodes"),
            manner: word(),
            ends: word(),
            storage: word().into(),
            nodes: words.collect(),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let orders = Orders::read();
    // Owners and pauses of plain locks: all tasks are on this thread.
    fastrand::seed(orders.number);
    let locks = Arc::new(Locks::of(&orders.nodes, orders.votes, &orders.manner, orders.ttl));
    let sessions = Arc::new(AtomicU64::new(first_session(orders.number)));
    let (stop, stopped) = watch::channel(());
    let mut tasks = Vec::new();
    for task in 0..orders.tasks {
        let worker = Worker {
            locks: Arc::clone(&locks),
            pen: Pen::to(&orders.storage).await.expect("the storage is there"),
            chance: fastrand::Rng::with_seed(orders.number << 8 | task),
            sessions: Arc::clone(&sessions),
            stopped: stopped.clone(),
            at_once: orders.at_once,
            leaves_all_behind: orders.ends == "left-behind",
            keys: orders.keys,
            ttl: orders.ttl,
        };
        tasks.push(tokio::spawn(worker.work()));
    }
    drop(stopped);
    // Nothing is ever written to it; it ends when the campaign does.
    let _ = tokio::io::stdin().read(&mut [0]).await;
    drop(stop);
    for task in tasks {
        task.await.expect("a task does not panic");
    }
    locks.close().await;
}
