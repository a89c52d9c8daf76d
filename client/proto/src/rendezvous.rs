//! Which shard has a resource.
//!
//! Rendezvous hashing, or "highest random weight": every shard has a weight for the resource, a hash of the
//! resource and the name of the shard, and the shard with the largest weight has the resource. So clients
//! that know the same names agree, in whatever order they list them. A new shard takes over the resources for
//! which it has the largest weight, its share, and moves no others. The resources of a removed shard move;
//! all others stay.
//!
//! The weight is part of the protocol: two clients that compute different weights would lock one resource in
//! two places. For other languages: the weight is `XXH3_64(tag, seed = XXH3_64(name))`, both over plain
//! bytes, and of equal weights the larger name wins.

use std::fmt;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The shards, by their names alone: nodes may be replaced without moving any resource.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    shards: Vec<NamedShard>,
}

#[derive(Clone, Debug)]
struct NamedShard {
    name: Box<str>,
    seed: u64,
}

/// The error of a list of shard names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardNameError {
    /// The list is empty.
    NoShard,
    /// A name is empty.
    EmptyName,
    /// Two shards have this name.
    DuplicateName(Box<str>),
}

impl fmt::Display for ShardNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoShard => f.write_str("at least one shard must be named"),
            Self::EmptyName => f.write_str("a shard must have a name"),
            Self::DuplicateName(name) => write!(f, "two shards are named {name}"),
        }
    }
}

impl Rendezvous {
    /// Creates the choice among these shards, in any order.
    ///
    /// # Errors
    /// If there is no shard, a shard without a name, or two shards with the same name.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ShardNameError> {
        let mut shards: Vec<NamedShard> = Vec::new();
        for name in names {
            if name.is_empty() {
                return Err(ShardNameError::EmptyName);
            }
            if shards.iter().any(|shard| *shard.name == *name) {
                return Err(ShardNameError::DuplicateName(name.into()));
            }
            shards.push(NamedShard { name: name.into(), seed: xxh3_64(name.as_bytes()) });
        }
        if shards.is_empty() { Err(ShardNameError::NoShard) } else { Ok(Self { shards }) }
    }

    /// The index of the shard that has this key, in the order of the names.
    #[must_use]
    pub fn choose(&self, key: &[u8]) -> usize {
        let tag = hash_tag(key);
        let weight = |shard: &NamedShard| xxh3_64_with_seed(tag, shard.seed);
        let weighted =
            self.shards.iter().enumerate().map(|(index, shard)| (weight(shard), &shard.name, index));
        weighted.max().map_or(0, |(_, _, index)| index)
    }
}

