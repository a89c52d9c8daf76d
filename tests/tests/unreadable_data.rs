//! A data set that the server cannot load: with the module it does what it does without. It ends, and the file stays
//! as it is.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, Server, ServerBuilder, granted};
use std::fs;
use std::path::Path;

type Damage = fn(&mut Vec<u8>);

/// Ways in which an RDB cannot be read.
const DAMAGES: [(&str, Damage); 5] = [
    ("a later version", |rdb| rdb[5..9].copy_from_slice(b"0099")),
    ("a wrong signature", |rdb| rdb[0] = b'X'),
    // Not within a module's part: some servers, looking for the damage, never end there.
    ("truncated near the end", |rdb| rdb.truncate(rdb.len() - 12)),
    ("truncated in the signature", |rdb| rdb.truncate(4)),
    ("a bad checksum", |rdb| *rdb.last_mut().expect("a file with bytes in it") ^= 1),
];

/// A server that saves its data when it is shut down.
fn saving(builder: ServerBuilder, folder: &Path) -> ServerBuilder {
    builder.arg("save", "3600 1").data_dir(folder)
}

/// Starts a server on a damaged file. Returns whether it came up; the file must be what it was.
fn comes_up(builder: ServerBuilder, folder: &Path, damaged: &[u8], case: &str) -> bool {
    let file = folder.join("dump.rdb");
    fs::write(&file, damaged).expect("the data folder can be written");
    let started = saving(builder, folder).try_start();
    let came_up = started.is_ok();
    // A server that has come up empty writes its empty data set over the file when it ends.
    if let Ok(mut server) = started {
        server.shutdown();
    }
    assert_eq!(fs::read(&file).expect("the file is there"), damaged, "{case}: the server changed the file");
    came_up
}

#[test]
fn an_unreadable_rdb_stops_a_node_with_a_past_as_it_stops_a_plain_server() {
    let (plain, node) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut server = saving(Server::builder().without_module(), plain.path()).start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
    assert_eq!(wire.call_strs("SET precious data"), Answer::ok());
    server.shutdown();
    let plain_rdb = fs::read(plain.path().join("dump.rdb")).expect("the plain server has saved");

    // A node that has granted a lock, and has its own RDB.
    let mut server = saving(Server::builder(), node.path()).start();
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 60000"));
    // In a later database, so that the file does not end with the lock.
    assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
    assert_eq!(wire.call_strs("SET precious data"), Answer::ok());
    server.shutdown();
    let own_rdb = fs::read(node.path().join("dump.rdb")).expect("the node has saved");

    for (case, damage) in DAMAGES {
        let mut damaged = plain_rdb.clone();
        damage(&mut damaged);
        assert!(!comes_up(Server::builder().without_module(), plain.path(), &damaged, case), "plain: {case}");
        assert!(!comes_up(Server::builder(), node.path(), &damaged, case), "with the module: {case}");
        let mut damaged = own_rdb.clone();
        damage(&mut damaged);
        assert!(!comes_up(Server::builder(), node.path(), &damaged, case), "the node's own file: {case}");
    }
    // The control: the same files without the damage are loaded.
    for rdb in [&plain_rdb, &own_rdb] {
        fs::write(node.path().join("dump.rdb"), rdb).expect("the data folder can be written");
        let server = saving(Server::builder(), node.path()).start();
        let mut wire = server.connect();
        assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
        assert_eq!(wire.call_strs("GET precious"), Answer::text("data"));
    }
}
