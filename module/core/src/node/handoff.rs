//! Handing a lock on to whoever waits for it.

use super::{Node, Standing};
use crate::fault::Fault;
use crate::grammar::{Acquire, Keys};
use crate::keyspace::{Keyspace, Occupant};
use crate::queue::{Limits, Waiter, WaiterId};
use crate::reply::Reply;
use crate::request::{Owner, Ttl, Wait};
use crate::table::Database;
use crate::time::{Millis, NodeClock};
use redlock_contract::CHANNEL_PREFIX;
use redlock_contract::grant::{GrantMessage, Stamped};

/// What a waiter is told on its channel: that a lock is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The channel's full name.
    pub channel: Vec<u8>,
    /// What is said there, signed with the owner ([`proof`](crate::proof)). Never the owner: others may listen.
    pub message: Vec<u8>,
}

/// When somebody cannot be served because of the node itself, it is tried again after this time.
const RETRY_MS: u64 = 250;

impl Node {
    /// Refuses a request, and queues it if it wants to wait.
    pub(super) fn refuse(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        if let Some(wait) = &request.wait {
            return self.queue(keyspace, request, wait, clock);
        }
        self.counters.refusals += 1;
        Ok(Reply::Nil)
    }

    fn queue(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        wait: &Wait<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        let now = clock.latest();
        if self.comes_late(keyspace, request, now) {
            self.counters.late_refusals += 1;
            return Ok(Reply::Nil);
        }
        let connection =
            keyspace.connection().ok_or(Fault::Arg("WAIT needs a connection; a script has none"))?;
        let keys = (0..keyspace.count()).map(|key| keyspace.name(key).into());
        let waiter = Waiter {
            database: keyspace.database(),
            ticket: wait.ticket,
            owner: request.owner.bytes().into(),
            keys: keys.collect(),
            ttl_ms: request.ttl.ms(),
            floor: request.floor,
            label: request.label.into(),
            channel: wait.channel.into(),
            stamp: wait.stamp,
            claim_ms: wait.claim_ms,
            connection,
            since: now,
            until: now.deadline_after(wait.wait_ms),
        };
        let ahead = self.queues.enter(waiter)?;
        self.counters.waits += 1;
        let (left_ms, ticket) = self.holder(keyspace, clock);
        Ok(Reply::Queued { left_ms, position: ahead as u64 + 1, ticket })
    }

    /// What the one who holds longest has left, and its ticket.
    fn holder(&self, keyspace: &impl Keyspace, clock: &mut impl NodeClock) -> (i64, u64) {
        let now = clock.proven();
        let left = |lock| i64::try_from(now.left_until(self.locks.deadline(lock))).unwrap_or(i64::MAX);
        let holders = (0..keyspace.count()).filter_map(|key| match keyspace.occupant(key) {
            Occupant::Lock(lock) => Some((left(lock), self.queues.ticket_of(lock))),
            Occupant::ForeignString => Some((-1, 0)),
            Occupant::Empty | Occupant::OtherType => None,
        });
        // Nobody knows when a foreign lock ends: that is longest.
        holders.max_by_key(|(left, _)| if *left < 0 { i64::MAX } else { *left }).unwrap_or_default()
    }

    /// Whether somebody else comes first at one of the keys. Then those who do are to be served.
    pub(super) fn is_preceded(&mut self, keyspace: &impl Keyspace, request: &Acquire<'_>) -> bool {
        if self.queues.is_empty() {
            return false;
        }
        let (database, ticket) = (keyspace.database(), request.wait.map(|wait| wait.ticket));
        let mut any = false;
        for key in 0..keyspace.count() {
            let name = keyspace.name(key);
            if self.queues.is_preceded(database, name, ticket, request.owner.bytes()) {
                self.queues.note_free(database, name);
                any = true;
            }
        }
        any
    }

    /// A request was granted at once: it waits no longer, and others learn its ticket.
    pub(super) fn granted_at_once(&mut self, keyspace: &impl Keyspace, request: &Acquire<'_>) {
        if !self.queues.is_empty() {
            self.leave_line(keyspace, request.owner.bytes());
        }
        if let Some(wait) = &request.wait {
            for key in 0..keyspace.count() {
                if let Occupant::Lock(lock) = keyspace.occupant(key) {
                    self.queues.holds(lock, wait.ticket);
                }
            }
        }
    }

