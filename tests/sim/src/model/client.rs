//! The clients: every distinct state of a production lock state once, with its driver and its holder.
//!
//! A lock state uses only differences of time, so each has its own clock that starts when it begins. Two
//! clients that began at different times and reached the same state are then equal. The `Debug` form
//! identifies a state, because it contains every field.

use super::bounds::{Bounds, Mistake, TICK_MS};
use super::speech::{ReplyId, RequestId, Speech};
use hashbrown::HashMap;
use redlock_proto::{
    AcquireOptions, Ask, Drift, Event, Failure, FailureKind, LockReply, LockState, Moment, NodeSet, Quorum,
    Request, Transmit,
};
use std::time::Duration;

/// The number of a client state.
pub(super) type ClientId = u32;

/// An input of a client, or an action of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Acts {
    /// The client requests the lock; `above` is the largest fence that was ever held.
    Begin {
        above: u64,
        hint: Option<u64>,
    },
    Tick,
    Hears {
        node: usize,
        request: RequestId,
        reply: ReplyId,
    },
    /// The client has waited long enough for a node.
    FindsSilent {
        node: usize,
        request: RequestId,
    },
    /// The connection of a request broke.
    FindsCut {
        node: usize,
        request: RequestId,
    },
    /// The client continues without answers that were worth a short wait.
    Wakes,
    Extends,
    /// The client releases the lock, or gives up.
    Releases,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub(super) struct Acted {
    pub(super) client: ClientId,
    /// The request to send, and to which nodes.
    pub(super) sends: Option<(RequestId, NodeSet)>,
    pub(super) wrong: Option<Wrong>,
}

/// An invariant that one client alone can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    NotLarger { fence: u64, before: u64 },
    Revived,
}

/// The part of a client state that the world sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) has_begun: bool,
    pub(super) has_ended: bool,
    /// The fence under which the client holds the lock, or held it.
    pub(super) fence: Option<u64>,
    /// Whether the client believes that it holds the lock at this moment.
    pub(super) is_valid: bool,
    pub(super) may_extend: bool,
    pub(super) may_wake: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// The client has not begun.
    Idle,
    Active(Box<Active>),
    /// The client has released the lock, or lost it. Replies change nothing any more.
    Ended {
        fence: Option<u64>,
    },
}

#[derive(Clone, Debug)]
struct Active {
    session: LockState,
    /// The ticks since the client began; it stops growing when all its time is over.
    age: u64,
    /// Its age when it last sent a request for a lease.
    asked_at: u64,
    /// The largest fence when the client began, until it has a fence itself.
    above: u64,
    fence: Option<u64>,
    extensions: u8,
    /// The client has held the lock and its validity has ended.
    has_lapsed: bool,
    /// With `Mistake::ValidityFromAnswer`: the end of the validity that the client believes in.
    mistaken_until: Option<Moment>,
}

struct Known {
    state: State,
    facts: Facts,
    came_from: Option<(ClientId, Acts)>,
    /// The same state with the nodes in another order, by the index of that order.
    reordered: Vec<Option<ClientId>>,
}

/// All client states that were seen.
pub(super) struct Clients {
    bounds: Bounds,
    states: Vec<Known>,
    ids: HashMap<String, ClientId>,
    steps: HashMap<(ClientId, Acts), Acted>,
    orders: Vec<Vec<usize>>,
}

impl Clients {
    /// The client that has not begun.
    pub(super) const IDLE: ClientId = 0;

    /// `orders` are all orders of the nodes.
    pub(super) fn new(bounds: &Bounds, orders: Vec<Vec<usize>>) -> Self {
        let (states, ids, steps) = (Vec::new(), HashMap::new(), HashMap::new());
        let mut clients = Self { bounds: *bounds, states, ids, steps, orders };
        clients.id(State::Idle, None);
        clients
    }

    /// The number of states that were seen.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// The part that the world sees.
    pub(super) fn facts(&self, client: ClientId) -> &Facts {
        &self.states[client as usize].facts
    }

    /// The state of a client after a step.
    pub(super) fn step(&mut self, client: ClientId, acts: Acts, speech: &mut Speech) -> Acted {
        if let Some(known) = self.steps.get(&(client, acts)) {
            return known.clone();
        }
        let state = self.states[client as usize].state.clone();
        let (next, sends, wrong) = self.act(state, acts, speech);
        let sends = sends.map(|(request, to)| (speech.request(request), to));
        let acted = Acted { client: self.id(next, Some((client, acts))), sends, wrong };
        self.steps.insert((client, acts), acted.clone());
        acted
    }

