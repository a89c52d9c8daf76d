//! A client whose machine seems to suspend while it holds a lock.
//!
//! `sleeper TIME-NAMESPACE NODE...` acquires a lock for `TTL`, prints its fence, waits for a line, and enters the time
//! namespace. There `CLOCK_BOOTTIME` is later by more than `TTL`, and every other clock is unchanged. Then it prints
//! whether the client considers the lock valid. The process must have one thread: the kernel refuses `setns` otherwise.

// One system call that the standard library does not offer.
#![allow(unsafe_code)]
#![allow(clippy::expect_used, reason = "part of a test: a panic fails the test")]

use redlock_client::LockManager;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Longer than any test.
const TTL: Duration = Duration::from_secs(600);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut words = std::env::args().skip(1);
    let namespace = File::open(words.next().expect("a time namespace")).expect("a time namespace");
    let locks = LockManager::builder().nodes(words).connect_timeout(TTL).node_timeout(TTL).build();
    let locks = locks.expect("addresses of nodes");
    let started = Instant::now();
    let guard = locks.try_acquire("lock", TTL).await.expect("a free lock");
    println!("held {}", guard.fence());
    std::io::stdin().read_line(&mut String::new()).expect("a line");

    println!("before: {}", belief(guard.is_valid()));
    // SAFETY: a system call on a file that is open; it touches no memory of ours.
    let outcome = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWTIME) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    println!("after: {}", belief(guard.is_valid()));
    println!("by a clock that does not count sleep: {}", belief(started.elapsed() < TTL));
    println!("extended: {}", belief(guard.extend().await.is_ok()));
}

fn belief(is_valid: bool) -> &'static str {
    if is_valid { "valid" } else { "over" }
}