/// The hash tag of a key, which alone decides its shard: the text between the first `{` and the next `}`, if
/// it is not empty, else the whole key. The rule is the same as in Redis Cluster, so keys that share a slot
/// there share a shard here.
#[must_use]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], wanted: u8| bytes.iter().position(|byte| *byte == wanted);
    let tag = || {
        let inside = key.get(position(key, b'{')? + 1..)?;
        inside.get(..position(inside, b'}')?).filter(|tag| !tag.is_empty())
    };
    tag().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(names: &[&str]) -> Rendezvous {
        Rendezvous::of(names.iter().copied()).unwrap()
    }

    /// The name of the shard that has a key.
    fn home<'a>(names: &[&'a str], key: &str) -> &'a str {
        names[of(names).choose(key.as_bytes())]
    }

    #[test]
    fn the_hash_is_xxh3_as_published() {
        // From the test vectors of xxHash: the empty input, without a seed and with the prime of its tests.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxh3_64_with_seed(b"", 0x9e37_79b1_85eb_ca8d), 0xa8a6_b918_b2f0_364a);
    }

    #[test]
    fn the_choice_of_a_shard_never_changes() {
        // If this changed, two versions of the client would lock one resource in two places.
        // The values were computed with the xxHash library for Python.
        assert_eq!(xxh3_64_with_seed(b"orders:1", xxh3_64(b"eu-1")), 0x8407_f6e8_b15f_3b99);
        let shards = ["eu-1", "eu-2", "eu-3"];
        let homes = |keys: &[&str]| keys.iter().map(|key| home(&shards, key)).collect::<Vec<_>>();
        let short = ["orders:1", "orders:2", "orders:3", "orders:4", "orders:5", "orders:6"];
        assert_eq!(homes(&short), ["eu-3", "eu-1", "eu-3", "eu-2", "eu-1", "eu-3"]);
        let long = format!("{}{{tag}}", "x".repeat(300));
        assert_eq!(
            homes(&["", "tag", &long, "kéy", &"y".repeat(500)]),
            ["eu-1", "eu-1", "eu-1", "eu-2", "eu-3"]
        );
    }

    #[test]
    fn a_hash_tag_decides_if_there_is_one() {
        let table: [(&str, &str); 10] = [
            ("orders:42", "orders:42"),
            ("{orders}:42", "orders"),
            ("a{b}c{d}", "b"),
            ("a{}{b}", "a{}{b}"),
            ("a{{b}}", "{b"),
            ("a}b{c}", "c"),
            ("a{b", "a{b"),
            ("a}b", "a}b"),
            ("{}", "{}"),
            ("", ""),
        ];
        for (key, tag) in table {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }

    #[test]
    fn shard_names_are_checked() {
        let error = |names: &[&str]| Rendezvous::of(names.iter().copied()).unwrap_err();
        assert_eq!(error(&[]), ShardNameError::NoShard);
        assert_eq!(error(&["a", ""]), ShardNameError::EmptyName);
        assert_eq!(error(&["a", "b", "a"]), ShardNameError::DuplicateName("a".into()));
    }

    /// How many of the first `keys` keys each shard has, in the order of the names.
    fn shares(names: &[&str], keys: usize) -> Vec<usize> {
        let shards = of(names);
        let mut shares = vec![0; names.len()];
        (0..keys).for_each(|key| shares[shards.choose(format!("orders:{key}").as_bytes())] += 1);
        shares
    }

    #[test]
    fn shares_are_about_equal() {
        // Names that differ in one letter, and keys that count up: the usual case, and a hard one for a hash.
        for names in [&["eu-1", "eu-2"][..], &["eu-1", "eu-2", "eu-3"], &["a", "b", "c", "d", "e", "f", "g"]]
        {
            let fair = 70_000 / names.len();
            for share in shares(names, 70_000) {
                assert!(share.abs_diff(fair) < fair / 20, "{share} of {fair} in {}", names.len());
            }
        }
    }

    #[test]
    fn a_new_shard_takes_its_share() {
        let (old, new) = (["eu-1", "eu-2"], ["eu-1", "eu-2", "eu-3"]);
        let moved = (0..30_000).filter(|key| {
            let key = format!("orders:{key}");
            home(&old, &key) != home(&new, &key)
        });
        let moved = moved.count();
        assert!(moved.abs_diff(10_000) < 500, "{moved} of 30000");
    }

    fn names() -> impl Strategy<Value = BTreeSet<String>> {
        proptest::collection::btree_set("[a-z0-9-]{1,8}", 2..9)
    }

    proptest! {
        #[test]
        fn the_order_of_the_shards_does_not_matter(
            names in names().prop_map(|names| names.into_iter().collect::<Vec<_>>())
                .prop_flat_map(|names| (Just(names.clone()), Just(names).prop_shuffle())),
            key in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let (one, other) = names;
            let home = |names: &[String]| {
                let shards = Rendezvous::of(names.iter().map(String::as_str)).unwrap();
                names[shards.choose(&key)].clone()
            };
            prop_assert_eq!(home(&one), home(&other));
        }

        #[test]
        fn a_shard_that_is_added_or_removed_moves_only_its_own_keys(names in names(), key in ".{0,20}") {
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            let fewer = &all[1..];
            let (before, after) = (home(fewer, &key), home(&all, &key));
            // Read forwards, a shard was added; read backwards, it was removed.
            prop_assert!(after == before || after == all[0], "from {before} to {after}");
        }

        #[test]
        fn keys_with_the_same_tag_share_a_shard(names in names(), tag in "[^{}]{1,9}", rest in "[^{}]{0,9}") {
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            let tagged = format!("{{{tag}}}{rest}");
            prop_assert_eq!(home(&all, &tagged), home(&all, &format!("{rest}{{{tag}}}")));
            prop_assert_eq!(home(&all, &tagged), home(&all, &tag));
        }
    }
}
