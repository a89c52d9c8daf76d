//! Extends a lock in the background.

use crate::extender::Extender;
use redlock_proto::keep_alive::{KeepAlive, NextExtension};
use std::time::Duration;

/// How long the claim after a hand-off may take before the client also extends the lock.
const LONGEST_CLAIM: Duration = Duration::from_millis(250);

/// Extends a lock until it has been held for `max_hold`, or until it ends. The guard aborts this task.
pub(crate) async fn run(extender: Extender, max_hold: Duration) {
    let settings = &extender.manager.settings;
    let clock = settings.clock;
    let ends = clock.now().plus(max_hold);
    let lease = &extender.shared.lease;
    let pace = || KeepAlive::new(settings.drift.lease(extender.shared.ttl()), ends);
    let mut next = pace().after_success(lease.until(), clock.now());
    let is_urgent = lease.remaining() <= lease.notice() * 8;
    if next == NextExtension::ExtendIn(Duration::ZERO) && extender.shared.was_refused() && !is_urgent {
        // After a hand-off the lock is valid for the claim window, and the claim is in flight. An extension
        // now would only add a request.
        next = NextExtension::ExtendIn((lease.remaining() / 4).min(LONGEST_CLAIM));
    }
    while let NextExtension::ExtendIn(pause) = next {
        tokio::time::sleep(pause).await;
        // The caller may have extended the lock meanwhile.
        let due = pace().after_success(lease.until(), clock.now());
        if due != NextExtension::ExtendIn(Duration::ZERO) && lease.ended().is_none() {
            next = due;
            continue;
        }
        next = match extender.extend(extender.shared.ttl()).await {
            Ok(_) => pace().after_success(lease.until(), clock.now()),
            Err(_) if lease.ended().is_some() => NextExtension::Stop,
            Err(_) => pace().after_failure(lease.until(), clock.now()),
        };
    }
}
