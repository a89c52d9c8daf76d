//! Prints events. Each line is written before the process does anything else.

use redlock_sim::SessionId;
use redlock_tests::campaign::{CampaignEvent, EventKind, now_ns};
use std::io::Write;

/// Prints an event that happens now.
pub(crate) fn emit(session: SessionId, kind: EventKind) {
    emit_at(now_ns(), session, kind);
}

/// Prints an event of an earlier moment.
pub(crate) fn emit_at(at_ns: u64, session: SessionId, kind: EventKind) {
    let line = format!("{}\n", CampaignEvent { at_ns, session, kind });
    // Standard output is line-buffered, so each line is one write: a killed process has printed all of it or nothing.
    let mut output = std::io::stdout().lock();
    // The campaign has ended.
    if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}
