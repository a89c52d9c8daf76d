//! Upgrades: the present module reads what an older one has stored. A downgrade is refused.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{Answer, Server, ServerBuilder, Wire, granted, older_module};
use std::fs;
use std::path::Path;

/// A way in which a server stores its data.
type Persistence = (&'static str, fn(ServerBuilder) -> ServerBuilder);
const KEPT: [Persistence; 3] = [
    ("a snapshot", |server| server.arg("save", "3600 1")),
    ("an append-only file", |server| server.arg("appendonly", "yes").arg("appendfsync", "always")),
    ("an append-only file without a snapshot in it", |server| {
        server.arg("appendonly", "yes").arg("appendfsync", "always").arg("aof-use-rdb-preamble", "no")
    }),
];

/// A way to stop a server.
type StopMethod = (&'static str, fn(&mut Server));
const STOPPED: [StopMethod; 2] = [("SHUTDOWN", Server::shutdown), ("kill -9", Server::kill)];

fn node(wire: &mut Wire, field: &str) -> Answer {
    wire.call_strs("REDLOCK.NODE").field(field).cloned().expect("a field of REDLOCK.NODE")
}

/// Takes and extends a lock, and takes and releases another. Returns the fences of both, and the node id.
fn prepare(wire: &mut Wire) -> (i64, i64, Answer) {
    let held = granted(&wire.call_strs("REDLOCK.ACQUIRE held me 600000 FENCE 41 LABEL nightly"));
    assert_eq!(wire.call_strs("REDLOCK.EXTEND held me 600000"), Answer::Int(held));
    let released = granted(&wire.call_strs("REDLOCK.ACQUIRE released me 600000 FENCE 1000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
    (held, released, node(wire, "node-id"))
}

/// Asserts that the node is the same, that it still has the lock, and that no fence goes back.
fn verify(wire: &mut Wire, (held, released, id): &(i64, i64, Answer), what: &str) {
    assert_eq!(node(wire, "node-id"), *id, "{what}");
    assert_eq!(
        node(wire, "quarantine-ms"),
        Answer::Int(0),
        "{what}: nothing is missing, so there is no quarantine"
    );
    let lock = wire.inspect("held").expect("the lock is still held");
    assert_eq!((lock.fence, &lock.label[..], lock.extensions), (*held, &b"nightly"[..], 1), "{what}");
    assert!((1..=600_000).contains(&lock.pttl), "{what}: {lock:?}");
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE held stranger 1000"), Answer::Nil, "{what}");
    assert_eq!(wire.call_strs("REDLOCK.EXTEND held me 600000"), Answer::Int(*held), "{what}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE held me"), Answer::Int(1), "{what}");
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE held me 600000")) > *held, "{what}");
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE released me 600000")) > *released, "{what}");
}

#[test]
fn the_module_reads_what_an_older_one_has_stored() {
    let Some(older) = older_module() else { return };
    for (kept, keep) in KEPT {
        for (stopped, stop) in STOPPED {
            // After a crash there is no snapshot with the lock.
            if kept == "a snapshot" && stopped == "kill -9" {
                continue;
            }
            let what = format!("{kept}, {stopped}");
            let folder = tempfile::tempdir().expect("a data folder");
            let mut before = keep(keeping(folder.path()).module_file(&older)).start();
            let prepared = prepare(&mut before.connect());
            stop(&mut before);
            let after = keep(keeping(folder.path())).start();
            let mut wire = after.connect();
            assert_eq!(node(&mut wire, "version"), Answer::text(env!("CARGO_PKG_VERSION")), "{what}");
            assert_eq!(node(&mut wire, "voting"), Answer::Int(1), "{what}: the same node");
            if stopped == "SHUTDOWN" {
                verify(&mut wire, &prepared, &what);
            } else {
                assert_eq!(node(&mut wire, "node-id"), prepared.2, "{what}");
                assert!(
                    node(&mut wire, "quarantine-ms").int() >= 600_000,
                    "{what}: a quarantine follows every crash"
                );
                assert_eq!(wire.inspect("held").map(|lock| lock.fence), Some(prepared.0), "{what}");
            }
        }
    }
}

/// A server on this folder. The state file has the same name for every version of the module.
fn keeping(folder: &Path) -> ServerBuilder {
    let file = folder.join("mine.state").display().to_string();
    Server::builder().data_dir(folder).module_args(["state-file", &file])
}

#[test]
fn an_older_module_refuses_the_present_state_file_and_leaves_it_alone() {
    let Some(older) = older_module() else { return };
    let folder = tempfile::tempdir().expect("a data folder");
    let mut present = keeping(folder.path()).start();
    prepare(&mut present.connect());
    present.shutdown();
    let stored = || fs::read(folder.path().join("mine.state")).expect("a state file");
    let before = stored();
    let refused = keeping(folder.path())
        .module_file(&older)
        .try_start()
        .expect_err("the older module cannot read the file");
    assert!(refused.log.contains("mine.state cannot be used"), "{}", refused.log);
    assert_eq!(stored(), before);
}

/// An older module rejects settings of later versions, as module arguments and in the configuration file.
#[test]
fn settings_that_an_older_module_lacks_prevent_it_from_starting() {
    let Some(older) = older_module() else { return };
    let refused =
        |server: ServerBuilder| server.module_file(&older).try_start().expect_err("no such setting").log;
    let log = refused(Server::builder().module_args(["claim-window", "50"]));
    assert!(log.contains("not loaded: module argument 'claim-window' is unknown"), "{log}");
    let log = refused(Server::builder().arg("redlock.claim-window", "50"));
    // The server's own message for a line that belongs to no module.
    assert!(log.contains("Module Configuration detected"), "{log}");
}
