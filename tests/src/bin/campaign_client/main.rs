//! A client process of a campaign: it acquires locks, writes under them, and prints events about what it held.
//!
//! `campaign_client NUMBER TASKS AT-ONCE KEYS TTL-MS VOTES LOCK-METHOD END-POLICY STORAGE NODE...`
//!
//! `LOCK-METHOD` is `client` for the client, `short-timeout` for the client with a very short node timeout, and
//! `request`, `answer`, `no-expiry` or `counted-fences` for plain keys on `VOTES` nodes. `END-POLICY` is `mixed`, or
//! `abandoned` to leave all locks to expire. The process works until its standard input ends.

#![allow(clippy::expect_used, clippy::panic, reason = "part of a test: a panic fails the test")]

mod locks;
mod output;
mod plain;
mod worker;

use locks::AnyLocks;
use redlock_tests::campaign::{Writer, first_session};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use worker::Worker;

/// The arguments of the process.
struct WorkerArgs {
    number: u64,
    tasks: u64,
    at_once: usize,
    keys: usize,
    ttl: Duration,
    votes: usize,
    lock_method: String,
    end_policy: String,
    storage: PathBuf,
    nodes: Vec<String>,
}

impl WorkerArgs {
    fn parse() -> Self {
        let mut words = env::args().skip(1);
        let mut word = || {
            words
                .next()
                .expect("NUMBER TASKS AT-ONCE KEYS TTL-MS VOTES LOCK-METHOD END-POLICY STORAGE NODE...")
        };
        let number = |word: String| word.parse::<u64>().expect("a number");
        Self {
            number: number(word()),
            tasks: number(word()),
            at_once: number(word()).try_into().expect("few keys"),
            keys: number(word()).try_into().expect("few keys"),
            ttl: Duration::from_millis(number(word())),
            votes: number(word()).try_into().expect("few nodes"),
            lock_method: word(),
            end_policy: word(),
            storage: word().into(),
            nodes: words.collect(),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args = WorkerArgs::parse();
    // The seed is for the owners and pauses of plain locks. All tasks run on this thread.
    fastrand::seed(args.number);
    let locks = Arc::new(AnyLocks::new(&args.nodes, args.votes, &args.lock_method, args.ttl));
    let sessions = Arc::new(AtomicU64::new(first_session(args.number)));
    let (stop, stopped) = watch::channel(());
    let mut tasks = Vec::new();
    for task in 0..args.tasks {
        let worker = Worker {
            locks: Arc::clone(&locks),
            writer: Writer::connect(&args.storage).await.expect("the storage is reachable"),
            rng: fastrand::Rng::with_seed(args.number << 8 | task),
            sessions: Arc::clone(&sessions),
            stopped: stopped.clone(),
            at_once: args.at_once,
            abandons_all: args.end_policy == "abandoned",
            keys: args.keys,
            ttl: args.ttl,
        };
        tasks.push(tokio::spawn(worker.work()));
    }
    drop(stopped);
    // The campaign writes nothing to this pipe, and closes it at the end.
    let _ = tokio::io::stdin().read(&mut [0]).await;
    drop(stop);
    for task in tasks {
        task.await.expect("a task does not panic");
    }
    locks.flush().await;
}