    /// Takes an owner out of the lines of the keys.
    pub(super) fn leave_line(&mut self, keyspace: &impl Keyspace, owner: &[u8]) {
        for key in 0..keyspace.count() {
            self.queues.leave(keyspace.database(), keyspace.name(key), owner);
        }
    }

    /// Who is to be served next, and the keys that it waits for. Whoever asks opens them and calls
    /// [`serve`](Self::serve), until nobody is left, or no time: the search for somebody is taken off `keys_left`.
    pub fn next_due(&mut self, keys_left: &mut usize) -> Option<(WaiterId, Database, Vec<Vec<u8>>)> {
        let id = self.queues.next_due(keys_left)?;
        let waiter = self.queues.waiter(id)?;
        Some((id, self.queues.database_of(waiter), waiter.keys.iter().map(|key| key.to_vec()).collect()))
    }

    /// Gives a waiter its lock, if it can be had now, and says what is to be announced.
    pub fn serve(
        &mut self,
        keyspace: &mut impl Keyspace,
        id: WaiterId,
        clock: &mut impl NodeClock,
    ) -> Option<Announcement> {
        let waiter = self.queues.waiter(id)?.clone();
        if waiter.until <= clock.proven() {
            self.queues.give_up(id);
            return None;
        }
        // At the end of a quarantine all lines are looked at again.
        if !self.queues.is_first(&waiter)
            || self.quarantine_left_ms(clock) > 0
            || self.refuse_unless_voting().is_err()
        {
            return None;
        }
        let owner = Owner::parse(&waiter.owner).ok()?;
        let claim_ms = waiter.ttl_ms.min(self.claim_window_ms.max(waiter.claim_ms));
        let request = Acquire {
            keys: Keys::Many((0..waiter.keys.len()).collect()),
            owner,
            ttl: Ttl::of(claim_ms),
            floor: waiter.floor,
            label: &waiter.label,
            wait: None,
        };
        let now = clock.latest();
        // Whoever is in the way is followed by another look.
        let Standing::Open { has_locks } = self.standing(keyspace, owner.bytes(), clock).ok()? else {
            return None;
        };
        let fence = match self.grant(keyspace, &request, owner.bytes(), has_locks, now, clock) {
            Ok(fence) => fence?,
            Err(_) => {
                // A full disk, most of all. Nothing happens to the key when that is over.
                self.queues.postpone(id, now.deadline_after(RETRY_MS));
                return None;
            }
        };
        self.counters.handoffs += 1;
        let locks = (0..waiter.keys.len()).filter_map(|key| match keyspace.occupant(key) {
            Occupant::Lock(lock) => Some(lock),
            _ => None,
        });
        self.queues.served(id, locks);
        Some(announcement(&waiter, fence, clock.proven().since(waiter.since), claim_ms))
    }

    /// A connection has closed: nobody waits on it any longer.
    pub fn connection_closed(&mut self, connection: u64) {
        self.queues.closed(connection);
    }

    /// Something happened to a key that was not a command of this node: it may be free.
    pub fn key_changed(&mut self, database: Database, key: &[u8]) {
        if !self.queues.is_empty() {
            self.queues.note_free(database, key);
        }
    }

    /// `MIGRATE` has taken a key and its lock to another server. The node forgets the key's waiters: the lock is not
    /// this node's to grant.
    pub fn key_moved_away(&mut self, database: Database, key: &[u8]) {
        self.queues.moved_away(database, key);
    }

    /// Whether somebody waits for a key.
    #[must_use]
    pub fn is_awaited(&self, database: Database, key: &[u8]) -> bool {
        !self.queues.is_empty() && self.queues.waiting_for(database, key) > 0
    }

    /// Roughly how much memory those who wait take.
    #[must_use]
    pub fn waiters_bytes(&self) -> usize {
        self.queues.bytes()
    }

    /// Whether somebody may have to be served.
    #[must_use]
    pub fn has_due(&self) -> bool {
        self.queues.is_due()
    }

