//! A request as the words of a command.

use super::{Ask, QueueRequest, Request};
use crate::Decimal;
use redlock_contract::commands::{Verb, option};
use redlock_contract::limits::MAX_WAIT_MS;

/// The most words after the keys: owner, time to live, `FENCE`, `LABEL`, `WAIT`, `STAMP` and
/// `CLAIM` with their values.
const MOST_TAIL_WORDS: usize = 14;

/// The numbers of a place in line, as they are spelled.
struct Numerals {
    ticket: Decimal,
    wait_ms: Decimal,
    stamp: Decimal,
    claim_ms: Option<Decimal>,
}

impl Numerals {
    fn of(queue: &QueueRequest) -> Self {
        let wait_ms = u64::try_from(queue.wait.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_WAIT_MS);
        Self {
            ticket: Decimal::new(queue.ticket),
            wait_ms: Decimal::new(wait_ms),
            stamp: Decimal::new(queue.stamp),
            claim_ms: queue
                .claim
                .map(|claim| Decimal::new(u64::try_from(claim.as_millis()).unwrap_or(u64::MAX))),
        }
    }
}

impl Request {
    /// The words of the command that a node gets, on the stack for one key, which is the usual case.
    ///
    /// The label goes with an acquire, if it is not empty.
    pub fn with_words<T>(
        &self,
        keys: &[impl AsRef<[u8]>],
        owner: &[u8],
        label: &[u8],
        run: impl FnOnce(&[&[u8]]) -> T,
    ) -> T {
        let ttl = Decimal::new(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX));
        let (one, many, number, wants_ttl) = match self.ask {
            Ask::Acquire { hint } | Ask::Wait { hint, .. } => (Verb::Acquire, Verb::Macquire, hint, true),
            Ask::RaiseFence { fence } => (Verb::Extend, Verb::Mextend, Some(fence), true),
            Ask::Extend => (Verb::Extend, Verb::Mextend, None, true),
            Ask::Release { floor } => (Verb::Release, Verb::Mrelease, floor, false),
        };
        let number = number.map(Decimal::new);
        let queue = match &self.ask {
            Ask::Wait { queue, .. } => Some((queue, Numerals::of(queue))),
            _ => None,
        };
        let mut tail: [&[u8]; MOST_TAIL_WORDS] = [&[]; MOST_TAIL_WORDS];
        let mut length = 0;
        let mut push = |word| {
            if let Some(place) = tail.get_mut(length) {
                *place = word;
                length += 1;
            }
        };
        push(owner);
        if wants_ttl {
            push(ttl.as_bytes());
        }
        if let Some(number) = &number {
            push(option::FENCE.as_bytes());
            push(number.as_bytes());
        }
        if matches!(self.ask, Ask::Acquire { .. } | Ask::Wait { .. }) && !label.is_empty() {
            push(option::LABEL.as_bytes());
            push(label);
        }
        if let Some((queue, numerals)) = &queue {
            push(option::WAIT.as_bytes());
            push(numerals.ticket.as_bytes());
            push(numerals.wait_ms.as_bytes());
            push(&queue.channel);
            push(option::STAMP.as_bytes());
            push(numerals.stamp.as_bytes());
            if let Some(claim_ms) = &numerals.claim_ms {
                push(option::CLAIM.as_bytes());
                push(claim_ms.as_bytes());
            }
        }
        let tail = tail.get(..length).unwrap_or_default();
        if let [key] = keys {
            let mut words: [&[u8]; MOST_TAIL_WORDS + 2] = [&[]; MOST_TAIL_WORDS + 2];
            words[0] = one.name().as_bytes();
            words[1] = key.as_ref();
            words[2..2 + length].copy_from_slice(tail);
            return run(&words[..2 + length]);
        }
        let count = Decimal::new(keys.len() as u64);
        let mut words: Vec<&[u8]> = Vec::with_capacity(keys.len() + MOST_TAIL_WORDS + 2);
        words.extend([many.name().as_bytes(), count.as_bytes()]);
        words.extend(keys.iter().map(AsRef::as_ref));
        words.extend_from_slice(tail);
        run(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use std::time::Duration;

    fn spelled(keys: &[&str], label: &str, ask: Ask) -> String {
        let request = Request { ask, ttl: Duration::from_millis(30_000), sent: Moment::default() };
        request.with_words(keys, b"OWNER", label.as_bytes(), |words| {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            words.join(" ")
        })
    }

    #[test]
    fn every_request_has_its_words() {
        let queue = QueueRequest {
            ticket: 5,
            stamp: 6,
            wait: Duration::from_millis(70),
            channel: *b"0123456789abcdef",
            claim: None,
        };
        let far = QueueRequest { claim: Some(Duration::from_millis(480)), ..queue };
        let table: [(&[&str], &str, Ask, &str); 11] = [
            (
                &["a"],
                "",
                Ask::Wait { hint: None, queue: far },
                "REDLOCK.ACQUIRE a OWNER 30000 WAIT 5 70 0123456789abcdef STAMP 6 CLAIM 480",
            ),
            (
                &["a"],
                "me",
                Ask::Wait { hint: Some(7), queue },
                "REDLOCK.ACQUIRE a OWNER 30000 FENCE 7 LABEL me WAIT 5 70 0123456789abcdef STAMP 6",
            ),
            (
                &["a", "b"],
                "",
                Ask::Wait { hint: None, queue },
                "REDLOCK.MACQUIRE 2 a b OWNER 30000 WAIT 5 70 0123456789abcdef STAMP 6",
            ),
            (&["a"], "", Ask::Acquire { hint: None }, "REDLOCK.ACQUIRE a OWNER 30000"),
            (&["a"], "me", Ask::Acquire { hint: Some(7) }, "REDLOCK.ACQUIRE a OWNER 30000 FENCE 7 LABEL me"),
            (&["a"], "me", Ask::RaiseFence { fence: 9 }, "REDLOCK.EXTEND a OWNER 30000 FENCE 9"),
            (&["a"], "me", Ask::Extend, "REDLOCK.EXTEND a OWNER 30000"),
            (&["a"], "me", Ask::Release { floor: None }, "REDLOCK.RELEASE a OWNER"),
            (&["a"], "", Ask::Release { floor: Some(3) }, "REDLOCK.RELEASE a OWNER FENCE 3"),
            (&["a", "b"], "me", Ask::Acquire { hint: None }, "REDLOCK.MACQUIRE 2 a b OWNER 30000 LABEL me"),
            (&["a", "b"], "", Ask::Release { floor: None }, "REDLOCK.MRELEASE 2 a b OWNER"),
        ];
        for (keys, label, ask, words) in table {
            assert_eq!(spelled(keys, label, ask), words);
        }
    }
}
