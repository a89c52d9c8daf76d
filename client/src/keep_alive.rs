//! Extends a lock in the background.

use crate::lock_handle::LockHandle;
use redlock_proto::keep_alive::{KeepAlive, NextExtension};
use std::time::Duration;

/// How long the claim after a hand-off may take before the client also extends the lock.
const LONGEST_CLAIM: Duration = Duration::from_millis(250);

/// Extends a lock until it has been held for `max_hold`, or until it ends. The guard aborts this task.
pub(crate) async fn run(handle: LockHandle, max_hold: Duration) {
    let (settings, shared) = (&handle.settings, &handle.shared);
    let clock = settings.clock;
    let ends = clock.now().plus(max_hold);
    let pace = || KeepAlive::new(settings.drift.lease(shared.ttl()), ends);
    let mut next = pace().after_success(shared.valid_until(), clock.now());
    let is_urgent = shared.remaining() <= shared.notice() * 8;
    if next == NextExtension::ExtendIn(Duration::ZERO) && shared.was_refused() && !is_urgent {
        // After a hand-off the lock is valid for the claim window, and the claim is in flight. An extension
        // now would only add a request.
        next = NextExtension::ExtendIn((shared.remaining() / 4).min(LONGEST_CLAIM));
    }
    while let NextExtension::ExtendIn(pause) = next {
        tokio::time::sleep(pause).await;
        // The caller may have extended the lock meanwhile.
        let due = pace().after_success(shared.valid_until(), clock.now());
        if due != NextExtension::ExtendIn(Duration::ZERO) && shared.ended().is_none() {
            next = due;
            continue;
        }
        next = match handle.extend(shared.ttl()).await {
            Ok(_) => pace().after_success(shared.valid_until(), clock.now()),
            Err(_) if shared.ended().is_some() => NextExtension::Stop,
            Err(_) => pace().after_failure(shared.valid_until(), clock.now()),
        };
    }
}
