use super::*;
use redlock_contract::limits::MAX_FAR_STRIPES;

const FILE: FileId = FileId { inode: 4711, born_ns: 1_800_000_000_123_456_789 };

fn state() -> DurableState {
    let mut state = DurableState::new("0123456789abcdef0123456789abcdef01234567".to_owned(), 0xfeed_beef);
    state.incarnation = 3;
    state.high_water = HighWater::parse(1_048_577, "3:4611686018427387904,65535:1099511627776").unwrap();
    state.longest_lease_ms = 30_000;
    state.locks_at_shutdown = Some(LocksDigest { locks: 2, digest: 0xfeed });
    state
}

#[test]
fn a_quarantine_outlasts_the_longest_lease_by_the_drift() {
    assert_eq!(state().quarantine_ms(), 30_000 + 300 + 2);
}

fn stripe(number: u64) -> Stripe {
    Stripe::of(&number.to_le_bytes())
}

#[test]
fn a_state_is_read_as_it_was_written() {
    let plain = DurableState::new("f".repeat(40), 0);
    let non_voting = NonVoting::all().map(|reason| state().without_vote(reason, "a".repeat(40)));
    for state in [
        state(),
        plain.clone(),
        state().admitted(&HighWater::new(9), &Stripes::default(), 10).0,
        DurableState { high_water: HighWater::new(MAX_FENCE), ..plain },
    ]
    .into_iter()
    .chain(non_voting)
    {
        let stored = DurableState::decode(state.encode(FILE).as_bytes());
        assert_eq!(stored, Ok(StoredState { state, file: Some(FILE) }));
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let good = state().encode(FILE).into_bytes();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(DurableState::decode(&bad).is_err(), "byte {at}, bit {bit}");
        }
        assert_eq!(DurableState::decode(&good[..at]), Err(Unreadable::Damaged), "truncated at {at}");
    }
    let mut longer = good.clone();
    longer.push(b'\n');
    assert!(DurableState::decode(&longer).is_err());
}

fn with_digest(content: &str) -> String {
    format!("{content}digest {:016x}\n", xxh3_64(content.as_bytes()))
}

#[test]
fn a_later_version_is_not_mistaken_for_damage() {
    let content = format!("{TITLE} 3\nsomething new\n");
    assert_eq!(DurableState::decode(with_digest(&content).as_bytes()), Err(Unreadable::Version(3)));
    assert_eq!(DurableState::decode(format!("{content}digest 0\n").as_bytes()), Err(Unreadable::Damaged));
}

#[test]
fn format_1_is_read_as_the_same_node() {
    let id = "0123456789abcdef0123456789abcdef01234567";
    let text = with_digest(&format!(
        "redlock-ledger 1\nnode-id {id}\nmark 1048577\nlongest-ttl-ms 30000\nseal 2 000000000000feed\ngrants-stored yes\n"
    ));
    let stored = DurableState::decode(text.as_bytes()).unwrap();
    let expected = DurableState {
        high_water: HighWater::new(1_048_577),
        longest_lease_ms: 30_000,
        locks_at_shutdown: Some(LocksDigest { locks: 2, digest: 0xfeed }),
        ..DurableState::new(id.to_owned(), 0)
    };
    assert_eq!(stored, StoredState { state: expected, file: None });
    assert!(DurableState::decode(text.replace("mark 1048577", "mark 1048578").as_bytes()).is_err());
    assert!(DurableState::is_beginning(text.as_bytes()) && !DurableState::is_beginning(b"redlock-1"));
}

#[test]
fn grants_hardly_ever_store_the_state() {
    let mut state = DurableState::new("f".repeat(40), 1);
    let mut stored = 0;
    for fence in 1..=3_000_000 {
        if !state.covers(fence, 30_000)
            && let Some(next) = state.reserving([stripe(1)], fence, 30_000)
        {
            state = next;
            stored += 1;
        }
        assert!(fence <= state.high_water.common());
    }
    assert!(stored <= 6, "about two in a million: {stored}");
    let mut stored = 0;
    for lease_ms in 1..=2_000_000 {
        if let Some(next) = state.reserving([], 1, lease_ms) {
            state = next;
            stored += 1;
        }
        let longest = state.longest_lease_ms;
        assert!(longest >= lease_ms && longest <= lease_ms.max(30_000) * 9 / 8);
    }
    assert!(stored < 200, "{stored}");
}

#[test]
fn no_lease_is_too_long_to_be_stored() {
    for lease_ms in [u64::MAX, u64::MAX - 1, u64::MAX / 101 * 100] {
        let state = DurableState::new("f".repeat(40), 1).reserving([stripe(1)], 1, lease_ms).unwrap();
        assert!(state.longest_lease_ms >= lease_ms && state.quarantine_ms() >= lease_ms, "{lease_ms}");
    }
}

