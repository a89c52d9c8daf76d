//! What many tests of one server do first.

use crate::{Answer, Builder, Clock, Server};

/// Starts a server whose module sees a clock that stands still, over restarts too, so that every number is exact.
#[must_use]
pub fn frozen(builder: Builder) -> (Server, Clock) {
    let clock = Clock::new();
    clock.freeze_module();
    (builder.clock(&clock).start(), clock)
}

/// The fence of a grant.
///
/// # Panics
/// When it is none.
pub fn granted(answer: &Answer) -> i64 {
    assert!(matches!(answer, Answer::Int(1..)), "expected a fence, got {answer:?}");
    answer.int()
}
