//! Nodes whose disks are full, fail or are slow. A node grants no lock if it cannot store what it must remember, and
//! a majority of healthy nodes is enough.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::campaign::{Campaign, EndPolicy, Violation, Workload, now_ns};
use redlock_tests::{
    Answer, Fleet, SOON, Server, ServerBuilder, SyscallFault, eventually, granted, signal, skip,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

/// A program that mounts a disk of 64 KiB on the server's data directory and then runs the server. `None` if the
/// test may not mount a disk on this machine.
fn small_disk_server(folder: &Path) -> Option<PathBuf> {
    let unshare = ["unshare --mount", "unshare --mount --map-root-user"].into_iter().find(|unshare| {
        let line = format!("{unshare} mount -t tmpfs tmpfs '{}'", folder.display());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().is_ok_and(|status| status.success())
    })?;
    let server = std::env::var("REDLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
    // The script reads the data directory from the configuration file, its first argument.
    let script = format!(
        r#"#!/bin/sh
exec {unshare} /bin/sh -c '
dir=$(sed -n "s/^dir \"\(.*\)\"$/\1/p" "$1")
mount -t tmpfs -o size=64k tmpfs "$dir" && exec "{server}" "$@"' server "$@"
"#
    );
    let program = folder.join("server");
    fs::write(&program, script).expect("the test may write to its folder");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the test owns the file");
    Some(program)
}

/// The path of a file on a running server's small disk, in the namespace of the test.
fn filler(node: &Server) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", node.pid()));
    root.join(node.data_dir().strip_prefix("/").expect("an absolute path")).join("filler")
}

/// Writes until the disk has no byte left.
fn fill(node: &Server) {
    let mut file = File::create(filler(node)).expect("an empty file needs no space");
    while file.write_all(&[0; 512]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
}

fn make_room(node: &Server) {
    fs::remove_file(filler(node)).expect("the test has created this file");
}

/// A request for a lock that lasts longer than all locks before it, so that the node must store its time to live.
fn longer_one(round: usize) -> String {
    format!("REDLOCK.ACQUIRE longer me {}", 10_000 << round)
}

/// Asserts that the node refuses a lock that it cannot store.
fn must_refuse_longer_ones(node: &Server, round: usize) {
    let answer = node.connect().call_strs(&longer_one(round));
    assert_eq!(answer.error_word(), Some("REDLOCKSTATE"), "{answer:?}");
}

/// Asserts that the node grants the same request when the disk works: the refusal had no other reason.
fn must_grant_longer_ones(node: &Server, round: usize) {
    let mut wire = node.connect();
    granted(&wire.call_strs(&longer_one(round)));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE longer me"), Answer::Int(1));
}

#[test]
fn nodes_with_full_disks() {
    let tools = TempDir::new().expect("a folder");
    let Some(program) = small_disk_server(tools.path()) else {
        return skip("this machine does not let the test mount a disk (needs `unshare --mount`)");
    };
    let fleet = Fleet::start_with(5, |_, node| node.binary(&program));
    // No node has granted a lock yet, so each must store its first grant.
    (0..3).for_each(|node| fill(&fleet[node]));
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.count_fault();
    campaign.wait_for_failures(None, 9);
    assert_eq!(campaign.holds(), 0, "three of five nodes cannot store what they grant");
    assert!((0..3).all(|node| fleet[node].log().contains("cannot be written")), "the nodes log the reason");
    make_room(&fleet[0]);
    campaign.wait_for_holds_by_each(5);
    (1..3).for_each(|node| make_room(&fleet[node]));
    campaign.wait_for_holds_by_each(3);
    // From now on a node must store only locks that last longer than those before.
    for (round, group) in [[0, 1], [2, 3], [4, 0]].into_iter().enumerate() {
        group.iter().for_each(|node| fill(&fleet[*node]));
        campaign.count_fault();
        group.iter().for_each(|node| must_refuse_longer_ones(&fleet[*node], round));
        campaign.wait_for_holds_by_each(3);
        group.iter().for_each(|node| make_room(&fleet[*node]));
        group.iter().for_each(|node| must_grant_longer_ones(&fleet[*node], round));
    }
    campaign.finish(&fleet).assert_clean("full disks");
}

/// The system calls that write a file to the disk.
const SYNCS: &str = "fsync,fdatasync";

#[test]
fn nodes_with_failing_disks() {
    let fleet = Fleet::start(5);
    let fail = |node: usize| SyscallFault::inject(&fleet[node], SYNCS, "error=EIO");
    // No node has granted a lock yet, so each must store its first grant.
    let failing: Vec<_> = (0..3).filter_map(fail).collect();
    if failing.len() < 3 {
        return skip(
            "the test cannot inject faults into system calls (needs strace, and permission to trace)",
        );
    }
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.count_fault();
    campaign.wait_for_failures(None, 9);
    assert_eq!(campaign.holds(), 0, "three of five nodes cannot store what they grant");
    assert!((0..3).all(|node| fleet[node].log().contains("cannot be written")), "the nodes log the reason");
    drop(failing);
    campaign.wait_for_holds_by_each(3);
    for node in 0..5 {
        let failing = fail(node).expect("strace worked a moment ago");
        campaign.count_fault();
        must_refuse_longer_ones(&fleet[node], 0);
        campaign.wait_for_holds_by_each(3);
        drop(failing);
        must_grant_longer_ones(&fleet[node], 0);
    }
    campaign.finish(&fleet).assert_clean("failing disks");
}

/// Kills a majority of the nodes while their disks are slow. Returns how many of these nodes had granted a lock that
/// is not in their files; `None` if the test cannot inject faults into system calls.
fn kill_on_slow_disks(fleet: &mut Fleet, campaign: &mut Campaign, nodes: [usize; 3]) -> Option<usize> {
    let slow: Option<Vec<_>> =
        nodes.iter().map(|node| SyscallFault::inject(&fleet[*node], SYNCS, "delay_enter=5s")).collect();
    let slow = slow?;
    // While the server syncs, it defers its writes but not its replies.
    for node in nodes {
        let mut wire = fleet[node].connect();
        let mut number = 0;
        eventually("a grant is not in the file", SOON * 3, || {
            number += 1;
            granted(&wire.call_strs(&format!("REDLOCK.ACQUIRE probe-{number} me 100")));
            (!is_written(&fleet[node], &format!("probe-{number}"))).then_some(())
        });
    }
    campaign.wait_for_holds(4);
    let last = format!("last-{}", now_ns());
    for node in nodes {
        granted(&fleet[node].connect().call_strs(&format!("REDLOCK.ACQUIRE {last} me 100")));
        // The test does not wait for the end of the process: a traced process stays until strace ends.
        signal(fleet[node].pid(), libc::SIGKILL);
    }
    drop(slow);
    let lost = AtomicUsize::new(0);
    fleet.crash_and(&nodes, |node| {
        lost.fetch_add(usize::from(!is_written(node, &last)), Relaxed);
    });
    campaign.count_fault();
    Some(lost.into_inner())
}

/// Makes every node store the longest time to live beforehand. Otherwise the grants of the campaign would wait for
/// the slow disk.
fn grant_the_longest(fleet: &Fleet, work: &Workload) {
    for node in fleet.iter() {
        granted(&node.connect().call_strs(&format!("REDLOCK.ACQUIRE longest me {}", work.ttl.as_millis())));
    }
}

/// Whether the append-only file of a node contains a word.
fn is_written(node: &Server, word: &str) -> bool {
    let files = fs::read_dir(node.data_dir().join("appendonlydir"))
        .expect("the server has append-only files")
        .flatten();
    let word = format!("\r\n{word}\r\n");
    let mut texts = files.map(|file| fs::read(file.path()).expect("a file of the server"));
    texts.any(|text| text.windows(word.len()).any(|part| part == word.as_bytes()))
}

fn everysec(node: ServerBuilder) -> ServerBuilder {
    node.arg("appendonly", "yes").arg("appendfsync", "everysec")
}

#[test]
fn nodes_killed_while_their_disks_are_slow() {
    let mut fleet = Fleet::start_with(5, |_, node| everysec(node));
    let work = Workload::default();
    grant_the_longest(&fleet, &work);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.wait_for_holds_by_each(2);
    let mut lost = 0;
    for nodes in [[0, 1, 2], [2, 3, 4]] {
        let Some(lost_now) = kill_on_slow_disks(&mut fleet, &mut campaign, nodes) else {
            drop(campaign.finish(&fleet));
            return skip(
                "the test cannot inject faults into system calls (needs strace, and permission to trace)",
            );
        };
        lost = lost.max(lost_now);
        campaign.wait_for_holds_by_each(2);
    }
    assert_eq!(lost, 3, "a majority of the nodes has forgotten a lock that it granted");
    campaign.finish(&fleet).assert_clean("kill -9 while the disk is slow");
}

#[test]
fn control_nodes_killed_while_their_disks_are_slow_without_the_wait() {
    let forgetful = |_, node: ServerBuilder| everysec(node).module_args(["restart-grace", "off"]);
    let mut fleet = Fleet::start_with(5, forgetful);
    if SyscallFault::inject(&fleet[0], SYNCS, "delay_enter=1ms").is_none() {
        return skip(
            "the test cannot inject faults into system calls (needs strace, and permission to trace)",
        );
    }
    // Each node writes its grants every two seconds even if the disk is slow, at its own moment. For all
    // three to forget the same lock, clients acquire many locks all the time and rely on them until they
    // expire.
    let ends = EndPolicy::AllAbandoned;
    let work = Workload { ttl: Duration::from_secs(5), tasks: 12, keys: 40, ends, ..Workload::default() };
    grant_the_longest(&fleet, &work);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.wait_for_holds_by_each(1);
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| {
        let lost = kill_on_slow_disks(&mut fleet, campaign, [0, 2, 4]);
        assert!(lost.is_some(), "strace worked a moment ago");
        campaign.wait_for_holds(8);
    });
}
