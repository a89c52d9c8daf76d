//! What is on its way between one client and one node.

use super::node::{COPIES, Connection};
use super::speech::{ReplyId, RequestId};
use hashbrown::HashMap;

/// What is on its way between a client and a node, as a number.
pub(super) type LinkId = u32;

/// The most that can be on its way at once: an acquire that nobody has seen yet, extensions, a release.
const ROOM: u32 = 4;

/// Up to four numbers in a row, the first in the lowest bits. A state has many of these, so they are small; 0 is
/// an empty place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct LinkRow(u64);

impl LinkRow {
    fn get(self, place: u32) -> Option<u16> {
        let shifted = self.0.checked_shr(place * u16::BITS).unwrap_or(0);
        let [low, high, ..] = shifted.to_le_bytes();
        Some(u16::from_le_bytes([low, high])).filter(|number| *number > 0)
    }

    fn iter(self) -> impl Iterator<Item = u16> {
        (0..ROOM).map_while(move |place| self.get(place))
    }

    fn push(&mut self, number: u16) {
        let place = (0..ROOM).find(|place| self.get(*place).is_none());
        let place = place.expect("a client has few requests on their way");
        self.0 |= u64::from(number) << (place * u16::BITS);
    }

    fn take(&mut self, place: u32) {
        let below = (1 << (place * u16::BITS)) - 1;
        self.0 = self.0 & below | self.0 >> u16::BITS & !below;
    }

    fn sorted(self) -> Self {
        let mut numbers: Vec<u16> = self.iter().collect();
        numbers.sort_unstable();
        let mut row = Self::default();
        numbers.into_iter().for_each(|number| row.push(number));
        row
    }
}

/// One connection and what is left of older ones. Order is kept on a connection, in each direction; whatever is
/// never delivered is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    /// To the node, the oldest first.
    requests: LinkRow,
    /// To the client, the oldest first, and what each of them answers.
    replies: LinkRow,
    answered: LinkRow,
    /// From older connections or copied on the way, in no order; nobody hears the reply. The connection is in
    /// the lowest bits.
    late: LinkRow,
    /// How many times the connection was made anew.
    connection: Connection,
}

/// How many bits a connection takes.
const CONNECTION_BITS: u32 = 2;

impl Link {
    /// The request that arrives next.
    pub(super) fn next_request(&self) -> Option<RequestId> {
        self.requests.get(0)
    }

    /// The reply that arrives next.
    pub(super) fn next_reply(&self) -> Option<(RequestId, ReplyId)> {
        self.answered.get(0).zip(self.replies.get(0))
    }

    /// The oldest request of which the client has not heard.
    pub(super) fn oldest_unheard(&self) -> Option<RequestId> {
        self.answered.get(0).or(self.next_request())
    }

    /// What is left of older connections.
    pub(super) fn late(&self) -> impl Iterator<Item = (RequestId, Connection)> + use<> {
        let mask = (1 << CONNECTION_BITS) - 1;
        let parts = move |late: u16| (late >> CONNECTION_BITS, late.to_le_bytes()[0] & mask);
        self.late.iter().map(parts)
    }

    /// Which connection it is.
    pub(super) fn connection(&self) -> Connection {
        self.connection
    }

    pub(super) fn send(&mut self, request: RequestId) {
        self.requests.push(request);
    }

    pub(super) fn take_request(&mut self) {
        self.requests.take(0);
    }

    pub(super) fn answer(&mut self, request: RequestId, reply: ReplyId) {
        self.answered.push(request);
        self.replies.push(reply);
    }

    pub(super) fn take_reply(&mut self) {
        self.answered.take(0);
        self.replies.take(0);
    }

    /// Nobody listens any more.
    pub(super) fn drop_replies(&mut self) {
        self.answered = LinkRow::default();
        self.replies = LinkRow::default();
    }

    /// The request that arrives next will arrive another time.
    pub(super) fn copy_next(&mut self) {
        if let Some(request) = self.next_request() {
            self.add_late(request, COPIES);
        }
    }

    pub(super) fn take_late(&mut self, place: usize) {
        self.late.take(u32::try_from(place).unwrap_or(ROOM));
    }

    /// The connection breaks: what is on its way to the node may still arrive, what comes back does not. Tells
    /// what the client has not heard of, the oldest first.
    pub(super) fn break_off(&mut self) -> Vec<RequestId> {
        let unheard = self.answered.iter().chain(self.requests.iter()).collect();
        for request in self.requests.iter() {
            self.add_late(request, self.connection);
        }
        self.requests = LinkRow::default();
        self.drop_replies();
        self.connection += 1;
        assert!(self.connection < COPIES, "the node tells so many connections apart");
        unheard
    }

    fn add_late(&mut self, request: RequestId, connection: Connection) {
        assert!(request < 1 << (u16::BITS - CONNECTION_BITS), "few distinct requests");
        self.late.push(request << CONNECTION_BITS | u16::from(connection));
        self.late = self.late.sorted();
    }
}

/// Every distinct content of a link once.
pub(super) struct Links {
    links: Vec<Link>,
    known: HashMap<Link, LinkId>,
}

impl Links {
    /// The link on which nothing was sent.
    pub(super) const NEW: LinkId = 0;

    pub(super) fn new() -> Self {
        let mut links = Self { links: Vec::new(), known: HashMap::new() };
        links.id(Link::default());
        links
    }

    pub(super) fn get(&self, id: LinkId) -> &Link {
        &self.links[id as usize]
    }

    pub(super) fn id(&mut self, link: Link) -> LinkId {
        *self.known.entry(link).or_insert_with(|| {
            self.links.push(link);
            LinkId::try_from(self.links.len() - 1).expect("few distinct links")
        })
    }

    /// Changes a link.
    pub(super) fn change(&mut self, id: &mut LinkId, change: impl FnOnce(&mut Link)) {
        let mut link = *self.get(*id);
        change(&mut link);
        *id = self.id(link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept() {
        let mut link = Link::default();
        (1..=4).for_each(|request| link.send(request));
        link.take_request();
        link.answer(1, 9);
        link.answer(2, 8);
        assert_eq!(
            (link.next_request(), link.next_reply(), link.oldest_unheard()),
            (Some(2), Some((1, 9)), Some(1))
        );
        link.take_reply();
        assert_eq!(link.next_reply(), Some((2, 8)));
        link.drop_replies();
        assert_eq!((link.next_reply(), link.oldest_unheard()), (None, Some(2)));
    }

    #[test]
    fn what_a_broken_connection_leaves_comes_in_any_order() {
        let mut link = Link::default();
        link.send(7);
        link.send(300);
        link.answer(5, 1);
        assert_eq!(link.break_off(), [5, 7, 300]);
        link.send(6);
        link.copy_next();
        assert_eq!(link.late().collect::<Vec<_>>(), [(6, COPIES), (7, 0), (300, 0)]);
        link.take_late(1);
        assert_eq!(link.late().collect::<Vec<_>>(), [(6, COPIES), (300, 0)]);
        assert_eq!((link.next_request(), link.next_reply(), link.connection()), (Some(6), None, 1));
    }
}
