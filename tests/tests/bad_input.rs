//! Ten thousand random commands: the server does not crash, every reply follows the contract, and the counters of
//! `INFO redlock` are correct.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use fastrand::Rng;
use redlock_contract::fields::{lock, node};
use redlock_tests::{Answer, Server, Wire, seed};

const VECTORS: usize = 10_000;
const MEBIBYTE: usize = 1 << 20;
/// With more keys than this, each later `DEBUG DIGEST` is slow, and the test flushes the server.
const MANY_KEYS: i64 = 200;

const NAMES: [&str; 10] = [
    "REDLOCK.ACQUIRE",
    "REDLOCK.EXTEND",
    "REDLOCK.RELEASE",
    "REDLOCK.INSPECT",
    "REDLOCK.MACQUIRE",
    "REDLOCK.MEXTEND",
    "REDLOCK.MRELEASE",
    "REDLOCK.NODE",
    "REDLOCK.APPLY",
    "REDLOCK.MARK",
];

/// Arguments that parsers often get wrong, separated by bars.
const WORDS: &str = "| |0|1|2|3|-1|-0|+1|01|1.5|1e3|0x10| 1|1 |1000|1024|1025|60000|86400000|86400001|4294967296\
    |9223372036854775807|9223372036854775808|18446744073709551616|-9223372036854775808\
    |99999999999999999999999999|NaN|inf|FENCE|fence|LABEL|WAIT|HELD|EXT|FENCE\0|key|owner|%s%n%d|\r\n+OK\r\n\
    |*1\r\n$4\r\nPING\r\n";

type Vector = Vec<Vec<u8>>;

fn key(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..20) {
        0 => b"list".to_vec(),
        1 => b"plain".to_vec(),
        2 => b"".to_vec(),
        3 => vec![0, 0xff, b'\r', b'\n'],
        _ => format!("key:{}", rng.u8(..12)).into_bytes(),
    }
}

fn owner(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..20) {
        0 => vec![b'x'; 256],
        1 => vec![b'x'; 257],
        2 => vec![0, 0xff],
        3 => Vec::new(),
        _ => format!("owner{}", rng.u8(..3)).into_bytes(),
    }
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    match rng.u16(..300) {
        0 => vec![rng.u8(..); MEBIBYTE],
        1..60 => (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
        _ => rng.choice(WORDS.split('|').collect::<Vec<_>>()).unwrap_or_default().into(),
    }
}

fn number(rng: &mut Rng) -> Vec<u8> {
    rng.u32(1..100_000).to_string().into_bytes()
}

/// A command with valid arguments.
fn well_formed(rng: &mut Rng, name: &str) -> Vector {
    let mut vector: Vector = vec![name.into()];
    if name == "REDLOCK.NODE" {
        return vector;
    }
    if name.starts_with("REDLOCK.M") {
        // Sometimes at the limit of 1024 keys, and just over it.
        let count = if rng.u16(..500) == 0 { rng.usize(1023..1027) } else { rng.usize(1..5) };
        vector.push(count.to_string().into_bytes());
        vector.extend((0..count).map(|at| if count < 5 { key(rng) } else { format!("many:{at}").into() }));
    } else {
        vector.push(key(rng));
    }
    if name == "REDLOCK.INSPECT" {
        return vector;
    }
    vector.push(owner(rng));
    if name == "REDLOCK.APPLY" {
        vector.push(number(rng));
    }
    if !name.ends_with("RELEASE") {
        vector.push(number(rng));
    }
    if rng.u8(..3) == 0 {
        vector.extend([b"FENCE".to_vec(), number(rng)]);
    }
    if rng.u8(..3) == 0 && name.ends_with("ACQUIRE") {
        vector.extend([b"LABEL".to_vec(), noise(rng)]);
    }
    vector
}

/// Makes one random change to the arguments of a command.
fn damage(rng: &mut Rng, vector: &mut Vector) {
    let place = rng.usize(1..=vector.len());
    match rng.u8(..6) {
        0 if place < vector.len() => drop(vector.remove(place)),
        1 => vector.insert(place, noise(rng)),
        2 => vector.truncate(place),
        3 if place < vector.len() => vector.insert(place, vector[place].clone()),
        4 if place < vector.len() => {
            let other = rng.usize(1..vector.len());
            vector.swap(place, other);
        }
        _ if place < vector.len() => vector[place] = noise(rng),
        _ => vector.push(noise(rng)),
    }
}