#[test]
fn a_raised_stripe_does_not_move_the_others_over_a_restart() {
    let state = DurableState::new("f".repeat(40), 1);
    let state = state.reserving([stripe(1)], 5, 1_000).unwrap();
    let state = state.reserving([stripe(2)], 1 << 62, 1_000).unwrap();
    assert_eq!(state.high_water.far().len(), 1);
    let (state, stripes) = state.restarted();
    let next = |number| stripes.next(stripe(number), 0).unwrap();
    assert!(next(1) > 5 && next(1) < 1 << 22, "{}", next(1));
    assert!(next(2) > 1 << 62, "{}", next(2));
    assert!(state.high_water.highest() >= 1 << 62 && state.high_water.common() < 1 << 23);
    // The same holds for every later restart.
    let (_, stripes) = state.restarted();
    assert!(stripes.next(stripe(1), 0) < Some(1 << 23));
    assert!(stripes.next(stripe(2), 0) > Some((1 << 62) + HIGH_WATER_STEP / 2));
}

#[test]
fn far_stripes_are_bounded_and_the_farthest_stay_apart() {
    let mut state = DurableState::new("f".repeat(40), 1);
    let evil = stripe(0);
    state = state.reserving([evil], 1 << 62, 1).unwrap();
    // Nodes that have restarted often are ahead on every stripe.
    for number in 1..=5_000 {
        let fence = 1 << 30;
        if let Some(next) = state.reserving([stripe(number)], fence, 1) {
            state = next;
        }
        assert!(state.high_water.far().len() <= MAX_FAR_STRIPES);
        let (_, stripes) = state.restarted();
        assert!(stripes.next(stripe(number), 0) > Some(fence), "{number}");
    }
    assert!(state.high_water.common() < 1 << 31, "{:?}", state.high_water);
    assert!(state.restarted().1.next(evil, 0) > Some(1 << 62));
}

#[test]
fn near_fences_move_the_common_high_water_mark() {
    let state = DurableState::new("f".repeat(40), 1).reserving([stripe(1)], NEAR, 1).unwrap();
    assert_eq!((state.high_water.far().len(), state.high_water.common()), (0, NEAR + HIGH_WATER_STEP));
    let last = state.reserving([stripe(1)], MAX_FENCE, 1).unwrap();
    assert_eq!(last.high_water.highest(), MAX_FENCE);
    assert_eq!(last.reserving([stripe(1)], MAX_FENCE, 1), None);
}

#[test]
fn the_longest_lease_is_lowered_in_coarse_steps_and_not_below_a_minute() {
    let day = 24 * 3_600 * 1_000;
    let state = DurableState::new("f".repeat(40), 1).reserving([stripe(1)], 1, day).unwrap();
    assert_eq!(state.with_leases_of(day), None);
    assert_eq!(state.with_leases_of(day / 2 + day / 10), None);
    let lowered = state.with_leases_of(10_000).unwrap();
    assert_eq!(lowered.longest_lease_ms, SHORT_LEASE_MS);
    assert_eq!(lowered.with_leases_of(0), None);
    let hour = 3_600_000;
    let lowered = state.with_leases_of(hour).unwrap();
    assert!((hour..hour + hour / 8).contains(&lowered.longest_lease_ms));
    assert!(lowered.quarantine_ms() > hour + hour / 100);
}

#[test]
fn a_data_set_that_does_not_belong_to_the_state_costs_the_vote() {
    let state = DurableState::new("f".repeat(40), 7);
    let dataset = |id, has_locks| Dataset { id, has_locks, ..Dataset::default() };
    let beyond = |highest_fence, id| Dataset { highest_fence, ..dataset(id, false) };
    let nine = HighWater::new(9);
    // A client has raised one key of the node far above the others.
    let raised = HighWater::parse(9, "1:4611686018427387904").unwrap();
    let of_raised = |high_water| Dataset { high_water, ..beyond(1 << 62, Some(7)) };
    let table = [
        (dataset(None, false), Some(&nine), None),
        (dataset(None, false), None, None),
        (dataset(Some(7), true), Some(&nine), None),
        (dataset(Some(7), false), Some(&nine), None),
        (dataset(Some(8), false), Some(&nine), Some(NonVoting::ForeignData)),
        (dataset(Some(8), true), Some(&nine), Some(NonVoting::ForeignData)),
        (dataset(None, true), Some(&nine), None),
        // A high-water mark that was not stored yet, and a state file that is older than the data set.
        (beyond(9 + HIGH_WATER_STEP / 2, Some(7)), Some(&nine), None),
        (beyond(9 + HIGH_WATER_STEP, Some(7)), Some(&nine), Some(NonVoting::ForeignData)),
        (beyond(9 + HIGH_WATER_STEP, None), Some(&nine), Some(NonVoting::ForeignData)),
        (of_raised(9 + HIGH_WATER_STEP / 2), Some(&raised), None),
        (of_raised(9 + HIGH_WATER_STEP), Some(&raised), Some(NonVoting::ForeignData)),
        (dataset(Some(8), false), None, Some(NonVoting::NoState)),
        (dataset(None, true), None, Some(NonVoting::NoState)),
        (beyond(1, None), None, Some(NonVoting::NoState)),
    ];
    for (dataset, stored, expected) in table {
        assert_eq!(state.reason_not_to_vote(dataset, stored), expected, "{dataset:?} {stored:?}");
    }
    let replica = state.without_vote(NonVoting::Replica, "a".repeat(40));
    assert_eq!(
        replica.reason_not_to_vote(dataset(Some(8), true), Some(&nine)),
        None,
        "it does not vote already"
    );
    assert_eq!(replica.reason_not_to_vote(dataset(Some(8), true), None), None, "nor this one");
}

