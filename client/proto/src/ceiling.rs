//! The number that no holder of a group has gone beyond.
//!
//! Every holder's number was confirmed by a majority of the nodes, so as many nodes have given out that number or
//! a larger one. Of the largest numbers that the nodes tell, some few may be far ahead of all that was ever
//! held; the one that a majority has reached is enough.

use crate::Quorum;

/// A number that no holder so far has gone beyond, from the largest that every node has given out for any key;
/// `None` where a node did not say, and `None` altogether if too few did.
#[must_use]
pub fn ceiling(quorum: Quorum, largest: &[Option<u64>]) -> Option<u64> {
    let mut told: Vec<u64> = largest.iter().flatten().copied().collect();
    told.sort_unstable_by(|one, other| other.cmp(one));
    // Those that did not say may all be of the majority that confirmed the largest number.
    let silent = quorum.nodes().saturating_sub(told.len());
    let certain = quorum.needed().checked_sub(silent).filter(|certain| *certain > 0)?;
    told.get(certain - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_majority_decides() {
        let of = |told: &[Option<u64>]| ceiling(Quorum::of(told.len()).unwrap(), told);
        let table: [(&[Option<u64>], Option<u64>); 8] = [
            (&[Some(7)], Some(7)),
            (&[Some(7), Some(7), Some(7)], Some(7)),
            (&[Some(1 << 40), Some(7), Some(9)], Some(9)),
            // Had the silent one reached it too, 2^40 could have been held.
            (&[Some(1 << 40), Some(7), None], Some(1 << 40)),
            (&[Some(7), None, None], None),
            (&[Some(5), Some(4), Some(3), Some(2), Some(1)], Some(3)),
            (&[Some(5), Some(4), Some(3), None, None], Some(5)),
            (&[None, None], None),
        ];
        for (told, expected) in table {
            assert_eq!(of(told), expected, "{told:?}");
        }
    }

    proptest! {
        /// Whatever majority has confirmed a number, and whoever is silent: it is not above the ceiling.
        #[test]
        fn no_holder_is_above_it(
            nodes in 1_usize..8,
            others in proptest::collection::vec(0_u64..1000, 8),
            fence in 0_u64..1000,
            confirmed in any::<u8>(),
            silent in any::<u8>(),
        ) {
            let quorum = Quorum::of(nodes).unwrap();
            let has = |set: u8, node: usize| set >> node & 1 == 1;
            prop_assume!(quorum.is_reached_by((0..nodes).filter(|node| has(confirmed, *node)).count()));
            let largest = |node: usize| others[node].max(if has(confirmed, node) { fence } else { 0 });
            let told: Vec<Option<u64>> =
                (0..nodes).map(|node| (!has(silent, node)).then(|| largest(node))).collect();
            if let Some(ceiling) = ceiling(quorum, &told) {
                prop_assert!(fence <= ceiling, "{fence} held, {told:?} told");
            } else {
                prop_assert!(told.iter().flatten().count() <= nodes - quorum.needed());
            }
        }
    }
}
