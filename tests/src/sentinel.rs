//! A sentinel: it watches masters, and puts a replica in the place of one that is gone.

use crate::port::Port;
use crate::{Answer, Server, Wire, eventually, locate, spawn, within};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A sentinel that needs longer than this to come up, or to change a master, has hung. It looks at its
/// servers once in a second, at best.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running sentinel, alone in its decisions. Dropping it kills the process.
#[derive(Debug)]
pub struct Sentinel {
    child: Child,
    home: TempDir,
    port: Port,
}

impl Sentinel {
    /// Starts a sentinel that watches nobody yet.
    ///
    /// # Panics
    /// When it does not come up, with its log.
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
        // It writes down in this file what it knows.
        let file = home.path().join("sentinel.conf");
        fs::write(&file, config).expect("the sentinel's folder is writable");
        let log = File::create(home.path().join("log")).expect("the sentinel's log can be written");
        let mut command = Command::new(locate::server_binary());
        command.arg(file).arg("--sentinel").stdin(Stdio::null());
        command.stderr(log.try_clone().expect("a log file can be shared")).stdout(log);
        let child = spawn::spawn(command).expect("a sentinel can be started");
        let sentinel = Self { child, home, port };
        let is_up = within(PATIENCE, || {
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

    /// The address of the sentinel, as a client is given it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// When the sentinel does not take it.
    #[must_use]
    pub fn connect(&self) -> Wire {
        Wire::connect(&self.socket()).expect("a running sentinel takes connections")
    }

    /// Watches a master under a name. If a server was watched under that name before, it is not any more.
    ///
    /// # Panics
    /// When the master has no TCP port, or the sentinel does not want to.
    pub fn watch(&self, name: &str, master: &Server) {
        let port = master.port().expect("a master to be watched is started with .tcp()");
        let mut wire = self.connect();
        // Refused if there is none, which is just as well.
        wire.call(&["SENTINEL", "REMOVE", name]);
        let watched = wire.call_strs(&format!("SENTINEL MONITOR {name} 127.0.0.1 {port} 1"));
        assert_eq!(watched, Answer::ok());
    }

    /// Puts the replica of a master in its place, and waits until that is done.
    ///
    /// # Panics
    /// When the sentinel does not get it done.
    pub fn fail_over(&self, name: &str) {
        let before = self.master(name);
        // A replica has to be found first.
        eventually("the sentinel begins a failover", PATIENCE, || {
            let answer = self.connect().call(&["SENTINEL", "FAILOVER", name]);
            (answer == Answer::ok()).then_some(())
        });
        eventually("the sentinel names another master", PATIENCE, || {
            (self.master(name) != before).then_some(())
        });
    }

    /// Stops the process where it stands.
    pub fn pause(&self) {
        spawn::signal(self.child.id(), libc::SIGSTOP);
    }

    /// The port of the master of that name, as clients are told.
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
