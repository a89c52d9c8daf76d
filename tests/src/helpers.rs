//! Set-up and checks that many tests of one server share.

use crate::{Answer, FakeClock, Server, ServerBuilder, Wire};
use redlock_contract::grant::Unverified;

/// Starts a server with a frozen clock for its module, so that a test can predict every time. Restarts keep the clock.
#[must_use]
pub fn start_frozen(builder: ServerBuilder) -> (Server, FakeClock) {
    let clock = FakeClock::new();
    clock.freeze_module();
    (builder.clock(&clock).start(), clock)
}

/// The fence of a grant.
///
/// # Panics
/// When the reply is not a grant.
pub fn granted(answer: &Answer) -> i64 {
    assert!(matches!(answer, Answer::Int(1..)), "expected a fence, got {answer:?}");
    answer.int()
}

/// Admits a non-voting server, with fences above `floor`, after `wait_ms`.
///
/// # Panics
/// When the server refuses.
pub fn admit(wire: &mut Wire, floor: i64, wait_ms: u64) {
    let node = wire.call_strs("REDLOCK.NODE");
    let id = node.field("node-id").map(Answer::string).unwrap_or_default();
    let answer = wire.call(&["REDLOCK.ADMIT", &id, &floor.to_string(), &wait_ms.to_string()]);
    assert_eq!(answer, Answer::Int(1), "an operator can admit the node");
}

/// The message of a grant push without its proof, for tests that do not check the proof.
///
/// # Panics
/// When it is not such a message.
#[must_use]
pub fn without_proof(message: &str) -> String {
    assert!(Unverified::parse(message.as_bytes()).is_some(), "not a grant push: {message}");
    let words = message.split(' ').filter(|word| !is_proof(word));
    words.collect::<Vec<_>>().join(" ")
}

fn is_proof(word: &str) -> bool {
    word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}
