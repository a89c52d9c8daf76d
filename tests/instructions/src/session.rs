//! Work for a client: one lock over five nodes, from the first request to the last reply.

use std::hint::black_box;
use std::time::Duration;

use redlock_proto::{AcquireOptions, Drift, Event, LockReply, LockState, Moment, Quorum, Refusal, Transmit};

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(30);

/// A client and its time.
struct LockStateBench {
    quorum: Quorum,
    now: Moment,
}

/// The first transmit and the first event that follow the replies.
type Outputs = (Option<Transmit>, Option<Event>);

impl LockStateBench {
    fn new() -> Option<Self> {
        Some(Self { quorum: Quorum::of(NODES)?, now: Moment::on_one_clock(1_000_000_000) })
    }

    fn begin(&mut self) -> LockState {
        self.now = self.now.plus(Duration::from_millis(1));
        LockState::new(self.quorum, Drift::default(), black_box(TTL), AcquireOptions::default(), self.now)
    }

    /// Sends the client's request and delivers the replies.
    fn exchange(&mut self, lock: &mut LockState, reply: impl Fn(usize) -> LockReply) -> Outputs {
        let transmit = lock.poll_transmit();
        self.answer(lock, transmit, reply)
    }

    fn answer(
        &mut self,
        lock: &mut LockState,
        transmit: Option<Transmit>,
        reply: impl Fn(usize) -> LockReply,
    ) -> Outputs {
        let Some(Transmit { request, to }) = transmit else { return (None, None) };
        let mut first = (None, None);
        for node in to.iter() {
            self.now = self.now.plus(Duration::from_micros(10));
            lock.handle_reply(node, &request, black_box(reply(node)), self.now);
            first = (first.0.or(lock.poll_transmit()), first.1.or(lock.poll_event()));
        }
        first
    }

    /// A held lock: all nodes grant it with one fence.
    fn held(&mut self) -> LockState {
        let mut lock = self.begin();
        let (_, event) = self.exchange(&mut lock, |_| LockReply::Number(7));
        must(matches!(event, Some(Event::Held { fence: 7 })));
        lock
    }

    fn release(&mut self, mut lock: LockState) {
        lock.release(self.now);
        let transmit = lock.poll_transmit();
        must(transmit.is_some_and(|transmit| transmit.to.len() == NODES));
        let (_, event) = self.answer(&mut lock, transmit, |_| LockReply::Number(1));
        must(matches!(event, Some(Event::Released)));
    }
}

/// Panics if the client had another result: the count would be of other work.
fn must(is_so: bool) {
    assert!(is_so, "the lock is in another state");
}

fn repeat(times: u64, mut work: impl FnMut(&mut LockStateBench)) {
    let Some(mut scene) = LockStateBench::new() else { return must(false) };
    (0..times).for_each(|_| work(&mut scene));
}

pub(crate) fn hold(times: u64) {
    repeat(times, |scene| {
        let lock = scene.held();
        scene.release(lock);
    });
}

pub(crate) fn extend(times: u64) {
    let Some(mut scene) = LockStateBench::new() else { return must(false) };
    let mut lock = scene.held();
    for _ in 0..times {
        scene.now = scene.now.plus(Duration::from_secs(1));
        must(lock.extend(TTL, scene.now).is_ok());
        let (_, event) = scene.exchange(&mut lock, |_| LockReply::Number(7));
        must(matches!(event, Some(Event::Extended)));
    }
}

pub(crate) fn be_refused(times: u64) {
    repeat(times, |scene| {
        let mut lock = scene.begin();
        let (_, event) = scene.exchange(&mut lock, |_| LockReply::Nil);
        must(matches!(event, Some(Event::Failed(Refusal::Contended))));
        lock.release(scene.now);
        black_box(lock.poll_transmit());
    });
}

/// Every node answers another fence, so the client must raise those that are behind.
pub(crate) fn raise(times: u64) {
    repeat(times, |scene| {
        let mut lock = scene.begin();
        let (raise, _) = scene.exchange(&mut lock, |node| LockReply::Number(node as u64 + 1));
        must(raise.is_some());
        let outputs = scene.answer(&mut lock, raise, |_| LockReply::Number(NODES as u64));
        must(matches!(outputs, (Some(_), _) | (_, Some(Event::Held { .. }))));
        scene.release(lock);
    });
}
