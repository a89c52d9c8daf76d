//! The replies that describe a lock and the node.

use super::{LockNode, VERSION};
use crate::command_error::CommandError;
use crate::keyspace::{KeyState, Keyspace};
use crate::reply::{Fields, Reply, Value};
use crate::table::LockId;
use crate::time::{Millis, NodeClock};
use redlock_contract::fields::{lock, node};
use redlock_contract::{NonVoting, Role};

impl LockNode {
    /// Describes one lock.
    ///
    /// # Errors
    /// A key of another type.
    pub fn inspect(
        &self,
        keyspace: &impl Keyspace,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        let now = clock.proven();
        match keyspace.key_state(0) {
            KeyState::OtherType => Err(CommandError::WrongType),
            KeyState::Lock(id) if !self.is_over(id, clock) => {
                let is_shared = self.shared.has(id);
                let live = |holder: &LockId| !self.has_expired(*holder, clock);
                let holders = match is_shared {
                    true => self.holders_by_grant(id).into_iter().filter(live).collect(),
                    false => Vec::new(),
                };
                // A shared lock lasts as long as the last of its leases.
                let shown = self.last_holder(id);
                let waiters = self.queues.waiting_for(keyspace.database(), keyspace.name(0)) as u64;
                let mode = if is_shared { lock::SHARED } else { lock::EXCLUSIVE };
                let holders = holders.into_iter().map(|holder| self.describe_holder(holder, now)).collect();
                let mut fields: Fields = vec![(lock::FENCE, self.locks.fence(id).into())];
                fields.extend(self.describe_holder(shown, now));
                fields.extend([
                    (lock::WAITERS, waiters.into()),
                    (lock::MODE, mode.as_bytes().into()),
                    (lock::HOLDERS, Value::Maps(holders)),
                ]);
                Ok(Reply::Map(fields))
            }
            _ => Ok(Reply::Nil),
        }
    }

    /// Describes one holder of a lock.
    fn describe_holder(&self, holder: LockId, now: Millis) -> Fields {
        vec![
            (lock::LABEL, self.locks.label(holder).into()),
            (lock::TIME_LEFT_MS, now.left_until(self.locks.deadline(holder)).into()),
            (lock::HELD_MS, now.since(self.locks.granted(holder)).into()),
            (lock::EXTENSIONS, u64::from(self.locks.extensions(holder)).into()),
        ]
    }

    /// Describes this node. `unreclaimed` is the number of records whose values have left the keyspace: they are not
    /// counted as locks.
    #[must_use]
    pub fn describe(&self, unreclaimed: u64, role: Role, clock: &mut impl NodeClock) -> Reply {
        Reply::Map(vec![
            (node::ID, self.state.node_id.as_bytes().into()),
            (node::INCARNATION, self.state.incarnation.into()),
            (node::ORIGIN, self.state.origin.name().as_bytes().into()),
            (node::VOTING, u64::from(self.state.non_voting.is_none()).into()),
            (node::NON_VOTING_REASON, self.state.non_voting.map_or("", NonVoting::name).as_bytes().into()),
            (node::FENCE, self.largest_fence().into()),
            (node::HIGH_WATER, self.state.high_water.highest().into()),
            (node::COMMON_HIGH_WATER, self.state.high_water.common().into()),
            (node::FAR_HIGH_WATER, self.state.high_water.far_text().as_bytes().into()),
            (node::QUARANTINE_MS, self.quarantine_left_ms(clock).into()),
            (node::LOCKS, self.held().saturating_sub(unreclaimed).into()),
            (node::WAITERS, self.waiters().into()),
            (node::LONGEST_LEASE_MS, self.state.longest_lease_ms.into()),
            (node::MAX_TTL_MS, self.max_ttl_ms.into()),
            (node::CLAIM_WINDOW_MS, self.claim_window_ms.into()),
            (node::STARTED, if self.is_resumed { &b"resumed"[..] } else { b"new" }.into()),
            (node::ROLE, role.name().as_bytes().into()),
            (node::VERSION, VERSION.as_bytes().into()),
        ])
    }
}
