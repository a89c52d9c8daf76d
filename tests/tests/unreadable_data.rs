//! A data set that the server cannot load: with the module, as without it, the server ends and does not change the
//! file.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, Server, ServerBuilder, granted};
use std::fs;
use std::path::Path;

type Damage = fn(&mut Vec<u8>);

/// Ways to make an RDB unreadable.
const DAMAGES: [(&str, Damage); 5] = [
    ("a later version", |rdb| rdb[5..9].copy_from_slice(b"0099")),
    ("a wrong signature", |rdb| rdb[0] = b'X'),
    // Not within the data of a module: there some servers search for the damage and never end.
    ("truncated near the end", |rdb| rdb.truncate(rdb.len() - 12)),
    ("truncated in the signature", |rdb| rdb.truncate(4)),
    ("a bad checksum", |rdb| *rdb.last_mut().expect("a file with bytes in it") ^= 1),
];

/// A server that saves its data at shutdown.
fn saving(builder: ServerBuilder, folder: &Path) -> ServerBuilder {
    builder.arg("save", "3600 1").data_dir(folder)
}

/// Starts a server with a damaged file. Returns whether it started. The server must not change the file.
fn starts(builder: ServerBuilder, folder: &Path, damaged: &[u8], case: &str) -> bool {
    let file = folder.join("dump.rdb");
    fs::write(&file, damaged).expect("the data folder is writable");
    let started = saving(builder, folder).try_start();
    let has_started = started.is_ok();
    // A server that started empty overwrites the file with an empty data set when it ends.
    if let Ok(mut server) = started {
        server.shutdown();
    }
    assert_eq!(fs::read(&file).expect("the file is there"), damaged, "{case}: the server changed the file");
    has_started
}

#[test]
fn an_unreadable_rdb_prevents_a_node_from_starting_like_a_plain_server() {
    let (plain, node) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut server = saving(Server::builder().without_module(), plain.path()).start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
    assert_eq!(wire.call_strs("SET precious data"), Answer::ok());
    server.shutdown();
    let plain_rdb = fs::read(plain.path().join("dump.rdb")).expect("the plain server has saved");

    // A node that has granted a lock, with an RDB of its own.
    let mut server = saving(Server::builder(), node.path()).start();
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 60000"));
    // Database 1 comes later in the file, so that the file does not end with the lock.
    assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
    assert_eq!(wire.call_strs("SET precious data"), Answer::ok());
    server.shutdown();
    let own_rdb = fs::read(node.path().join("dump.rdb")).expect("the node has saved");

    for (case, damage) in DAMAGES {
        let mut damaged = plain_rdb.clone();
        damage(&mut damaged);
        assert!(!starts(Server::builder().without_module(), plain.path(), &damaged, case), "plain: {case}");
        assert!(!starts(Server::builder(), node.path(), &damaged, case), "with the module: {case}");
        let mut damaged = own_rdb.clone();
        damage(&mut damaged);
        assert!(!starts(Server::builder(), node.path(), &damaged, case), "the node's own file: {case}");
    }
    // The control: the same files without the damage are loaded.
    for rdb in [&plain_rdb, &own_rdb] {
        fs::write(node.path().join("dump.rdb"), rdb).expect("the data folder is writable");
        let server = saving(Server::builder(), node.path()).start();
        let mut wire = server.connect();
        assert_eq!(wire.call_strs("SELECT 1"), Answer::ok());
        assert_eq!(wire.call_strs("GET precious"), Answer::text("data"));
    }
}