    /// The same state with the nodes in another order: node `n` becomes `orders[order][n]`.
    pub(super) fn reordered(&mut self, client: ClientId, order: usize, speech: &mut Speech) -> ClientId {
        if let Some(known) = self.states[client as usize].reordered[order] {
            return known;
        }
        let reordered = match self.states[client as usize].came_from {
            None => client,
            Some((before, acts)) => {
                let before = self.reordered(before, order, speech);
                let to = |node: usize| self.orders[order][node];
                let acts = match acts {
                    Acts::Hears { node, request, reply } => Acts::Hears { node: to(node), request, reply },
                    Acts::FindsSilent { node, request } => Acts::FindsSilent { node: to(node), request },
                    Acts::FindsCut { node, request } => Acts::FindsCut { node: to(node), request },
                    _ => acts,
                };
                self.step(before, acts, speech).client
            }
        };
        self.states[client as usize].reordered[order] = Some(reordered);
        reordered
    }

    fn id(&mut self, state: State, came_from: Option<(ClientId, Acts)>) -> ClientId {
        let spelled = format!("{state:?}");
        if let Some(known) = self.ids.get(&spelled) {
            return *known;
        }
        let id = ClientId::try_from(self.states.len()).expect("fewer than 2^32 states of a client");
        let facts = self.facts_of(&state);
        let reordered = vec![None; self.orders.len()];
        self.states.push(Known { state, facts, came_from, reordered });
        self.ids.insert(spelled, id);
        id
    }

    fn facts_of(&self, state: &State) -> Facts {
        match state {
            State::Idle => Facts::default(),
            State::Ended { fence } => {
                Facts { has_begun: true, has_ended: true, fence: *fence, ..Facts::default() }
            }
            State::Active(active) => Facts {
                has_begun: true,
                has_ended: false,
                fence: active.fence,
                is_valid: active.is_valid(),
                may_extend: active.session.fence().is_some() && active.extensions < self.bounds.extensions,
                may_wake: active.session.poll_timeout().is_some_and(|at| active.now().has_reached(at)),
            },
        }
    }

    fn act(
        &self,
        state: State,
        acts: Acts,
        speech: &Speech,
    ) -> (State, Option<(Request, NodeSet)>, Option<Wrong>) {
        let mut active = match (state, acts) {
            (State::Idle, Acts::Begin { above, hint }) => {
                let mut active = self.begin(above, hint);
                let sends = active.sends();
                return (State::Active(Box::new(active)), sends, None);
            }
            (State::Active(active), _) => *active,
            (other, _) => return (other, None, None),
        };
        let was_valid = active.is_valid();
        let now = active.now();
        let failed = |kind| LockReply::Failed(Failure::new(kind, ""));
        match acts {
            Acts::Begin { .. } => {}
            Acts::Tick => active.grow_older(self.bounds.ttl_ticks),
            Acts::Hears { node, request, reply } => {
                let mut request = *speech.request_of(request);
                if self.bounds.mistake == Mistake::ValidityFromAnswer {
                    request.sent = now;
                    active.asked_at = active.age;
                }
                active.session.handle_reply(node, &request, speech.reply_of(reply).clone(), now);
            }
            Acts::FindsSilent { node, request } => {
                let request = speech.request_of(request);
                active.session.handle_reply(node, request, failed(FailureKind::Silent), now);
            }
            Acts::FindsCut { node, request } => {
                let request = speech.request_of(request);
                active.session.handle_reply(node, request, failed(FailureKind::Cut), now);
            }
            Acts::Wakes => active.session.handle_timeout(now),
            Acts::Extends => {
                active.extensions += 1;
                if active.session.extend(self.ttl(), now).is_err() {
                    return self.end(active, speech);
                }
                let sends = active.sends();
                return (State::Active(Box::new(active)), sends, None);
            }
            Acts::Releases => return self.end(active, speech),
        }
        let mut wrong = None;
        let mut sends = active.sends();
        let mut event = active.session.poll_event();
        if let Acts::Hears { .. } = acts
            && let Some(mistaken) = self.half_is_enough(&mut active)
        {
            (sends, event) = (None, Some(mistaken));
        }
        if let Some((Request { ask: Ask::RaiseFence { fence }, .. }, _)) = sends
            && self.bounds.mistake == Mistake::LargestFenceTaken
        {
            sends = None;
            wrong = active.holds(fence);
        }
        match event {
            Some(Event::Held { fence }) => wrong = active.holds(fence),
            Some(Event::Failed(_) | Event::Lost(_)) => return self.end(active, speech),
            Some(Event::Extended | Event::NotExtended(_) | Event::Released) | None => {}
        }
        let is_valid = active.is_valid();
        if is_valid && active.has_lapsed {
            wrong = Some(Wrong::Revived);
        }
        active.has_lapsed |= was_valid && !is_valid;
        (State::Active(Box::new(active)), sends, wrong)
    }

