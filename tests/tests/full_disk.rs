//! A disk that is full or read-only: a node that cannot store its durable state refuses to grant, and logs why.
//!
//! Each server has a small disk of its own as its `dir`, in a mount namespace that ends with the server.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, FakeClock, Server, ServerBuilder, Wire, granted, skip};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const NAME: &str = "redlock.state";

/// Starts servers on a small tmpfs disk.
struct SmallDisk {
    /// The mount point of the disk, in the namespace of the server.
    dir: TempDir,
    /// Contains the script that mounts the disk and then runs the server.
    tools: TempDir,
}

impl SmallDisk {
    /// A disk of `kib` KiB. The shell command `set_up` runs on the disk before the server starts. `None` if the
    /// test may not mount a disk on this machine.
    fn new(kib: u32, set_up: &str) -> Option<Self> {
        let disk = Self { dir: tempdir(), tools: tempdir() };
        let mount = format!("mount -t tmpfs -o size={kib}k tmpfs '{}'", disk.dir.path().display());
        let Some(unshare) = ["unshare --mount", "unshare --mount --map-root-user"]
            .into_iter()
            .find(|unshare| shell(&format!("{unshare} {mount}")))
        else {
            skip("this machine does not let the test mount a disk (needs `unshare --mount`)");
            return None;
        };
        let server = std::env::var("REDLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
        // Each step replaces its process by the next, so the server has the process id of the script.
        let steps = format!("{mount} && cd '{}' && {{ {set_up}; }}", disk.dir.path().display());
        let script = format!(
            "#!/bin/sh\nexec {unshare} /bin/sh -c '{}; exec \"{server}\" \"$@\"' server \"$@\"\n",
            steps.replace('\'', "'\\''"),
        );
        let program = disk.program();
        fs::write(&program, script).expect("the folder is writable");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .expect("the file can be made executable");
        Some(disk)
    }

    fn builder(&self) -> ServerBuilder {
        Server::builder().binary(self.program()).data_dir(self.dir.path())
    }

    fn program(&self) -> PathBuf {
        self.tools.path().join("server")
    }

    /// The path of a running server's disk, in the namespace of the test.
    fn seen_through(&self, server: &Server) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
        root.join(self.dir.path().strip_prefix("/").expect("an absolute path"))
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

/// Writes until the disk has no byte left.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut file = File::create(&path).expect("an empty file needs no space");
    while file.write_all(&[0; 512]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
    path
}

/// Everything that a client can see of a node and two of its keys.
fn everything(wire: &mut Wire) -> Vec<Answer> {
    ["REDLOCK.NODE", "REDLOCK.INSPECT held", "REDLOCK.INSPECT free", "DBSIZE"]
        .map(|line| wire.call_strs(line))
        .into()
}

/// Requests that the node must store before it grants them: a longer lease, or a fence above the high-water mark.
const MUST_BE_STORED: [&str; 8] = [
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
fn a_full_disk_stops_only_the_requests_that_must_be_stored() {
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
        for line in MUST_BE_STORED {
            let answer = wire.call_strs(line);
            assert_eq!(answer.error_word(), Some("REDLOCKSTATE"), "{line}, round {round}: {answer:?}");
            assert_eq!(everything(&mut wire), before, "{line}, round {round}");
        }
    }
    assert_eq!(fs::read(folder.join(NAME)).expect("the state file"), stored, "the old state file is intact");
    let log = server.log();
    let warnings = log.lines().filter(|line| line.contains(NAME) && line.contains("cannot be written"));
    assert_eq!(warnings.count(), 1, "the node logs it once, not for every request: {log}");
    assert!(log.lines().any(|line| line.contains(NAME) && line.contains("make room")), "{log}");

    // The stored state already covers these requests.
    assert_eq!(wire.call_strs("REDLOCK.EXTEND held me 1000"), Answer::Int(held));
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE usual me 1000"));
    assert_eq!(
        wire.call_strs("REDLOCK.RELEASE usual me FENCE 9000000"),
        Answer::Int(1),
        "a release needs no store"
    );
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE usual me 1000")) > fence);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE held me"), Answer::Int(1));

    fs::remove_file(filler).expect("the file can be removed");
    let next = granted(&wire.call_strs("REDLOCK.ACQUIRE held other 5000 FENCE 9000000"));
    assert_eq!(next, 9_000_000);
    assert!(server.log().lines().any(|line| line.contains(NAME) && line.contains("can be written again")));

    // The state file covers the new fence and the new lease, so a crash forgets neither.
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
    let Err(failure) = disk.builder().try_start() else {
        panic!("the server started although it cannot store its state")
    };
    let is_clear = |line: &str| line.contains(NAME) && line.contains("cannot be written");
    assert!(failure.log.lines().any(is_clear), "{failure}");
}

#[test]
fn a_disk_that_cannot_be_written_keeps_the_server_from_starting() {
    let Some(disk) = SmallDisk::new(64, "mount -o remount,ro .") else { return };
    let Err(failure) = disk.builder().try_start() else {
        panic!("the server started although it cannot store its state")
    };
    let is_clear = |line: &str| line.contains(NAME) && line.contains("write to its dir");
    assert!(failure.log.lines().any(is_clear), "{failure}");
}