    /// Whether there are still those to be let go whose connection has closed: the sweep does that.
    #[must_use]
    pub fn has_leavers(&self) -> bool {
        self.queues.is_closing()
    }

    /// Sends everybody away who waits: this node is no longer the one to ask.
    pub fn dismiss_waiters(&mut self) {
        self.queues.clear();
    }

    /// How many wait.
    #[must_use]
    pub fn waiters(&self) -> u64 {
        self.queues.len() as u64
    }

    /// How many may wait.
    #[must_use]
    pub fn waiter_limits(&self) -> Limits {
        self.queues.limits()
    }

    /// How many may wait, to be set.
    pub fn waiter_limits_mut(&mut self) -> &mut Limits {
        self.queues.limits_mut()
    }

    /// For how long a lock that is handed on waits to be claimed.
    #[must_use]
    pub fn claim_window_ms(&self) -> u64 {
        self.claim_window_ms
    }

    /// Sets for how long a lock that is handed on waits to be claimed.
    pub fn set_claim_window_ms(&mut self, window_ms: u64) {
        self.claim_window_ms = window_ms;
    }

    /// The first time at which somebody who waits needs attention.
    pub(super) fn next_attention(&self) -> Option<Millis> {
        if self.queues.is_due() || self.queues.is_closing() {
            return Some(Millis(0));
        }
        let ends = self.queues.next_deadline()?;
        let quarantine_ends = Some(self.quarantine_until).filter(|until| *until > Millis(0));
        [quarantine_ends, self.queues.retries_at()].into_iter().flatten().chain([ends]).min()
    }

    /// Lets some of those go who have waited long enough, and looks at all lines when a quarantine is over. True if
    /// there may be more to do at once.
    #[inline(never)]
    pub(super) fn attend_to_waiters(&mut self, clock: &mut impl NodeClock) -> bool {
        let now = clock.proven();
        if self.quarantine_until > Millis(0) && self.quarantine_until <= now {
            self.quarantine_until = Millis(0);
            self.queues.note_all_free();
        }
        self.queues.retry(now);
        self.queues.let_go(now)
    }
}

fn announcement(waiter: &Waiter, fence: u64, waited_ms: u64, claim_ms: u64) -> Announcement {
    let key = waiter.keys.first().map(AsRef::as_ref).unwrap_or_default();
    let stamped = waiter.stamp.map(|stamp| Stamped { stamp, waited_ms, claim_ms });
    let message = GrantMessage { ticket: waiter.ticket, fence, stamped, key }.sign(&waiter.owner);
    Announcement { channel: [CHANNEL_PREFIX, &waiter.channel].concat(), message }
}

#[cfg(test)]
mod tests {
    use crate::memory::MemoryNode;
    use crate::queue::Limits;
    use crate::{Fault, Millis, Occupant, Reply};
    use redlock_contract::grant::Unverified;

    /// A node, and a connection for every letter.
    struct Scene {
        node: MemoryNode,
        now: Millis,
    }

    impl Scene {
        fn new() -> Self {
            Self { node: MemoryNode::new(&"0".repeat(40)), now: Millis::START }
        }

        /// Sends a line on the connection whose number comes first in it.
        fn send(&mut self, line: &str) -> Result<Reply, Fault> {
            let (connection, line) = line.split_once("> ").unwrap();
            let argv: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let mut argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            let name = [b"REDLOCK.", argv[0]].concat();
            argv[0] = &name;
            self.node.execute(&argv, connection.parse().unwrap(), self.now)
        }

        fn fence(&mut self, line: &str) -> u64 {
            match self.send(line) {
                Ok(Reply::Integer(fence)) => fence,
                other => panic!("{line}: {other:?}"),
            }
        }

        /// The place in the line that a request gets.
        fn position(&mut self, line: &str) -> u64 {
            match self.send(line) {
                Ok(Reply::Queued { position, .. }) => position,
                other => panic!("{line}: {other:?}"),
            }
        }

