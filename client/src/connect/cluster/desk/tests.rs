use super::*;
use crate::wire::decode;
use bytes::BytesMut;

fn place(text: &str) -> Place {
    Place::parse(text, "speaker").expect("a place")
}

fn error(text: &str) -> Frame {
    Frame::Error(Bytes::copy_from_slice(text.as_bytes()))
}

fn bulk(text: &str) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

/// `CLUSTER SLOTS` of masters that share the slots in halves.
fn halves(first: &str, second: &str) -> Frame {
    let range = |from, to, text: &str| {
        let place = place(text);
        let member = Frame::Array(vec![bulk(&place.host), Frame::Integer(place.port.into()), bulk("id")]);
        Frame::Array(vec![Frame::Integer(from), Frame::Integer(to), member])
    };
    Frame::Array(vec![range(0, 8191, first), range(8192, 16_383, second)])
}

/// Keys of the lower half and of the upper one.
const LOW: &str = "bar";
const HIGH: &str = "foo";
const LOW_SLOT: u16 = 5061;

/// A desk at a cluster of `a:1` and `b:2`, and what it wants to be done, one line each.
struct Bench {
    desk: Desk,
    deeds: Vec<Deed>,
}

impl Bench {
    fn new() -> Self {
        let map = SlotMap::read(&halves("a:1", "b:2"), None).expect("a map");
        Self { desk: Desk::new(map), deeds: Vec::new() }
    }

    fn take(&mut self, line: &str) -> Vec<String> {
        let words = line.split(' ').map(bulk).collect();
        let command = Command::read(&Frame::Array(words)).expect("a command");
        self.desk.take(command, &mut self.deeds);
        self.wishes()
    }

    fn answered(&mut self, by: &str, serial: Serial, reply: Frame) -> Vec<String> {
        self.desk.answered(&place(by), About::Errand(serial), reply, &mut self.deeds);
        self.wishes()
    }

    fn slots(&mut self, by: &str, reply: Frame) -> Vec<String> {
        self.desk.answered(&place(by), About::Slots, reply, &mut self.deeds);
        self.wishes()
    }

    fn wishes(&mut self) -> Vec<String> {
        let wish = |deed| match deed {
            Deed::Pause(serial) => format!("pause {serial}"),
            Deed::Send { to, message } => {
                let (sign, bytes) = match message.content {
                    Content::Command(bytes) => ("", bytes),
                    Content::CommandAskedFor(bytes) => ("asking ", bytes),
                    Content::Slots => return format!("{to} slots"),
                };
                let words = decode(&mut BytesMut::from(bytes)).expect("RESP").expect("a command");
                let words = words.as_items().expect("words").iter().take(2);
                let words: Vec<_> = words.map(|word| word.as_text().expect("a word")).collect();
                let about = match message.about {
                    About::Errand(serial) | About::Part(serial) => serial,
                    About::Slots => panic!("a command is about itself"),
                };
                format!("{to} {sign}{} #{about}", words.join(" ").replace("REDLOCK.", ""))
            }
        };
        std::mem::take(&mut self.deeds).into_iter().map(wish).collect()
    }

    fn replies(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.desk.next_reply()).collect()
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn every_key_has_its_master() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("REDLOCK.ACQUIRE bar o 1"), ["a:1 ACQUIRE bar #0"]);
    assert_eq!(bench.take("REDLOCK.ACQUIRE foo o 1"), ["b:2 ACQUIRE foo #1"]);
    assert_eq!(bench.take("REDLOCK.MACQUIRE 2 {foo}1 {foo}2 o 1"), ["b:2 MACQUIRE 2 #2"]);
    assert_eq!(usize::from(LOW_SLOT), super::super::slots::slot_of(LOW.as_bytes()));
    assert!(super::super::slots::slot_of(HIGH.as_bytes()) >= 8192);
}

#[test]
fn replies_come_in_the_order_of_the_commands() {
    let mut bench = Bench::new();
    bench.take("REDLOCK.ACQUIRE bar o 1");
    bench.take("REDLOCK.ACQUIRE foo o 1");
    bench.take("REDLOCK.INSPECT {foo}x");
    assert_eq!(bench.answered("b:2", 2, Frame::Nil), nothing());
    assert_eq!(bench.answered("b:2", 1, error("REDLOCKQUARANTINE 5")), nothing());
    assert_eq!(bench.replies(), [], "the first one is not answered yet");
    assert_eq!(bench.answered("a:1", 0, Frame::Integer(7)), nothing());
    assert_eq!(bench.replies(), [Frame::Integer(7), error("REDLOCKQUARANTINE 5"), Frame::Nil]);
    assert_eq!(bench.take("REDLOCK.RELEASE bar o"), ["a:1 RELEASE bar #3"]);
    bench.answered("a:1", 3, Frame::Integer(1));
    assert_eq!(bench.replies(), [Frame::Integer(1)]);
    assert!(bench.desk.queues.is_empty(), "nothing is kept of keys that are done with");
}

