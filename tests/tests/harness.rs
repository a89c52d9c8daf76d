//! Tests of the harness itself, on servers without the module: what the other tests rely on.

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
    assert!(
        wire.call(&[b"\xff\xfe"]).error_word() == Some("ERR"),
        "the harness reads an error that quotes raw bytes"
    );
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
fn a_failed_start_comes_with_the_log() {
    let failure =
        plain().arg("no-such-setting", "1").try_start().expect_err("the server refuses an unknown setting");
    assert!(failure.log.contains("no-such-setting"), "{failure}");
}

#[test]
fn a_replica_receives_the_data_of_its_master() {
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
    // A server may use a cached time for a moment.
    let mut ended = || (wire.call_strs("GET ahead") == Answer::Nil).then_some(());
    eventually("a jump of one hour forward ends a time to live of half an hour", SOON, &mut ended);

    assert_eq!(wire.call_strs("SET back 1 PX 5000"), Answer::ok());
    clock.jump_wall(-HOUR);
    let mut prolonged = || (wire.call_strs("PTTL back").int() > HOUR * 1000 - 10_000).then_some(());
    eventually("a jump of one hour back prolongs five seconds to an hour", SOON, &mut prolonged);
}

/// Not a test of its own: the test below runs this as a process of its own and kills it.
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
    let own = std::env::current_exe().expect("the path of the test program");
    // A killed process cleans up nothing, so its folders are created in one that this test removes.
    let folder = tempfile::tempdir().expect("a folder for the files of the helper");
    let mut helper = Command::new(own)
        .args(["--exact", "helper_that_hangs_with_a_server", "--nocapture"])
        .env("REDLOCK_TESTS_HANG", "1")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test program can be started again");
    let output = BufReader::new(helper.stdout.take().expect("its output is piped"));
    let pid = output
        .lines()
        .find_map(|line| {
            line.expect("the helper writes text").split_once("pid ").map(|(_, pid)| pid.to_string())
        })
        .expect("the helper prints the process id of its server");
    let process = Path::new("/proc").join(pid);
    assert!(process.exists());
    helper.kill().expect("the child can be killed");
    helper.wait().expect("a killed child ends");
    eventually("the server ends with its test process", SOON, || is_gone(&process).then_some(()));
}

/// Whether a process has ended. A zombie, which its parent has not reaped yet, has ended too.
fn is_gone(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("status"));
    status.is_err() || status.is_ok_and(|text| text.contains("State:\tZ"))
}
