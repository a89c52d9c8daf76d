//! An administrator runs the server's own commands on the keys of held locks.
//!
//! Some of these commands leave a lock as it is: every invariant holds. Others break it, as `module/COMMANDS.md`
//! says: its holder does not notice, and another client may acquire it. Even then fences grow, the storage accepts
//! no stale write, and no lock stays for ever.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use fastrand::Rng;
use redlock_tests::campaign::{Campaign, EndPolicy, LockMethod, Violation, Workload, key_name};
use redlock_tests::{Answer, Fleet, SOON, eventually, seed};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

/// A name and the commands of one transaction. `$` is the key of a lock, `@` the key of another lock. A 1 among the
/// replies means that the key existed.
type AdminAction = (&'static str, &'static [&'static str]);

/// These actions break no lock.
const HARMLESS: [AdminAction; 6] = [
    PERSIST,
    COPY,
    ("RENAME", &["EXISTS $", "RENAME $ aside", "RENAME aside $"]),
    ("MOVE", &["MOVE $ 1", "SELECT 1", "MOVE $ 0", "SELECT 0"]),
    ("SWAPDB", &["EXISTS $", "SWAPDB 0 1", "SWAPDB 0 1"]),
    // Fails if the key holds a lock. Otherwise the dumped lock comes back with the time that it had left.
    ("RESTORE", &["EXISTS $", "RESTORE $"]),
];
const PERSIST: AdminAction = ("PERSIST", &["EXISTS $", "PERSIST $"]);
const COPY: AdminAction = ("COPY", &["EXISTS $", "COPY $ @ REPLACE"]);

/// Each of these actions breaks a lock, or replaces one lock by another.
const BREAKING: [AdminAction; 7] = [
    ("DEL", &["DEL $"]),
    ("UNLINK", &["UNLINK $"]),
    ("RENAME", &["EXISTS $", "RENAME $ @"]),
    ("MOVE", &["MOVE $ 1"]),
    ("MOVE back", &["SELECT 1", "MOVE $ 0", "SELECT 0"]),
    ("SWAPDB", &["EXISTS $", "SWAPDB 0 1"]),
    ("RESTORE", &["EXISTS $", "RESTORE $ REPLACE"]),
];

/// How often each command must run on a lock.
const ENOUGH: usize = 5;

struct Administrator<'a> {
    fleet: &'a Fleet,
    keys: usize,
    chance: Rng,
    /// The dump of each key on each node: (node, key) to the bytes of `DUMP`.
    images: HashMap<(usize, usize), Vec<u8>>,
    /// How often each action ran on a key that existed.
    done: BTreeMap<&'static str, usize>,
}

impl<'a> Administrator<'a> {
    fn of(fleet: &'a Fleet, keys: usize, fixed: u64) -> Self {
        let chance = Rng::with_seed(seed(fixed));
        Self { fleet, keys, chance, images: HashMap::new(), done: BTreeMap::new() }
    }

    /// Runs a random action on one key, on one to five nodes.
    fn run_one(&mut self, actions: &[AdminAction]) {
        let (name, steps) = actions[self.chance.usize(..actions.len())];
        let key = self.chance.usize(..self.keys);
        let other = (key + self.chance.usize(1..self.keys)) % self.keys;
        let count = self.chance.usize(1..=5);
        for node in self.chance.choose_multiple(0..5, count) {
            self.keep_an_image(node, key);
            let answers = self.transact(node, steps, key, other);
            *self.done.entry(name).or_default() += usize::from(answers.contains(&Answer::Int(1)));
        }
    }

    /// Stores a dump of the key, with a probability of one half if there is one already: an older dump does more harm.
    fn keep_an_image(&mut self, node: usize, key: usize) {
        let image = self.fleet[node].connect().call(&["DUMP", &key_name(key)]);
        if let Answer::Text(image) = image
            && (self.chance.bool() || !self.images.contains_key(&(node, key)))
        {
            self.images.insert((node, key), image);
        }
    }

    /// Runs all steps of an action in one transaction, so that no client sees a state in between.
    fn transact(&self, node: usize, steps: &[&str], key: usize, other: usize) -> Vec<Answer> {
        let mut wire = self.fleet[node].connect();
        assert_eq!(wire.call_strs("MULTI"), Answer::ok());
        for line in steps {
            let mut words = words(line, key, other);
            if words[0] == b"RESTORE" {
                let Some(image) = self.images.get(&(node, key)) else { return Vec::new() };
                words.splice(2..2, [b"0".to_vec(), image.clone()]);
            }
            assert_eq!(wire.call(&words), Answer::Status("QUEUED".into()), "{line}");
        }
        wire.call_strs("EXEC").list().to_vec()
    }

    /// Runs actions until each one has run on enough locks that clients hold and wait for.
    fn run_each(&mut self, campaign: &mut Campaign, actions: &[AdminAction]) {
        let mut wanting = actions.to_vec();
        eventually("every command has run on enough locks", SOON * 6, || {
            for actions in [actions, actions, &wanting] {
                self.run_one(actions);
                campaign.count_fault();
            }
            campaign.wait_for_holds(3);
            wanting.retain(|(name, _)| self.done.get(name).is_none_or(|count| *count < ENOUGH));
            wanting.is_empty().then_some(())
        });
        println!("runs on existing locks: {:?}", self.done);
    }
}

fn words(line: &str, key: usize, other: usize) -> Vec<Vec<u8>> {
    let word = |word: &str| match word {
        "$" => key_name(key).into_bytes(),
        "@" => key_name(other).into_bytes(),
        _ => word.as_bytes().to_vec(),
    };
    line.split(' ').map(word).collect()
}

/// Whether the violation is the effect of a broken lock: its holder still relies on it, and another client holds it.
fn is_two_holders(violation: &Violation) -> bool {
    matches!(violation, Violation::Overlap { .. } | Violation::ValidWriteRefused { .. })
}

#[test]
fn an_administrator_leaves_locks_as_they_are() {
    let fleet = Fleet::start(5);
    let work = Workload::default();
    let mut administrator = Administrator::of(&fleet, work.keys, 0x5eed_1601);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.wait_for_holds_by_each(3);
    administrator.run_each(&mut campaign, &HARMLESS);
    assert!(campaign.all_make_progress(3), "every client must get locks: {}", campaign.summary());
    campaign.finish(&fleet).assert_clean("PERSIST, COPY and others that break no lock");
}

#[test]
fn an_administrator_breaks_locks() {
    let fleet = Fleet::start(5);
    let work = Workload::default();
    let mut administrator = Administrator::of(&fleet, work.keys, 0x5eed_1602);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.wait_for_holds_by_each(3);
    administrator.run_each(&mut campaign, &BREAKING);
    assert!(campaign.all_make_progress(3), "every client must get locks: {}", campaign.summary());
    let verdict = campaign.finish(&fleet);
    // Locks that were moved to another database must end, too.
    for node in fleet.iter() {
        eventually("no database has a lock", SOON, || {
            (node.info("keyspace", "db0").is_none() && node.info("keyspace", "db1").is_none()).then_some(())
        });
    }
    verdict
        .ignoring("times two holders at once", is_two_holders)
        .assert_clean("DEL and others that break locks");
}

fn without_the_module() -> Fleet {
    Fleet::start_with(5, |_, node| node.without_module())
}

/// A plain lock is a key with an expiry of the server. PERSIST removes the expiry, and the key stays.
#[test]
fn control_plain_locks_that_an_administrator_makes_persistent() {
    let fleet = without_the_module();
    // The holder of a persistent key can still release it, so no holder releases. With few keys, all of them are soon
    // persistent.
    let ends = EndPolicy::AllAbandoned;
    let work = Workload { lock: LockMethod::PLAIN, keys: 2, ends, ..Workload::default() };
    let mut administrator = Administrator::of(&fleet, work.keys, 0x5eed_1603);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    eventually("a client makes no progress", SOON * 6, || {
        (0..5).for_each(|_| administrator.run_one(&[PERSIST]));
        campaign.count_fault();
        (!campaign.all_make_progress(1)).then_some(())
    });
    println!("control: {}, and a client gets no lock any more", campaign.summary());
}

/// COPY can replace a plain lock by another one, and the holder of the first has lost it.
#[test]
fn control_plain_locks_that_an_administrator_copies() {
    let fleet = without_the_module();
    let work = Workload { lock: LockMethod::PLAIN, ttl: Duration::from_millis(600), ..Workload::default() };
    let mut administrator = Administrator::of(&fleet, work.keys, 0x5eed_1604);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.inject_until_violation(is_two_holders, |campaign| {
        (0..5).for_each(|_| administrator.run_one(&[COPY]));
        campaign.wait_for_attempts(1);
    });
}

/// Fences in keys beside the locks move with their database, and an old dump sets them back.
#[test]
fn control_fences_that_an_administrator_takes_away() {
    let fleet = without_the_module();
    let work = Workload { lock: LockMethod::CountedFences, ..Workload::default() };
    let mut administrator = Administrator::of(&fleet, work.keys, 0x5eed_1605);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    let is_about_numbers = |violation: &Violation| {
        matches!(violation, Violation::FenceNotLarger { .. } | Violation::FenceRepeated { .. })
    };
    // Without RESTORE: a plain lock that it brings back has no time to live.
    let actions = &BREAKING[..BREAKING.len() - 1];
    campaign.inject_until_violation(is_about_numbers, |campaign| {
        administrator.run_one(actions);
        campaign.wait_for_attempts(5);
    });
}