        fn heard(&mut self) -> Vec<String> {
            let said = self.node.take_announcements().into_iter();
            said.map(|said| {
                let channel = String::from_utf8(said.channel).unwrap();
                let message = unsigned(&said.message);
                format!("{}: {message}", channel.strip_prefix("redlock:grant:").unwrap())
            })
            .collect()
        }

        fn pass(&mut self, ms: u64) {
            self.now.0 += ms;
            self.node.sweep(self.now);
        }
    }

    /// A message without its proof, which is that of one of the owners.
    fn unsigned(message: &[u8]) -> String {
        let read = Unverified::parse(message).unwrap();
        let said = ('a'..='e').find_map(|owner| read.verify(&[owner as u8])).expect("a waiter's owner");
        let text = String::from_utf8(message.to_vec()).unwrap();
        let (head, key) = text.rsplit_once(' ').unwrap();
        assert_eq!(key.as_bytes(), said.key);
        format!("{} {key}", head.rsplit_once(' ').unwrap().0)
    }

    /// `k` is held by `a`; `b` with ticket 20 and `c` with ticket 10 wait for it.
    fn queue() -> Scene {
        let mut scene = Scene::new();
        assert_eq!(scene.fence("1> ACQUIRE k a 10000 WAIT 5 60000 one"), 1);
        assert_eq!(scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two"), 1);
        assert_eq!(scene.position("3> ACQUIRE k c 10000 WAIT 10 60000 three"), 1, "the smaller ticket");
        assert_eq!(
            scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two"),
            2,
            "asked again, not twice there"
        );
        assert!(scene.heard().is_empty());
        scene
    }

    #[test]
    fn a_release_hands_the_lock_to_the_smallest_ticket() {
        let mut scene = queue();
        assert_eq!(scene.send("1> RELEASE k a"), Ok(Reply::Integer(1)));
        assert_eq!(scene.heard(), ["three: grant 10 2 k"]);
        // It is claimed by any command of its owner, and then lasts.
        assert_eq!(scene.fence("3> EXTEND k c 10000"), 2);
        scene.pass(9_000);
        assert!(scene.heard().is_empty());
        scene.send("3> RELEASE k c").unwrap();
        assert_eq!(scene.heard(), ["two: grant 20 3 k"]);
        assert_eq!(
            scene.fence("2> ACQUIRE k b 10000 WAIT 20 60000 two"),
            3,
            "asking again claims it as well"
        );
    }

    #[test]
    fn the_queue_is_told_about_the_holder() {
        let mut scene = queue();
        scene.pass(1_000);
        let said = scene.send("4> ACQUIRE k d 10000 WAIT 15 60000 four");
        assert_eq!(said, Ok(Reply::Queued { left_ms: 9_000, position: 2, ticket: 5 }));
        scene.node.plant(b"f", Occupant::ForeignString);
        let said = scene.send("4> ACQUIRE f d 10000 WAIT 15 60000 four");
        assert_eq!(said, Ok(Reply::Queued { left_ms: -1, position: 1, ticket: 0 }));
    }

    #[test]
    fn what_is_not_claimed_goes_on() {
        let mut scene = queue();
        scene.send("1> RELEASE k a").unwrap();
        assert_eq!(scene.heard(), ["three: grant 10 2 k"]);
        scene.pass(scene.node.node().claim_window_ms());
        assert!(scene.heard().is_empty(), "the window is not over before it is over");
        scene.pass(1);
        assert_eq!(scene.heard(), ["two: grant 20 3 k"]);
        assert_eq!(scene.node.node().counters().unclaimed, 1);
        // Whoever was late queues again, before all others.
        assert_eq!(scene.send("3> EXTEND k c 10000"), Ok(Reply::Nil));
        assert_eq!(scene.position("3> ACQUIRE k c 10000 WAIT 10 60000 three"), 1);
    }

    #[test]
    fn a_lock_that_ends_in_any_way_is_handed_on() {
        let expired = |scene: &mut Scene| scene.pass(10_001);
        let deleted = |scene: &mut Scene| {
            assert!(scene.node.delete(b"k"));
            scene.pass(0);
        };
        for end in [&expired as &dyn Fn(&mut Scene), &deleted] {
            let mut scene = queue();
            end(&mut scene);
            assert_eq!(scene.heard(), ["three: grant 10 2 k"]);
        }
        // A string that a plain client had set is gone as well.
        let mut scene = Scene::new();
        scene.node.plant(b"k", Occupant::ForeignString);
        scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two");
        scene.node.delete(b"k");
        scene.pass(0);
        assert_eq!(scene.heard(), ["two: grant 20 1 k"]);
    }

    #[test]
    fn nobody_overtakes() {
        let mut scene = queue();
        scene.node.delete(b"k");
        // The key is free, but it is somebody's turn.
        assert_eq!(scene.send("4> ACQUIRE k d 10000"), Ok(Reply::Nil));
        assert_eq!(scene.heard(), ["three: grant 10 2 k"]);
        // A smaller ticket than all that wait goes first: here somebody waits for another key as well.
        scene.position("4> MACQUIRE 2 free k d 10000 WAIT 30 60000 four");
        assert_eq!(scene.send("5> ACQUIRE free e 10000"), Ok(Reply::Nil));
        assert_eq!(scene.fence("5> ACQUIRE free e 10000 WAIT 29 60000 five"), 1);
    }

    #[test]
    fn whoever_leaves_is_not_served() {
        let cancelled = |scene: &mut Scene| {
            assert_eq!(scene.send("3> RELEASE k c"), Ok(Reply::Integer(0)));
        };
        let closed = |scene: &mut Scene| scene.node.close(3, scene.now);
        for leave in [&cancelled as &dyn Fn(&mut Scene), &closed] {
            let mut scene = queue();
            leave(&mut scene);
            scene.send("1> RELEASE k a").unwrap();
            assert_eq!(scene.heard(), ["two: grant 20 2 k"]);
            assert_eq!(scene.node.node().waiters(), 0);
        }
        let mut scene = Scene::new();
        scene.fence("1> ACQUIRE k a 10000");
        scene.position("2> ACQUIRE k b 10000 WAIT 20 500 two");
        scene.pass(501);
        assert_eq!(scene.node.node().waiters(), 0, "it has waited long enough");
        scene.send("1> RELEASE k a").unwrap();
        assert!(scene.heard().is_empty());
    }

    #[test]
    fn a_closed_connection_keeps_what_was_handed_to_it() {
        let mut scene = queue();
        scene.send("1> RELEASE k a").unwrap();
        scene.node.close(3, scene.now);
        assert_eq!(scene.heard(), ["three: grant 10 2 k"], "it may hold by it");
        scene.pass(scene.node.node().claim_window_ms() + 1);
        assert_eq!(scene.heard(), ["two: grant 20 3 k"]);
    }

    #[test]
    fn several_keys_are_waited_for_as_one() {
        let mut scene = Scene::new();
        scene.fence("1> ACQUIRE x a 10000");
        scene.fence("1> ACQUIRE y a 10000");
        assert_eq!(scene.position("2> MACQUIRE 2 x y b 10000 WAIT 20 60000 two"), 1);
        scene.send("1> RELEASE x a").unwrap();
        assert!(scene.heard().is_empty());
        // Its turn keeps the key for it.
        assert_eq!(scene.send("3> ACQUIRE x c 10000"), Ok(Reply::Nil));
        scene.send("1> RELEASE y a").unwrap();
        assert_eq!(scene.heard(), ["two: grant 20 2 x"]);
        assert_eq!(scene.fence("2> MEXTEND 2 x y b 10000"), 2);
        // And when it leaves, others get their turn.
        scene.position("3> MACQUIRE 2 x z c 10000 WAIT 30 60000 three");
        scene.position("4> ACQUIRE z d 10000 WAIT 40 60000 four");
        scene.send("3> MRELEASE 2 x z c").unwrap();
        assert_eq!(scene.heard(), ["four: grant 40 1 z"]);
    }

    #[test]
    fn a_stamp_is_repeated_with_the_time_since() {
        let mut scene = Scene::new();
        scene.fence("1> ACQUIRE k a 10000");
        scene.position("2> ACQUIRE k b 40 WAIT 20 60000 two STAMP 7");
        scene.pass(1_500);
        scene.send("1> RELEASE k a").unwrap();
        assert_eq!(scene.heard(), ["two: stamped 20 2 7 1500 40 k"], "never for longer than was asked");
    }

    #[test]
    fn a_waiter_may_want_more_time_to_claim() {
        let mut scene = Scene::new();
        let window_ms = scene.node.node().claim_window_ms();
        scene.fence("1> ACQUIRE k a 10000");
        scene.position(&format!("2> ACQUIRE k b 10000 WAIT 20 60000 two STAMP 7 CLAIM {}", window_ms * 5));
        scene.position(&format!("3> ACQUIRE k c 10000 WAIT 30 60000 three STAMP 8 CLAIM {}", window_ms / 5));
        scene.send("1> RELEASE k a").unwrap();
        assert_eq!(scene.heard(), [format!("two: stamped 20 2 7 0 {} k", window_ms * 5)]);
        scene.pass(window_ms * 5 - 1);
        assert_eq!(scene.fence("2> EXTEND k b 10000"), 2);
        scene.send("2> RELEASE k b").unwrap();
        let heard = scene.heard().join("");
        assert!(heard.ends_with(&format!(" {window_ms} k")), "and never gets less: {heard}");
    }

    #[test]
    fn in_quarantine_nobody_is_served() {
        let mut scene = queue();
        let mut now = scene.now;
        scene.node.node_mut().quarantine(5_000, &mut now);
        scene.send("1> RELEASE k a").unwrap();
        assert!(scene.heard().is_empty());
        let refused = scene.send("4> ACQUIRE k d 10000 WAIT 30 60000 four");
        assert!(matches!(refused, Err(Fault::Quarantine { .. })), "{refused:?}");
        scene.pass(5_001);
        assert_eq!(scene.heard(), ["three: grant 10 2 k"]);
    }

    fn scene_bytes(scene: &Scene) -> u64 {
        scene.node.node().waiters_bytes() as u64
    }

    #[test]
    fn the_queues_are_bounded() {
        let mut scene = queue();
        let mut refused = |limits: Limits, line: &str| {
            *scene.node.node_mut().waiter_limits_mut() = limits;
            let said = scene.send(line).unwrap_err().to_string();
            assert_eq!(scene.node.node().waiters(), 2, "nothing has changed");
            said
        };
        let wide = Limits::default();
        let line = "3> ACQUIRE k e 10000 WAIT 30 60000 three";
        assert!(
            refused(Limits { node: 2, ..wide }, line)
                .starts_with("REDLOCKWAITERS the queue on this node is full")
        );
        assert!(refused(Limits { key: 2, ..wide }, line).contains("for this key"));
        assert!(refused(Limits { connection: 1, ..wide }, line).contains("on this connection"));
        let used = scene_bytes(&scene);
        let key = |length: usize| format!("3> ACQUIRE {} e 10000 WAIT 30 60000 three", "k".repeat(length));
        scene.node.plant(&vec![b'k'; 4_097], Occupant::ForeignString);
        scene.node.plant(&vec![b'k'; 4_096], Occupant::ForeignString);
        *scene.node.node_mut().waiter_limits_mut() = Limits { bytes: used + 4_096, ..wide };
        for line in [key(4_097), key(4_096)] {
            let said = scene.send(&line).unwrap_err().to_string();
            assert!(said.starts_with("REDLOCKWAITERS"), "{said}");
        }
        assert_eq!(scene_bytes(&scene), used);
        // A waiter may ask again.
        *scene.node.node_mut().waiter_limits_mut() = Limits { node: 2, key: 2, connection: 1, bytes: used };
        assert_eq!(scene.position("3> ACQUIRE k c 10000 WAIT 10 60000 three"), 1);
    }

    #[test]
    fn a_late_request_to_wait_is_refused() {
        let mut scene = Scene::new();
        scene.fence("1> ACQUIRE k a 10000");
        scene.send("3> RELEASE k b").unwrap();
        assert_eq!(scene.send("2> ACQUIRE k b 10000 WAIT 20 60000 two"), Ok(Reply::Nil));
        assert_eq!(scene.node.node().waiters(), 0);
    }
}
