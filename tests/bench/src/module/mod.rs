//! One server: CPU time and memory of a lock against plain Redis commands.

mod lock_commands;
mod memory;
mod pairs;

pub(crate) use lock_commands::SCRIPT;
use lock_commands::ServerChoice;
use redlock_tests::Server;
use std::path::PathBuf;

use crate::report::Report;

pub(crate) fn measure(report: &mut Report) {
    // Four processes without persistence or replicas.
    let servers = Servers {
        plain: Server::builder().without_module().start(),
        floor: Server::builder().module_file(&floor_file()).start(),
        locks: Server::start(),
        notifying: Server::builder().arg("notify-keyspace-events", "KEA").start(),
    };
    pairs::measure(report, &servers);
    memory::measure(report, &servers.plain, &servers.locks);
}

/// One server of each kind.
struct Servers {
    plain: Server,
    floor: Server,
    locks: Server,
    notifying: Server,
}

impl Servers {
    fn get(&self, on: ServerChoice) -> &Server {
        match on {
            ServerChoice::Plain => &self.plain,
            ServerChoice::Floor => &self.floor,
            ServerChoice::Locks => &self.locks,
            ServerChoice::Notifying => &self.notifying,
        }
    }
}

/// The path of the minimal module; cargo builds it beside this program.
fn floor_file() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let file = program.with_file_name("examples").join("libfloor.so");
    assert!(file.exists(), "no {}: scripts/bench builds it", file.display());
    file
}
