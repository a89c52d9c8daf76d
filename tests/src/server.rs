//! One running server, which ends with the value that stands for it.

use crate::port::Port;
use crate::spawn;
use crate::{Answer, FakeClock, Flavor, SOON, ServerBuilder, Wire, eventually, within};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A server that needs longer than this to come up has hung.
const START: Duration = Duration::from_secs(20);

/// A real server with a folder of its own. Dropping it kills the process and removes the folder.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    home: TempDir,
    data_dir: PathBuf,
    binary: PathBuf,
    clock: Option<FakeClock>,
    access: ServerAccess,
}

/// How a server is reached, apart from its Unix socket.
#[derive(Debug)]
pub(crate) struct ServerAccess {
    pub(crate) tcp: Option<Port>,
    pub(crate) tls: Option<Port>,
    /// Asked of everybody who names no user.
    pub(crate) password: Option<String>,
}

/// A server that did not come up, with what it had to say about it.
#[derive(Debug)]
pub struct StartFailure {
    /// Everything the server wrote to its log.
    pub log: String,
    reason: String,
}

impl Server {
    /// Starts a server with the module loaded and nothing else special.
    ///
    /// # Panics
    /// When the module is missing or the server does not come up; the message says what to do.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts a server whose module sees no time pass but what the test lets pass.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    pub fn start_frozen() -> (Self, FakeClock) {
        let clock = FakeClock::new();
        clock.freeze_module();
        (Self::builder().clock(&clock).start(), clock)
    }

    /// Describes a server that differs from the usual one.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    pub(crate) fn launch(
        home: TempDir,
        data_dir: PathBuf,
        binary: &Path,
        clock: Option<FakeClock>,
        access: ServerAccess,
    ) -> Result<Self, StartFailure> {
        let mut server = Self { child: None, home, data_dir, binary: binary.to_path_buf(), clock, access };
        server.start_process()?;
        Ok(server)
    }

    pub(crate) fn socket_in(home: &Path) -> PathBuf {
        let socket = home.join("s");
        let length = socket.as_os_str().len();
        assert!(
            length <= 107,
            "{} is too long for a socket: set TMPDIR to a shorter folder",
            socket.display()
        );
        socket
    }

    /// Opens a connection that speaks RESP2.
    ///
    /// # Panics
    /// When the server does not take it.
    #[must_use]
    pub fn connect(&self) -> Wire {
        self.try_connect().expect("a running server takes connections")
    }

    fn try_connect(&self) -> io::Result<Wire> {
        let mut wire = Wire::connect(&self.socket())?;
        if let Some(password) = &self.access.password {
            wire.try_call(&["AUTH", password])?;
        }
        Ok(wire)
    }

    /// Opens a connection that speaks RESP3.
    ///
    /// # Panics
    /// When the server does not take it or knows no RESP3.
    #[must_use]
    pub fn connect_resp3(&self) -> Wire {
        let mut wire = self.connect();
        let hello = wire.call(&["HELLO", "3"]);
        assert_eq!(hello.field("proto"), Some(&Answer::Int(3)), "the server speaks RESP3");
        wire
    }

    /// The process that is running now.
    ///
    /// # Panics
    /// When the server was stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running server has a process").id()
    }

    /// The loopback port, of a server that was asked to have one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.access.tcp.as_ref().map(Port::number)
    }

    /// The address on TCP, as a client is given it.
    ///
    /// # Panics
    /// When the server was not asked to listen there.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port().expect("a server on TCP is started with .tcp()"))
    }

    /// The address of the Unix socket, as a client is given it.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The loopback port for TLS, of a server that was asked to have one.
    #[must_use]
    pub fn tls_port(&self) -> Option<u16> {
        self.access.tls.as_ref().map(Port::number)
    }

    /// The Unix socket, which every server has.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        Self::socket_in(self.home.path())
    }

    /// Whether the process still runs, without asking it anything.
    ///
    /// # Panics
    /// When the kernel does not know the process.
    pub fn is_running(&mut self) -> bool {
        let alive = |child: &mut Child| child.try_wait().expect("a child can be waited for").is_none();
        self.child.as_mut().is_some_and(alive)
    }

    /// Everything the server logged so far, over restarts.
    #[must_use]
    pub fn log(&self) -> String {
        // Read as bytes: a server may quote what a client sent.
        let bytes = fs::read(self.home.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where the server keeps its RDB and AOF.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// One field of `INFO section`.
    #[must_use]
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let text = self.connect().call(&["INFO", section]).string();
        text.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_string()))
    }

    /// How often clients have called a command, since the start or the last `CONFIG RESETSTAT`.
    ///
    /// # Panics
    /// When the server does not tell.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        let info = self.connect().call(&["INFO", "commandstats"]).string().to_lowercase();
        let field = format!("cmdstat_{}:calls=", command.to_lowercase());
        let count = info.lines().find_map(|line| line.strip_prefix(&field)?.split(',').next());
        count.map_or(0, |digits| digits.parse().expect("a count of calls"))
    }

    /// Redis or Valkey, and which version.
    ///
    /// # Panics
    /// When the server does not tell.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        let info = self.connect().call(&["INFO", "server"]).string();
        Flavor::from_info(&info).expect("a server tells its version")
    }

    /// Waits until this replica has everything that `master` had when asked.
    ///
    /// # Panics
    /// When it does not catch up soon.
    pub fn wait_for_replication(&self, master: &Server) {
        let offset = |text: Option<String>| text.and_then(|digits| digits.parse::<u64>().ok());
        let goal = offset(master.info("replication", "master_repl_offset"));
        eventually("the replica has caught up with its master", SOON, || {
            let up = self.info("replication", "master_link_status")? == "up";
            (up && offset(self.info("replication", "slave_repl_offset")) >= goal).then_some(())
        });
    }

    /// Waits until the server's cron has run, whatever its wall clock does.
    ///
    /// # Panics
    /// When the server does not come to it.
    pub fn wait_for_cron(&self) {
        // The cron notes the time in seconds; two changes lie at least a second of ticks apart.
        let noted = || self.info("server", "lru_clock");
        for _ in 0..2 {
            let before = noted();
            eventually("the server's cron has run", SOON, || (noted() != before).then_some(()));
        }
    }

    /// Ends the connections of all clients but that of the one who says so. Tells how many there were.
    pub fn kill_clients(&self) -> i64 {
        // A client that listens for news is of a type of its own.
        let kill = |kind| match self.connect().call_strs(&format!("CLIENT KILL TYPE {kind} SKIPME yes")) {
            Answer::Int(killed) => killed,
            other => panic!("CLIENT KILL: {other:?}"),
        };
        kill("normal") + kill("pubsub")
    }

    /// Stops the process where it stands, as a machine under memory pressure does, until [`Server::resume`].
    pub fn pause(&self) {
        spawn::signal(self.pid(), libc::SIGSTOP);
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        spawn::signal(self.pid(), libc::SIGCONT);
    }

    /// Ends the process as a crash does: nothing is saved, nothing is said.
    ///
    /// # Panics
    /// When the kernel does not let it be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
        }
    }

    /// Ends the process with `SHUTDOWN`: it saves what it is configured to save.
    ///
    /// # Panics
    /// When the server refuses, or does not end soon.
    pub fn shutdown(&mut self) {
        if let Ok(answer) = self.connect().try_call(&["SHUTDOWN"]) {
            panic!("the server refused to shut down: {answer:?}");
        }
        eventually("the server has shut down", SOON, || (!self.is_running()).then_some(()));
        self.child = None;
    }

    /// Starts the server again on the same configuration and data; shuts it down first if it still runs.
    ///
    /// # Panics
    /// When it does not come up again, with the end of its log.
    pub fn restart(&mut self) {
        if self.child.is_some() {
            self.shutdown();
        }
        self.start_process().unwrap_or_else(|failure| panic!("{failure}"));
    }

    fn start_process(&mut self) -> Result<(), StartFailure> {
        // Left behind by a killed server; a probe must not wait on it.
        let _ = fs::remove_file(self.socket());
        let log = OpenOptions::new().create(true).append(true).open(self.home.path().join("log"));
        let log = log.expect("the server's log can be written");
        let mut command = Command::new(&self.binary);
        command.arg(self.home.path().join("server.conf")).stdin(Stdio::null());
        command.stderr(log.try_clone().expect("a log file can be shared")).stdout(log);
        if let Some(clock) = &self.clock {
            clock.preload_into(&mut command);
        }
        let child = spawn::spawn(command).map_err(|error| StartFailure {
            log: String::new(),
            reason: format!("{} could not be started: {error}", self.binary.display()),
        })?;
        self.child = Some(child);
        let outcome = within(START, || {
            if !self.is_running() {
                return Some(Err("it ended"));
            }
            let answer = self.try_connect().ok()?.try_call(&["PING"]).ok()?;
            (answer == Answer::Status("PONG".into())).then_some(Ok(()))
        });
        outcome.unwrap_or(Err("it did not answer in time")).map_err(|reason| {
            self.kill();
            StartFailure { log: self.log(), reason: reason.into() }
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of {} ends:\n{}", self.home.path().display(), tail(&self.log()));
        }
        self.kill();
    }
}

impl StartFailure {
    pub(crate) fn port_was_taken(&self) -> bool {
        self.log.contains("Address already in use")
    }

    /// Whether the server was built without TLS, so that there is nothing to test.
    #[must_use]
    pub fn lacks_tls(&self) -> bool {
        // Older servers do not know the settings at all, newer ones look for the code behind them.
        let unknown = self.log.contains("'tls-cert-file") && self.log.contains("Bad directive");
        unknown || self.log.contains("Failed finding TLS support")
    }
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server did not come up: {}; its log ends:\n{}", self.reason, tail(&self.log))
    }
}

impl std::error::Error for StartFailure {}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
