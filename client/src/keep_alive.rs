//! Extending in the background.

use crate::extender::Extender;
use redlock_proto::pace::{KeepAlive, Next};
use std::time::Duration;

/// Extends a lock until it has been held for `max_hold`, or is over. Its guard aborts it.
pub(crate) async fn run(extender: Extender, max_hold: Duration) {
    let settings = &extender.shared.settings;
    let clock = settings.clock;
    let ends = clock.now().plus(max_hold);
    let lease = &extender.hold.lease;
    let pace = || KeepAlive::new(settings.drift.lease(extender.hold.ttl()), ends);
    let mut next = pace().after_success(lease.until(), clock.now());
    while let Next::ExtendIn(pause) = next {
        tokio::time::sleep(pause).await;
        next = match extender.extend(extender.hold.ttl()).await {
            Ok(_) => pace().after_success(lease.until(), clock.now()),
            Err(_) if lease.ended().is_some() => Next::Stop,
            Err(_) => pace().after_failure(lease.until(), clock.now()),
        };
    }
}
