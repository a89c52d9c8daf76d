//! The harness itself, on plain servers: what it promises the other tests.

use redlock_tests::{Answer, FakeClock, SOON, Server, eventually};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const HOUR: i64 = 3600;

fn plain() -> redlock_tests::ServerBuilder {
    Server::builder().without_module()
}

#[test]
fn answers_compare_and_print() {
    let server = plain().start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SET a 1"), Answer::ok());
    assert_eq!(wire.call_strs("GET a"), Answer::text("1"));
    assert_eq!(wire.call(&[&b"GET"[..], b"\xff\0"]), Answer::Nil);
    assert_eq!(wire.call_strs("LPUSH a 1").error_word(), Some("WRONGTYPE"));
    assert_eq!(format!("{:?}", wire.call_strs("MGET a b")), "[\"1\", nil]");
    let mut resp3 = server.connect_resp3();
    assert_eq!(
        resp3.call_strs("CONFIG GET port"),
        Answer::Map(vec![(Answer::text("port"), Answer::text("0"))])
    );
    assert!(wire.call(&[b"\xff\xfe"]).error_word() == Some("ERR"), "an error that quotes raw bytes is read");
}

#[test]
fn a_pipeline_answers_in_order() {
    let server = plain().start();
    let commands = (0..1000).map(|_| vec!["INCR", "n"]).collect();
    let answers = server.connect().pipeline(commands);
    assert_eq!(answers, (1..=1000).map(Answer::Int).collect::<Vec<_>>());
}

#[test]
fn a_clean_restart_keeps_data_and_a_rewritten_configuration() {
    let mut server = plain().arg("save", "3600 1").start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SET a 1"), Answer::ok());
    assert_eq!(wire.call_strs("CONFIG SET maxclients 321"), Answer::ok());
    assert_eq!(wire.call_strs("CONFIG REWRITE"), Answer::ok());
    let first = server.pid();
    server.restart();
    assert_ne!(server.pid(), first);
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("GET a"), Answer::text("1"));
    assert_eq!(wire.call_strs("CONFIG GET maxclients").field("maxclients"), Some(&Answer::text("321")));
}

#[test]
fn a_killed_server_forgets_what_it_did_not_save() {
    let mut server = plain().start();
    assert_eq!(server.connect().call_strs("SET a 1"), Answer::ok());
    server.kill();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(server.connect().call_strs("GET a"), Answer::Nil);
}

#[test]
fn a_refusal_comes_with_the_log() {
    let failure = plain().arg("no-such-setting", "1").try_start().expect_err("a bad setting is refused");
    assert!(failure.log.contains("no-such-setting"), "{failure}");
}

#[test]
fn a_replica_follows() {
    let master = plain().tcp().start();
    let replica = plain().replica_of(&master).start();
    assert_eq!(master.connect().call_strs("SET a 1"), Answer::ok());
    replica.wait_for_replication(&master);
    assert_eq!(replica.connect().call_strs("GET a"), Answer::text("1"));
}

#[test]
fn the_wall_clock_jumps_for_a_running_server() {
    let clock = FakeClock::new();
    let server = plain().clock(&clock).start();
    let mut wire = server.connect();

    assert_eq!(wire.call_strs("SET ahead 1 PX 1800000"), Answer::ok());
    clock.jump_wall(HOUR);
    // A server may work with a time that it noted down a moment ago.
    let mut ended = || (wire.call_strs("GET ahead") == Answer::Nil).then_some(());
    eventually("an hour forward has ended half an hour", SOON, &mut ended);

    assert_eq!(wire.call_strs("SET back 1 PX 5000"), Answer::ok());
    clock.jump_wall(-HOUR);
    let mut prolonged = || (wire.call_strs("PTTL back").int() > HOUR * 1000 - 10_000).then_some(());
    eventually("an hour back has prolonged five seconds to an hour", SOON, &mut prolonged);
}

/// Not a test of its own: the process that the test below kills.
#[test]
fn helper_that_hangs_with_a_server() {
    if std::env::var_os("REDLOCK_TESTS_HANG").is_some() {
        let server = plain().start();
        println!("pid {}", server.pid());
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_server_dies_with_a_test_process_that_was_killed() {
    let own = std::env::current_exe().expect("a test knows its program");
    // A killed process cleans nothing up: its folders go into one that goes with this test.
    let folder = tempfile::tempdir().expect("a folder for what the helper leaves behind");
    let mut helper = Command::new(own)
        .args(["--exact", "helper_that_hangs_with_a_server", "--nocapture"])
        .env("REDLOCK_TESTS_HANG", "1")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a test program can be started again");
    let output = BufReader::new(helper.stdout.take().expect("its output is piped"));
    let pid = output
        .lines()
        .find_map(|line| {
            line.expect("the helper writes text").split_once("pid ").map(|(_, pid)| pid.to_string())
        })
        .expect("the helper names its server's process");
    let process = Path::new("/proc").join(pid);
    assert!(process.exists());
    helper.kill().expect("a child can be killed");
    helper.wait().expect("a killed child ends");
    eventually("the server is gone with its test", SOON, || is_gone(&process).then_some(()));
}

/// A process that nobody has reaped yet is gone too.
fn is_gone(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("status"));
    status.is_err() || status.is_ok_and(|text| text.contains("State:\tZ"))
}