    fn begin(&self, above: u64, hint: Option<u64>) -> Active {
        let quorum = Quorum::of(self.bounds.nodes).expect("bounds have at least one node");
        let session =
            LockState::new(quorum, Drift::default(), self.ttl(), AcquireOptions::exclusive(hint), at(0));
        Active {
            session,
            age: 0,
            asked_at: 0,
            above,
            fence: None,
            extensions: 0,
            has_lapsed: false,
            mistaken_until: None,
        }
    }

    /// Ends a client: it releases the lock, and no later reply may bring the lock back.
    fn end(&self, mut active: Active, speech: &Speech) -> (State, Option<(Request, NodeSet)>, Option<Wrong>) {
        let now = active.now();
        active.session.release(now);
        let sends = active.session.poll_transmit().map(|Transmit { request, to }| {
            // The client ignores the reply, so the time at which the request was sent does not matter.
            (Request { sent: at(0), ..request }, to)
        });
        let wrong = self.comes_back(&active.session, now, speech).then_some(Wrong::Revived);
        (State::Ended { fence: active.fence }, sends, wrong)
    }

    /// Whether any reply to any request would make an ended lock state valid again.
    fn comes_back(&self, over: &LockState, now: Moment, speech: &Speech) -> bool {
        let ttl = self.ttl();
        let asks =
            [Ask::Acquire { options: AcquireOptions::default() }, Ask::Extend, Ask::Release { floor: None }];
        let promotions = over.ballot().highest().map(|fence| Ask::RaiseFence { fence });
        let requests = asks.into_iter().chain(promotions).map(|ask| Request { ask, ttl, sent: now });
        let mut session = over.clone();
        for request in requests {
            for node in 0..self.bounds.nodes {
                for reply in speech.replies() {
                    session.handle_reply(node, &request, reply.clone(), now);
                    if revives(&mut session) || session.fence().is_some() || session.poll_timeout().is_some()
                    {
                        return true;
                    }
                }
            }
        }
        session.handle_timeout(now);
        revives(&mut session) || session.extend(ttl, now).is_ok()
    }

    fn half_is_enough(&self, active: &mut Active) -> Option<Event> {
        let granted = active.session.ballot().granted();
        if self.bounds.mistake != Mistake::HalfIsEnough || granted < self.bounds.nodes / 2 {
            return None;
        }
        active.mistaken_until = Some(at(self.bounds.ttl_ticks));
        active.session.ballot().highest().map(|fence| Event::Held { fence })
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.bounds.ttl_ms())
    }
}

impl Active {
    fn now(&self) -> Moment {
        at(self.age)
    }

    /// The next request and its nodes; records when a lease was requested.
    fn sends(&mut self) -> Option<(Request, NodeSet)> {
        let Transmit { request, to } = self.session.poll_transmit()?;
        self.asked_at = self.age;
        Some((request, to))
    }

    /// Whether its guard would report a valid lock at this moment.
    fn is_valid(&self) -> bool {
        let until = self.mistaken_until.or(self.session.valid_until());
        self.fence.is_some() && until.is_some_and(|until| !self.now().has_reached(until))
    }

    /// Beyond some age it makes no difference: every promise to the client has expired, and an expired lock
    /// state sends nothing new.
    fn grow_older(&mut self, ttl_ticks: u64) {
        self.age = (self.age + 1).min(self.asked_at + ttl_ticks);
    }

    fn holds(&mut self, fence: u64) -> Option<Wrong> {
        if self.fence.is_some() {
            return None;
        }
        self.fence = Some(fence);
        let before = std::mem::take(&mut self.above);
        (fence <= before).then_some(Wrong::NotLarger { fence, before })
    }
}

/// Whether an ended lock state has emitted anything but the end of its release.
fn revives(over: &mut LockState) -> bool {
    over.poll_transmit().is_some() || !matches!(over.poll_event(), None | Some(Event::Released))
}

/// A moment on the clock of a client.
fn at(age: u64) -> Moment {
    const START_NS: u64 = 1 << 40;
    Moment::on_one_clock(START_NS + age * TICK_MS * 1_000_000)
}
