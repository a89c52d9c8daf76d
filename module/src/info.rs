//! `INFO redlock`.

use redlock_contract::NonVoting;
use redlock_core::node::VERSION;

use crate::ffi::info::InfoWriter;
use crate::{reclaim, state, state_file};

/// Writes the section. The server puts `redlock_` before each name.
pub(crate) fn write(section: &InfoWriter) {
    state::with(|state| {
        let durable = state.node.state();
        section.text("version", VERSION);
        section.text("node_id", &durable.node_id);
        section.number("incarnation", durable.incarnation);
        section.text("origin", durable.origin.name());
        section.number("voting", u64::from(durable.non_voting.is_none()));
        section.text("non_voting_reason", durable.non_voting.map_or("none", NonVoting::name));
        section.number("high_water", durable.highest());
        section.number("far_stripes", durable.far_stripes() as u64);
        section.number("longest_lease_ms", durable.longest_lease_ms);
        section.number("locks", state.node.held().saturating_sub(reclaim::unreclaimed()));
        section.number("waiters", state.node.waiters());
        section.number("largest_fence", state.node.largest_fence());
        section.number("max_ttl_ms", state.node.max_ttl_ms());
        section.number("quarantine_ms", state.node.quarantine_left_ms(&mut state.clock));
        section.number("state_writes", state_file::writes());
        section.number("memory_bytes", (state.node.held_bytes() + state.node.waiters_bytes()) as u64);
        for (name, value) in state.node.counters().named() {
            section.number(name, value);
        }
    });
}