#[test]
fn a_file_is_known_by_its_inode_and_by_its_creation_time_if_recorded() {
    let file = |inode, born_ns| FileId { inode, born_ns };
    assert!(FILE.is_same(FILE) && file(1, 0).is_same(file(1, 5)) && file(1, 5).is_same(file(1, 0)));
    assert!(!file(1, 5).is_same(file(1, 6)) && !file(1, 0).is_same(file(2, 0)));
}

#[test]
fn an_admitted_node_starts_above_the_floor_and_above_itself() {
    let copy = state().without_vote(NonVoting::CopiedState, "a".repeat(40));
    assert_eq!((copy.incarnation, copy.locks_at_shutdown), (1, None));
    let (low, stripes) = copy.admitted(&HighWater::new(5), &Stripes::default(), 600_000);
    assert!(low.non_voting.is_none() && low.origin == Origin::Admitted);
    assert!(low.longest_lease_ms >= 600_000);
    assert_eq!(low.high_water, copy.high_water.plus(HIGH_WATER_STEP), "its own marks are above the floor");
    assert_eq!(stripes.next(stripe(1), 0), Some(copy.high_water.common() + 1));
    assert_eq!(stripes.largest(), 1 << 62, "its far stripe");
    let new = DurableState::new("f".repeat(40), 1).without_vote(NonVoting::Asked, "a".repeat(40));
    let (high, stripes) = new.admitted(&HighWater::new(1 << 50), &Stripes::default(), 90_000);
    assert!(high.high_water.common() > 1 << 50 && high.longest_lease_ms >= 90_000);
    assert_eq!(stripes.next(stripe(1), 0), Some((1 << 50) + 1));
}

#[test]
fn an_admitted_node_keeps_the_far_stripes_of_the_others_apart() {
    let new = DurableState::new("f".repeat(40), 1).without_vote(NonVoting::Asked, "a".repeat(40));
    let mut floor = HighWater::new(500);
    floor.raise(stripe(2).index(), 1 << 62);
    let (admitted, stripes) = new.admitted(&floor, &Stripes::default(), 1_000);
    assert_eq!(stripes.next(stripe(1), 0), Some(501));
    assert_eq!(stripes.next(stripe(2), 0), Some((1 << 62) + 1));
    let (_, stripes) = admitted.restarted();
    assert!(stripes.next(stripe(1), 0) < Some(1 << 22), "also after a restart");
    assert!(stripes.next(stripe(2), 0) > Some((1 << 62) + 1));
}

#[test]
fn an_admitted_node_recognizes_the_data_set_that_it_had_before() {
    let new = DurableState::new("f".repeat(40), 1).without_vote(NonVoting::NoState, "a".repeat(40));
    let mut loaded = Stripes::default();
    loaded.raise(stripe(1), 700);
    loaded.raise(stripe(2), 1 << 62);
    let (admitted, _) = new.admitted(&HighWater::new(500), &loaded, 1_000);
    assert_eq!(admitted.high_water.common(), 500 + HIGH_WATER_STEP);
    assert!(admitted.high_water.of(stripe(2).index()) > 1 << 62);
    let dataset = Dataset { id: Some(1), has_locks: true, high_water: 500, highest_fence: loaded.largest() };
    assert_eq!(admitted.reason_not_to_vote(dataset, Some(&admitted.high_water)), None);
}

#[test]
fn a_digest_of_locks_knows_every_lock() {
    type Lock = (u16, &'static [u8], &'static [u8], u64, u64);
    let digest = |locks: &[Lock]| {
        let mut digest = LocksDigest::default();
        locks
            .iter()
            .for_each(|(database, key, owner, fence, span)| digest.add(*database, key, owner, *fence, *span));
        digest
    };
    let (a, b): (Lock, Lock) = ((0, b"k", b"a", 1, 9), (0, b"j", b"a", 2, 9));
    assert_eq!(digest(&[a, b]), digest(&[b, a]), "in any order");
    for other in [
        &[a][..],
        &[a, a],
        &[a, (0, b"j", b"a", 3, 9)],
        &[a, (0, b"j", b"b", 2, 9)],
        &[a, (1, b"j", b"a", 2, 9)],
        &[a, (0, b"ja", b"", 2, 9)],
        &[a, (0, b"j", b"a", 2, 10)],
    ] {
        assert_ne!(digest(other), digest(&[a, b]));
    }
}