fn random_vector(rng: &mut Rng) -> Vector {
    let name = NAMES[rng.usize(..NAMES.len())];
    let mut vector = if rng.u8(..4) == 0 {
        let count = rng.usize(..9);
        std::iter::once(name.into()).chain((0..count).map(|_| noise(rng))).collect()
    } else {
        well_formed(rng, name)
    };
    for _ in 0..rng.u8(..4) {
        damage(rng, &mut vector);
    }
    if rng.bool() {
        vector[0].make_ascii_lowercase();
    }
    vector
}

/// The state of the server that a command must not change when it answers with an error.
#[derive(Debug, Clone, PartialEq)]
struct ServerState {
    digest: Answer,
    keys: i64,
    info: String,
}

impl ServerState {
    fn from(answers: &[Answer]) -> Self {
        // The commands after a flush free its memory in small steps, so these numbers change with any command.
        let settled = |line: &&str| {
            !["redlock_memory_bytes:", "redlock_allocated_bytes:"].iter().any(|name| line.starts_with(name))
        };
        let info = answers[2].string().lines().filter(settled).map(|line| format!("{line}\n")).collect();
        Self { digest: answers[0].clone(), keys: answers[1].int(), info }
    }

    fn of(wire: &mut Wire) -> Self {
        Self::from(&wire.pipeline(questions()))
    }

    fn count(&self, names: &[&str]) -> i64 {
        names.iter().map(|name| self.number(name)).sum()
    }

    fn number(&self, name: &str) -> i64 {
        let value =
            |line: &str| line.strip_prefix("redlock_")?.strip_prefix(name)?.strip_prefix(':')?.parse().ok();
        self.info.lines().find_map(value).unwrap_or_else(|| panic!("no {name} in {}", self.info))
    }
}

fn questions() -> Vec<Vector> {
    [&["DEBUG", "DIGEST"][..], &["DBSIZE"], &["INFO", "redlock"]]
        .map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect())
        .to_vec()
}

/// Flushes the server and creates keys that are not locks. Returns how many.
fn plant(wire: &mut Wire) -> i64 {
    assert_eq!(wire.call_strs("FLUSHALL SYNC"), Answer::ok());
    assert_eq!(wire.call_strs("RPUSH list a"), Answer::Int(1));
    assert_eq!(wire.call_strs("SET plain a"), Answer::ok());
    2
}

/// The counters of which exactly one increases by one, for a command and its reply; empty if none does. `None` if
/// the contract has no such reply.
fn moved_by(name: &str, answer: &Answer) -> Option<&'static [&'static str]> {
    let verb = name.trim_start_matches("REDLOCK.").trim_start_matches('M');
    match (verb, answer) {
        ("ACQUIRE", Answer::Int(1..)) => Some(&["grants", "refreshes"]),
        ("ACQUIRE", Answer::Nil) => Some(&["refusals", "late_refusals"]),
        ("EXTEND", Answer::Int(1..)) => Some(&["extensions"]),
        ("EXTEND", Answer::Nil) => Some(&["stale_extensions"]),
        ("RELEASE", Answer::Int(1)) => Some(&["releases"]),
        ("RELEASE", Answer::Int(0)) => Some(&["stale_releases"]),
        ("INSPECT", Answer::Nil) => Some(&[]),
        ("INSPECT", Answer::List(fields)) if fields.len() == 2 * lock::ALL.len() => Some(&[]),
        ("NODE", Answer::List(fields)) if fields.len() == 2 * node::ALL.len() => Some(&[]),
        _ => None,
    }
}

const COUNTERS: [&str; 9] = [
    "grants",
    "refreshes",
    "refusals",
    "late_refusals",
    "extensions",
    "stale_extensions",
    "releases",
    "stale_releases",
    "expirations",
];

const ERRORS: [&str; 6] = ["ERR", "REDLOCKTTL", "REDLOCKOWNER", "REDLOCKARG", "REDLOCKWAITERS", "WRONGTYPE"];

