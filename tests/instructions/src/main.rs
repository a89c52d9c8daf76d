//! Fixed work for the pure crates: `instructions WORK TIMES` does one kind of work TIMES times, and `instructions`
//! alone lists the kinds.
//!
//! The program measures nothing itself. `scripts/instructions` runs it under valgrind with two counts; the difference
//! is the cost of the work, independent of the load of the machine. So every run does the same: no clock, no
//! randomness, no seeded hash.

mod node;
mod session;

use std::process::ExitCode;

/// A kind of work: its name, and the function that repeats it.
type Work = (&'static str, fn(u64));

/// All kinds of work, in the order of the list.
const ALL: &[Work] = &[
    ("node-acquire-release", node::acquire_and_release),
    ("node-extend", node::extend),
    ("node-refusal", node::refuse),
    ("node-stale-release", node::release_nothing),
    ("node-options", node::acquire_with_options),
    ("node-eight-keys", node::acquire_and_release_eight),
    ("node-expiry", node::expire),
    ("node-handoff", node::hand_on),
    ("session-hold", session::hold),
    ("session-extend", session::extend),
    ("session-refusal", session::be_refused),
    ("session-promotion", session::raise),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (work, times) = match arguments.as_slice() {
        [] => {
            ALL.iter().for_each(|(name, _)| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        [work, times] => (ALL.iter().find(|(name, _)| name == work), times.parse().ok()),
        _ => (None, None),
    };
    match (work, times) {
        (Some((_, work)), Some(times)) => {
            work(times);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: instructions [WORK TIMES]");
            ExitCode::from(2)
        }
    }
}
