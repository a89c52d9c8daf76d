//! Counters, sizes and settings of a node.

use super::LockNode;
use crate::counters::Counters;
use crate::fence::Stripes;
use crate::queue::{LimitUse, Limits};
use crate::table::LockId;
use crate::tombstones::Tombstones;

impl LockNode {
    /// The memory of one lock, in bytes; of a shared lock, the records of all its holders.
    #[must_use]
    pub fn bytes_of(&self, lock: LockId) -> usize {
        if self.shared.has(lock) {
            self.shared.holders(lock).map(|holder| self.locks.bytes_of(holder)).sum()
        } else {
            self.locks.bytes_of(lock)
        }
    }

    /// The memory of all locks and, approximately, of all waiters, in bytes; 0 without both.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.locks.used_bytes() + self.shared.bytes() + self.queues.bytes()
    }

    /// The memory that the node has allocated for locks, waiters, fences and tombstones, in bytes, used or not.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        let fixed = self.stripes.bytes() + self.tombstones.bytes();
        self.locks.allocated_bytes() + self.shared.bytes() + self.queues.bytes() + fixed
    }

    /// The number of lock records: one for each exclusive lock and one for each holder of a shared lock.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.locks.len() as u64
    }

    /// The number of holders of shared locks.
    #[must_use]
    pub fn shared_holders(&self) -> u64 {
        self.shared.len() as u64
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiters(&self) -> u64 {
        self.queues.len() as u64
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The last fence of every stripe.
    #[must_use]
    pub fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    /// The last fence of every stripe, for the caller to add saved ones.
    pub fn stripes_mut(&mut self) -> &mut Stripes {
        &mut self.stripes
    }

    /// The largest fence that the node has granted.
    #[must_use]
    pub fn largest_fence(&self) -> u64 {
        self.stripes.largest()
    }

    /// The tombstones: releases that arrived before their acquire.
    #[must_use]
    pub fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    /// The longest time to live that a request may ask for, in milliseconds.
    #[must_use]
    pub fn max_ttl_ms(&self) -> u64 {
        self.max_ttl_ms
    }

    /// Sets the longest time to live. Held locks keep theirs.
    pub fn set_max_ttl_ms(&mut self, max_ttl_ms: u64) {
        self.max_ttl_ms = max_ttl_ms;
    }

    /// How long a tombstone rejects a late acquire, in milliseconds.
    #[must_use]
    pub fn late_window_ms(&self) -> u64 {
        self.tombstones.window_ms()
    }

    /// Sets how long a tombstone rejects a late acquire, in milliseconds; 0 turns tombstones off.
    pub fn set_late_window_ms(&mut self, window_ms: u64) {
        self.tombstones.set_window_ms(window_ms);
    }

    /// How long a waiter has to claim a lock that was handed to it, in milliseconds.
    #[must_use]
    pub fn claim_window_ms(&self) -> u64 {
        self.claim_window_ms
    }

    /// Sets how long a waiter has to claim a lock that was handed to it, in milliseconds.
    pub fn set_claim_window_ms(&mut self, window_ms: u64) {
        self.claim_window_ms = window_ms;
    }

    /// What the waiters use of each limit of the wait queues.
    #[must_use]
    pub fn waiter_usage(&self) -> LimitUse {
        self.queues.usage()
    }

    /// The limits of the wait queues.
    #[must_use]
    pub fn waiter_limits(&self) -> Limits {
        self.queues.limits()
    }

    /// The limits of the wait queues, for the caller to set.
    pub fn waiter_limits_mut(&mut self) -> &mut Limits {
        self.queues.limits_mut()
    }
}
