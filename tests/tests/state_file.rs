//! The state file: a node refuses a damaged or shared one, and finds its own again under any port and name.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{
    Answer, Certs, ClientCertificate, SOON, Server, ServerBuilder, StartFailure, SyscallFault, SyscallTrace,
    Wire, eventually, granted, skip,
};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The name of a new state file.
const NAME: &str = "redlock.state";

/// A file that a later version could write: other lines, with a correct digest.
const LATER: &str = "redlock-state 3\nsomething new\ndigest 7086b5153b93b6e9\n";

/// A file of the previous format.
const LAST_FORMAT: &str = "redlock-ledger 1\nnode-id 0123456789abcdef0123456789abcdef01234567\nmark 1048577\n\
    longest-ttl-ms 30000\nseal none\ngrants-stored no\ndigest dbc33c08af75fa23\n";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a data folder")
}

fn start_in(folder: &Path) -> Server {
    Server::builder().data_dir(folder).start()
}

fn node(wire: &mut Wire, field: &str) -> Answer {
    let node = wire.call_strs("REDLOCK.NODE");
    node.field(field).unwrap_or_else(|| panic!("no {field} in {node:?}")).clone()
}

/// Runs a node that grants and releases a lock. Returns its state file and the fence of the lock.
fn used_file(folder: &Path) -> (Vec<u8>, i64) {
    let mut server = start_in(folder);
    let mut wire = server.connect();
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000 FENCE 5000000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    server.shutdown();
    (fs::read(folder.join(NAME)).expect("a state file in the server's dir"), fence)
}

/// Asserts that a server in this folder does not start, and that one line of its log names the file and contains all
/// `words`: the reason and the remedy.
fn refused(folder: &Path, words: &[&str], case: &str) -> StartFailure {
    let Err(failure) = Server::builder().data_dir(folder).try_start() else {
        panic!("{case}: the server started");
    };
    let says = |line: &str| line.contains(NAME) && words.iter().all(|word| line.contains(word));
    assert!(failure.log.lines().any(says), "{case}: no line names {NAME} and contains {words:?}: {failure}");
    failure
}

/// Replaces the state file by `bytes`, and asserts that the server refuses the file and does not change it.
fn refuses_bytes(folder: &Path, bytes: &[u8], words: &[&str], case: &str) {
    let file = folder.join(NAME);
    fs::write(&file, bytes).expect("the file can be replaced");
    refused(folder, words, case);
    assert_eq!(
        fs::read(&file).expect("the file is still there"),
        bytes,
        "{case}: the server changed the file"
    );
}

#[test]
fn every_changed_byte_prevents_the_server_from_starting() {
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
    // With its original bytes, the node continues above its last fence.
    fs::write(folder.path().join(NAME), &good).expect("the file can be put back");
    let server = start_in(folder.path());
    let mut wire = server.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 1000")) > fence);
}

#[test]
fn a_truncated_or_longer_file_prevents_the_server_from_starting() {
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
        refuses_bytes(folder.path(), &longer, &["damaged"], &format!("with {more:?} at the end"));
    }
    refuses_bytes(folder.path(), &[good.as_slice(), &good].concat(), &["damaged"], "twice");
    refuses_bytes(folder.path(), &vec![0; good.len()], &["damaged"], "zeros, as after a power failure");
}

#[test]
fn a_file_of_a_later_version_is_not_reported_as_damaged() {
    let folder = folder();
    refuses_bytes(folder.path(), LATER.as_bytes(), &["later version", "format 3"], "a later version");
    let damaged = LATER.replace("something", "Something");
    refuses_bytes(folder.path(), damaged.as_bytes(), &["damaged"], "a later version, damaged");
}

