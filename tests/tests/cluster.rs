//! A server with `cluster-enabled yes`: the module refuses to load, and the server's log says why.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::Server;
use std::fs;

#[test]
fn a_cluster_enabled_server_refuses_the_module() {
    let folder = tempfile::tempdir().expect("a data folder");
    let server = Server::builder().cluster().data_dir(folder.path());
    let refused = server.try_start().expect_err("a server with cluster-enabled yes");
    let line = refused.log.lines().find(|line| line.contains("not loaded: this server is cluster-enabled"));
    let line = line.unwrap_or_else(|| panic!("{}", refused.log));
    for part in ["Fences do not move with slots", "refuses slot migration", "cluster-enabled no"] {
        assert!(line.contains(part), "{line}");
    }
    let files = fs::read_dir(folder.path()).expect("the data folder");
    let names: Vec<_> = files.map(|file| file.expect("a file").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("redlock")), "{names:?}");
}
