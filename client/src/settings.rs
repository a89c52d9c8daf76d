//! What a manager was built with.

use crate::Error;
use crate::clock::Clock;
use crate::connect::Target;
use crate::memory::MemoryNodes;
use crate::queue_support::WaitPolicy;
use redlock_proto::{Drift, Quorum, Retry};
use std::sync::Arc;
use std::time::Duration;

/// Everything that stays the same for the life of a manager.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) quorum: Quorum,
    pub(crate) places: Places,
    /// What each node is called in errors and reports; never with a password.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry: Retry,
    pub(crate) drift: Drift,
    pub(crate) max_hold: Duration,
    pub(crate) key_prefix: Vec<u8>,
    pub(crate) label: Vec<u8>,
    pub(crate) clock: Clock,
    pub(crate) wait_policy: WaitPolicy,
}

/// Where the nodes are.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    Servers(Vec<Arc<Target>>),
    Memory(MemoryNodes),
}

impl Settings {
    /// A time to live in whole milliseconds that leaves something after the allowance for drift.
    ///
    /// Too short is an error, not a reason to ask for more than the caller wanted.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<Duration, Error> {
        let whole =
            u64::try_from(ttl.as_millis()).map_err(|_| Error::invalid("the time to live is too long"))?;
        let ttl = Duration::from_millis(whole);
        if self.drift.lease(ttl).is_zero() {
            let drift = ttl.saturating_sub(self.drift.lease(ttl));
            return Err(Error::invalid(format!(
                "a time to live of {ttl:?} is too short: nothing is left after {drift:?} for drifting clocks"
            )));
        }
        Ok(ttl)
    }
}
