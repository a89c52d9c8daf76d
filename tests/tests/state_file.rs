//! The state file: whole, the node's own, and found whatever the port is.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, SOON, Server, StartFailure, SyscallTrace, Wire, eventually, granted, skip};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The name of a new state file.
const NAME: &str = "redlock.state";

/// What a later version may write one day: other lines, and a digest that fits them.
const LATER: &str = "redlock-state 3\nsomething new\ndigest 7086b5153b93b6e9\n";

/// What the version before wrote.
const LAST_FORMAT: &str = "redlock-ledger 1\nnode-id 0123456789abcdef0123456789abcdef01234567\nmark 1048577\n\
    longest-ttl-ms 30000\nseal none\ngrants-stored no\ndigest dbc33c08af75fa23\n";

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

/// A state file as a node leaves it behind, and the largest fence that it has given out.
fn used_file(folder: &Path) -> (Vec<u8>, i64) {
    let mut server = start_in(folder);
    let mut wire = server.connect();
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000 FENCE 5000000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    server.shutdown();
    (fs::read(folder.join(NAME)).expect("a state file in the server's dir"), fence)
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

/// Puts `bytes` where the state file was; the server refuses them and leaves them alone.
fn refuses_bytes(folder: &Path, bytes: &[u8], told: &[&str], case: &str) {
    let file = folder.join(NAME);
    fs::write(&file, bytes).expect("a file can be replaced");
    refused(folder, told, case);
    assert_eq!(fs::read(&file).expect("the file is still there"), bytes, "{case}: it was changed");
}

#[test]
fn every_changed_byte_keeps_the_server_from_starting() {
    let folder = folder();
    let (good, fence) = used_file(folder.path());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        refuses_bytes(
            folder.path(),
            &bad,
            &["damaged", "Remove the file", "redlock admit"],
            &format!("byte {at}"),
        );
    }
    // With the right bytes in the same file the node goes on where it was.
    fs::write(folder.path().join(NAME), &good).expect("a file can be put back");
    let server = start_in(folder.path());
    let mut wire = server.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 1000")) > fence);
}

#[test]
fn a_cut_or_longer_file_keeps_the_server_from_starting() {
    let folder = folder();
    let (good, _) = used_file(folder.path());
    let line_ends = (0..good.len()).filter(|at| good[*at] == b'\n');
    let mut lengths: Vec<usize> = line_ends.flat_map(|end| [end - 1, end, end + 1]).collect();
    lengths.retain(|length| *length < good.len());
    lengths.extend([0, 1]);
    for length in lengths {
        refuses_bytes(folder.path(), &good[..length], &["damaged or truncated"], &format!("{length} bytes"));
    }
    for more in ["\n", "high-water 1\n", "\0"] {
        let longer = [&good, more.as_bytes()].concat();
        refuses_bytes(folder.path(), &longer, &["damaged"], &format!("and {more:?}"));
    }
    refuses_bytes(folder.path(), &[good.as_slice(), &good].concat(), &["damaged"], "twice");
    refuses_bytes(folder.path(), &vec![0; good.len()], &["damaged"], "zeros, as after a power failure");
}

#[test]
fn a_file_of_a_later_version_is_told_from_a_damaged_one() {
    let folder = folder();
    refuses_bytes(folder.path(), LATER.as_bytes(), &["later version", "format 3"], "a later version");
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
    let (good, fence) = used_file(folder.path());
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
    let bytes = fs::read(folder.path().join(NAME)).expect("a state file");
    refused(folder.path(), &["another server", "state-file"], "a second server");
    assert_eq!(
        fs::read(folder.path().join(NAME)).expect("a state file"),
        bytes,
        "the second changed nothing"
    );
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 600000"), Answer::Int(fence), "the first goes on");
    // The claim ends with the process, however it ends.
    first.kill();
    drop(start_in(folder.path()));
}