#[test]
fn a_running_server_refuses_to_load_the_module_with_a_damaged_file() {
    let folder = folder();
    fs::write(folder.path().join(NAME), "nonsense").expect("the folder is writable");
    let plain = Server::builder().without_module().data_dir(folder.path());
    let mut server = plain.arg("enable-module-command", "yes").start();
    let module = redlock_tests::module_path();
    let mut wire = server.connect();
    let load = ["MODULE", "LOAD", module.to_str().expect("a UTF-8 path")];
    assert!(matches!(wire.call(&load), Answer::Error(_)));
    assert!(server.log().lines().any(|line| line.contains(NAME) && line.contains("damaged")));
    assert!(matches!(wire.call_strs("REDLOCK.NODE"), Answer::Error(_)));
    assert!(server.is_running());
    // After the file is removed, the same server can load the module.
    fs::remove_file(folder.path().join(NAME)).expect("the file can be removed");
    assert_eq!(wire.call(&load), Answer::ok());
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000"));
}

#[test]
fn a_draft_that_a_crash_left_does_no_harm() {
    let folder = folder();
    let (good, fence) = used_file(folder.path());
    fs::write(folder.path().join(format!("{NAME}.new")), &good[..20]).expect("the folder is writable");
    let mut server = start_in(folder.path());
    assert!(granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock other 1000")) > fence);
    server.kill();
    server.restart();
    assert_eq!(node(&mut server.connect(), "started"), Answer::text("resumed"));
}

#[test]
fn a_folder_in_place_of_the_file_prevents_the_server_from_starting() {
    for name in [NAME, &format!("{NAME}.lock"), &format!("{NAME}.new")] {
        let folder = folder();
        fs::create_dir(folder.path().join(name)).expect("the folder can be created");
        refused(folder.path(), &[], &format!("{name} is a folder"));
    }
    let folder = folder();
    fs::write(folder.path().join("file"), "").expect("the folder is writable");
    let builder = Server::builder().data_dir(folder.path()).module_args(["state-file", "file/mine.state"]);
    let Err(failure) = builder.try_start() else {
        panic!("the server started with a state file below a file")
    };
    assert!(failure.log.lines().any(|line| line.contains("file/mine.state")), "{failure}");
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
        "the second server must not change the file"
    );
    assert_eq!(
        wire.call_strs("REDLOCK.EXTEND lock me 600000"),
        Answer::Int(fence),
        "the first server still works"
    );
    // The lock on the file ends with the process, even after a kill.
    first.kill();
    drop(start_in(folder.path()));
}

#[test]
fn servers_in_one_folder_need_different_state_file_arguments() {
    let folder = folder();
    let named =
        |name: &str| Server::builder().data_dir(folder.path()).module_args(["state-file", name]).start();
    let elsewhere = tempfile::tempdir().expect("another folder");
    let far = elsewhere.path().join("far.state");
    let servers = [named("mine.state"), named("yours.state"), named(far.to_str().expect("a UTF-8 path"))];
    for server in &servers {
        granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000"));
    }
    assert!(folder.path().join("mine.state").is_file() && folder.path().join("yours.state").is_file());
    assert!(far.is_file(), "the server uses a name with a path as it is");
    let mut ids: Vec<_> =
        servers.iter().map(|server| node(&mut server.connect(), "node-id").string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "every server has a node id of its own");
}

#[test]
fn a_new_state_file_name_does_not_make_a_new_voting_node() {
    let folder = folder();
    let mut server = start_in(folder.path());
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000"));
    server.shutdown();
    let mut server =
        Server::builder().data_dir(folder.path()).module_args(["state-file", "other.state"]).start();
    assert!(server.log().lines().any(|line| line.contains(NAME) && line.contains("other.state")));
    // The first start must not leave a file with the new name behind.
    for start in 0..3 {
        let reason = node(&mut server.connect(), "non-voting-reason");
        assert_eq!(reason, Answer::text("several-state-files"), "start {start}");
        server.kill();
        server.restart();
    }
}

