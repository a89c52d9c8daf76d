//! The file in which a node keeps what it must not forget: whole, its own, and written before it counts.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, Server, StartFailure, Wire, granted};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The name of the file of a server without a TCP port.
const NAME: &str = "redlock-0.state";

/// What a later version may write one day: other lines, and a digest that fits them.
const LATER: &str = "redlock-ledger 2\nsomething new\ndigest 46bcebf23791b8df\n";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder for data")
}

fn start_in(folder: &Path) -> Server {
    Server::builder().data_dir(folder).start()
}

fn node(wire: &mut Wire, field: &str) -> Answer {
    let node = wire.call_strs("REDLOCK.NODE");
    node.field(field).unwrap_or_else(|| panic!("no {field} in {node:?}")).clone()
}

/// A ledger as a node leaves it behind, and the largest fence that it has given out.
fn used_ledger(folder: &Path) -> (Vec<u8>, i64) {
    let mut server = start_in(folder);
    let mut wire = server.connect();
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000 FENCE 5000000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    server.shutdown();
    (fs::read(folder.join(NAME)).expect("a ledger in the server's dir"), fence)
}

/// A server in this folder does not come up, and its log says why, about which file, and what to do.
fn refused(folder: &Path, told: &[&str], case: &str) -> StartFailure {
    let Err(failure) = Server::builder().data_dir(folder).try_start() else {
        panic!("{case}: the server started");
    };
    let says = |line: &str| line.contains(NAME) && told.iter().all(|words| line.contains(words));
    assert!(failure.log.lines().any(says), "{case}: no line names {NAME} and says {told:?}: {failure}");
    failure
}

/// Puts `bytes` where the ledger was; the server refuses them and leaves them alone.
fn refuses_bytes(folder: &Path, bytes: &[u8], told: &[&str], case: &str) {
    let file = folder.join(NAME);
    fs::write(&file, bytes).expect("a ledger can be replaced");
    refused(folder, told, case);
    assert_eq!(fs::read(&file).expect("the file is still there"), bytes, "{case}: it was changed");
}

#[test]
fn every_changed_byte_keeps_the_server_from_starting() {
    let folder = folder();
    let (good, fence) = used_ledger(folder.path());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        refuses_bytes(folder.path(), &bad, &["damaged", "remove the file"], &format!("byte {at}"));
    }
    // With the right bytes the node goes on where it was.
    fs::write(folder.path().join(NAME), &good).expect("a ledger can be put back");
    let server = start_in(folder.path());
    assert!(granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock other 1000")) > fence);
}

#[test]
fn a_cut_or_longer_file_keeps_the_server_from_starting() {
    let folder = folder();
    let (good, _) = used_ledger(folder.path());
    let line_ends = (0..good.len()).filter(|at| good[*at] == b'\n');
    let mut lengths: Vec<usize> = line_ends.flat_map(|end| [end - 1, end, end + 1]).collect();
    lengths.retain(|length| *length < good.len());
    lengths.extend([0, 1]);
    for length in lengths {
        refuses_bytes(folder.path(), &good[..length], &["damaged or cut off"], &format!("{length} bytes"));
    }
    for more in ["\n", "mark 1\n", "\0"] {
        let longer = [&good, more.as_bytes()].concat();
        refuses_bytes(folder.path(), &longer, &["damaged"], &format!("and {more:?}"));
    }
    refuses_bytes(folder.path(), &[good.as_slice(), &good].concat(), &["damaged"], "twice");
    refuses_bytes(folder.path(), &vec![0; good.len()], &["damaged"], "zeros, as after a power failure");
}

#[test]
fn a_file_of_a_later_version_is_told_from_a_damaged_one() {
    let folder = folder();
    refuses_bytes(folder.path(), LATER.as_bytes(), &["later version", "format 2"], "a later version");
    let damaged = LATER.replace("something", "Something");
    refuses_bytes(folder.path(), damaged.as_bytes(), &["damaged"], "a later version, damaged");
}

#[test]
fn a_running_server_refuses_to_load_the_module_on_a_damaged_file() {
    let folder = folder();
    fs::write(folder.path().join(NAME), "nonsense").expect("a folder can be written to");
    let plain = Server::builder().without_module().data_dir(folder.path());
    let mut server = plain.arg("enable-module-command", "yes").start();
    let module = redlock_tests::module_path();
    let mut wire = server.connect();
    let load = ["MODULE", "LOAD", module.to_str().expect("a path in plain text")];
    assert!(matches!(wire.call(&load), Answer::Error(_)));
    assert!(server.log().lines().any(|line| line.contains(NAME) && line.contains("damaged")));
    assert!(matches!(wire.call_strs("REDLOCK.NODE"), Answer::Error(_)));
    assert!(server.is_running());
    // Once the file is out of the way the same server can load it.
    fs::remove_file(folder.path().join(NAME)).expect("a file can be removed");
    assert_eq!(wire.call(&load), Answer::ok());
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000"));
}

