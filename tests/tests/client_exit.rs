//! A program that ends leaves no lock behind, however it ends. Real processes on real nodes.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Certs, ClientCertificate, Fleet, SOON, Server, eventually, skip};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often a program ends in each way. An end that depends on chance left a lock in 7 of 20 runs.
const RUNS: usize = 20;

/// Ends programs in this way, and checks that they leave no lock behind.
fn leaves_no_lock(way: &str, authority: &str, fleet: &Fleet, urls: &[String]) {
    for run in 0..RUNS {
        let mut program = Command::new(env!("CARGO_BIN_EXE_early_exit"))
            .args([way, &format!("{way}:{run}:"), authority])
            .args(urls)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a program");
        let status = eventually("the program ends", SOON, || program.try_wait().expect("a child"));
        assert!(status.success(), "{way}: {status}");
    }
    // A node that has closed the connections of the programs has executed what they sent.
    for node in fleet.iter() {
        let is_alone = || (node.info("clients", "connected_clients").as_deref() == Some("1")).then_some(());
        eventually("the node closes the connections", SOON, is_alone);
    }
    let left: Vec<_> = fleet.iter().map(|node| node.info("redlock", "redlock_locks")).collect();
    assert_eq!(left, vec![Some("0".to_owned()); 3], "locks that {RUNS} programs left: {way}");
}

/// Over TCP, with every node running.
fn over_tcp(way: &str) {
    let fleet = Fleet::start(3);
    leaves_no_lock(way, "", &fleet, &fleet.urls());
}

#[test]
fn an_error_returned_while_a_guard_lives() {
    over_tcp("question-mark");
}

#[test]
fn a_guard_dropped_at_the_end_of_main() {
    over_tcp("drop");
}

#[test]
fn a_runtime_of_one_thread() {
    over_tcp("one-thread");
}

#[test]
fn a_panic() {
    over_tcp("panic");
}

#[test]
fn guards_in_tasks_that_never_end() {
    over_tcp("tasks");
}

#[test]
fn a_guard_dropped_after_its_runtime() {
    over_tcp("after-the-runtime");
}

#[test]
fn a_call_that_still_acquires() {
    over_tcp("while-acquiring");
}

#[test]
fn several_locks_as_one() {
    over_tcp("several");
}

#[test]
fn a_blocking_guard_dropped_after_its_manager() {
    over_tcp("blocking");
}

#[test]
fn over_a_unix_socket() {
    let fleet = Fleet::start(3);
    for way in ["drop", "after-the-runtime"] {
        leaves_no_lock(way, "", &fleet, &fleet.unix_urls());
    }
}

#[test]
fn over_tls() {
    let certs = Certs::new();
    if let Err(failure) = Server::builder().tls(&certs, ClientCertificate::NotAsked).try_start() {
        assert!(failure.lacks_tls(), "{failure}");
        return skip("this server was built without TLS");
    }
    let fleet = Fleet::start_with(3, |_, node| node.tls(&certs, ClientCertificate::NotAsked));
    let url = |node: &Server| format!("rediss://127.0.0.1:{}", node.tls_port().expect("a port for TLS"));
    let urls: Vec<String> = fleet.iter().map(url).collect();
    let authority = certs.ca_cert();
    for way in ["drop", "after-the-runtime"] {
        leaves_no_lock(way, authority.to_str().expect("a path"), &fleet, &urls);
    }
}

/// A node that does not answer delays the end of a program by a part of a second, once for all its locks.
#[test]
fn a_hung_node_delays_the_end_only_a_little() {
    let fleet = Fleet::start(3);
    for way in ["tasks", "after-the-runtime"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_early_exit"))
            .args([way, &format!("{way}:"), ""])
            .args(fleet.urls())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program");
        let mut line = String::new();
        BufReader::new(program.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        fleet[2].pause();
        let started = Instant::now();
        drop(program.stdin.take());
        let status = eventually("the program ends", SOON, || program.try_wait().expect("a child"));
        let took = started.elapsed();
        fleet[2].resume();
        assert!(status.success() && took < Duration::from_secs(2), "{way}: {status} after {took:?}");
    }
}