/// The new file has replaced the old one, and then the folder cannot be synced. The operator reads that the admission
/// failed. So the server must not vote after its next start either.
#[test]
fn an_admission_that_fails_does_not_take_effect_at_the_next_start() {
    let folder = folder();
    let mut server =
        Server::builder().data_dir(folder.path()).module_args(["new-node", "non-voting"]).start();
    let id = node(&mut server.connect(), "node-id").string();
    // The first sync is that of the file, the second that of the folder.
    let Some(fault) = SyscallFault::inject(&server, "fsync", "error=EIO:when=2") else {
        return skip("system calls cannot fail on this machine (needs strace)");
    };
    let refused = server.connect().call_strs(&format!("REDLOCK.ADMIT {id} 0 0"));
    assert_eq!(refused.error_word(), Some("REDLOCKSTATE"), "{refused:?}");
    let file = folder.path().join(NAME);
    eventually("the server stores that it does not vote", SOON, || {
        fs::read_to_string(&file).ok()?.contains("\nvoting no new-node\n").then_some(())
    });
    drop(fault);
    server.kill();
    server.restart();
    assert_eq!(node(&mut server.connect(), "voting"), Answer::Int(0));
}

#[test]
fn a_changed_port_does_not_change_the_node_id() {
    // The last server has no port at all.
    are_one_node([Server::builder().tcp(), Server::builder().tcp(), Server::builder()]);
}

