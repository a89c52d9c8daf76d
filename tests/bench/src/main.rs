//! The benchmarks: `scripts/bench`.
//!
//! Every result is a ratio within one run: contenders take turns in a rotating order, and the bench compares medians.
//! Server CPU time is the server's own count, which other load on the machine affects less than wall time.
//!
//! | | subject |
//! |---|---|
//! | `module/` | one server: CPU time and memory of a lock against plain Redis commands |
//! | `client/` | the client against a hand-written quorum loop, and how both scale |
//! | `contention/` | many tasks and one lock |
//! | `scale/` | one node under load |
//! | `peers/` | other libraries, and bare sockets as the upper bound |
//! | `worker.rs` | client processes and their protocol |
//! | `names.rs` | names of locks and owners |
//! | `report/` | tables, files and charts of the results |

#![allow(clippy::expect_used, clippy::panic, clippy::cast_precision_loss, reason = "a program that measures")]

mod client;
mod contention;
mod module;
mod names;
mod peers;
mod report;
mod scale;
mod worker;

use std::path::Path;

use redlock_tests::Server;
use report::Report;

/// A part: its name, the pieces that an argument can select, and the function that measures it.
type BenchPart = (&'static str, &'static [&'static str], fn(&mut Report, &[String]));

const PARTS: [BenchPart; 5] = [
    ("module", &[], |report, _| module::measure(report)),
    ("client", &client::PIECES, client::measure),
    ("contention", &contention::PIECES, contention::measure),
    ("scale", &scale::PIECES, scale::measure),
    ("peers", &peers::PIECES, peers::measure),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        // Modes in which the bench starts this program again, as a separate process.
        [contention::CONTEND, ..] => contention::serve(&arguments[1..]),
        [peers::CYCLE, ..] => peers::serve(&arguments[1..]),
        [client::DELAYS, ..] => client::serve_delays(&arguments[1..]),
        ["page", page, results, charts] => fill_page(Path::new(page), Path::new(results), charts),
        ["all"] => PARTS.iter().for_each(|part| measure(part, &[])),
        [name, ..] if PARTS.iter().any(|part| part.0 == name) => {
            PARTS.iter().filter(|part| part.0 == name).for_each(|part| measure(part, &arguments[1..]));
        }
        _ => give_up(&format!("there are: {}, all", PARTS.map(|part| part.0).join(", "))),
    }
}

fn measure((name, pieces, measure): &BenchPart, wanted: &[String]) {
    if let Some(unknown) = wanted.iter().find(|piece| !pieces.contains(&piece.as_str())) {
        give_up(&format!("{name} has no piece {unknown}; there are: {}", pieces.join(", ")));
    }
    let flavor = Server::builder().without_module().start().flavor();
    let mut report = Report::begin(name, flavor, wanted.is_empty());
    measure(&mut report, wanted);
    report.finish();
}

fn fill_page(page: &Path, results: &Path, charts: &str) {
    let text = std::fs::read_to_string(page).unwrap_or_else(|error| give_up(&error.to_string()));
    match report::fill_page(&text, results, charts) {
        Ok(filled) => std::fs::write(page, filled).unwrap_or_else(|error| give_up(&error.to_string())),
        Err(error) => give_up(&error),
    }
}

fn give_up(why: &str) -> ! {
    eprintln!("bench: {why}");
    std::process::exit(2);
}
