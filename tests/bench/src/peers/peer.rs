//! The contenders, each in its own process.

use std::process::Command;
use std::sync::Arc;

use super::foreign::{ForeignLibrary, PeerTask};
use super::rslock::Rslock;
use super::sockets::Sockets;
use crate::client::lock_client::LockClient;
use crate::client::quorum_loop::QuorumLoop;
use crate::client::redlock_client_loop::RedlockClient;
use crate::client::round::cycles;
use crate::worker::{Worker, read_requests};

/// The argument that starts this program as a contender.
pub(crate) const MODE: &str = "cycle";

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// The upper bound.
    Sockets,
    /// The hand-written quorum loop.
    Loop,
    Ours,
    Rslock,
    Foreign(ForeignLibrary),
}

impl Peer {
    const OF_THIS_PROGRAM: [Self; 4] = [Self::Sockets, Self::Loop, Self::Ours, Self::Rslock];

    /// All contenders that are installed here.
    pub(super) fn all() -> Vec<Self> {
        let foreign = ForeignLibrary::installed().into_iter().map(Self::Foreign);
        Self::OF_THIS_PROGRAM.into_iter().chain(foreign).collect()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sockets => "bare sockets",
            Self::Loop => QuorumLoop::NAME,
            Self::Ours => RedlockClient::NAME,
            Self::Rslock => Rslock::NAME,
            Self::Foreign(foreign) => foreign.name(),
        }
    }

    /// Whether its nodes have the module. Clients that do not need it run on plain servers, which are faster.
    pub(super) fn with_module(self) -> bool {
        matches!(self, Self::Sockets | Self::Ours)
    }

    /// Whether it is a library that users could choose instead of redlock-client.
    pub(super) fn is_library(self) -> bool {
        matches!(self, Self::Rslock | Self::Foreign(_))
    }

    /// Starts its process with this number of tasks.
    pub(super) fn start(self, tasks: usize, urls: &[String]) -> Worker {
        let command = match self {
            Self::Foreign(foreign) => foreign.command(PeerTask::Cycle, tasks, urls),
            _ => self.of_this_program(tasks, urls),
        };
        Worker::start(command).unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }

    fn of_this_program(self, tasks: usize, urls: &[String]) -> Command {
        let mut command = Worker::start_self(MODE);
        command.arg(self.name()).arg(tasks.to_string()).args(urls);
        command
    }
}

/// Runs a contender as a client process: executes orders until the input ends.
pub(crate) fn serve(arguments: &[String]) {
    let [name, tasks, urls @ ..] = arguments else { panic!("name, tasks, addresses") };
    let entrant = Peer::OF_THIS_PROGRAM.into_iter().find(|entrant| entrant.name() == name);
    let tasks: usize = tasks.parse().expect("how many tasks");
    match entrant.expect("a known name") {
        Peer::Sockets => {
            let mut sockets = Sockets::connect(urls);
            println!("ready");
            for (key, time) in read_requests() {
                sockets.cycles(tasks, |task| key_of(&key, task), time).print_report();
            }
        }
        Peer::Loop => serve_async::<QuorumLoop>(tasks, urls),
        Peer::Ours => serve_async::<RedlockClient>(tasks, urls),
        Peer::Rslock => serve_async::<Rslock>(tasks, urls),
        Peer::Foreign(_) => unreachable!("a foreign library has its own program"),
    }
}

fn serve_async<C: LockClient>(tasks: usize, urls: &[String]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let contender = Arc::new(runtime.block_on(C::connect(urls.to_vec())));
    println!("ready");
    for (key, time) in read_requests() {
        let all = cycles(Arc::clone(&contender), tasks, |task| key_of(&key, task), time);
        runtime.block_on(all).print_report();
    }
}

fn key_of(key: &str, task: usize) -> String {
    format!("{key}:{task}")
}
