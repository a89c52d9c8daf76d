//! Libraries of other languages, which run in processes of their own.

use std::process::Command;

/// A library whose client process is written in its own language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignLibrary {
    NodeRedlock,
    Pottery,
}

/// What such a process is to do with its tasks.
#[derive(Clone, Copy)]
pub(crate) enum PeerTask {
    /// Each takes and frees a lock of its own.
    Cycle,
    /// All want one lock, and work under it.
    Contend,
}

impl ForeignLibrary {
    /// Those whose packages are here; `scripts/bench` fetches them. It says so where one is not.
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

    /// The variable that tells its process where the packages are.
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
