use crate::memory::MemoryNode;
use crate::proof::Unverified;
use crate::queue::Limits;
use crate::{Fault, KeyState, Millis, Reply};

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
        let said = self.node.take_pushes().into_iter();
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
    assert_eq!(scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two"), 2, "asked again, not twice there");
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
    assert_eq!(scene.fence("2> ACQUIRE k b 10000 WAIT 20 60000 two"), 3, "asking again claims it as well");
}

#[test]
fn the_queue_is_told_about_the_holder() {
    let mut scene = queue();
    scene.pass(1_000);
    let said = scene.send("4> ACQUIRE k d 10000 WAIT 15 60000 four");
    assert_eq!(said, Ok(Reply::Queued { left_ms: 9_000, position: 2, ticket: 5 }));
    scene.node.plant(b"f", KeyState::ForeignString);
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
    scene.node.plant(b"k", KeyState::ForeignString);
    scene.position("2> ACQUIRE k b 10000 WAIT 20 60000 two");
    scene.node.delete(b"k");
    scene.pass(0);
    assert_eq!(scene.heard(), ["two: grant 20 1 k"]);
}

#[test]
fn nobody_overtakes() {
    let mut scene = queue();
    scene.node.delete(b"k");
    // The key is free, but it is somebody's position.
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
    // Its position keeps the key for it.
    assert_eq!(scene.send("3> ACQUIRE x c 10000"), Ok(Reply::Nil));
    scene.send("1> RELEASE y a").unwrap();
    assert_eq!(scene.heard(), ["two: grant 20 2 x"]);
    assert_eq!(scene.fence("2> MEXTEND 2 x y b 10000"), 2);
    // And when it leaves, others get their position.
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
    scene.node.plant(&vec![b'k'; 4_097], KeyState::ForeignString);
    scene.node.plant(&vec![b'k'; 4_096], KeyState::ForeignString);
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
