//! One running server. The process ends when its value is dropped.

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

/// The deadline for the start of a server.
const START: Duration = Duration::from_secs(20);

/// A real server with its own folder. Dropping it kills the process and removes the folder.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    home: TempDir,
    data_dir: PathBuf,
    binary: PathBuf,
    clock: Option<FakeClock>,
    access: ServerAccess,
}

/// The ports and the password of a server.
#[derive(Debug)]
pub(crate) struct ServerAccess {
    pub(crate) tcp: Option<Port>,
    pub(crate) tls: Option<Port>,
    /// The password of the default user.
    pub(crate) password: Option<String>,
}

/// The error of a server that did not come up.
#[derive(Debug)]
pub struct StartFailure {
    /// Everything the server wrote to its log.
    pub log: String,
    reason: String,
}

impl Server {
    /// Starts a server with the default configuration: with the module, and without TCP.
    ///
    /// # Panics
    /// When the module is missing or the server does not come up. The message says what to do.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts a server with a frozen clock for its module, which only the test advances.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    pub fn start_frozen() -> (Self, FakeClock) {
        let clock = FakeClock::new();
        clock.freeze_module();
        (Self::builder().clock(&clock).start(), clock)
    }

    /// Configures a server.
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
    /// When the server does not accept it.
    #[must_use]
    pub fn connect(&self) -> Wire {
        self.try_connect().expect("a running server accepts connections")
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
    /// When the server does not accept it or does not support RESP3.
    #[must_use]
    pub fn connect_resp3(&self) -> Wire {
        let mut wire = self.connect();
        let hello = wire.call(&["HELLO", "3"]);
        assert_eq!(hello.field("proto"), Some(&Answer::Int(3)), "the server speaks RESP3");
        wire
    }

    /// The process id.
    ///
    /// # Panics
    /// When the server is not running.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running server has a process").id()
    }

    /// The loopback port; `None` without [`ServerBuilder::tcp`].
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.access.tcp.as_ref().map(Port::number)
    }

    /// The TCP address, for a client.
    ///
    /// # Panics
    /// When the server does not listen on TCP.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port().expect("a server that was started with .tcp()"))
    }

    /// The address of the Unix socket, for a client.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The loopback port for TLS; `None` without [`ServerBuilder::tls`].
    #[must_use]
    pub fn tls_port(&self) -> Option<u16> {
        self.access.tls.as_ref().map(Port::number)
    }

    /// The path of the Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        Self::socket_in(self.home.path())
    }

    /// Whether the process still runs. Sends no command.
    ///
    /// # Panics
    /// When the kernel does not know the process.
    pub fn is_running(&mut self) -> bool {
        let alive = |child: &mut Child| child.try_wait().expect("a child can be waited for").is_none();
        self.child.as_mut().is_some_and(alive)
    }

    /// The log of the server, with all its restarts.
    #[must_use]
    pub fn log(&self) -> String {
        // Read as bytes: a server may quote invalid UTF-8 of a client.
        let bytes = fs::read(self.home.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The folder of the RDB and the AOF.
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
    /// When the server does not report it.
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
    /// When the server does not report it.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        let info = self.connect().call(&["INFO", "server"]).string();
        Flavor::from_info(&info).expect("a server version")
    }

    /// Waits until this replica has the replication offset that `master` has now.
    ///
    /// # Panics
    /// At the deadline.
    pub fn wait_for_replication(&self, master: &Server) {
        let offset = |text: Option<String>| text.and_then(|digits| digits.parse::<u64>().ok());
        let goal = offset(master.info("replication", "master_repl_offset"));
        eventually("the replica has caught up with its master", SOON, || {
            let up = self.info("replication", "master_link_status")? == "up";
            (up && offset(self.info("replication", "slave_repl_offset")) >= goal).then_some(())
        });
    }

    /// Waits until the server's cron has run. Works with any wall clock.
    ///
    /// # Panics
    /// At the deadline.
    pub fn wait_for_cron(&self) {
        // The cron stores the time in seconds, so two changes are at least a second of cron ticks apart.
        let noted = || self.info("server", "lru_clock");
        for _ in 0..2 {
            let before = noted();
            eventually("the server's cron has run", SOON, || (noted() != before).then_some(()));
        }
    }

    /// Closes the connections of all clients except the caller's. Returns how many there were.
    pub fn kill_clients(&self) -> i64 {
        // Clients with a subscription have their own type.
        let kill = |kind| match self.connect().call_strs(&format!("CLIENT KILL TYPE {kind} SKIPME yes")) {
            Answer::Int(killed) => killed,
            other => panic!("CLIENT KILL: {other:?}"),
        };
        kill("normal") + kill("pubsub")
    }

    /// Suspends the process until [`Server::resume`], as a machine under memory pressure does.
    pub fn pause(&self) {
        spawn::signal(self.pid(), libc::SIGSTOP);
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        spawn::signal(self.pid(), libc::SIGCONT);
    }

    /// Kills the process, as a crash does: the server saves nothing and logs nothing.
    ///
    /// # Panics
    /// When the kernel does not let it be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
        }
    }

    /// Ends the process with `SHUTDOWN`: the server saves its data, if configured.
    ///
    /// # Panics
    /// When the server refuses, or at the deadline.
    pub fn shutdown(&mut self) {
        if let Ok(answer) = self.connect().try_call(&["SHUTDOWN"]) {
            panic!("the server refused to shut down: {answer:?}");
        }
        eventually("the server has shut down", SOON, || (!self.is_running()).then_some(()));
        self.child = None;
    }

    /// Restarts the server with the same configuration and data. Shuts it down first if it still runs.
    ///
    /// # Panics
    /// When it does not come up again. The message has the end of its log.
    pub fn restart(&mut self) {
        if self.child.is_some() {
            self.shutdown();
        }
        self.start_process().unwrap_or_else(|failure| panic!("{failure}"));
    }

    fn start_process(&mut self) -> Result<(), StartFailure> {
        // A killed server leaves its socket file; a probe must not connect to it.
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

    /// Whether the server was built without TLS, so that a test must be skipped.
    #[must_use]
    pub fn lacks_tls(&self) -> bool {
        // Older servers reject the setting as unknown; newer ones report that TLS support is missing.
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
