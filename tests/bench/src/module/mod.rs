//! One server: CPU time and memory of a lock against plain Redis ways.

mod contenders;
mod memory;
mod pairs;

pub(crate) use contenders::SCRIPT;
use redlock_tests::Server;

use crate::report::Report;

pub(crate) fn measure(report: &mut Report) {
    // Two processes, one with the module. No persistence, no replicas.
    let plain = Server::builder().without_module().start();
    let locks = Server::start();
    pairs::measure(report, &plain, &locks);
    memory::measure(report, &plain, &locks);
}
