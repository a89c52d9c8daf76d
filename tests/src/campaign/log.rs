//! The event log: the events of all processes.

use super::event::{CampaignEvent, EventKind};
use redlock_sim::SessionId;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Collects the events of all processes, in the order in which they are read.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: Mutex<Vec<CampaignEvent>>,
}

/// The process that a session belongs to.
pub(super) fn process_of(session: SessionId) -> u64 {
    session >> 40
}

/// The first session number of a process; its later attempts count up from it.
#[must_use]
pub fn first_session(process: u64) -> SessionId {
    process << 40
}

impl EventLog {
    pub(super) fn record(&self, event: CampaignEvent) {
        self.events().push(event);
    }

    pub(super) fn read(&self) -> Vec<CampaignEvent> {
        self.events().clone()
    }

    /// How many attempts have held their locks.
    pub(super) fn holds(&self) -> usize {
        self.count(|event| matches!(event.kind, EventKind::Held { .. }))
    }

    /// How many attempts of one process have held their locks.
    pub(super) fn holds_of(&self, process: u64) -> usize {
        self.count(|event| {
            process_of(event.session) == process && matches!(event.kind, EventKind::Held { .. })
        })
    }

    /// How many attempts of one process have failed since it last held a lock, without cancelled attempts.
    pub(super) fn consecutive_failures(&self, process: u64) -> usize {
        let events = self.events();
        let own = events.iter().rev().filter(|event| process_of(event.session) == process);
        let since_then = own.take_while(|event| !matches!(event.kind, EventKind::Held { .. }));
        since_then
            .filter(|event| matches!(&event.kind, EventKind::Failed { why } if why != "cancelled"))
            .count()
    }

    pub(super) fn count(&self, is_meant: impl Fn(&CampaignEvent) -> bool) -> usize {
        self.events().iter().filter(|event| is_meant(event)).count()
    }

    fn events(&self) -> MutexGuard<'_, Vec<CampaignEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