#[test]
fn commands_on_one_key_go_one_by_one() {
    let mut bench = Bench::new();
    bench.take("REDLOCK.ACQUIRE bar o 1");
    assert_eq!(bench.take("REDLOCK.RELEASE bar o"), nothing());
    assert_eq!(bench.take("REDLOCK.ACQUIRE bar p 1"), nothing());
    assert_eq!(bench.take("REDLOCK.ACQUIRE foo p 1"), ["b:2 ACQUIRE foo #3"], "another key does not wait");
    assert_eq!(bench.answered("a:1", 0, Frame::Integer(1)), ["a:1 RELEASE bar #1"]);
    assert_eq!(bench.answered("a:1", 1, Frame::Integer(1)), ["a:1 ACQUIRE bar #2"]);
    assert_eq!(bench.replies().len(), 2);
}

#[test]
fn a_release_does_not_overtake_an_acquire_that_is_sent_on() {
    let mut bench = Bench::new();
    bench.take("REDLOCK.ACQUIRE bar o 1");
    bench.take("REDLOCK.RELEASE bar o");
    // From a to b, whose slots are not what a thinks, to c, and everybody unsure for a while.
    let moved = |to: &str| error(&format!("MOVED {LOW_SLOT} {to}"));
    assert_eq!(bench.answered("a:1", 0, moved("b:2")), ["b:2 slots", "b:2 ACQUIRE bar #0"]);
    assert_eq!(bench.answered("b:2", 0, moved("c:3")), ["c:3 ACQUIRE bar #0"]);
    assert_eq!(bench.answered("c:3", 0, moved("a:1")), ["pause 0"]);
    assert_eq!(bench.take("REDLOCK.EXTEND bar p 1"), nothing());
    bench.desk.woken(0, &mut bench.deeds);
    assert_eq!(bench.wishes(), ["a:1 ACQUIRE bar #0"]);
    assert_eq!(bench.answered("a:1", 0, Frame::Integer(9)), ["a:1 RELEASE bar #1"]);
    assert_eq!(bench.replies(), [Frame::Integer(9)]);
}

#[test]
fn a_pause_that_is_over_twice_sends_once() {
    let mut bench = Bench::new();
    bench.take("REDLOCK.MACQUIRE 2 {bar}1 {bar}2 o 1");
    assert_eq!(bench.answered("a:1", 0, error("TRYAGAIN later")), ["pause 0"]);
    bench.desk.woken(0, &mut bench.deeds);
    bench.desk.woken(0, &mut bench.deeds);
    assert_eq!(bench.wishes(), ["a:1 MACQUIRE 2 #0"]);
}

#[test]
fn a_slot_that_has_moved_is_known_from_then_on() {
    let mut bench = Bench::new();
    bench.take("REDLOCK.ACQUIRE bar o 1");
    assert!(!bench.desk.needs(&place("c:3")));
    let wishes = bench.answered("a:1", 0, error(&format!("MOVED {LOW_SLOT} c:3")));
    assert_eq!(wishes, ["c:3 slots", "c:3 ACQUIRE bar #0"]);
    assert!(bench.desk.needs(&place("c:3")));
    bench.answered("c:3", 0, Frame::Integer(1));
    assert_eq!(bench.take("REDLOCK.EXTEND bar o 1"), ["c:3 EXTEND bar #1"]);
    // The rest of the map was old as well.
    assert_eq!(bench.slots("c:3", halves("c:3", "d:4")), nothing());
    assert_eq!(bench.take("REDLOCK.ACQUIRE foo o 1"), ["d:4 ACQUIRE foo #2"]);
    assert!(!bench.desk.needs(&place("a:1")));
    // What makes no sense is not believed.
    bench.desk.is_asking_for_slots = true;
    assert_eq!(bench.slots("c:3", error("ERR no")), nothing());
    assert_eq!(bench.take("REDLOCK.ACQUIRE {foo}2 o 1"), ["d:4 ACQUIRE {foo}2 #3"]);
}