/// Checks a reply and the change of the server's state against the contract. Returns the violation, if any.
fn violation(
    vector: &Vector,
    answer: &Answer,
    before: &ServerState,
    after: &ServerState,
    foreign: i64,
) -> Option<&'static str> {
    if let Some(word) = answer.error_word() {
        let is_known = ERRORS.contains(&word);
        return (!is_known)
            .then_some("an error outside the contract")
            .or_else(|| (after != before).then_some(CHANGED_BY_AN_ERROR));
    }
    let name = String::from_utf8_lossy(&vector[0]).to_uppercase();
    let Some(moved) = moved_by(&name, answer) else { return Some("a reply outside the contract") };
    let total = |situation: &ServerState| situation.count(&COUNTERS);
    let steps = i64::from(!moved.is_empty());
    if after.count(moved) - before.count(moved) != steps || total(after) - total(before) != steps {
        return Some("the counters did not increase by one in total");
    }
    (after.number("locks") != after.keys - foreign)
        .then_some("a key that the test did not create is not a lock")
}

const CHANGED_BY_AN_ERROR: &str = "a command that failed changed the state";

/// The arguments of a command as text, with long arguments shortened.
fn shown(vector: &Vector) -> String {
    let word = |word: &Vec<u8>| match word.len() {
        ..=80 => format!("\"{}\"", word.escape_ascii()),
        length => format!("<{length} bytes of \\x{:02x}>", word[0]),
    };
    vector.iter().take(20).map(word).collect::<Vec<_>>().join(" ")
}

/// The server that receives the random commands, and its last known state.
struct Target {
    server: Server,
    wires: [Wire; 2],
    foreign: i64,
    before: ServerState,
}

impl Target {
    fn start() -> Self {
        // With a frozen clock, only the commands change the state.
        let clock = redlock_tests::FakeClock::new();
        clock.freeze_module();
        // The test flushes the keys when there are too many. The node must not go into quarantine then, and no
        // client may queue: other tests cover the wait queue.
        let settings = ["restart-grace", "off", "max-waiters", "0"];
        let server = Server::builder().debug_commands().clock(&clock).module_args(settings).start();
        let mut wires = [server.connect(), server.connect()];
        let foreign = plant(&mut wires[0]);
        let before = ServerState::of(&mut wires[0]);
        Self { server, wires, foreign, before }
    }

    /// Sends `sent` and checks the reply as the reply to `vector`. Returns the reply and the violation, if any.
    fn send(&mut self, wire: usize, vector: &Vector, sent: Vector) -> (Answer, Option<&'static str>) {
        let mut answers = self.wires[wire].pipeline([vec![sent], questions()].concat());
        let answer = answers.remove(0);
        let after = ServerState::from(&answers);
        let wrong = violation(vector, &answer, &self.before, &after, self.foreign);
        self.before = after;
        if self.before.keys > MANY_KEYS || vector.iter().any(|word| word.len() == MEBIBYTE) {
            self.foreign = plant(&mut self.wires[wire]);
            self.before = ServerState::of(&mut self.wires[wire]);
        }
        (answer, wrong)
    }
}

