//! Many masters as one node.

use crate::connect::Identity;
use crate::wire::Frame;
use bytes::Bytes;
use redlock_proto::identity::NodeIdentity;
use std::collections::BTreeSet;

/// The identity of a cluster: that of every master. It grants nothing for certain before the last of them
/// does.
pub(super) fn identity(masters: &[Identity]) -> Identity {
    // A master that is replaced is no other cluster: of incarnations and the like there are as many as masters.
    let id = joined(masters.iter().map(|master| master.node.id.as_str()));
    Identity {
        node: NodeIdentity { id, ..NodeIdentity::default() },
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
    // Those that an older module does not have: of all masters the one that says the least for the cluster.
    let newer = [
        ("voting", numbers("voting").min()),
        ("longest-lease-ms", numbers("longest-lease-ms").max()),
        ("max-ttl-ms", numbers("max-ttl-ms").min()),
        ("high-water", numbers("high-water").max()),
    ];
    let newer = newer.into_iter().filter_map(|(name, number)| Some((name, Frame::Integer(number?))));
    let reasons = joined(
        masters
            .iter()
            .filter_map(|reply| reply.field("non-voting-reason")?.as_text())
            .filter(|why| !why.is_empty()),
    );
    let reasons = Some(("non-voting-reason", bulk(reasons))).filter(|(_, why)| *why != bulk(String::new()));
    let fields = [
        ("node-id", bulk(texts("node-id"))),
        ("fence", Frame::Integer(largest("fence"))),
        ("quarantine-ms", Frame::Integer(largest("quarantine-ms"))),
        ("locks", Frame::Integer(sum("locks"))),
        ("waiters", Frame::Integer(sum("waiters"))),
        ("longest-lease-ms", Frame::Integer(largest("longest-lease-ms"))),
        ("version", bulk(texts("version"))),
    ];
    let named =
        fields.into_iter().chain(newer).chain(reasons).map(|(name, value)| (bulk(name.to_owned()), value));
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
            node: NodeIdentity { id: id.to_owned(), incarnation: Some(1), ..NodeIdentity::default() },
            version: "0.1.0".to_owned(),
            quarantine_ms,
        };
        let all = identity(&[master("b", 0), master("a", 40), master("c", 7)]);
        let node = NodeIdentity { id: "a,b,c".into(), ..NodeIdentity::default() };
        assert_eq!(all, Identity { node, version: "0.1.0".into(), quarantine_ms: 40 });
    }
}
