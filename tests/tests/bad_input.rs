//! Ten thousand random commands: the server lives, answers by the contract and counts true.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use fastrand::Rng;
use redlock_tests::{Answer, Server, Wire, seed};

const VECTORS: usize = 10_000;
const MEBIBYTE: usize = 1 << 20;
/// More keys than this make every later look at the keyspace slow.
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

/// Words that parsers trip over, between bars.
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

/// A command as it should be.
fn well_formed(rng: &mut Rng, name: &str) -> Vector {
    let mut vector: Vector = vec![name.into()];
    if name == "REDLOCK.NODE" {
        return vector;
    }
    if name.starts_with("REDLOCK.M") {
        // Now and then at the limit of 1024 keys, and just over it.
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

/// Breaks a command in one place.
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

/// Everything that an error must leave alone.
#[derive(Debug, Clone, PartialEq)]
struct ServerState {
    digest: Answer,
    keys: i64,
    info: String,
}

impl ServerState {
    fn from(answers: &[Answer]) -> Self {
        // Memory is given back bit by bit after a flush, by whatever runs next.
        let settled = |line: &&str| !line.starts_with("redlock_memory_bytes:");
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

/// Keys of other kinds among the locks.
fn plant(wire: &mut Wire) -> i64 {
    assert_eq!(wire.call_strs("FLUSHALL SYNC"), Answer::ok());
    assert_eq!(wire.call_strs("RPUSH list a"), Answer::Int(1));
    assert_eq!(wire.call_strs("SET plain a"), Answer::ok());
    2
}

/// The counters of which exactly one moves by one, given what the command answered.
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
        ("INSPECT", Answer::List(fields)) if fields.len() == 12 => Some(&[]),
        ("NODE", Answer::List(fields)) if fields.len() == 32 => Some(&[]),
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

/// What is wrong with an answer and what it did, if anything.
fn complaint(
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
    let Some(moved) = moved_by(&name, answer) else { return Some("no reply of the contract") };
    let total = |situation: &ServerState| situation.count(&COUNTERS);
    let steps = i64::from(!moved.is_empty());
    if after.count(moved) - before.count(moved) != steps || total(after) - total(before) != steps {
        return Some("not one counter has moved by one");
    }
    (after.number("locks") != after.keys - foreign).then_some("a key beside the planted ones is no lock")
}

const CHANGED_BY_AN_ERROR: &str = "an error has changed something";

/// A vector short enough to read.
fn shown(vector: &Vector) -> String {
    let word = |word: &Vec<u8>| match word.len() {
        ..=80 => format!("\"{}\"", word.escape_ascii()),
        length => format!("<{length} bytes of \\x{:02x}>", word[0]),
    };
    vector.iter().take(20).map(word).collect::<Vec<_>>().join(" ")
}

/// A server that is sent random vectors, and what is known of it.
struct Target {
    server: Server,
    wires: [Wire; 2],
    foreign: i64,
    before: ServerState,
}

impl Target {
    fn start() -> Self {
        // A frozen clock: nothing but the commands changes anything.
        let clock = redlock_tests::FakeClock::new();
        clock.freeze_module();
        // Keys are flushed when they become too many; the node must not wait for their locks then.
        // And nobody waits: who is served later is another test's subject.
        let settings = ["restart-grace", "off", "max-waiters", "0"];
        let server = Server::builder().debug_commands().clock(&clock).module_args(settings).start();
        let mut wires = [server.connect(), server.connect()];
        let foreign = plant(&mut wires[0]);
        let before = ServerState::of(&mut wires[0]);
        Self { server, wires, foreign, before }
    }

    /// Sends `sent`, which is to do what `vector` asks for; hands over the answer, and what is wrong with it.
    fn send(&mut self, wire: usize, vector: &Vector, sent: Vector) -> (Answer, Option<&'static str>) {
        let mut answers = self.wires[wire].pipeline([vec![sent], questions()].concat());
        let answer = answers.remove(0);
        let after = ServerState::from(&answers);
        let wrong = complaint(vector, &answer, &self.before, &after, self.foreign);
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
        // Two connections, so that late acquires are met too.
        let (answer, wrong) = target.send(rng.usize(..2), &vector, vector.clone());
        let context = || format!("seed {seed}, vector {number}: {}", shown(&vector));
        assert_eq!(wrong, None, "{} answered {answer:?}", context());
        errors += usize::from(answer.error_word().is_some());
    }
    // Neither all noise nor all well formed, or one half of this test would be idle.
    assert!((VECTORS / 5..VECTORS * 4 / 5).contains(&errors), "{errors} errors in {VECTORS}");
    let Target { mut server, before, .. } = target;
    assert!(before.number("late_refusals") > 0 && before.number("refreshes") > 0, "{}", before.info);
    assert!(server.is_running() && server.pid() == pid);
    assert_eq!(server.connect().call_strs("PING"), Answer::Status("PONG".into()));
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A lock as it was written before `SET` had `NX` and `PX`: it does the one thing before it looks at the other.
const SETNX_AND_EXPIRE: &str = "local free = redis.call('SETNX', KEYS[1], ARGV[1])
if free == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return free == 1 and 1 or false";

/// The same arguments, at a lock that does not look at them before it does anything.
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
    assert!(seen.contains_key(CHANGED_BY_AN_ERROR), "the checks see nothing: {seen:?}");
}

/// Milliseconds that no lock may last.
const ABSURD_TTL: &[u8] = b"9007199254740992";

/// What of all that is absurd is granted by `ask`, which is told key, owner and time to live.
fn absurd_and_granted(mut ask: impl FnMut(&[u8], &[u8], &[u8]) -> Answer) -> Vec<&'static str> {
    let large = vec![0xab; MEBIBYTE];
    let cases: [(&str, &[u8], &[u8]); 4] = [
        ("an owner of a mebibyte", &large, b"60000"),
        ("a time of a mebibyte", b"me", &large),
        ("no owner", b"", b"60000"),
        ("a time of 285,000 years", b"me", ABSURD_TTL),
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

/// What a server takes by itself.
#[test]
fn control_plain_locks_take_what_is_absurd() {
    let server = Server::builder().without_module().start();
    let mut wire = server.connect();
    let granted = absurd_and_granted(|key, owner, ttl| {
        wire.call(&[b"SET".as_slice(), key, owner, b"NX".as_slice(), b"PX".as_slice(), ttl])
    });
    println!("control: {granted:?}");
    assert!(granted.contains(&"an owner of a mebibyte"), "the checks see nothing: {granted:?}");
    assert!(granted.contains(&"a time of 285,000 years"), "the checks see nothing: {granted:?}");
}