#[test]
fn a_draft_that_a_crash_left_behind_does_no_harm() {
    let folder = folder();
    let (good, fence) = used_ledger(folder.path());
    fs::write(folder.path().join(format!("{NAME}.new")), &good[..20]).expect("a folder can be written to");
    let mut server = start_in(folder.path());
    assert!(granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock other 1000")) > fence);
    server.kill();
    server.restart();
    assert_eq!(node(&mut server.connect(), "started"), Answer::text("resumed"));
}

#[test]
fn something_else_in_the_place_of_the_file_keeps_the_server_from_starting() {
    for name in [NAME, &format!("{NAME}.lock"), &format!("{NAME}.new")] {
        let folder = folder();
        fs::create_dir(folder.path().join(name)).expect("a folder can be made");
        refused(folder.path(), &[], &format!("{name} is a folder"));
    }
    let folder = folder();
    fs::write(folder.path().join("file"), "").expect("a folder can be written to");
    let builder = Server::builder().data_dir(folder.path()).module_args(["state-file", "file/mine"]);
    let Err(failure) = builder.try_start() else { panic!("a file cannot hold a file") };
    assert!(failure.log.lines().any(|line| line.contains("file/mine")), "{failure}");
}

#[test]
fn two_servers_do_not_share_a_file() {
    let folder = folder();
    let mut first = start_in(folder.path());
    let mut wire = first.connect();
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 600000"));
    let bytes = fs::read(folder.path().join(NAME)).expect("a ledger");
    refused(folder.path(), &["another server", "state-file"], "a second server");
    assert_eq!(fs::read(folder.path().join(NAME)).expect("a ledger"), bytes, "the second changed nothing");
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 600000"), Answer::Int(fence), "the first goes on");
    // The claim ends with the process, however it ends.
    first.kill();
    drop(start_in(folder.path()));
}

#[test]
fn servers_in_one_folder_are_told_apart_by_port_or_argument() {
    let folder = folder();
    let in_folder = || Server::builder().data_dir(folder.path());
    let by_port = [in_folder().tcp().start(), in_folder().tcp().start()];
    let named = |name: &str| in_folder().module_args(["state-file", name]).start();
    let by_argument = [start_in(folder.path()), named("mine"), named("yours.state")];
    let elsewhere = tempfile::tempdir().expect("another folder");
    let far = named(elsewhere.path().join("far").to_str().expect("a path in plain text"));
    for server in by_port.iter().chain(&by_argument).chain([&far]) {
        granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000"));
    }
    let ports = by_port.iter().map(|server| format!("redlock-{}.state", server.port().expect("a port")));
    for name in ports.chain([NAME, "mine", "yours.state"].map(String::from)) {
        assert!(folder.path().join(&name).is_file(), "{name}");
    }
    assert!(elsewhere.path().join("far").is_file(), "a name with a path is taken as it is");
    let mut ids: Vec<_> = by_port.iter().chain(&by_argument).chain([&far]).collect::<Vec<_>>();
    ids.sort_by_key(|server| node(&mut server.connect(), "node-id").string());
    ids.dedup_by_key(|server| node(&mut server.connect(), "node-id").string());
    assert_eq!(ids.len(), 6, "every server is a node of its own");
}

#[test]
fn a_file_named_by_an_argument_is_found_again() {
    let mut server = Server::builder().module_args(["state-file", "mine", "restart-grace", "off"]).start();
    let fence = granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000 FENCE 5000000"));
    server.kill();
    server.restart();
    assert!(!server.data_dir().join(NAME).exists());
    assert!(granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock other 1000")) > fence);
}

#[test]
fn a_lost_file_loses_no_number_that_the_data_set_has() {
    let mut server = Server::builder().arg("save", "3600 1").start();
    let mut wire = server.connect();
    let held = granted(&wire.call_strs("REDLOCK.ACQUIRE held me 60000 FENCE 5000000"));
    let released = granted(&wire.call_strs("REDLOCK.ACQUIRE released me 60000 FENCE 7000000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
    server.shutdown();
    fs::remove_file(server.data_dir().join(NAME)).expect("a file can be removed");
    server.restart();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE held other 60000"), Answer::Nil);
    assert_eq!(wire.call_strs("REDLOCK.EXTEND held me 60000"), Answer::Int(held));
    let fence = wire.call_strs("REDLOCK.ACQUIRE released other 60000");
    let waits = fence.error_word() == Some("REDLOCKQUARANTINE");
    assert!(waits || granted(&fence) > released, "{fence:?}");
}