#[test]
fn a_slot_on_its_way_is_followed_and_not_taken_for_moved() {
    let mut bench = Bench::new();
    bench.take("REDLOCK.EXTEND bar o 1");
    let ask = error(&format!("ASK {LOW_SLOT} b:2"));
    assert_eq!(bench.answered("a:1", 0, ask), ["b:2 asking EXTEND bar #0"]);
    assert_eq!(bench.answered("b:2", 0, Frame::Integer(1)), nothing());
    assert_eq!(bench.take("REDLOCK.EXTEND bar o 1"), ["a:1 EXTEND bar #1"]);
}

#[test]
fn a_command_that_nobody_will_have_is_refused_in_the_end() {
    let mut bench = Bench::new();
    bench.take("REDLOCK.MRELEASE 2 {bar}1 {bar}2 o");
    let (ask, refusal) = (error(&format!("ASK {LOW_SLOT} b:2")), error("TRYAGAIN later"));
    for _ in 1..MOST_ROUNDS {
        assert_eq!(bench.answered("a:1", 0, ask.clone()), ["b:2 asking MRELEASE 2 #0"]);
        assert_eq!(bench.answered("b:2", 0, refusal.clone()), ["pause 0"]);
        bench.desk.woken(0, &mut bench.deeds);
        assert_eq!(bench.wishes(), ["a:1 MRELEASE 2 #0"]);
    }
    assert_eq!(bench.answered("a:1", 0, ask), ["b:2 asking MRELEASE 2 #0"]);
    assert_eq!(bench.answered("b:2", 0, refusal.clone()), nothing());
    assert_eq!(bench.replies(), [refusal]);
}

#[test]
fn refusals_that_are_no_advice_are_handed_on() {
    for text in
        ["CLUSTERDOWN Hash slot not served", "CROSSSLOT no", "READONLY no", "LOADING", "ERR MOVED 1 a:1"]
    {
        let mut bench = Bench::new();
        bench.take("REDLOCK.ACQUIRE bar o 1");
        assert_eq!(bench.answered("a:1", 0, error(text)), nothing());
        assert_eq!(bench.replies(), [error(text)]);
    }
}

#[test]
fn the_node_is_all_masters_of_the_moment() {
    let mut bench = Bench::new();
    assert_eq!(bench.take("REDLOCK.NODE"), ["a:1 slots"]);
    assert_eq!(bench.take("REDLOCK.NODE"), nothing(), "one answer will do for both");
    let wishes = bench.slots("a:1", halves("b:2", "c:3"));
    assert_eq!(wishes, ["b:2 NODE #0", "c:3 NODE #0", "b:2 NODE #1", "c:3 NODE #1"]);
    let reply = |locks| Frame::Array(vec![bulk("locks"), Frame::Integer(locks)]);
    // (who, to which question, how many locks, what the driver hears then)
    let answers: [(&str, Serial, i64, &[i64]); 4] =
        [("b:2", 0, 1, &[]), ("c:3", 1, 20, &[]), ("c:3", 0, 2, &[3]), ("b:2", 1, 10, &[30])];
    for (by, serial, locks, heard) in answers {
        bench.desk.answered(&place(by), About::Part(serial), reply(locks), &mut bench.deeds);
        let replies = bench.replies();
        let counts = replies.iter().map(|reply| reply.field("locks").and_then(Frame::as_integer));
        assert_eq!(counts.collect::<Option<Vec<_>>>().as_deref(), Some(heard), "{by} {serial}");
    }
}

#[test]
fn what_gives_back_is_said_even_if_nobody_listens() {
    let mut bench = Bench::new();
    for line in [
        "REDLOCK.ACQUIRE bar o 1",
        "REDLOCK.RELEASE bar o",
        "REDLOCK.ACQUIRE bar p 1",
        "REDLOCK.RELEASE bar p",
        "REDLOCK.RELEASE foo o",
        "REDLOCK.EXTEND foo o 1",
    ] {
        bench.take(line);
    }
    bench.desk.last_words(&mut bench.deeds);
    // What was out already is not said again, what takes is not said at all.
    assert_eq!(bench.wishes(), ["a:1 RELEASE bar #1", "a:1 RELEASE bar #3"]);
}

#[test]
fn messages_do_not_show_owners() {
    let mut bench = Bench::new();
    let words = ["REDLOCK.ACQUIRE", "bar", "hush", "1"].map(bulk).to_vec();
    let command = Command::read(&Frame::Array(words)).expect("a command");
    bench.desk.take(command, &mut bench.deeds);
    let shown = format!("{:?}", bench.deeds);
    assert!(shown.contains("Command") && !shown.contains("hush"), "{shown}");
}