#[test]
fn a_changed_tls_port_does_not_change_the_node_id() {
    let certs = Certs::new();
    let tls = || Server::builder().tls(&certs, ClientCertificate::NotAsked);
    match tls().try_start() {
        Ok(_) => are_one_node([tls(), tls().tcp(), Server::builder().tcp(), tls()]),
        Err(failure) if failure.lacks_tls() => skip("this server was built without TLS"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Starts these servers one after the other in one folder, and asserts that all are the same node.
fn are_one_node(servers: impl IntoIterator<Item = ServerBuilder>) {
    let folder = folder();
    let (mut first_id, mut fence) = (None, 0);
    for builder in servers {
        let mut server = builder.data_dir(folder.path()).module_args(["restart-grace", "off"]).start();
        let mut wire = server.connect();
        let id = node(&mut wire, "node-id");
        assert_eq!(*first_id.get_or_insert_with(|| id.clone()), id);
        let next = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000"));
        assert!(next > fence, "{next} after {fence}");
        fence = next;
        server.kill();
    }
}

#[test]
fn a_file_of_the_previous_format_keeps_the_node_id() {
    let folder = folder();
    let file = folder.path().join("redlock-6379.state");
    fs::write(&file, LAST_FORMAT).expect("the folder is writable");
    let mut server = Server::builder().data_dir(folder.path()).start();
    let mut wire = server.connect();
    assert_eq!(node(&mut wire, "node-id"), Answer::text("0123456789abcdef0123456789abcdef01234567"));
    assert_eq!(node(&mut wire, "voting"), Answer::Int(1));
    assert!(node(&mut wire, "quarantine-ms").int() > 0, "the file does not record a clean shutdown");
    server.kill();
    server.restart();
    assert_eq!(node(&mut server.connect(), "voting"), Answer::Int(1));
    assert!(file.is_file() && !folder.path().join(NAME).exists(), "the file keeps its name");
}

/// The limit that the guide states: a file of format 1 does not record which file it is. After one start it does.
#[test]
fn a_copy_of_a_file_of_the_previous_format_is_noticed_only_after_the_first_start() {
    let (own, copied) = (folder(), folder());
    let file = own.path().join("redlock-6379.state");
    fs::write(&file, LAST_FORMAT).expect("the folder is writable");
    // `fs::copy` makes a new file, as a backup does.
    fs::copy(&file, copied.path().join("redlock-6379.state")).expect("a copy");
    let copy = start_in(copied.path());
    assert_eq!(node(&mut copy.connect(), "voting"), Answer::Int(1), "the module cannot notice this copy");
    drop(copy);
    let mut server = start_in(own.path());
    assert_eq!(node(&mut server.connect(), "incarnation"), Answer::Int(1));
    server.shutdown();
    assert!(fs::read_to_string(&file).expect("the state file").starts_with("redlock-state 2\n"));
    let later = folder();
    fs::copy(&file, later.path().join("redlock-6379.state")).expect("a copy");
    let copy = start_in(later.path());
    assert_eq!(node(&mut copy.connect(), "non-voting-reason"), Answer::text("copied-state-file"));
}

#[test]
fn a_file_named_by_an_argument_is_found_after_a_restart() {
    let folder = folder();
    let named = ["state-file", "mine.state", "restart-grace", "off"];
    let mut server = Server::builder().data_dir(folder.path()).module_args(named).start();
    let id = node(&mut server.connect(), "node-id");
    let fence = granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000 FENCE 5000000"));
    server.kill();
    server.restart();
    assert!(!server.data_dir().join(NAME).exists());
    assert!(granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock other 1000")) > fence);
    drop(server);
    assert_eq!(node(&mut start_in(folder.path()).connect(), "node-id"), id, "also without the argument");
}

/// Without the argument, a server looks for files with this ending. It would not find a file with another name, and
/// vote as a new node that has granted nothing.
#[test]
fn a_state_file_needs_a_name_that_the_server_finds_again() {
    for name in ["mine", "mine.state.old", ".state", "elsewhere.state/mine"] {
        let Err(failure) = Server::builder().module_args(["state-file", name]).try_start() else {
            panic!("{name}: the server started");
        };
        let says = |line: &str| line.contains("state-file") && line.contains("ends with .state");
        assert!(failure.log.lines().any(says), "{name}: {failure}");
    }
}

/// A grant waits for the disk only if it needs a larger high-water mark or a longer lease than the stored ones.
#[test]
fn ordinary_grants_of_short_locks_sync_nothing() {
    let folder = folder();
    let server = start_in(folder.path());
    let mut wire = server.connect();
    // The first grant stores the first high-water mark and the first lease.
    granted(&wire.call_strs("REDLOCK.ACQUIRE first me 30000"));
    let Some(traced) = SyscallTrace::start(&server, "fsync,fdatasync,rename,renameat,renameat2") else {
        return skip("system calls cannot be traced on this machine (needs strace)");
    };
    for number in 0..500 {
        let owner = format!("owner-{number}");
        let fence = granted(&wire.call_strs(&format!("REDLOCK.ACQUIRE lock {owner} 30000")));
        assert_eq!(fence, number + 1);
        assert_eq!(wire.call_strs(&format!("REDLOCK.EXTEND lock {owner} 30000")), Answer::Int(fence));
        granted(&wire.call_strs(&format!("REDLOCK.MACQUIRE 2 a b {owner} 1000")));
        assert_eq!(wire.call_strs(&format!("REDLOCK.MRELEASE 2 a b {owner}")), Answer::Int(1));
        assert_eq!(wire.call_strs(&format!("REDLOCK.RELEASE lock {owner}")), Answer::Int(1));
    }
    // The control, which also shows that strace has written every call before it: this grant must store its fence.
    granted(&wire.call_strs("REDLOCK.ACQUIRE far me 1000 FENCE 50000000"));
    let calls = eventually("the folder is synced", SOON, || {
        let calls = traced.calls();
        let name = format!("{}>", folder.path().display());
        calls.iter().any(|call| call.contains("fsync(") && call.contains(&name)).then_some(calls)
    });
    let made = |what: &str| calls.iter().filter(|call| call.contains(what)).count();
    // One sync of the new file, one of its folder: those of the control, and no others.
    assert_eq!((made("fsync("), made("rename")), (2, 1), "{calls:?}");
}

/// Without the syncs, a power failure after the reply could lose the file. No other test detects that.
#[test]
fn the_file_and_its_folder_are_synced_before_a_grant_is_answered() {
    let folder = folder();
    let server = start_in(folder.path());
    let Some(traced) = SyscallTrace::start(&server, "fsync,fdatasync,rename,renameat,renameat2") else {
        return skip("system calls cannot be traced on this machine (needs strace)");
    };
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000 FENCE 50000000"));
    let name = folder.path().display().to_string();
    let position = |calls: &[String], what: &dyn Fn(&str) -> bool| calls.iter().position(|call| what(call));
    // The reply has arrived, but strace may not have written the last calls before it yet.
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
