//! A disk that is full or cannot be written: a node that cannot remember does not grant, and says so.
//!
//! Each server has a small disk of its own in its `dir`, made in a mount namespace that ends with it.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, FakeClock, Server, ServerBuilder, Wire, granted, skip};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const NAME: &str = "redlock.state";

/// A way to start servers on a disk of this many KiB.
struct SmallDisk {
    /// Where the disk is mounted, seen from the server.
    dir: TempDir,
    /// Holds the program that mounts the disk and becomes the server.
    tools: TempDir,
}

impl SmallDisk {
    /// What `set_up` does in the new disk, as shell, happens before the server starts. Nothing if this
    /// machine does not let the test mount a disk.
    fn new(kib: u32, set_up: &str) -> Option<Self> {
        let disk = Self { dir: tempdir(), tools: tempdir() };
        let mount = format!("mount -t tmpfs -o size={kib}k tmpfs '{}'", disk.dir.path().display());
        let Some(unshare) = ["unshare --mount", "unshare --mount --map-root-user"]
            .into_iter()
            .find(|unshare| shell(&format!("{unshare} {mount}")))
        else {
            skip("a disk cannot be mounted here (needs `unshare --mount`)");
            return None;
        };
        let server = std::env::var("REDLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
        // The server keeps the number of the process that was started: every step becomes the next.
        let steps = format!("{mount} && cd '{}' && {{ {set_up}; }}", disk.dir.path().display());
        let script = format!(
            "#!/bin/sh\nexec {unshare} /bin/sh -c '{}; exec \"{server}\" \"$@\"' server \"$@\"\n",
            steps.replace('\'', "'\\''"),
        );
        let program = disk.program();
        fs::write(&program, script).expect("a folder can be written to");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .expect("a file can be made a program");
        Some(disk)
    }

    fn builder(&self) -> ServerBuilder {
        Server::builder().binary(self.program()).data_dir(self.dir.path())
    }

    fn program(&self) -> PathBuf {
        self.tools.path().join("server")
    }

    /// The disk of a running server, seen from here.
    fn seen_through(&self, server: &Server) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
        root.join(self.dir.path().strip_prefix("/").expect("a folder's path from the root"))
    }
}

fn tempdir() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn shell(line: &str) -> bool {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Writes until there is no room for one byte more.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut file = File::create(&path).expect("an empty file needs no room");
    while file.write_all(&[0; 512]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
    path
}

/// All that a client can tell of a node and two of its keys.
fn everything(wire: &mut Wire) -> Vec<Answer> {
    ["REDLOCK.NODE", "REDLOCK.INSPECT held", "REDLOCK.INSPECT free", "DBSIZE"]
        .map(|line| wire.call_strs(line))
        .into()
}

/// Requests that need to be remembered: a longer time, or numbers above those put aside.
const UNHEARD_OF: [&str; 8] = [
    "REDLOCK.ACQUIRE free other 5000",
    "REDLOCK.ACQUIRE free other 1000 FENCE 9000000",
    "REDLOCK.ACQUIRE held me 5000",
    "REDLOCK.EXTEND held me 5000",
    "REDLOCK.EXTEND held me 1000 FENCE 9000000",
    "REDLOCK.MACQUIRE 2 free another other 5000",
    "REDLOCK.MACQUIRE 1 held me 5000",
    "REDLOCK.MEXTEND 1 held me 5000",
];

#[test]
fn a_full_disk_stops_what_must_be_remembered_and_nothing_else() {
    let Some(disk) = SmallDisk::new(64, "true") else { return };
    let clock = FakeClock::new();
    clock.freeze_module();
    let server = disk.builder().clock(&clock).start();
    let mut wire = server.connect();
    let held = granted(&wire.call_strs("REDLOCK.ACQUIRE held me 1000"));
    let folder = disk.seen_through(&server);
    let stored = fs::read(folder.join(NAME)).expect("the state file is on the small disk");

    let filler = fill(&folder);
    let before = everything(&mut wire);
    for round in 0..3 {
        for line in UNHEARD_OF {
            let answer = wire.call_strs(line);
            assert_eq!(answer.error_word(), Some("REDLOCKSTATE"), "{line}, round {round}: {answer:?}");
            assert_eq!(everything(&mut wire), before, "{line}, round {round}");
        }
    }
    assert_eq!(fs::read(folder.join(NAME)).expect("the state file"), stored, "the old one is whole");
    let log = server.log();
    let complaints = log.lines().filter(|line| line.contains(NAME) && line.contains("cannot be written"));
    assert_eq!(complaints.count(), 1, "said once, not for every request: {log}");
    assert!(log.lines().any(|line| line.contains(NAME) && line.contains("make room")), "{log}");

    // What was remembered before is enough for these.
    assert_eq!(wire.call_strs("REDLOCK.EXTEND held me 1000"), Answer::Int(held));
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE usual me 1000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE usual me FENCE 9000000"), Answer::Int(1), "a wish, no more");
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE usual me 1000")) > fence);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE held me"), Answer::Int(1));

    fs::remove_file(filler).expect("a file can be removed");
    let next = granted(&wire.call_strs("REDLOCK.ACQUIRE held other 5000 FENCE 9000000"));
    assert_eq!(next, 9_000_000);
    assert!(server.log().lines().any(|line| line.contains(NAME) && line.contains("can be written again")));

    // A crash now forgets neither the new fence nor the new lease.
    let stored = fs::read_to_string(folder.join(NAME)).expect("the state file");
    let number = |name: &str| {
        let value = stored.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<i64>().ok());
        value.unwrap_or_else(|| panic!("no {name} in {stored}"))
    };
    assert!(number("high-water") > next, "{stored}");
    assert!(number("longest-lease-ms") >= 5000, "{stored}");
}

#[test]
fn a_disk_that_is_full_from_the_start_keeps_the_server_from_starting() {
    let Some(disk) = SmallDisk::new(4, "head -c 4096 /dev/zero > filler") else { return };
    let Err(failure) = disk.builder().try_start() else { panic!("nothing could be stored") };
    let clear = |line: &str| line.contains(NAME) && line.contains("cannot be written");
    assert!(failure.log.lines().any(clear), "{failure}");
}

#[test]
fn a_disk_that_cannot_be_written_keeps_the_server_from_starting() {
    let Some(disk) = SmallDisk::new(64, "mount -o remount,ro .") else { return };
    let Err(failure) = disk.builder().try_start() else { panic!("nothing could be stored") };
    let clear = |line: &str| line.contains(NAME) && line.contains("write to its dir");
    assert!(failure.log.lines().any(clear), "{failure}");
}
