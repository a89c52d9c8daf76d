//! Work for a client: one lock over five nodes, from the first request to the last answer.

use std::hint::black_box;
use std::time::Duration;

use redlock_proto::{Drift, Event, Moment, NodeSet, Quorum, Refusal, Reply, Request, Session};

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(30);

/// A client and its time.
struct Scene {
    quorum: Quorum,
    now: Moment,
}

impl Scene {
    fn new() -> Option<Self> {
        Some(Self { quorum: Quorum::of(NODES)?, now: Moment::on_one_clock(1_000_000_000) })
    }

    fn begin(&mut self) -> (Session, Request) {
        self.now = self.now.plus(Duration::from_millis(1));
        Session::begin(self.quorum, Drift::default(), black_box(TTL), None, self.now)
    }

    /// Brings answers to a request, and tells the first event.
    fn answer(
        &mut self,
        session: &mut Session,
        request: &Request,
        to: NodeSet,
        reply: impl Fn(usize) -> Reply,
    ) -> Option<Event> {
        let mut first = None;
        for node in to.iter() {
            self.now = self.now.plus(Duration::from_micros(10));
            let event = session.answered(node, request, black_box(reply(node)), self.now);
            first = first.or(event);
        }
        first
    }

    /// A lock that all nodes grant under one number.
    fn held(&mut self) -> Session {
        let (mut session, request) = self.begin();
        let event = self.answer(&mut session, &request, NodeSet::first(NODES), |_| Reply::Number(7));
        must(matches!(event, Some(Event::Held { fence: 7 })));
        session
    }

    fn release(&mut self, mut session: Session) {
        let (request, to) = session.release(self.now);
        must(to.len() == NODES);
        let event = self.answer(&mut session, &request, to, |_| Reply::Number(1));
        must(matches!(event, Some(Event::Released)));
    }
}

/// Counting something that went wrong would be worth nothing.
fn must(is_so: bool) {
    assert!(is_so, "the session came to something else");
}

fn repeat(times: u64, mut work: impl FnMut(&mut Scene)) {
    let Some(mut scene) = Scene::new() else { return must(false) };
    (0..times).for_each(|_| work(&mut scene));
}

pub(crate) fn hold(times: u64) {
    repeat(times, |scene| {
        let session = scene.held();
        scene.release(session);
    });
}

pub(crate) fn extend(times: u64) {
    let Some(mut scene) = Scene::new() else { return must(false) };
    let mut session = scene.held();
    for _ in 0..times {
        scene.now = scene.now.plus(Duration::from_secs(1));
        let Ok((request, to)) = session.extend(TTL, scene.now) else { return must(false) };
        let event = scene.answer(&mut session, &request, to, |_| Reply::Number(7));
        must(matches!(event, Some(Event::Extended)));
    }
}

pub(crate) fn be_refused(times: u64) {
    repeat(times, |scene| {
        let (mut session, request) = scene.begin();
        let event = scene.answer(&mut session, &request, NodeSet::first(NODES), |_| Reply::Nil);
        must(matches!(event, Some(Event::Failed(Refusal::Contended))));
        let (_, to) = session.release(scene.now);
        black_box(to);
    });
}

/// Every node answers a number of its own, so those that are behind have to be raised.
pub(crate) fn promote(times: u64) {
    repeat(times, |scene| {
        let (mut session, request) = scene.begin();
        let own = |node: usize| Reply::Number(node as u64 + 1);
        let event = scene.answer(&mut session, &request, NodeSet::first(NODES), own);
        let Some(Event::Promote(request, to)) = event else { return must(false) };
        let event = scene.answer(&mut session, &request, to, |_| Reply::Number(NODES as u64));
        must(matches!(event, Some(Event::Held { .. } | Event::Promote(..))));
        scene.release(session);
    });
}
