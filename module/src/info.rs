//! `INFO redlock`.

use redlock_core::node::VERSION;

use crate::server::edge::InfoWriter;
use crate::{state, vault};

/// Writes the section. The server puts `redlock_` before each name.
pub(crate) fn write(section: &InfoWriter) {
    state::with(|state| {
        section.text("version", VERSION);
        section.number("locks", state.node.held().saturating_sub(state::unburied()));
        section.number("waiters", state.node.waiters());
        section.number("largest_fence", state.node.largest_fence());
        section.number("longest_ttl_ms", state.node.longest_ttl_ms());
        section.number("quarantine_ms", state.node.quarantine_left_ms(&mut state.clock));
        section.number("ledger_writes", vault::writes());
        section.number("memory_bytes", (state.node.held_bytes() + state.node.waiters_bytes()) as u64);
        for (name, value) in state.node.counters().named() {
            section.number(name, value);
        }
    });
}
