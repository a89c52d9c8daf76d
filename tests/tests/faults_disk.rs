//! Nodes whose disks are full, fail or dawdle: a lock that could not be remembered is not granted, and a majority
//! that can is enough.

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

/// A lock that lasts longer than any before it, and in a later round longer than that.
fn longer_one(round: usize) -> String {
    format!("REDLOCK.ACQUIRE longer me {}", 10_000 << round)
}

/// What a node cannot remember it does not grant.
fn must_refuse_longer_ones(node: &Server, round: usize) {
    let answer = node.connect().call_strs(&longer_one(round));
    assert_eq!(answer.error_word(), Some("REDLOCKSTATE"), "{answer:?}");
}

/// The same request, when there is nothing in its way: or the refusal would have had another reason.
fn must_grant_longer_ones(node: &Server, round: usize) {
    let mut wire = node.connect();
    granted(&wire.call_strs(&longer_one(round)));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE longer me"), Answer::Int(1));
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
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.count_fault();
    campaign.wait_for_failures(None, 9);
    assert_eq!(campaign.holds(), 0, "three of five cannot remember what they grant");
    assert!((0..3).all(|node| fleet[node].log().contains("cannot be written")), "they say why");
    make_room(&fleet[0]);
    campaign.wait_for_holds_by_each(5);
    (1..3).for_each(|node| make_room(&fleet[node]));
    campaign.wait_for_holds_by_each(3);
    // From now on these are known; only longer ones have to be remembered.
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

/// What a server calls to be sure that a file is on the disk.
const SYNCS: &str = "fsync,fdatasync";

#[test]
fn nodes_with_failing_disks() {
    let fleet = Fleet::start(5);
    let fail = |node: usize| SyscallFault::inject(&fleet[node], SYNCS, "error=EIO");
    // Nothing was granted yet, so the first grant of every node has to be remembered.
    let failing: Vec<_> = (0..3).filter_map(fail).collect();
    if failing.len() < 3 {
        return skip("system calls cannot be tampered with here (needs strace, and the right to trace)");
    }
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.count_fault();
    campaign.wait_for_failures(None, 9);
    assert_eq!(campaign.holds(), 0, "three of five cannot remember what they grant");
    assert!((0..3).all(|node| fleet[node].log().contains("cannot be written")), "they say why");
    drop(failing);
    campaign.wait_for_holds_by_each(3);
    for node in 0..5 {
        let failing = fail(node).expect("it could be done a moment ago");
        campaign.count_fault();
        must_refuse_longer_ones(&fleet[node], 0);
        campaign.wait_for_holds_by_each(3);
        drop(failing);
        must_grant_longer_ones(&fleet[node], 0);
    }
    campaign.finish(&fleet).assert_clean("failing disks");
}

/// A majority whose disks dawdle, and that is killed before they are done. Tells how many of these nodes had granted
/// a lock of which their files say nothing; nothing if system calls cannot be tampered with here.
fn kill_while_disks_dawdle(fleet: &mut Fleet, campaign: &mut Campaign, nodes: [usize; 3]) -> Option<usize> {
    let slow: Option<Vec<_>> =
        nodes.iter().map(|node| SyscallFault::inject(&fleet[*node], SYNCS, "delay_enter=5s")).collect();
    let slow = slow?;
    // A server waits with what it writes while it syncs, and does not wait with its answers.
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
        // Not waited for: one that dies in the hands of strace is not gone before strace is.
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

/// Lets every node remember the longest time to live beforehand: whatever has to be remembered first, waits for the disk.
fn grant_the_longest(fleet: &Fleet, work: &Workload) {
    for node in fleet.iter() {
        granted(&node.connect().call_strs(&format!("REDLOCK.ACQUIRE longest me {}", work.ttl.as_millis())));
    }
}

/// Whether the append-only file of a node has a word in it.
fn is_written(node: &Server, word: &str) -> bool {
    let files = fs::read_dir(node.data_dir().join("appendonlydir")).expect("append-only files").flatten();
    let word = format!("\r\n{word}\r\n");
    let mut texts = files.map(|file| fs::read(file.path()).expect("a file of the server"));
    texts.any(|text| text.windows(word.len()).any(|part| part == word.as_bytes()))
}

fn everysec(node: ServerBuilder) -> ServerBuilder {
    node.arg("appendonly", "yes").arg("appendfsync", "everysec")
}

#[test]
fn nodes_killed_while_their_disks_dawdle() {
    let mut fleet = Fleet::start_with(5, |_, node| everysec(node));
    let work = Workload::default();
    grant_the_longest(&fleet, &work);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.wait_for_holds_by_each(2);
    let mut lost = 0;
    for nodes in [[0, 1, 2], [2, 3, 4]] {
        let Some(lost_now) = kill_while_disks_dawdle(&mut fleet, &mut campaign, nodes) else {
            drop(campaign.finish(&fleet));
            return skip("system calls cannot be tampered with here (needs strace, and the right to trace)");
        };
        lost = lost.max(lost_now);
        campaign.wait_for_holds_by_each(2);
    }
    assert_eq!(lost, 3, "a majority has forgotten what it granted");
    campaign.finish(&fleet).assert_clean("kill -9 while the disk dawdles");
}

#[test]
fn control_nodes_killed_while_their_disks_dawdle_without_the_wait() {
    let forgetful = |_, node: ServerBuilder| everysec(node).module_args(["restart-grace", "off"]);
    let mut fleet = Fleet::start_with(5, forgetful);
    if SyscallFault::inject(&fleet[0], SYNCS, "delay_enter=1ms").is_none() {
        return skip("system calls cannot be tampered with here (needs strace, and the right to trace)");
    }
    // Nodes write all that they have granted every two seconds, disk or no disk, each at a moment of its own. So that all
    // three have forgotten the same lock, many are granted all the time, and believed in until they run out.
    let ends = EndPolicy::AllAbandoned;
    let work = Workload { ttl: Duration::from_secs(5), tasks: 12, keys: 40, ends, ..Workload::default() };
    grant_the_longest(&fleet, &work);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.wait_for_holds_by_each(1);
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| {
        let lost = kill_while_disks_dawdle(&mut fleet, campaign, [0, 2, 4]);
        assert!(lost.is_some(), "it could be done a moment ago");
        campaign.wait_for_holds(8);
    });
}
