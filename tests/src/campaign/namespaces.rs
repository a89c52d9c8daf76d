//! Machines of their own, as far as the network is concerned: namespaces around one bridge.
//!
//! Each namespace belongs to a process that does nothing else. When the test ends, however it ends, the
//! kernel ends those processes, and networks, cables and bridge go with them; the machine's own network is
//! never touched.

use crate::spawn;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Some hosts around one bridge.
#[derive(Debug)]
pub struct VirtualNetwork {
    /// Keeps the bridge.
    _hub: Namespace,
    /// The hosts in order.
    pub hosts: Vec<Host>,
}

/// A host with one cable to the bridge.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    address: String,
    tools: TempDir,
}

#[derive(Debug)]
struct Namespace {
    keeper: Child,
}

impl VirtualNetwork {
    /// Lays the cables between so many hosts. Nothing if this machine does not allow it.
    #[must_use]
    pub fn create(hosts: u8) -> Option<Self> {
        let hub = Namespace::new()?;
        let is_laid = hub.run("ip link add hub type bridge") && hub.run("ip link set hub up");
        let hosts = (1..=hosts).map(|number| Host::join(&hub, number)).collect::<Option<Vec<_>>>();
        is_laid.then_some(Self { _hub: hub, hosts: hosts? })
    }
}

impl Host {
    fn join(hub: &Namespace, number: u8) -> Option<Self> {
        let namespace = Namespace::new()?;
        let (cable, keeper) = (format!("host{number}"), namespace.keeper.id());
        let address = format!("10.77.0.{number}");
        let is_joined = hub.run(&format!("ip link add {cable} type veth peer name eth0 netns {keeper}"))
            && hub.run(&format!("ip link set {cable} master hub up"))
            && namespace.run("ip link set lo up")
            && namespace.run(&format!("ip address add {address}/24 dev eth0"))
            && namespace.run("ip link set eth0 up");
        let tools = TempDir::new().ok()?;
        is_joined.then_some(Self { namespace, address, tools })
    }

    /// Where others reach it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A command that runs `program` on this host.
    #[must_use]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.namespace.option()).arg(program.as_ref());
        command
    }

    /// A program that becomes `program` on this host, for whoever takes a program and no command.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn program(&self, program: &str) -> PathBuf {
        let path = self.tools.path().join("program");
        let script = format!("#!/bin/sh\nexec nsenter {} {program} \"$@\"\n", self.namespace.option());
        fs::write(&path, script).expect("a folder of ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of ours");
        path
    }

    /// Pulls the cable.
    pub fn link_down(&self) {
        self.run_or_panic("ip link set eth0 down");
    }

    /// Puts the cable back.
    pub fn link_up(&self) {
        self.run_or_panic("ip link set eth0 up");
    }

    /// Sends nothing to another host any more; what that one sends still arrives.
    pub fn block_sends_to(&self, other: &Host) {
        self.run_or_panic(&format!("ip route add blackhole {}/32", other.address));
    }

    /// Sends to the other host again.
    pub fn unblock_sends_to(&self, other: &Host) {
        self.run_or_panic(&format!("ip route delete blackhole {}/32", other.address));
    }

    /// Sends no more than so many kilobits in a second. The queue before that is so short that it overflows
    /// and packets are lost. Tells whether the kernel can do that.
    #[must_use]
    pub fn limit_rate(&self, kilobits: u32) -> bool {
        let bucket = format!("tc qdisc add dev eth0 root tbf rate {kilobits}kbit burst 1600 limit 500");
        self.namespace.run(&bucket)
    }

    /// How many packets the narrow way has lost so far.
    ///
    /// # Panics
    /// When the kernel does not tell.
    #[must_use]
    pub fn dropped_by_rate_limit(&self) -> u64 {
        let mut tc = self.command("tc");
        let output = tc.args(["-s", "qdisc", "show", "dev", "eth0"]).output().expect("tc tells");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = text.split("dropped ").nth(1).and_then(|rest| rest.split([',', ' ']).next());
        count.and_then(|digits| digits.parse().ok()).expect("a count of packets")
    }

    /// Loses so many of a hundred packets that it sends, as chance will have it. Tells whether the kernel can do that.
    #[must_use]
    pub fn drop_packets(&self, percent: u8) -> bool {
        // In words: what nft reads as one argument has spaces in it.
        let rule = format!("numgen random mod 100 < {percent} counter drop");
        let nft = |text: &str| self.command("nft").arg(text).status().is_ok_and(|status| status.success());
        nft("add table ip loss")
            && nft("add chain ip loss out { type filter hook output priority 0; }")
            && nft(&format!("add rule ip loss out {rule}"))
    }

    /// How many packets [`Host::drop_packets`] has lost so far.
    ///
    /// # Panics
    /// When the kernel does not tell.
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        let output = self.command("nft").args(["list", "table", "ip", "loss"]).output().expect("nft tells");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = text.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|digits| digits.parse().ok()).expect("a count of packets")
    }

    /// Loses nothing any more.
    pub fn stop_dropping_packets(&self) {
        self.run_or_panic("nft delete table ip loss");
    }

    /// Sends as fast as ever.
    pub fn remove_rate_limit(&self) {
        self.run_or_panic("tc qdisc delete dev eth0 root");
    }

    fn run_or_panic(&self, line: &str) {
        assert!(self.namespace.run(line), "{line} does not work on {}", self.address);
    }
}

impl Namespace {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = spawn::spawn(command).ok()?;
        // Once it hands something back it is where it should be.
        let is_there = echoes(&mut keeper);
        let namespace = Self { keeper };
        is_there.then_some(namespace)
    }

    fn option(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.keeper.id())
    }

    fn run(&self, line: &str) -> bool {
        let mut command = Command::new("nsenter");
        command.arg(self.option()).args(line.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Whether `cat` runs.
fn echoes(cat: &mut Child) -> bool {
    use std::io::{Read, Write};
    let (Some(input), Some(output)) = (cat.stdin.as_mut(), cat.stdout.as_mut()) else { return false };
    input.write_all(b".").is_ok() && output.read_exact(&mut [0]).is_ok()
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
