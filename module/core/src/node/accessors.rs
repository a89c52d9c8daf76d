//! Counters, sizes and settings of a node.

use super::LockNode;
use crate::counters::Counters;
use crate::fence::Stripes;
use crate::queue::Limits;
use crate::table::LockId;
use crate::tombstones::Tombstones;

impl LockNode {
    /// The memory of one lock, in bytes.
    #[must_use]
    pub fn bytes_of(&self, lock: LockId) -> usize {
        self.locks.bytes_of(lock)
    }

    /// The memory of all locks, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.locks.held_bytes()
    }

    /// The number of lock records.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.locks.len() as u64
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiters(&self) -> u64 {
        self.queues.len() as u64
    }

    /// The approximate memory of all waiters, in bytes.
    #[must_use]
    pub fn waiters_bytes(&self) -> usize {
        self.queues.bytes()
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

    /// How long a lock that was handed to a waiter stays unclaimed at most, in milliseconds.
    #[must_use]
    pub fn claim_window_ms(&self) -> u64 {
        self.claim_window_ms
    }

    /// Sets how long a lock that was handed to a waiter stays unclaimed at most, in milliseconds.
    pub fn set_claim_window_ms(&mut self, window_ms: u64) {
        self.claim_window_ms = window_ms;
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
