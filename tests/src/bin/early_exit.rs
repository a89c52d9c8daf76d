//! A program that ends while it holds a lock, in one of the ways in which programs end.
//!
//! `early_exit WAY LOCK AUTHORITY NODE...` acquires locks and ends. Their names begin with `LOCK`.
//! `AUTHORITY` is the file of the certificate authority for `rediss://` addresses; it may be empty.

#![allow(clippy::expect_used, clippy::panic, reason = "part of a test: a panic fails the test")]

use redlock_client::{Builder, Error, Guard, LockManager, Tls};
use std::fs;
use std::future::pending;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

/// Longer than any test.
const TTL: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().expect("WAY LOCK AUTHORITY NODE...");
    let (way, lock, authority) = (word(), word(), word());
    let builder = LockManager::builder().nodes(words).key_prefix(lock);
    let builder = match authority.as_str() {
        "" => builder,
        file => builder.tls(Tls::new().ca_pem(fs::read(file).expect("a certificate"))),
    };
    match way.as_str() {
        "question-mark" => question_mark(builder),
        "drop" => drop_at_the_end(builder),
        "one-thread" => one_thread(builder),
        "panic" => panics(builder),
        "tasks" => tasks(builder),
        "after-the-runtime" => after_the_runtime(builder),
        "while-acquiring" => while_acquiring(builder),
        "several" => several(builder),
        "blocking" => blocking(builder),
        way => unreachable!("no way to end: {way}"),
    }
}

/// Says that the locks are held, and waits until the input ends.
fn held() {
    println!("held");
    std::io::stdin().read_line(&mut String::new()).expect("the input");
}

async fn acquire(builder: Builder) -> Result<(LockManager, Guard), Error> {
    let locks = builder.build()?;
    let guard = locks.acquire("lock", TTL).await?;
    held();
    Ok((locks, guard))
}

/// Fails while the lock is held, as `?` after an `acquire` does.
#[tokio::main]
async fn question_mark(builder: Builder) -> ExitCode {
    async fn fails(builder: Builder) -> Result<(), Error> {
        let (_locks, _guard) = acquire(builder).await?;
        Err(Error::Config("the work failed".into()))
    }
    ExitCode::from(u8::from(fails(builder).await.is_ok()))
}

#[tokio::main]
async fn drop_at_the_end(builder: Builder) -> ExitCode {
    let (_locks, guard) = acquire(builder).await.expect("a free lock");
    drop(guard);
    ExitCode::SUCCESS
}

#[tokio::main(flavor = "current_thread")]
async fn one_thread(builder: Builder) -> ExitCode {
    let (_locks, _guard) = acquire(builder).await.expect("a free lock");
    ExitCode::SUCCESS
}

fn panics(builder: Builder) -> ExitCode {
    #[tokio::main]
    async fn work(builder: Builder) {
        let (_locks, _guard) = acquire(builder).await.expect("a free lock");
        panic!("the work failed");
    }
    ExitCode::from(u8::from(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(builder))).is_ok()))
}

/// The guards belong to tasks, which the runtime drops in any order with the driver.
#[tokio::main]
async fn tasks(builder: Builder) -> ExitCode {
    let locks = builder.build().expect("addresses");
    let (is_held, mut all_held) = tokio::sync::mpsc::unbounded_channel();
    for name in ["lock", "lock:2", "lock:3", "lock:4"] {
        let (locks, is_held) = (locks.clone(), is_held.clone());
        tokio::spawn(async move {
            let guard = locks.acquire(name, TTL).await.expect("a free lock");
            is_held.send(()).expect("the program waits");
            pending::<()>().await;
            drop(guard);
        });
    }
    for _ in 0..4 {
        all_held.recv().await.expect("a lock");
    }
    held();
    ExitCode::SUCCESS
}

fn after_the_runtime(builder: Builder) -> ExitCode {
    let runtime = Runtime::new().expect("a runtime");
    let held = runtime.block_on(acquire(builder)).expect("a free lock");
    drop(runtime);
    drop(held);
    ExitCode::SUCCESS
}

/// The program ends as soon as the requests may have been sent.
fn while_acquiring(builder: Builder) -> ExitCode {
    let runtime = RuntimeBuilder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let locks = builder.build().expect("addresses");
        locks.health().await.expect("a runtime");
        let task = locks.clone();
        tokio::spawn(async move { task.acquire("lock", TTL).await });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    });
    ExitCode::SUCCESS
}

#[tokio::main]
async fn several(builder: Builder) -> ExitCode {
    let locks = builder.build().expect("addresses");
    let _guard = locks.acquire_many(["lock", "lock:2"], TTL).await.expect("free locks");
    ExitCode::SUCCESS
}

/// The guard outlives the manager.
fn blocking(builder: Builder) -> ExitCode {
    let locks = builder.build_blocking().expect("a thread");
    let guard = locks.acquire("lock", TTL).expect("a free lock");
    drop(locks);
    drop(guard);
    ExitCode::SUCCESS
}
