use crate::memory::MemoryNode;
use crate::queue::Limits;
use crate::{CommandError, KeyState, Millis, Reply};
use redlock_contract::grant::Unverified;

const NODE_ID: &str = "0000000000000000000000000000000000000000";

/// A node and its time. Each client has a connection of its own.
struct Scene {
    node: MemoryNode,
    now: Millis,
}

impl Scene {
    fn new() -> Self {
        Self { node: MemoryNode::new(NODE_ID), now: Millis::START }
    }

    /// Sends a line of the form `connection> command`.
    fn send(&mut self, line: &str) -> Result<Reply, CommandError> {
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

    /// The position in the wait queue that a request gets.
    fn position(&mut self, line: &str) -> u64 {
        match self.send(line) {
            Ok(Reply::Queued { position, .. }) => position,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn pushes(&mut self) -> Vec<String> {
        let pushes = self.node.take_pushes().into_iter();
        pushes
            .map(|push| {
                let channel = String::from_utf8(push.channel).unwrap();
                let message = unsigned(&push.message);
                format!("{}: {message}", channel.strip_prefix("redlock:grant:").unwrap())
            })
            .collect()
    }

    fn pass(&mut self, ms: u64) {
        self.now.0 += ms;
        self.node.sweep(self.now);
    }
}

/// A message without its proof, after a check that the proof is one of a waiter's owner.
fn unsigned(message: &[u8]) -> String {
    let read = Unverified::parse(message).unwrap();
    let grant = ('a'..='e').find_map(|owner| read.verify(NODE_ID, &[owner as u8])).expect("a waiter's owner");
    let text = String::from_utf8(message.to_vec()).unwrap();
    let (head, key) = text.rsplit_once(' ').unwrap();
    assert_eq!(key.as_bytes(), grant.key);
    format!("{} {key}", head.rsplit_once(' ').unwrap().0)
}

/// Owner `a` holds `k`; `b` with ticket 20 and `c` with ticket 10 wait for it.
fn queue() -> Scene {
    let mut scene = Scene::new();
    assert_eq!(scene.fence("1> ACQUIRE k a 10000 WAIT 5 60000 one"), 1);
    assert_eq!(scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two"), 1);
    assert_eq!(scene.position("3> ACQUIRE k c 10000 WAIT 10 60000 three"), 1, "the smaller ticket");
    assert_eq!(
        scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two"),
        2,
        "a repeated request is queued once"
    );
    assert!(scene.pushes().is_empty());
    scene
}

#[test]
fn a_release_hands_the_lock_to_the_smallest_ticket() {
    let mut scene = queue();
    assert_eq!(scene.send("1> RELEASE k a"), Ok(Reply::Integer(1)));
    assert_eq!(scene.pushes(), ["three: grant 10 2 k"]);
    // Any command of its owner claims the lock.
    assert_eq!(scene.fence("3> EXTEND k c 10000"), 2);
    scene.pass(9_000);
    assert!(scene.pushes().is_empty());
    scene.send("3> RELEASE k c").unwrap();
    assert_eq!(scene.pushes(), ["two: grant 20 3 k"]);
    assert_eq!(
        scene.fence("2> ACQUIRE k b 10000 WAIT 20 60000 two"),
        3,
        "a repeated acquire claims it as well"
    );
}

#[test]
fn a_queued_reply_describes_the_holder() {
    let mut scene = queue();
    scene.pass(1_000);
    let reply = scene.send("4> ACQUIRE k d 10000 WAIT 15 60000 four");
    assert_eq!(reply, Ok(Reply::Queued { left_ms: 9_000, position: 2, ticket: 5 }));
    scene.node.plant(b"f", KeyState::ForeignString);
    let reply = scene.send("4> ACQUIRE f d 10000 WAIT 15 60000 four");
    assert_eq!(reply, Ok(Reply::Queued { left_ms: -1, position: 1, ticket: 0 }));
}

#[test]
fn an_unclaimed_lock_passes_to_the_next_waiter() {
    let mut scene = queue();
    scene.send("1> RELEASE k a").unwrap();
    assert_eq!(scene.pushes(), ["three: grant 10 2 k"]);
    scene.pass(scene.node.node().claim_window_ms());
    assert!(scene.pushes().is_empty(), "the claim window has not ended");
    scene.pass(1);
    assert_eq!(scene.pushes(), ["two: grant 20 3 k"]);
    assert_eq!(scene.node.node().counters().unclaimed, 1);
    // The client that claimed too late queues again, ahead of all others.
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
        assert_eq!(scene.pushes(), ["three: grant 10 2 k"]);
    }
    // The same holds for a string that a plain client has set.
    let mut scene = Scene::new();
    scene.node.plant(b"k", KeyState::ForeignString);
    scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two");
    scene.node.delete(b"k");
    scene.pass(0);
    assert_eq!(scene.pushes(), ["two: grant 20 1 k"]);
}

#[test]
fn no_request_overtakes_an_earlier_ticket() {
    let mut scene = queue();
    scene.node.delete(b"k");
    // The key is free, but another client is first in the queue.
    assert_eq!(scene.send("4> ACQUIRE k d 10000"), Ok(Reply::Nil));
    assert_eq!(scene.pushes(), ["three: grant 10 2 k"]);
    // A ticket smaller than those of all waiters goes first: here one that also waits for another key.
    scene.position("4> MACQUIRE 2 free k d 10000 WAIT 30 60000 four");
    assert_eq!(scene.send("5> ACQUIRE free e 10000"), Ok(Reply::Nil));
    assert_eq!(scene.fence("5> ACQUIRE free e 10000 WAIT 29 60000 five"), 1);
}

#[test]
fn a_client_that_leaves_the_queue_is_not_served() {
    let cancelled = |scene: &mut Scene| {
        assert_eq!(scene.send("3> RELEASE k c"), Ok(Reply::Integer(0)));
    };
    let closed = |scene: &mut Scene| scene.node.close(3, scene.now);
    for leave in [&cancelled as &dyn Fn(&mut Scene), &closed] {
        let mut scene = queue();
        leave(&mut scene);
        scene.send("1> RELEASE k a").unwrap();
        assert_eq!(scene.pushes(), ["two: grant 20 2 k"]);
        assert_eq!(scene.node.node().waiters(), 0);
    }
    let mut scene = Scene::new();
    scene.fence("1> ACQUIRE k a 10000");
    scene.position("2> ACQUIRE k b 10000 WAIT 20 500 two");
    scene.pass(501);
    assert_eq!(scene.node.node().waiters(), 0, "its time is up");
    scene.send("1> RELEASE k a").unwrap();
    assert!(scene.pushes().is_empty());
}

#[test]
fn a_closed_connection_keeps_the_lock_that_was_handed_to_it() {
    let mut scene = queue();
    scene.send("1> RELEASE k a").unwrap();
    scene.node.close(3, scene.now);
    assert_eq!(scene.pushes(), ["three: grant 10 2 k"], "the client may rely on it");
    scene.pass(scene.node.node().claim_window_ms() + 1);
    assert_eq!(scene.pushes(), ["two: grant 20 3 k"]);
}

#[test]
fn a_request_waits_for_all_its_keys_at_once() {
    let mut scene = Scene::new();
    scene.fence("1> ACQUIRE x a 10000");
    scene.fence("1> ACQUIRE y a 10000");
    assert_eq!(scene.position("2> MACQUIRE 2 x y b 10000 WAIT 20 60000 two"), 1);
    scene.send("1> RELEASE x a").unwrap();
    assert!(scene.pushes().is_empty());
    // Its position reserves the key.
    assert_eq!(scene.send("3> ACQUIRE x c 10000"), Ok(Reply::Nil));
    scene.send("1> RELEASE y a").unwrap();
    assert_eq!(scene.pushes(), ["two: grant 20 2 x"]);
    assert_eq!(scene.fence("2> MEXTEND 2 x y b 10000"), 2);
    // When it leaves, the next waiter is served.
    scene.position("3> MACQUIRE 2 x z c 10000 WAIT 30 60000 three");
    scene.position("4> ACQUIRE z d 10000 WAIT 40 60000 four");
    scene.send("3> MRELEASE 2 x z c").unwrap();
    assert_eq!(scene.pushes(), ["four: grant 40 1 z"]);
}

#[test]
fn a_push_repeats_the_stamp_with_the_time_waited() {
    let mut scene = Scene::new();
    scene.fence("1> ACQUIRE k a 10000");
    scene.position("2> ACQUIRE k b 40 WAIT 20 60000 two STAMP 7");
    scene.pass(1_500);
    scene.send("1> RELEASE k a").unwrap();
    assert_eq!(scene.pushes(), ["two: stamped 20 2 7 1500 40 k"], "never longer than the request asked for");
}

#[test]
fn a_waiter_may_ask_for_a_longer_claim_window() {
    let mut scene = Scene::new();
    let window_ms = scene.node.node().claim_window_ms();
    scene.fence("1> ACQUIRE k a 10000");
    scene.position(&format!("2> ACQUIRE k b 10000 WAIT 20 60000 two STAMP 7 CLAIM {}", window_ms * 5));
    scene.position(&format!("3> ACQUIRE k c 10000 WAIT 30 60000 three STAMP 8 CLAIM {}", window_ms / 5));
    scene.send("1> RELEASE k a").unwrap();
    assert_eq!(scene.pushes(), [format!("two: stamped 20 2 7 0 {} k", window_ms * 5)]);
    scene.pass(window_ms * 5 - 1);
    assert_eq!(scene.fence("2> EXTEND k b 10000"), 2);
    scene.send("2> RELEASE k b").unwrap();
    let push = scene.pushes().join("");
    assert!(push.ends_with(&format!(" {window_ms} k")), "and never gets less: {push}");
}

#[test]
fn in_quarantine_no_waiter_is_served() {
    let mut scene = queue();
    let mut now = scene.now;
    scene.node.node_mut().quarantine(5_000, &mut now);
    scene.send("1> RELEASE k a").unwrap();
    assert!(scene.pushes().is_empty());
    let refused = scene.send("4> ACQUIRE k d 10000 WAIT 30 60000 four");
    assert!(matches!(refused, Err(CommandError::Quarantine { .. })), "{refused:?}");
    scene.pass(5_001);
    assert_eq!(scene.pushes(), ["three: grant 10 2 k"]);
}

#[test]
fn in_quarantine_a_request_for_a_held_key_queues_and_is_served_afterwards() {
    let mut scene = queue();
    let mut now = scene.now;
    scene.node.node_mut().quarantine(5_000, &mut now);
    let queued = scene.send("4> ACQUIRE k d 10000 WAIT 5 60000 four");
    assert!(matches!(queued, Ok(Reply::Queued { position: 1, .. })), "{queued:?}");
    scene.send("1> RELEASE k a").unwrap();
    assert!(scene.pushes().is_empty());
    scene.pass(5_001);
    assert_eq!(scene.pushes(), ["four: grant 5 2 k"]);
}

fn scene_bytes(scene: &Scene) -> u64 {
    scene.node.node().queues.bytes() as u64
}

#[test]
fn wait_queues_are_bounded() {
    let mut scene = queue();
    let mut refused = |limits: Limits, line: &str| {
        *scene.node.node_mut().waiter_limits_mut() = limits;
        let error = scene.send(line).unwrap_err().to_string();
        assert_eq!(scene.node.node().waiters(), 2, "nothing has changed");
        error
    };
    let wide = Limits::default();
    let line = "3> ACQUIRE k e 10000 WAIT 30 60000 three";
    assert!(
        refused(Limits { node: 2, ..wide }, line).starts_with("REDLOCKWAITERS too many waiters on this node")
    );
    assert!(refused(Limits { key: 2, ..wide }, line).contains("for this key"));
    assert!(refused(Limits { connection: 1, ..wide }, line).contains("on this connection"));
    let used = scene_bytes(&scene);
    let key = |length: usize| format!("3> ACQUIRE {} e 10000 WAIT 30 60000 three", "k".repeat(length));
    scene.node.plant(&vec![b'k'; 4_097], KeyState::ForeignString);
    scene.node.plant(&vec![b'k'; 4_096], KeyState::ForeignString);
    *scene.node.node_mut().waiter_limits_mut() = Limits { bytes: used + 4_096, ..wide };
    for line in [key(4_097), key(4_096)] {
        let error = scene.send(&line).unwrap_err().to_string();
        assert!(error.starts_with("REDLOCKWAITERS"), "{error}");
    }
    assert_eq!(scene_bytes(&scene), used);
    // A waiter may repeat its request.
    *scene.node.node_mut().waiter_limits_mut() = Limits { node: 2, key: 2, connection: 1, bytes: used };
    assert_eq!(scene.position("3> ACQUIRE k c 10000 WAIT 10 60000 three"), 1);
}

#[test]
fn a_tombstone_rejects_a_late_request_to_wait() {
    let mut scene = Scene::new();
    scene.fence("1> ACQUIRE k a 10000");
    scene.send("3> RELEASE k b").unwrap();
    assert_eq!(scene.send("2> ACQUIRE k b 10000 WAIT 20 60000 two"), Ok(Reply::Nil));
    assert_eq!(scene.node.node().waiters(), 0);
}
