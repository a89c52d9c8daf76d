use super::*;
use crate::wire::decode;
use bytes::BytesMut;

#[test]
fn slots_are_those_of_the_servers() {
    // As `CLUSTER KEYSLOT` says.
    let known: [(&[u8], usize); 9] = [
        (b"123456789", 12_739),
        (b"foo", 12_182),
        (b"bar", 5061),
        (b"lock", 8718),
        (b"{foo}bar", 12_182),
        (b"bar{foo}{baz}", 12_182),
        (b"{}foo", 9500),
        (b"foo{bar", 15_278),
        (b"", 0),
    ];
    for (key, slot) in known {
        assert_eq!(slot_of(key), slot, "{}", key.escape_ascii());
    }
    assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
}

fn frame(text: &str) -> Frame {
    let mut bytes = BytesMut::from(text.replace(' ', "\r\n").as_bytes());
    let frame = decode(&mut bytes).expect("RESP").expect("a whole frame");
    assert!(bytes.is_empty(), "{text}");
    frame
}

fn place(text: &str) -> Place {
    Place::parse(text, "speaker").expect("a place")
}

const TWO: &str = "*3 *3 :0 :100 *3 $9 127.0.0.1 :7001 $2 m1 \
    *4 :101 :16000 *3 $9 127.0.0.1 :7002 $2 m2 *3 $9 127.0.0.1 :7005 $2 r2 \
    *3 :16001 :16001 *3 $9 127.0.0.1 :7001 $2 m1 ";

#[test]
fn a_map_says_who_serves_what() {
    let mut map = SlotMap::read(&frame(TWO), None).expect("a map");
    let (one, two) = (place("127.0.0.1:7001"), place("127.0.0.1:7002"));
    assert_eq!(map.all_masters(), [one.clone(), two.clone()], "replicas serve nothing");
    for (slot, master) in [(0, &one), (100, &one), (101, &two), (16_000, &two), (16_001, &one)] {
        assert_eq!(map.master_of(slot), Some(master), "{slot}");
    }
    assert!(map.master_of(16_383).is_some(), "somebody has to say that nobody serves it");
    map.assign(0, place("127.0.0.1:7003"));
    assert_eq!(map.master_of(0), Some(&place("127.0.0.1:7003")));
    assert_eq!(map.master_of(1), Some(&one));
    assert_eq!(map.all_masters().len(), 3);
    (101..=16_000).for_each(|slot| map.assign(slot, one.clone()));
    assert!(!map.has_master(&two) && map.has_master(&one));
    map.assign(SLOTS, two.clone());
    assert!(!map.has_master(&two), "there is no such slot");
}

#[test]
fn a_member_may_leave_its_host_to_be_guessed() {
    let known = "*1 *3 :0 :1 *3 $9 127.0.0.1 :7001 $2 m1 ";
    let nil = "*1 *3 :0 :1 *3 $-1 :7001 $2 m1 ";
    let empty = "*1 *3 :0 :1 *3 $0  :7001 $2 m1 ";
    let nameless = "*1 *3 :0 :1 *4 $1 ? :7001 $2 m1 *2 $2 ip $8 10.0.0.7 ";
    let cases = [
        (known, Some("here"), Some("127.0.0.1:7001")),
        (nil, Some("here"), Some("here:7001")),
        (empty, Some("here"), Some("here:7001")),
        (nil, None, None),
        (nameless, Some("here"), Some("10.0.0.7:7001")),
    ];
    for (reply, speaker, expected) in cases {
        let map = SlotMap::read(&frame(reply), speaker);
        let master = map.and_then(|map| map.master_of(0).map(Place::to_string));
        assert_eq!(master.as_deref(), expected, "{reply}");
    }
    assert_eq!(place(":7001").to_string(), "speaker:7001");
    assert_eq!(place("::1:7001").host.as_ref(), "::1");
}

#[test]
fn a_map_that_makes_no_sense_is_none() {
    let bad = [
        "*0 ",
        ":1 ",
        "*1 *2 :0 :1 ",
        "*1 *3 :5 :1 *2 $1 h :1 ",
        "*1 *3 :0 :16384 *2 $1 h :1 ",
        "*1 *3 :-1 :1 *2 $1 h :1 ",
        "*1 *3 :0 :1 *2 $1 h :65536 ",
        "*1 *3 :0 :1 *1 $1 h ",
    ];
    for reply in bad {
        assert!(SlotMap::read(&frame(reply), Some("here")).is_none(), "{reply}");
    }
}
