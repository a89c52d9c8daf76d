//! Limits of arguments, and defaults of settings.

/// The longest owner, in bytes.
pub const MAX_OWNER_BYTES: usize = 256;
/// The longest label, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;
/// The most keys in one command.
pub const MAX_KEYS: usize = 1_024;
/// The most owners that share one key.
pub const MAX_HOLDERS: usize = 4_096;
/// The longest channel of a waiter, in bytes, without [`CHANNEL_PREFIX`](crate::CHANNEL_PREFIX).
pub const MAX_CHANNEL_BYTES: usize = 64;
/// The longest key that a client can wait for, in bytes.
pub const MAX_WAIT_KEY_BYTES: usize = 4_096;
/// The longest time that one request waits in a queue, in ms: a day. A client that waits longer sends another
/// request.
pub const MAX_WAIT_MS: u64 = 24 * 3_600 * 1_000;
/// The longest claim window, in ms.
pub const MAX_CLAIM_MS: u64 = 60_000;

/// The largest value of `redlock.max-ttl`, in ms: a year.
pub const MAX_TTL_LIMIT_MS: u64 = 365 * 24 * 3_600 * 1_000;
/// The default of `redlock.max-ttl`, in ms: an hour. An admission waits for the largest limit or longest
/// lease of any node of the group.
pub const DEFAULT_MAX_TTL_MS: u64 = 3_600 * 1_000;
/// The default of `redlock.claim-window`, in ms: how long a node waits for the claim after a hand-off.
pub const DEFAULT_CLAIM_WINDOW_MS: u64 = 100;
/// The default of `redlock.late-window`, in ms: how long a tombstone rejects a late acquire.
pub const DEFAULT_LATE_WINDOW_MS: u64 = 10_000;

/// The largest value of `redlock.late-window`: an hour.
pub const MAX_LATE_WINDOW_MS: u64 = 3_600 * 1_000;

/// The largest fence: replies are signed 64-bit integers.
pub const MAX_FENCE: u64 = i64::MAX as u64;
/// The most stripes that have a high-water mark of their own.
pub const MAX_FAR_STRIPES: usize = 1_024;
/// The largest floor of an admitted node, and the largest fence to which clients raise nodes. A quarter of all
/// fences is above it: no number of commands that a client can send reaches it.
pub const MAX_FLOOR: u64 = 3 * (1 << 61) - 1;
/// The largest fence that a node accepts from its master or from an AOF. No client can raise a fence so far: from
/// [`MAX_FLOOR`], that would take 2^40 commands. A lock with the largest fences would make its key unobtainable.
pub const MAX_REPLICATED_FENCE: u64 = MAX_FLOOR + (1 << 60);
/// One command raises a fence to any number up to this one. Half of all fences are above it.
pub const RAISE_CAP: u64 = 1 << 62;
/// Above [`RAISE_CAP`] one command raises a fence by at most this much. So a client cannot use up the fences
/// of a key: that would take 2^42 commands.
pub const RAISE_STEP: u64 = 1 << 20;

/// The largest fence to which one command raises a stripe that has reached `fence`. A command that asks for a
/// larger fence raises the stripe to this one. The client then sends another command.
#[must_use]
#[inline]
pub fn raise_limit(fence: u64) -> u64 {
    fence.saturating_add(RAISE_STEP).clamp(RAISE_CAP, MAX_FENCE)
}
