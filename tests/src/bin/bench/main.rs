//! Figures, not tests: `scripts/bench module`, `client`, `contention` and `scale`.
//!
//! Everything is measured as a ratio within one run: contenders take turns, in an order that rotates,
//! and medians are compared. Server CPU time is the server's own count, so that a busy machine disturbs
//! it less than wall time.

#![allow(clippy::expect_used, clippy::panic, clippy::cast_precision_loss, reason = "a program that measures")]

mod client;
mod contenders;
mod contention;
mod figures;
mod memory;
mod pairs;
mod scale;

use redlock_tests::Server;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("module") => module(),
        Some("client") => client::measure(&arguments[1..]),
        Some("contention") => contention::measure(&arguments[1..]),
        Some("scale") => scale::measure(&arguments[1..]),
        Some(contention::CONTEND) => contention::serve(&arguments[1..]),
        Some(client::DELAYS) => client::serve_delays(&arguments[1..]),
        _ => {
            eprintln!(
                "usage: bench module, bench client [part...], bench contention [window] or bench scale [part...]"
            );
            std::process::exit(2);
        }
    }
}

fn module() {
    let plain = Server::builder().without_module().start();
    let locks = Server::start();
    let flavor = plain.flavor();
    println!("Server: {flavor:?}, two processes of it, one with the module. No persistence, no replicas.\n");
    pairs::measure(&plain, &locks);
    println!();
    memory::measure(&plain, &locks);
}
