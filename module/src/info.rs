//! The section `INFO redlock`.

use redlock_contract::NonVoting;
use redlock_contract::fields::{counter, info};
use redlock_core::node::VERSION;

use crate::ffi::info::InfoWriter;
use crate::{reclaim, state, state_file};

/// Writes the section. The server adds [`info::PREFIX`] to each name.
pub(crate) fn write(section: &InfoWriter) {
    state::with(|state| {
        let durable = state.node.state();
        section.text(info::VERSION, VERSION);
        section.text(info::NODE_ID, &durable.node_id);
        section.number(info::INCARNATION, durable.incarnation);
        section.text(info::ORIGIN, durable.origin.name());
        section.number(info::VOTING, u64::from(durable.non_voting.is_none()));
        section.text(info::NON_VOTING_REASON, durable.non_voting.map_or("", NonVoting::name));
        section.number(info::HIGH_WATER, durable.high_water.highest());
        section.number(info::FAR_STRIPES, durable.high_water.far().len() as u64);
        section.number(info::LONGEST_LEASE_MS, durable.longest_lease_ms);
        section.number(info::LOCKS, state.node.held().saturating_sub(reclaim::unreclaimed()));
        section.number(info::WAITERS, state.node.waiters());
        let (usage, limits) = (state.node.waiter_usage(), state.node.waiter_limits());
        section.number(info::WAITER_KEYS, usage.node);
        section.number(info::MAX_WAITERS, limits.node);
        section.number(info::LONGEST_QUEUE, usage.key);
        section.number(info::MAX_WAITERS_PER_KEY, limits.key);
        section.number(info::MOST_WAITERS_ON_CONNECTION, usage.connection);
        section.number(info::MAX_WAITERS_PER_CONNECTION, limits.connection);
        section.number(info::WAITERS_BYTES, usage.bytes);
        section.number(info::MAX_WAITERS_BYTES, limits.bytes);
        section.number(info::LARGEST_FENCE, state.node.largest_fence());
        section.number(info::MAX_TTL_MS, state.node.max_ttl_ms());
        section.number(info::QUARANTINE_MS, state.node.quarantine_left_ms(&mut state.clock));
        section.number(counter::STATE_WRITES, state_file::writes());
        section.number(info::MEMORY_BYTES, state.node.used_bytes() as u64);
        section.number(info::ALLOCATED_BYTES, state.node.allocated_bytes() as u64);
        for (name, value) in state.node.counters().named() {
            section.number(name, value);
        }
    });
}
