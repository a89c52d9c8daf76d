//! One server: CPU time and memory of a lock against plain Redis ways.

mod lock_commands;
mod memory;
mod pairs;

pub(crate) use lock_commands::SCRIPT;
use lock_commands::ServerChoice;
use redlock_tests::Server;
use std::path::PathBuf;

use crate::report::Report;

pub(crate) fn measure(report: &mut Report) {
    // A process each. No persistence, no replicas.
    let servers = Servers {
        plain: Server::builder().without_module().start(),
        floor: Server::builder().module_file(&floor_file()).start(),
        locks: Server::start(),
    };
    pairs::measure(report, &servers);
    memory::measure(report, &servers.plain, &servers.locks);
}

/// One of each kind.
struct Servers {
    plain: Server,
    floor: Server,
    locks: Server,
}

impl Servers {
    fn get(&self, on: ServerChoice) -> &Server {
        match on {
            ServerChoice::Plain => &self.plain,
            ServerChoice::Floor => &self.floor,
            ServerChoice::Locks => &self.locks,
        }
    }
}

/// Where cargo leaves the least of modules: beside this program.
fn floor_file() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let file = program.with_file_name("examples").join("libfloor.so");
    assert!(file.exists(), "no {}: scripts/bench builds it", file.display());
    file
}