#[test]
fn random_arguments_do_no_harm() {
    let seed = seed(20_261);
    let mut rng = Rng::with_seed(seed);
    let mut target = Target::start();
    let pid = target.server.pid();
    let mut errors = 0;
    for number in 0..VECTORS {
        let vector = random_vector(&mut rng);
        // Two connections, so that some acquires arrive after their own release.
        let (answer, wrong) = target.send(rng.usize(..2), &vector, vector.clone());
        let context = || format!("seed {seed}, vector {number}: {}", shown(&vector));
        assert_eq!(wrong, None, "{} answered {answer:?}", context());
        errors += usize::from(answer.error_word().is_some());
    }
    // The test needs both valid and invalid commands. About four of five are invalid, a little more or less
    // with each seed.
    assert!((VECTORS / 10..VECTORS * 9 / 10).contains(&errors), "{errors} errors in {VECTORS} commands");
    let Target { mut server, before, .. } = target;
    assert!(before.number("late_refusals") > 0 && before.number("refreshes") > 0, "{}", before.info);
    assert!(server.is_running() && server.pid() == pid);
    assert_eq!(server.connect().call_strs("PING"), Answer::Status("PONG".into()));
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A lock from the time before `SET` had `NX` and `PX`: the script creates the key before it checks the time to live.
const SETNX_AND_EXPIRE: &str = "local free = redis.call('SETNX', KEYS[1], ARGV[1])
if free == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return free == 1 and 1 or false";

/// The same arguments, sent to a lock that changes the keyspace before it checks its arguments.
#[test]
fn control_random_arguments_for_a_lock_that_does_not_look_at_them() {
    let mut rng = Rng::with_seed(20_262);
    let mut target = Target::start();
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    for _ in 0..VECTORS / 10 {
        let vector = random_vector(&mut rng);
        let name = String::from_utf8_lossy(&vector[0]).to_uppercase();
        let [_, key, owner, ttl, ..] = &vector[..] else { continue };
        if name != "REDLOCK.ACQUIRE" {
            continue;
        }
        let script = ["EVAL", SETNX_AND_EXPIRE, "1"].map(|word| word.as_bytes().to_vec());
        let sent = [&script[..], &[key.clone(), owner.clone(), ttl.clone()]].concat();
        let (_, wrong) = target.send(0, &vector, sent);
        *seen.entry(wrong.unwrap_or("nothing")).or_default() += 1;
    }
    println!("control: {seen:?}");
    assert!(seen.contains_key(CHANGED_BY_AN_ERROR), "the checks detect nothing: {seen:?}");
}

/// A time to live in milliseconds that is far over the limit.
const ABSURD_TTL: &[u8] = b"9007199254740992";

/// The names of the absurd cases that `ask` grants. `ask` gets key, owner and time to live.
fn absurd_and_granted(mut ask: impl FnMut(&[u8], &[u8], &[u8]) -> Answer) -> Vec<&'static str> {
    let large = vec![0xab; MEBIBYTE];
    let cases: [(&str, &[u8], &[u8]); 4] = [
        ("an owner of a mebibyte", &large, b"60000"),
        ("a time to live of a mebibyte", b"me", &large),
        ("no owner", b"", b"60000"),
        ("a time to live of 285,000 years", b"me", ABSURD_TTL),
    ];
    let mut granted = Vec::new();
    for (what, owner, ttl) in cases {
        let answer = ask(what.as_bytes(), owner, ttl);
        if answer.error_word().is_none() {
            granted.push(what);
        }
    }
    granted
}

#[test]
fn large_keys_are_locks_like_others() {
    let server = Server::start();
    let mut wire = server.connect();
    let (large, owner) = (vec![0xab; MEBIBYTE], b"me".to_vec());
    let call = |wire: &mut Wire, words: &[&[u8]]| wire.call(words);
    assert!(matches!(call(&mut wire, &[b"REDLOCK.ACQUIRE", &large, &owner, b"60000"]), Answer::Int(1..)));
    assert_eq!(call(&mut wire, &[b"REDLOCK.ACQUIRE", &large, b"other", b"60000"]), Answer::Nil);
    assert!(wire.inspect(&large).is_some());
    assert_eq!(call(&mut wire, &[b"REDLOCK.RELEASE", &large, &owner]), Answer::Int(1));
    let answer = call(&mut wire, &[b"REDLOCK.ACQUIRE", b"key", &large, b"60000"]);
    assert_eq!(answer.error_word(), Some("REDLOCKOWNER"));
    let answer = call(&mut wire, &[b"REDLOCK.ACQUIRE", b"key", b"me", &large]);
    assert_eq!(answer.error_word(), Some("REDLOCKTTL"));
    let answer = call(&mut wire, &[b"REDLOCK.ACQUIRE", b"key", b"me", b"60000", b"LABEL", &large]);
    assert_eq!(answer.error_word(), Some("REDLOCKARG"));
    let granted =
        absurd_and_granted(|key, owner, ttl| wire.call(&[b"REDLOCK.ACQUIRE".as_slice(), key, owner, ttl]));
    assert_eq!(granted, [] as [&str; 0]);
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(0));
}

/// A plain server accepts these arguments.
#[test]
fn control_plain_locks_accept_invalid_arguments() {
    let server = Server::builder().without_module().start();
    let mut wire = server.connect();
    let granted = absurd_and_granted(|key, owner, ttl| {
        wire.call(&[b"SET".as_slice(), key, owner, b"NX".as_slice(), b"PX".as_slice(), ttl])
    });
    println!("control: {granted:?}");
    assert!(granted.contains(&"an owner of a mebibyte"), "the checks detect nothing: {granted:?}");
    assert!(granted.contains(&"a time to live of 285,000 years"), "the checks detect nothing: {granted:?}");
}
