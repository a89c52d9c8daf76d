//! The configuration of a server that a test starts.

use crate::locate;
use crate::port::Port;
use crate::server::ServerAccess;
use crate::{Certs, FakeClock, Server, StartFailure};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Configures a server. By default it loads the module, listens on a Unix socket and not on TCP, persists nothing, and
/// has a temporary folder.
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

/// How many ports the builder tries: a process that asks for a port by its number can take a reserved one.
const PORTS_TRIED: usize = 10;

impl ServerBuilder {
    pub(crate) fn new() -> Self {
        let settings = [
            ("port", "0"),
            ("save", "\"\""),
            ("appendonly", "no"),
            // A replica gets its first copy at once. The delay would wait for more replicas to share the copy.
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

    /// Does not load the module.
    #[must_use]
    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// The arguments of the module, on the `loadmodule` line.
    #[must_use]
    pub fn module_args<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.module = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// Loads the module from this file instead of the one under test, at every start.
    #[must_use]
    pub fn module_file(mut self, path: &Path) -> Self {
        self.module_file = Some(path.to_path_buf());
        self
    }

    /// Sets a directive of the server's configuration, and replaces an earlier value.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.settings.retain(|(present, _)| present != name);
        let value = if value.is_empty() { "\"\"" } else { value };
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Allows `DEBUG`, which servers since 7.0 refuse by default.
    #[must_use]
    pub fn debug_commands(self) -> Self {
        self.arg("enable-debug-command", "yes")
    }

    /// Stores RDB and AOF in this folder, so that another server can start with the same data.
    #[must_use]
    pub fn data_dir(mut self, path: &Path) -> Self {
        self.data_dir = Some(path.to_path_buf());
        self
    }

    /// Starts as a replica of `master`, which must listen on TCP.
    ///
    /// # Panics
    /// When the master has no TCP port: replication does not work over Unix sockets.
    #[must_use]
    pub fn replica_of(self, master: &Server) -> Self {
        let port = master.port().expect("a master that was started with .tcp()");
        self.tcp().arg("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// Replaces the kernel's clocks by `clock` for this server.
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

    /// Also listens on a free loopback port.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Also listens for TLS on a free loopback port, with the server's certificate of `certs`.
    ///
    /// A server without TLS support does not start: see [`StartFailure::lacks_tls`].
    #[must_use]
    pub fn tls(mut self, certs: &Certs, clients: ClientCertificate) -> Self {
        self.tls = true;
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        self.arg("tls-cert-file", &quoted(&certs.server_cert()))
            .arg("tls-key-file", &quoted(&certs.server_key()))
            .arg("tls-ca-cert-file", &quoted(&certs.ca_cert()))
            .arg("tls-auth-clients", clients.setting())
    }

    /// Sets the password of the default user. The harness authenticates with it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.arg("requirepass", password)
    }

    /// Adds a user with these rules of `ACL SETUSER`. The harness still uses the default user.
    #[must_use]
    pub fn user(mut self, name: &str, rules: &str) -> Self {
        self.settings.push(("user".into(), format!("{name} {rules}")));
        self
    }

    /// Starts in Cluster mode, as a node without slots.
    #[must_use]
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self.tcp().arg("cluster-enabled", "yes")
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When the server does not come up. The message has the end of its log.
    #[must_use]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// As [`ServerBuilder::start`], for a server that is expected to fail.
    ///
    /// # Errors
    /// When the server ended before it answered, or did not answer in time. The error has its log.
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
        // A short name: the path of a Unix socket has at most 107 bytes.
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

    /// The text of the configuration file. It has all settings, so that `CONFIG REWRITE` works.
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

/// Whether a server requires a client certificate over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate {
    /// The server rejects clients without a certificate.
    Required,
    /// The server does not request a certificate.
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
