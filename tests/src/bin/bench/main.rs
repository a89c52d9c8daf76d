//! Figures, not tests: `scripts/bench module`.
//!
//! Everything is measured as a ratio within one run: contenders take turns, in an order that rotates,
//! and medians are compared. Server CPU time is the server's own count, so that a busy machine disturbs
//! it less than wall time.

#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "a program that measures")]

mod contenders;
mod figures;
mod memory;
mod pairs;

use redlock_tests::Server;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("module") => module(),
        _ => {
            eprintln!("usage: bench module");
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
