//! The messages in flight between one client and one node.

use super::node::{COPIES, Connection};
use super::speech::{ReplyId, RequestId};
use hashbrown::HashMap;

/// The number of a link state.
pub(super) type LinkId = u32;

/// The largest number of messages in flight: an acquire that the node has not read yet, extensions, a
/// release.
const ROOM: u32 = 4;

/// Up to four numbers in a row, the first in the lowest bits; 0 is an empty slot. A world state has many
/// rows, so they are small.
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
        let place = place.expect("at most four messages are in flight");
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

/// One connection, and late requests of older ones. Messages on a connection keep their order in each
/// direction; a message that is never delivered is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    /// Requests to the node, the oldest first.
    requests: LinkRow,
    /// Replies to the client, the oldest first, each with the request that it answers.
    replies: LinkRow,
    answered: LinkRow,
    /// Requests of older connections or copies, in no order; the client does not read their replies. The
    /// lowest bits are the connection.
    late: LinkRow,
    /// How many times the client reconnected.
    connection: Connection,
}

/// The number of bits of a connection.
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

    /// The oldest request without a reply.
    pub(super) fn oldest_unheard(&self) -> Option<RequestId> {
        self.answered.get(0).or(self.next_request())
    }

    /// The requests of older connections, and copies.
    pub(super) fn late(&self) -> impl Iterator<Item = (RequestId, Connection)> + use<> {
        let mask = (1 << CONNECTION_BITS) - 1;
        let parts = move |late: u16| (late >> CONNECTION_BITS, late.to_le_bytes()[0] & mask);
        self.late.iter().map(parts)
    }

    /// The number of the connection.
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

    /// The client no longer reads replies.
    pub(super) fn drop_replies(&mut self) {
        self.answered = LinkRow::default();
        self.replies = LinkRow::default();
    }

    /// The next request will arrive a second time.
    pub(super) fn copy_next(&mut self) {
        if let Some(request) = self.next_request() {
            self.add_late(request, COPIES);
        }
    }

    pub(super) fn take_late(&mut self, place: usize) {
        self.late.take(u32::try_from(place).unwrap_or(ROOM));
    }

    /// The connection breaks: requests in flight may still arrive, replies do not. Returns the requests
    /// without a reply, the oldest first.
    pub(super) fn break_off(&mut self) -> Vec<RequestId> {
        let unheard = self.answered.iter().chain(self.requests.iter()).collect();
        for request in self.requests.iter() {
            self.add_late(request, self.connection);
        }
        self.requests = LinkRow::default();
        self.drop_replies();
        self.connection += 1;
        assert!(self.connection < COPIES, "at most {COPIES} connections of a client");
        unheard
    }

    fn add_late(&mut self, request: RequestId, connection: Connection) {
        assert!(request < 1 << (u16::BITS - CONNECTION_BITS), "at most 2^14 distinct requests");
        self.late.push(request << CONNECTION_BITS | u16::from(connection));
        self.late = self.late.sorted();
    }
}

/// Every distinct link state once.
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
            LinkId::try_from(self.links.len() - 1).expect("fewer than 2^32 distinct links")
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
