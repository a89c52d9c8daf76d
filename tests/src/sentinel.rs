//! A sentinel: it watches masters, and promotes a replica when a master is down.

use crate::port::Port;
use crate::{Answer, Server, Wire, eventually, locate, spawn, within};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The deadline for the start of a sentinel and for a failover. A sentinel that was held up for two seconds,
/// for example by a slow disk, does nothing for the next 30 s (its tilt mode).
const DEADLINE: Duration = Duration::from_secs(120);

/// A running sentinel that decides alone. Dropping it kills the process.
#[derive(Debug)]
pub struct Sentinel {
    child: Child,
    home: TempDir,
    port: Port,
}

impl Sentinel {
    /// Starts a sentinel that watches no master yet.
    ///
    /// # Panics
    /// When it does not come up. The message has its log.
    #[must_use]
    pub fn start() -> Self {
        let home = tempfile::Builder::new().prefix("rl-").tempdir().expect("a folder for the sentinel");
        let port = Port::reserve();
        let socket = Server::socket_in(home.path());
        let config = format!(
            "dir \"{}\"\nunixsocket \"{}\"\nbind 127.0.0.1\nport {}\n",
            home.path().display(),
            socket.display(),
            port.number()
        );
        // The sentinel stores its state in this file.
        let file = home.path().join("sentinel.conf");
        fs::write(&file, config).expect("the sentinel's folder is writable");
        let log = File::create(home.path().join("log")).expect("the sentinel's log can be written");
        let mut command = Command::new(locate::server_binary());
        command.arg(file).arg("--sentinel").stdin(Stdio::null());
        command.stderr(log.try_clone().expect("a log file can be shared")).stdout(log);
        let child = spawn::spawn(command).expect("a sentinel can be started");
        let sentinel = Self { child, home, port };
        let is_up = within(DEADLINE, || {
            let answer = Wire::connect(&sentinel.socket()).ok()?.try_call(&["PING"]).ok()?;
            (answer == Answer::Status("PONG".into())).then_some(())
        });
        assert!(is_up.is_some(), "the sentinel did not come up:\n{}", sentinel.log());
        sentinel
    }

    fn socket(&self) -> PathBuf {
        Server::socket_in(self.home.path())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// The address of the sentinel, for a client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// When the sentinel does not accept it.
    #[must_use]
    pub fn connect(&self) -> Wire {
        Wire::connect(&self.socket()).expect("a running sentinel accepts connections")
    }

    /// Watches a master under a name, instead of the server that had the name before.
    ///
    /// # Panics
    /// When the master has no TCP port, or the sentinel refuses.
    pub fn watch(&self, name: &str, master: &Server) {
        let port = master.port().expect("a master that was started with .tcp()");
        let mut wire = self.connect();
        // An error if the name is unknown, which does no harm.
        wire.call(&["SENTINEL", "REMOVE", name]);
        let watched = wire.call_strs(&format!("SENTINEL MONITOR {name} 127.0.0.1 {port} 1"));
        assert_eq!(watched, Answer::ok());
    }

    /// Fails over to the replica of a master, and waits until the sentinel names it as the master.
    ///
    /// # Panics
    /// At the deadline.
    pub fn fail_over(&self, name: &str) {
        let before = self.master(name);
        // The sentinel refuses until it has discovered the replica.
        eventually("the sentinel begins a failover", DEADLINE, || {
            let answer = self.connect().call(&["SENTINEL", "FAILOVER", name]);
            (answer == Answer::ok()).then_some(())
        });
        eventually("the sentinel names another master", DEADLINE, || {
            (self.master(name) != before).then_some(())
        });
    }

    /// Suspends the process.
    pub fn pause(&self) {
        spawn::signal(self.child.id(), libc::SIGSTOP);
    }

    /// The port of the master of that name, as the sentinel tells its clients.
    #[must_use]
    pub fn master(&self, name: &str) -> Option<u16> {
        let answer = self.connect().call(&["SENTINEL", "get-master-addr-by-name", name]);
        match answer {
            Answer::List(items) => items.get(1)?.string().parse().ok(),
            _ => None,
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the sentinel:\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
