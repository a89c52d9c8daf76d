//! Lines on the output, each of them there before anything else is done.

use redlock_sim::SessionId;
use redlock_tests::campaign::{CampaignEvent, EventKind, now_ns};
use std::io::Write;

/// Tells that something is so now.
pub(crate) fn emit(session: SessionId, kind: EventKind) {
    emit_at(now_ns(), session, kind);
}

/// Tells that something was so a moment ago.
pub(crate) fn emit_at(at_ns: u64, session: SessionId, kind: EventKind) {
    let line = format!("{}\n", CampaignEvent { at_ns, session, kind });
    // One write for a line: a process that is killed has told it or has not. Output is buffered by lines.
    let mut output = std::io::stdout().lock();
    // A campaign that is gone has no use for the rest.
    if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}
