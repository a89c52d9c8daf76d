//! A request as the words of a command.

use super::{Ask, LockMode, QueueRequest, Request};
use crate::Decimal;
use redlock_contract::commands::{Verb, option};
use redlock_contract::limits::MAX_WAIT_MS;
use std::time::Duration;

/// The most words with one key: command, key, owner, time to live, `SHARED`, and `FENCE`, `LABEL`, `WAIT`, `STAMP` and
/// `CLAIM` with their values.
const MAX_WORDS: usize = 17;

/// The words before the owner: command and key.
const HEAD: usize = 2;

/// The words of a command with one key, on the stack. The first two are set last: see [`Words::with_head`].
struct Words<'a> {
    words: [&'a [u8]; MAX_WORDS],
    length: usize,
}

impl<'a> Words<'a> {
    #[inline]
    fn push(&mut self, word: &'a [u8]) {
        if let Some(free) = self.words.get_mut(self.length) {
            *free = word;
            self.length += 1;
        }
    }

    #[inline]
    fn option(&mut self, name: &'static str, value: &'a [u8]) {
        self.push(name.as_bytes());
        self.push(value);
    }

    /// The words after the keys.
    fn tail(&self) -> &[&'a [u8]] {
        self.words.get(HEAD..self.length).unwrap_or_default()
    }

    #[inline]
    fn with_head(&mut self, verb: Verb, key: &'a [u8]) -> &[&'a [u8]] {
        [self.words[0], self.words[1]] = [verb.name().as_bytes(), key];
        self.words.get(..self.length).unwrap_or_default()
    }
}

/// The numbers of a queue request, in decimal.
struct QueueNumbers {
    ticket: Decimal,
    wait_ms: Decimal,
    stamp: Decimal,
    claim_ms: Option<Decimal>,
}

impl QueueNumbers {
    fn new(queue: &QueueRequest) -> Self {
        Self {
            ticket: Decimal::new(queue.ticket),
            wait_ms: Decimal::new(millis(queue.wait).clamp(1, MAX_WAIT_MS)),
            stamp: Decimal::new(queue.stamp),
            claim_ms: queue.claim.map(|claim| Decimal::new(millis(claim))),
        }
    }

    fn append_to<'a>(&'a self, words: &mut Words<'a>, channel: &'a [u8]) {
        words.option(option::WAIT, self.ticket.as_bytes());
        words.push(self.wait_ms.as_bytes());
        words.push(channel);
        words.option(option::STAMP, self.stamp.as_bytes());
        if let Some(claim_ms) = &self.claim_ms {
            words.option(option::CLAIM, claim_ms.as_bytes());
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Request {
    /// Runs `run` with the words of the command. For one key, the usual case, the words are on the stack.
    ///
    /// The label goes with an acquire, if it is not empty.
    pub fn with_words<T>(
        &self,
        keys: &[impl AsRef<[u8]>],
        owner: &[u8],
        label: &[u8],
        run: impl FnOnce(&[&[u8]]) -> T,
    ) -> T {
        let (one, many, fence) = match self.ask {
            Ask::Acquire { options } | Ask::Wait { options, .. } => {
                (Verb::Acquire, Verb::Macquire, options.hint)
            }
            Ask::RaiseFence { fence } => (Verb::Extend, Verb::Mextend, Some(fence)),
            Ask::Extend => (Verb::Extend, Verb::Mextend, None),
            Ask::Release { floor } => (Verb::Release, Verb::Mrelease, floor),
        };
        let (ttl, fence) = (Decimal::new(millis(self.ttl)), fence.map(Decimal::new));
        let queue = match &self.ask {
            Ask::Wait { queue, .. } => Some((queue, QueueNumbers::new(queue))),
            _ => None,
        };
        let mut words = Words { words: [&[]; MAX_WORDS], length: HEAD };
        words.push(owner);
        if !self.is_release() {
            words.push(ttl.as_bytes());
        }
        if let Some(fence) = &fence {
            words.option(option::FENCE, fence.as_bytes());
        }
        if one == Verb::Acquire && !label.is_empty() {
            words.option(option::LABEL, label);
        }
        if self.mode() == LockMode::Shared {
            words.push(option::SHARED.as_bytes());
        }
        if let Some((queue, numbers)) = &queue {
            numbers.append_to(&mut words, &queue.channel);
        }
        match keys {
            [key] => run(words.with_head(one, key.as_ref())),
            keys => {
                let count = Decimal::new(keys.len() as u64);
                let mut all: Vec<&[u8]> = Vec::with_capacity(keys.len() + MAX_WORDS);
                all.extend([many.name().as_bytes(), count.as_bytes()]);
                all.extend(keys.iter().map(AsRef::as_ref));
                all.extend_from_slice(words.tail());
                run(&all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AcquireOptions, Moment};
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
        let shared = AcquireOptions { mode: LockMode::Shared, hint: Some(7) };
        let table: [(&[&str], &str, Ask, &str); 13] = [
            (
                &["a"],
                "me",
                Ask::Acquire { options: shared },
                "REDLOCK.ACQUIRE a OWNER 30000 FENCE 7 LABEL me SHARED",
            ),
            (
                &["a"],
                "me",
                Ask::Wait { options: shared, queue: far },
                "REDLOCK.ACQUIRE a OWNER 30000 FENCE 7 LABEL me SHARED WAIT 5 70 0123456789abcdef STAMP 6 CLAIM 480",
            ),
            (
                &["a"],
                "",
                Ask::Wait { options: AcquireOptions::default(), queue: far },
                "REDLOCK.ACQUIRE a OWNER 30000 WAIT 5 70 0123456789abcdef STAMP 6 CLAIM 480",
            ),
            (
                &["a"],
                "me",
                Ask::Wait { options: AcquireOptions::exclusive(Some(7)), queue },
                "REDLOCK.ACQUIRE a OWNER 30000 FENCE 7 LABEL me WAIT 5 70 0123456789abcdef STAMP 6",
            ),
            (
                &["a", "b"],
                "",
                Ask::Wait { options: AcquireOptions::default(), queue },
                "REDLOCK.MACQUIRE 2 a b OWNER 30000 WAIT 5 70 0123456789abcdef STAMP 6",
            ),
            (
                &["a"],
                "",
                Ask::Acquire { options: AcquireOptions::default() },
                "REDLOCK.ACQUIRE a OWNER 30000",
            ),
            (
                &["a"],
                "me",
                Ask::Acquire { options: AcquireOptions::exclusive(Some(7)) },
                "REDLOCK.ACQUIRE a OWNER 30000 FENCE 7 LABEL me",
            ),
            (&["a"], "me", Ask::RaiseFence { fence: 9 }, "REDLOCK.EXTEND a OWNER 30000 FENCE 9"),
            (&["a"], "me", Ask::Extend, "REDLOCK.EXTEND a OWNER 30000"),
            (&["a"], "me", Ask::Release { floor: None }, "REDLOCK.RELEASE a OWNER"),
            (&["a"], "", Ask::Release { floor: Some(3) }, "REDLOCK.RELEASE a OWNER FENCE 3"),
            (
                &["a", "b"],
                "me",
                Ask::Acquire { options: AcquireOptions::default() },
                "REDLOCK.MACQUIRE 2 a b OWNER 30000 LABEL me",
            ),
            (&["a", "b"], "", Ask::Release { floor: None }, "REDLOCK.MRELEASE 2 a b OWNER"),
        ];
        for (keys, label, ask, words) in table {
            assert_eq!(spelled(keys, label, ask), words);
        }
    }
}
