//! Many masters as one node.

use crate::connect::Identity;
use crate::wire::Frame;
use bytes::Bytes;
use std::collections::BTreeSet;

/// The identity of a cluster: that of every master. It grants nothing for certain before the last of them
/// does.
pub(super) fn identity(masters: &[Identity]) -> Identity {
    Identity {
        node_id: joined(masters.iter().map(|master| master.node_id.as_str())),
        version: joined(masters.iter().map(|master| master.version.as_str())),
        quarantine_ms: masters.iter().map(|master| master.quarantine_ms).max().unwrap_or_default(),
    }
}

/// The reply to `REDLOCK.NODE`, from those of all masters. If one of them refuses, that is the reply.
pub(super) fn node(masters: &[Frame]) -> Frame {
    if let Some(refusal) = masters.iter().find(|reply| matches!(reply, Frame::Error(_))) {
        return refusal.clone();
    }
    let texts = |name| joined(masters.iter().filter_map(|reply| reply.field(name)?.as_text()));
    let numbers = |name| masters.iter().filter_map(move |reply| reply.field(name)?.as_integer());
    let largest = |name| numbers(name).max().unwrap_or_default();
    let sum = |name| numbers(name).fold(0, i64::saturating_add);
    let bulk = |text: String| Frame::Bulk(Bytes::from(text));
    let fields = [
        ("node-id", bulk(texts("node-id"))),
        ("fence", Frame::Integer(largest("fence"))),
        ("quarantine-ms", Frame::Integer(largest("quarantine-ms"))),
        ("locks", Frame::Integer(sum("locks"))),
        ("waiters", Frame::Integer(sum("waiters"))),
        ("longest-lease-ms", Frame::Integer(largest("longest-lease-ms"))),
        ("version", bulk(texts("version"))),
    ];
    let named = fields.into_iter().map(|(name, value)| (bulk(name.to_owned()), value));
    match masters.first() {
        Some(Frame::Map(_)) => Frame::Map(named.collect()),
        _ => Frame::Array(named.flat_map(|(name, value)| [name, value]).collect()),
    }
}

/// Each text once, in order: the same, whoever was asked first.
fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: BTreeSet<&str> = texts.collect();
    texts.into_iter().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Frame {
        Frame::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// A reply to `REDLOCK.NODE`: id, version, and the five numbers.
    fn reply(id: &str, version: &str, numbers: [i64; 5]) -> Vec<(Frame, Frame)> {
        let names = ["fence", "quarantine-ms", "locks", "waiters", "longest-lease-ms"];
        let numbers =
            names.into_iter().zip(numbers).map(|(name, number)| (bulk(name), Frame::Integer(number)));
        let texts = [("node-id", id), ("version", version)].map(|(name, text)| (bulk(name), bulk(text)));
        numbers.chain(texts).collect()
    }

    #[test]
    fn a_cluster_is_all_of_its_masters() {
        let masters = [
            reply("m2", "0.1.0", [7, 0, 2, 1, 500]),
            reply("m1", "0.1.0", [3, 90, 3, 0, 9000]),
            reply("m3", "0.2.0", [5, 10, 4, 2, 100]),
        ];
        let flat = |pairs: Vec<(Frame, Frame)>| {
            Frame::Array(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect())
        };
        let resp2 = node(&masters.clone().map(flat));
        let resp3 = node(&masters.map(Frame::Map));
        assert!(matches!((&resp2, &resp3), (Frame::Array(_), Frame::Map(_))));
        for frame in [resp2, resp3] {
            let number = |name| frame.field(name).and_then(Frame::as_integer);
            let text = |name| frame.field(name).and_then(Frame::as_text);
            assert_eq!(text("node-id"), Some("m1,m2,m3"));
            assert_eq!(text("version"), Some("0.1.0,0.2.0"));
            let names = ["fence", "quarantine-ms", "locks", "waiters", "longest-lease-ms"];
            assert_eq!(names.map(number), [Some(7), Some(90), Some(9), Some(3), Some(9000)]);
        }
    }

    #[test]
    fn a_master_that_refuses_speaks_for_all() {
        let refusal = Frame::Error(Bytes::from_static(b"NOPERM no"));
        let fine = Frame::Map(reply("m1", "0.1.0", [0; 5]));
        assert_eq!(node(&[fine, refusal.clone()]), refusal);
    }

    #[test]
    fn the_identity_is_that_of_every_master() {
        let master = |id: &str, quarantine_ms| Identity {
            node_id: id.to_owned(),
            version: "0.1.0".to_owned(),
            quarantine_ms,
        };
        let all = identity(&[master("b", 0), master("a", 40), master("c", 7)]);
        assert_eq!(all, Identity { node_id: "a,b,c".into(), version: "0.1.0".into(), quarantine_ms: 40 });
    }
}