#[test]
fn servers_in_one_folder_are_told_apart_by_argument() {
    let folder = folder();
    let named =
        |name: &str| Server::builder().data_dir(folder.path()).module_args(["state-file", name]).start();
    let elsewhere = tempfile::tempdir().expect("another folder");
    let far = elsewhere.path().join("far");
    let servers = [named("mine"), named("yours.state"), named(far.to_str().expect("a path in plain text"))];
    for server in &servers {
        granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000"));
    }
    assert!(folder.path().join("mine").is_file() && folder.path().join("yours.state").is_file());
    assert!(far.is_file(), "a name with a path is taken as it is");
    let mut ids: Vec<_> =
        servers.iter().map(|server| node(&mut server.connect(), "node-id").string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "every server is a node of its own");
}

#[test]
fn a_new_name_for_the_file_makes_no_other_node() {
    let folder = folder();
    let mut server = start_in(folder.path());
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000"));
    server.shutdown();
    let server = Server::builder().data_dir(folder.path()).module_args(["state-file", "other.state"]).start();
    let mut wire = server.connect();
    assert_eq!(node(&mut wire, "non-voting-reason"), Answer::text("several-state-files"));
    assert!(server.log().lines().any(|line| line.contains(NAME) && line.contains("other.state")));
}

#[test]
fn a_changed_port_makes_no_other_node() {
    let folder = folder();
    let (mut before, mut fence) = (None, 0);
    // The last one has no port at all.
    for builder in [Server::builder().tcp(), Server::builder().tcp(), Server::builder()] {
        let mut server = builder.data_dir(folder.path()).module_args(["restart-grace", "off"]).start();
        let mut wire = server.connect();
        let id = node(&mut wire, "node-id");
        assert_eq!(*before.get_or_insert_with(|| id.clone()), id);
        let next = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000"));
        assert!(next > fence, "{next} after {fence}");
        fence = next;
        server.kill();
    }
}

#[test]
fn a_file_of_the_last_format_is_the_same_node() {
    let folder = folder();
    let file = folder.path().join("redlock-6379.state");
    fs::write(&file, LAST_FORMAT).expect("a folder can be written to");
    let mut server = Server::builder().data_dir(folder.path()).start();
    let mut wire = server.connect();
    assert_eq!(node(&mut wire, "node-id"), Answer::text("0123456789abcdef0123456789abcdef01234567"));
    assert_eq!(node(&mut wire, "voting"), Answer::Int(1));
    assert!(node(&mut wire, "quarantine-ms").int() > 0, "it has not been shut down in order");
    server.kill();
    server.restart();
    assert_eq!(node(&mut server.connect(), "voting"), Answer::Int(1));
    assert!(file.is_file() && !folder.path().join(NAME).exists(), "it keeps its name");
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

/// The planted bug that no test noticed: a file that is not on disk when the grant is answered.
#[test]
fn the_file_and_its_folder_are_synced_before_a_grant_is_answered() {
    let folder = folder();
    let server = start_in(folder.path());
    let Some(traced) = SyscallTrace::start(&server, "fsync,fdatasync,rename,renameat,renameat2") else {
        return skip("system calls cannot be watched here (needs strace)");
    };
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000 FENCE 50000000"));
    let name = folder.path().display().to_string();
    let position = |calls: &[String], what: &dyn Fn(&str) -> bool| calls.iter().position(|call| what(call));
    // The answer is here, and strace may still have to write down the last call before it.
    let (draft, renamed, synced, calls) = eventually("the folder is synced", SOON, || {
        let calls = traced.calls();
        let draft = position(&calls, &|call| call.contains("fsync(") && call.contains("redlock.state.new"))?;
        let renamed =
            position(&calls, &|call| call.contains("rename") && call.contains("redlock.state.new"))?;
        let synced = position(&calls, &|call| call.contains("fsync(") && call.contains(&format!("{name}>")))?;
        Some((draft, renamed, synced, calls))
    });
    assert!(draft < renamed && renamed < synced, "{calls:?}");
}
