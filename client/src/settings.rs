//! The settings of a manager.

use crate::Error;
use crate::clock::Clock;
use crate::connect::Target;
use crate::memory::MemoryNodes;
use crate::queue_support::WaitPolicy;
use redlock_proto::{Drift, Quorum, Retry};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a manager. They never change after the build.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) quorum: Quorum,
    pub(crate) places: Places,
    /// The name of each node in errors and reports. It never contains a password.
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

/// Where the nodes are: on servers, or in memory.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    Servers(Vec<Arc<Target>>),
    Memory(MemoryNodes),
}

impl Settings {
    /// Rounds a time to live down to whole milliseconds, and checks that validity remains after the allowance
    /// for drift.
    ///
    /// A time to live that is too short is an error: the client never asks for more than the caller did.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<Duration, Error> {
        let whole = u64::try_from(ttl.as_millis())
            .map_err(|_| Error::invalid("the time to live must be shorter than 2^64 milliseconds"))?;
        let ttl = Duration::from_millis(whole);
        if self.drift.lease(ttl).is_zero() {
            return Err(Error::invalid(format!(
                "a time to live of {ttl:?} is too short: the allowance for clock drift leaves no validity"
            )));
        }
        Ok(ttl)
    }
}
