//! Nodes whose disks are full, fail or dawdle: a lock that could not be remembered is not granted, and a majority
//! that can is enough.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::campaign::{Campaign, Work};
use redlock_tests::{Fleet, Server, Tampered, skip};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const CONTENDER: &str = env!("CARGO_BIN_EXE_contender");

/// A program that mounts a small disk where it is told and becomes the server there. None if this machine
/// does not let the test mount one.
fn small_disk_server(folder: &Path) -> Option<PathBuf> {
    let unshare = ["unshare --mount", "unshare --mount --map-root-user"].into_iter().find(|unshare| {
        let line = format!("{unshare} mount -t tmpfs tmpfs '{}'", folder.display());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().is_ok_and(|status| status.success())
    })?;
    let server = std::env::var("REDLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
    // The configuration says where the server's data goes; every step becomes the next.
    let script = format!(
        r#"#!/bin/sh
exec {unshare} /bin/sh -c '
dir=$(sed -n "s/^dir \"\(.*\)\"$/\1/p" "$1")
mount -t tmpfs -o size=64k tmpfs "$dir" && exec "{server}" "$@"' server "$@"
"#
    );
    let program = folder.join("server");
    fs::write(&program, script).expect("a folder of ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    Some(program)
}

/// A file on a running server's small disk, seen from here.
fn filler(node: &Server) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", node.pid()));
    root.join(node.data_dir().strip_prefix("/").expect("a folder's path from the root")).join("filler")
}

/// Writes until there is no room for one byte more.
fn fill(node: &Server) {
    let mut file = File::create(filler(node)).expect("an empty file needs no room");
    while file.write_all(&[0; 512]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
}

fn make_room(node: &Server) {
    fs::remove_file(filler(node)).expect("a file of ours");
}

#[test]
fn nodes_with_full_disks() {
    let tools = TempDir::new().expect("a folder");
    let Some(program) = small_disk_server(tools.path()) else {
        return skip("a disk cannot be mounted here (needs `unshare --mount`)");
    };
    let fleet = Fleet::start_with(5, |_, node| node.binary(&program));
    // Nothing was granted yet, so the first grant of every node has to be remembered.
    (0..3).for_each(|node| fill(&fleet[node]));
    let mut campaign = Campaign::begin(CONTENDER, &fleet.urls(), Work::default());
    campaign.note_fault();
    campaign.until_failures(None, 9);
    assert_eq!(campaign.holds(), 0, "three of five cannot remember what they grant");
    assert!((0..3).all(|node| fleet[node].log().contains("cannot be written")), "they say why");
    make_room(&fleet[0]);
    campaign.until_all_hold(5);
    (1..3).for_each(|node| make_room(&fleet[node]));
    campaign.until_all_hold(3);
    // From now on these are known; only longer ones would have to be remembered.
    for group in [[0, 1], [2, 3], [4, 0]] {
        group.iter().for_each(|node| fill(&fleet[*node]));
        campaign.note_fault();
        campaign.until_all_hold(3);
        group.iter().for_each(|node| make_room(&fleet[*node]));
    }
    campaign.finish(&fleet).must_be_clean("full disks");
}

/// What a server calls to be sure that a file is on the disk.
const SYNCS: &str = "fsync,fdatasync";

#[test]
fn nodes_with_failing_disks() {
    let fleet = Fleet::start(5);
    let fail = |node: usize| Tampered::with(&fleet[node], SYNCS, "error=EIO");
    // Nothing was granted yet, so the first grant of every node has to be remembered.
    let failing: Vec<_> = (0..3).filter_map(fail).collect();
    if failing.len() < 3 {
        return skip("system calls cannot be tampered with here (needs strace, and the right to trace)");
    }
    let mut campaign = Campaign::begin(CONTENDER, &fleet.urls(), Work::default());
    campaign.note_fault();
    campaign.until_failures(None, 9);
    assert_eq!(campaign.holds(), 0, "three of five cannot remember what they grant");
    assert!((0..3).all(|node| fleet[node].log().contains("cannot be written")), "they say why");
    drop(failing);
    campaign.until_all_hold(3);
    for node in 0..5 {
        let failing = fail(node);
        campaign.note_fault();
        campaign.until_all_hold(3);
        drop(failing);
    }
    campaign.finish(&fleet).must_be_clean("failing disks");
}

#[test]
fn nodes_killed_while_their_disks_dawdle() {
    let mut fleet =
        Fleet::start_with(5, |_, node| node.arg("appendonly", "yes").arg("appendfsync", "everysec"));
    let mut campaign = Campaign::begin(CONTENDER, &fleet.urls(), Work::default());
    for round in 0..10 {
        let node = round % 5;
        // What the server has told its clients reaches the disk long after.
        let Some(slow) = Tampered::with(&fleet[node], SYNCS, "delay_enter=300ms") else {
            drop(campaign.finish(&fleet));
            return skip("system calls cannot be tampered with here (needs strace, and the right to trace)");
        };
        campaign.until_all_hold(2);
        // In this order: one that dies in the hands of strace is not gone before strace is.
        drop(slow);
        fleet[node].kill();
        fleet[node].restart();
        campaign.note_fault();
    }
    campaign.until_all_hold(3);
    campaign.finish(&fleet).must_be_clean("kill -9 while the disk dawdles");
}
