//! What a server is started with.

use crate::locate;
use crate::port::Port;
use crate::server::ServerAccess;
use crate::{Certs, FakeClock, Server, StartFailure};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Describes a server before it starts. By default: the module loaded, a Unix socket and no TCP port,
/// nothing persisted, everything in a folder of its own that goes away with the server.
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    binary: PathBuf,
    module: Option<Vec<String>>,
    module_file: Option<PathBuf>,
    settings: Vec<(String, String)>,
    data_dir: Option<PathBuf>,
    clock: Option<FakeClock>,
    tcp: bool,
    tls: bool,
    cluster: bool,
    password: Option<String>,
}

/// How many ports are tried: a reservation keeps out all but those who name the very same number.
const PORTS_TRIED: usize = 10;

impl ServerBuilder {
    pub(crate) fn new() -> Self {
        let settings = [
            ("port", "0"),
            ("save", "\"\""),
            ("appendonly", "no"),
            // A replica gets its first copy at once: the delay gathers more replicas, and here are none.
            ("repl-diskless-sync-delay", "0"),
        ];
        Self {
            binary: locate::server_binary(),
            module: Some(Vec::new()),
            module_file: None,
            settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
            data_dir: None,
            clock: None,
            tcp: false,
            tls: false,
            cluster: false,
            password: None,
        }
    }

    /// Starts a plain server.
    #[must_use]
    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// What follows the module's path on the `loadmodule` line.
    #[must_use]
    pub fn module_args<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.module = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// Loads the module from this file instead of the one under test, at every start anew.
    #[must_use]
    pub fn module_file(mut self, path: &Path) -> Self {
        self.module_file = Some(path.to_path_buf());
        self
    }

    /// One line of the server's configuration; a later one of the same name replaces an earlier one.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.settings.retain(|(present, _)| present != name);
        let value = if value.is_empty() { "\"\"" } else { value };
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Lets clients call `DEBUG`, which servers from 7.0 on refuse otherwise.
    #[must_use]
    pub fn debug_commands(self) -> Self {
        self.arg("enable-debug-command", "yes")
    }

    /// Keeps RDB and AOF in this folder, so that another server can be started on the same data.
    #[must_use]
    pub fn data_dir(mut self, path: &Path) -> Self {
        self.data_dir = Some(path.to_path_buf());
        self
    }

    /// Starts as a replica of `master`, which must listen on TCP.
    ///
    /// # Panics
    /// When the master has no TCP port: replication does not go over Unix sockets.
    #[must_use]
    pub fn replica_of(self, master: &Server) -> Self {
        let port = master.port().expect("a master to replicate from is started with .tcp()");
        self.tcp().arg("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// Puts `clock` between the server and the kernel's clocks.
    #[must_use]
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Starts this server program instead of the one chosen by `REDLOCK_SERVER`.
    #[must_use]
    pub fn binary(mut self, path: impl AsRef<OsStr>) -> Self {
        self.binary = PathBuf::from(path.as_ref());
        self
    }

    /// Listens on a free loopback port too.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Listens for TLS on a free loopback port too, with the server's certificate of `certs`.
    ///
    /// A server that was built without TLS refuses to start: see [`StartFailure::lacks_tls`].
    #[must_use]
    pub fn tls(mut self, certs: &Certs, clients: ClientCertificate) -> Self {
        self.tls = true;
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        self.arg("tls-cert-file", &quoted(&certs.server_cert()))
            .arg("tls-key-file", &quoted(&certs.server_key()))
            .arg("tls-ca-cert-file", &quoted(&certs.ca_cert()))
            .arg("tls-auth-clients", clients.setting())
    }

    /// Asks everybody who names no user for this password; the harness knows it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.arg("requirepass", password)
    }

    /// One more user, with rules as `ACL SETUSER` takes them. The user of the harness stays as it is.
    #[must_use]
    pub fn user(mut self, name: &str, rules: &str) -> Self {
        self.settings.push(("user".into(), format!("{name} {rules}")));
        self
    }

    /// Starts in Cluster mode, as a node that does not serve any slot yet.
    #[must_use]
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self.tcp().arg("cluster-enabled", "yes")
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When it does not come up, with the end of its log.
    #[must_use]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// As [`ServerBuilder::start`], for a server that is expected to refuse.
    ///
    /// # Errors
    /// When the server ended before it answered, or never did; with its log.
    pub fn try_start(self) -> Result<Server, StartFailure> {
        let mut attempts = 1..=PORTS_TRIED;
        loop {
            let last = attempts.next().is_none_or(|attempt| attempt == PORTS_TRIED);
            match self.start_on_free_port() {
                Err(failure) if (self.tcp || self.tls) && !last && failure.port_was_taken() => {}
                outcome => return outcome,
            }
        }
    }

    fn start_on_free_port(&self) -> Result<Server, StartFailure> {
        // A short name under a short folder: the path of a Unix socket has 107 bytes at most.
        let home = tempfile::Builder::new().prefix("rl-").tempdir().expect("a folder for the server");
        let access = ServerAccess {
            tcp: self.tcp.then(Port::reserve),
            tls: self.tls.then(Port::reserve),
            password: self.password.clone(),
        };
        let data = self.data_dir.clone().unwrap_or_else(|| home.path().join("data"));
        std::fs::create_dir_all(&data).expect("a folder for the server's data");
        let config = self.config(&home, &data, &access);
        std::fs::write(home.path().join("server.conf"), config).expect("the server's folder is writable");
        Server::launch(home, data, &self.binary, self.clock.clone(), access)
    }

    /// Everything goes into a file, so that `CONFIG REWRITE` has something to rewrite.
    fn config(&self, home: &TempDir, data: &Path, access: &ServerAccess) -> String {
        let mut lines = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| writeln!(lines, "{text}").expect("a string grows");
        line(format_args!("dir \"{}\"", data.display()));
        line(format_args!("unixsocket \"{}\"", Server::socket_in(home.path()).display()));
        for (name, value) in &self.settings {
            line(format_args!("{name} {value}"));
        }
        if let Some(port) = &access.tcp {
            line(format_args!("bind 127.0.0.1\nport {}", port.number()));
        }
        if let Some(port) = &access.tls {
            line(format_args!("bind 127.0.0.1\ntls-port {}", port.number()));
        }
        if self.cluster {
            line(format_args!("cluster-port {}", Port::reserve().number()));
        }
        if let Some(arguments) = &self.module {
            let quoted: String = arguments.iter().map(|argument| format!(" \"{argument}\"")).collect();
            let file = self.module_file.clone().unwrap_or_else(locate::module_path);
            line(format_args!("loadmodule \"{}\"{quoted}", file.display()));
        }
        lines
    }
}

/// Whether a server asks those who come over TLS for a certificate of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate {
    /// Whoever shows none is turned away.
    Required,
    /// Nobody is asked.
    NotAsked,
}

impl ClientCertificate {
    fn setting(self) -> &'static str {
        match self {
            Self::Required => "yes",
            Self::NotAsked => "no",
        }
    }
}
