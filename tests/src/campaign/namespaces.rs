//! A virtual network: network namespaces that act as hosts, connected by one bridge.
//!
//! An idle process keeps each namespace open. When the test ends, in any way, the kernel kills those processes and
//! removes the namespaces, the links and the bridge. The machine's own network is never changed.

use crate::spawn;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Hosts that one bridge connects.
#[derive(Debug)]
pub struct VirtualNetwork {
    /// Keeps the bridge.
    _hub: Namespace,
    /// The hosts in order.
    pub hosts: Vec<Host>,
}

/// A host with one link to the bridge.
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
    /// Creates a network of this many hosts. `None` if this machine does not allow it.
    #[must_use]
    pub fn create(hosts: u8) -> Option<Self> {
        let hub = Namespace::new()?;
        let is_up = hub.run("ip link add hub type bridge") && hub.run("ip link set hub up");
        let hosts = (1..=hosts).map(|number| Host::join(&hub, number)).collect::<Option<Vec<_>>>();
        is_up.then_some(Self { _hub: hub, hosts: hosts? })
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

    /// The IP address of the host.
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

    /// Writes a script that runs `program` on this host, for callers that need a path instead of a command.
    ///
    /// # Panics
    /// When the script cannot be written.
    #[must_use]
    pub fn program(&self, program: &str) -> PathBuf {
        let path = self.tools.path().join("program");
        let script = format!("#!/bin/sh\nexec nsenter {} {program} \"$@\"\n", self.namespace.option());
        fs::write(&path, script).expect("the script can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .expect("the script can be made executable");
        path
    }

    /// Takes the host's link down.
    pub fn link_down(&self) {
        self.run_or_panic("ip link set eth0 down");
    }

    /// Takes the host's link up.
    pub fn link_up(&self) {
        self.run_or_panic("ip link set eth0 up");
    }

    /// Discards everything that this host sends to another. The other direction still works.
    pub fn block_sends_to(&self, other: &Host) {
        self.run_or_panic(&format!("ip route add blackhole {}/32", other.address));
    }

    /// Undoes [`Host::block_sends_to`].
    pub fn unblock_sends_to(&self, other: &Host) {
        self.run_or_panic(&format!("ip route delete blackhole {}/32", other.address));
    }

    /// Limits the rate at which this host sends, in kilobits per second. The queue is short, so packets are lost.
    /// Returns whether the kernel supports it.
    #[must_use]
    pub fn limit_rate(&self, kilobits: u32) -> bool {
        let bucket = format!("tc qdisc add dev eth0 root tbf rate {kilobits}kbit burst 1600 limit 500");
        self.namespace.run(&bucket)
    }

    /// How many packets [`Host::limit_rate`] has dropped so far.
    ///
    /// # Panics
    /// When the kernel does not report it.
    #[must_use]
    pub fn dropped_by_rate_limit(&self) -> u64 {
        let mut tc = self.command("tc");
        let output = tc.args(["-s", "qdisc", "show", "dev", "eth0"]).output().expect("tc runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = text.split("dropped ").nth(1).and_then(|rest| rest.split([',', ' ']).next());
        count.and_then(|digits| digits.parse().ok()).expect("a packet count")
    }

    /// Drops a random share of the packets that this host sends, in percent. Returns whether the kernel supports it.
    #[must_use]
    pub fn drop_packets(&self, percent: u8) -> bool {
        // nft reads a whole command from one argument.
        let rule = format!("numgen random mod 100 < {percent} counter drop");
        let nft = |text: &str| self.command("nft").arg(text).status().is_ok_and(|status| status.success());
        nft("add table ip loss")
            && nft("add chain ip loss out { type filter hook output priority 0; }")
            && nft(&format!("add rule ip loss out {rule}"))
    }

    /// How many packets [`Host::drop_packets`] has dropped so far.
    ///
    /// # Panics
    /// When the kernel does not report it.
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        let output = self.command("nft").args(["list", "table", "ip", "loss"]).output().expect("nft runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = text.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|digits| digits.parse().ok()).expect("a packet count")
    }

    /// Undoes [`Host::drop_packets`].
    pub fn stop_dropping_packets(&self) {
        self.run_or_panic("nft delete table ip loss");
    }

    /// Undoes [`Host::limit_rate`].
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
        // Once `cat` echoes a byte, it runs in its namespace.
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

/// Whether `cat` echoes a byte.
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
