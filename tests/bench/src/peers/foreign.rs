//! Libraries in other languages, each in its own process.

use std::process::Command;

/// A library with a client process in its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignLibrary {
    NodeRedlock,
    Pottery,
}

/// What the tasks of such a process do.
#[derive(Clone, Copy)]
pub(crate) enum PeerTask {
    /// Each acquires and releases its own lock.
    Cycle,
    /// All compete for one lock and hold it for a while.
    Contend,
}

impl ForeignLibrary {
    /// The libraries whose packages are installed. `scripts/bench` fetches them and reports what is missing.
    pub(crate) fn installed() -> Vec<Self> {
        [Self::NodeRedlock, Self::Pottery].into_iter().filter(|foreign| foreign.is_installed()).collect()
    }

    fn is_installed(self) -> bool {
        std::env::var_os(self.packages()).is_some()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NodeRedlock => "node-redlock",
            Self::Pottery => "pottery (Python)",
        }
    }

    /// The environment variable with the directory of its packages.
    fn packages(self) -> &'static str {
        match self {
            Self::NodeRedlock => "REDLOCK_NODE_PEERS",
            Self::Pottery => "REDLOCK_PYTHON_PEERS",
        }
    }

    pub(crate) fn command(self, doing: PeerTask, tasks: usize, urls: &[String]) -> Command {
        let (interpreter, script) = match self {
            Self::NodeRedlock => ("node", concat!(env!("CARGO_MANIFEST_DIR"), "/peers/node-redlock.mjs")),
            Self::Pottery => ("python3", concat!(env!("CARGO_MANIFEST_DIR"), "/peers/pottery.py")),
        };
        let doing = match doing {
            PeerTask::Cycle => "cycle",
            PeerTask::Contend => "contend",
        };
        let mut command = Command::new(interpreter);
        command.arg(script).arg(doing).arg(tasks.to_string()).args(urls);
        command
    }
}
