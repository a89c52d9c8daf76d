//! Which of several groups of nodes has a resource.
//!
//! Rendezvous hashing, or "highest random weight": every group draws a number for the resource from its own name,
//! and the largest number has it. So clients that know the same names agree, in whatever order they know them.
//! A group that is added takes from every other the resources for which it draws more, its share and no other;
//! one that is removed leaves only its own behind.
//!
//! What is drawn is part of the protocol: two clients that draw differently would lock one resource in two
//! places. In words for other languages: the weight is `XXH3_64(tag, seed = XXH3_64(name))`, both over
//! plain bytes, and of equal weights the larger name wins.

use std::fmt;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Groups, by their names alone: their nodes may be replaced without moving any resource.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    shards: Vec<NamedShard>,
}

#[derive(Clone, Debug)]
struct NamedShard {
    name: Box<str>,
    seed: u64,
}

/// Why some names cannot name groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardNameError {
    /// There is none.
    NoShard,
    /// One of them is empty.
    EmptyName,
    /// Two groups have this name.
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
    /// These groups, in any order.
    ///
    /// # Errors
    /// For no group at all, one without a name, and two with the same.
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

    /// The place of the group that has this key, in the order in which the groups were named.
    #[must_use]
    pub fn choose(&self, key: &[u8]) -> usize {
        let tag = hash_tag(key);
        let draw = |shard: &NamedShard| xxh3_64_with_seed(tag, shard.seed);
        let drawn = self.shards.iter().enumerate().map(|(place, shard)| (draw(shard), &shard.name, place));
        drawn.max().map_or(0, |(_, _, place)| place)
    }
}

/// The part of a key that decides: what is between the first `{` and the next `}`, if there is anything, and
/// otherwise all of it. The same rule as in a Redis Cluster, so that keys which are together there are
/// together here.
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

    /// The name of the group that has a key.
    fn home<'a>(names: &[&'a str], key: &str) -> &'a str {
        names[of(names).choose(key.as_bytes())]
    }

    #[test]
    fn the_hash_is_xxh3_as_published() {
        // From the test vectors of xxHash itself: of nothing, without a seed and with the prime of its tests.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxh3_64_with_seed(b"", 0x9e37_79b1_85eb_ca8d), 0xa8a6_b918_b2f0_364a);
    }

    #[test]
    fn the_choice_of_a_shard_never_changes() {
        // Another answer here would have two versions of the client lock one resource in two places.
        // These were computed with the library of xxHash for Python.
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
        let misnamed = |names: &[&str]| Rendezvous::of(names.iter().copied()).unwrap_err();
        assert_eq!(misnamed(&[]), ShardNameError::NoShard);
        assert_eq!(misnamed(&["a", ""]), ShardNameError::EmptyName);
        assert_eq!(misnamed(&["a", "b", "a"]), ShardNameError::DuplicateName("a".into()));
    }

    /// How many of so many keys each group has, in the order of the names.
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
            // Read forwards a group was added, backwards it was removed.
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
