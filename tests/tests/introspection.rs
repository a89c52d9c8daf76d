//! What `COMMAND` reports about the commands of the module, flags, keys and documentation, and the fields of replies.

use redlock_tests::{Answer, Server, Wire};
use std::collections::BTreeSet;

/// Every command, with the flags that it must have and the flags that it must not have.
const COMMANDS: [(&str, &[&str], &[&str]); 13] = [
    ("REDLOCK.ACQUIRE", &["write", "denyoom", "fast", "module"], &["readonly"]),
    // A client must be able to extend and release its locks when the server is out of memory.
    ("REDLOCK.EXTEND", &["write", "fast", "module"], &["readonly", "denyoom"]),
    ("REDLOCK.RELEASE", &["write", "fast", "module"], &["readonly", "denyoom"]),
    ("REDLOCK.INSPECT", &["readonly", "fast", "module"], &["write", "denyoom"]),
    ("REDLOCK.MACQUIRE", &["write", "denyoom", "module"], &["readonly"]),
    ("REDLOCK.MEXTEND", &["write", "module"], &["readonly", "denyoom"]),
    ("REDLOCK.MRELEASE", &["write", "module"], &["readonly", "denyoom"]),
    ("REDLOCK.NODE", &["readonly", "fast", "module"], &["write", "denyoom"]),
    ("REDLOCK.APPLY", &["write", "module"], &["readonly", "denyoom"]),
    ("REDLOCK.DATASET", &["write", "module"], &["readonly", "denyoom"]),
    ("REDLOCK.MARK", &["write", "module"], &["readonly", "denyoom"]),
    ("REDLOCK.ADMIT", &["admin", "noscript", "module"], &["write", "readonly", "denyoom"]),
    ("REDLOCK.BREAK", &["write", "admin", "noscript", "module"], &["readonly", "denyoom"]),
];

fn info(wire: &mut Wire, command: &str) -> Vec<Answer> {
    wire.call(&["COMMAND", "INFO", command]).list()[0].list().to_vec()
}

fn texts(answer: &Answer) -> BTreeSet<String> {
    answer.list().iter().map(Answer::string).collect()
}

#[test]
fn the_module_has_exactly_these_commands() {
    let server = Server::start();
    let listed = server.connect().call_strs("COMMAND LIST FILTERBY MODULE redlock");
    let expected = COMMANDS.map(|(name, ..)| name.to_lowercase()).into();
    assert_eq!(texts(&listed).into_iter().map(|name| name.to_lowercase()).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn every_command_has_the_right_flags() {
    let server = Server::start();
    let mut wire = server.connect();
    for (command, present, absent) in COMMANDS {
        let flags = texts(&info(&mut wire, command)[2]);
        for flag in present {
            assert!(flags.contains(*flag), "{command} lacks {flag}: {flags:?}");
        }
        for flag in absent {
            assert!(!flags.contains(*flag), "{command} has {flag}: {flags:?}");
        }
    }
}

#[test]
fn locks_can_be_extended_and_released_without_free_memory() {
    let server = Server::start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.MACQUIRE 3 a b c me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("CONFIG SET maxmemory 1"), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE free me 60000").error_word(), Some("OOM"));
    assert_eq!(wire.call_strs("REDLOCK.MACQUIRE 1 free me 60000").error_word(), Some("OOM"));
    assert!(matches!(wire.call_strs("REDLOCK.EXTEND a me 60000"), Answer::Int(1..)));
    assert!(matches!(wire.call_strs("REDLOCK.MEXTEND 2 b c me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE a me"), Answer::Int(1));
    assert_eq!(wire.call_strs("REDLOCK.MRELEASE 2 b c me"), Answer::Int(1));
}

#[test]
fn the_server_finds_the_keys_of_every_command() {
    let server = Server::start();
    let mut wire = server.connect();
    for (line, keys) in [
        ("REDLOCK.ACQUIRE k owner 1000", "k"),
        ("REDLOCK.ACQUIRE k owner 1000 FENCE 5 LABEL text", "k"),
        ("REDLOCK.EXTEND k owner 1000 FENCE 5", "k"),
        ("REDLOCK.RELEASE k owner", "k"),
        ("REDLOCK.RELEASE k owner FENCE 5", "k"),
        ("REDLOCK.INSPECT k", "k"),
        ("REDLOCK.BREAK k FENCE 5", "k"),
        ("REDLOCK.APPLY k owner 5 1000", "k"),
        ("REDLOCK.MACQUIRE 1 k owner 1000", "k"),
        ("REDLOCK.MACQUIRE 3 a b c owner 1000 FENCE 5 LABEL text", "a b c"),
        ("REDLOCK.MEXTEND 2 a b owner 1000 FENCE 5", "a b"),
        ("REDLOCK.MRELEASE 2 a b owner FENCE 5", "a b"),
    ] {
        let answer = wire.call_strs(&format!("COMMAND GETKEYS {line}"));
        let expected = keys.split(' ').map(Answer::text).collect();
        assert_eq!(answer, Answer::List(expected), "{line}");
    }
    for line in ["REDLOCK.NODE", "REDLOCK.MACQUIRE 9 a owner 1000", "REDLOCK.MRELEASE x a owner"] {
        let answer = wire.call_strs(&format!("COMMAND GETKEYS {line}"));
        assert!(matches!(answer, Answer::Error(_)), "{line}: {answer:?}");
    }
}

#[test]
fn key_flags_say_what_a_command_does_to_its_keys() {
    let server = Server::start();
    let mut wire = server.connect();
    for (line, expected) in [
        ("REDLOCK.ACQUIRE k owner 1000", "RW"),
        ("REDLOCK.EXTEND k owner 1000", "RW"),
        ("REDLOCK.INSPECT k", "RO"),
        ("REDLOCK.MACQUIRE 1 k owner 1000", "RW"),
        ("REDLOCK.MEXTEND 1 k owner 1000", "RW"),
    ] {
        let answer = wire.call_strs(&format!("COMMAND GETKEYSANDFLAGS {line}"));
        let flags = texts(&answer.list()[0].list()[1]);
        assert!(flags.contains(expected), "{line}: {flags:?}");
    }
    for line in ["REDLOCK.RELEASE k owner", "REDLOCK.MRELEASE 1 k owner", "REDLOCK.BREAK k"] {
        let answer = wire.call_strs(&format!("COMMAND GETKEYSANDFLAGS {line}"));
        let flags = texts(&answer.list()[0].list()[1]);
        assert!(flags.contains("delete") && !flags.contains("RO"), "{line}: {flags:?}");
    }
}

#[test]
fn every_command_is_documented() {
    let server = Server::start();
    let mut wire = server.connect();
    for (command, ..) in COMMANDS {
        let docs = wire.call(&["COMMAND", "DOCS", command]);
        let (_, doc) = docs.pairs().into_iter().next().unwrap_or_else(|| panic!("no docs of {command}"));
        for field in ["summary", "since", "complexity"] {
            let text = doc.field(field).unwrap_or_else(|| panic!("no {field} of {command}")).string();
            assert!(!text.is_empty(), "{field} of {command}");
        }
        assert_eq!(doc.field("module"), Some(&Answer::text("redlock")), "{command}");
        assert_eq!(doc.field("arguments").is_some(), command != "REDLOCK.NODE", "{command}");
    }
}

#[test]
fn replies_are_maps_in_resp3_and_flat_lists_in_resp2() {
    let server = Server::start();
    let (mut flat, mut wire) = (server.connect(), server.connect_resp3());
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000 LABEL text"), Answer::Int(1..)));
    let fields = ["fence", "label", "pttl", "held-ms", "extensions", "waiters", "mode", "holders"];
    let lock = wire.call_strs("REDLOCK.INSPECT lock");
    assert!(matches!(lock, Answer::Map(_)), "{lock:?}");
    assert_eq!(lock.pairs().iter().map(|(key, _)| key.string()).collect::<Vec<_>>(), fields);
    assert!(matches!(flat.call_strs("REDLOCK.INSPECT lock"), Answer::List(_)));
    assert_eq!(wire.call_strs("REDLOCK.INSPECT free"), Answer::Nil);
    assert_eq!(flat.call_strs("REDLOCK.INSPECT free"), Answer::Nil);

    let fields = [
        "node-id",
        "incarnation",
        "origin",
        "voting",
        "non-voting-reason",
        "fence",
        "high-water",
        "common-high-water",
        "far-high-water",
        "quarantine-ms",
        "locks",
        "waiters",
        "longest-lease-ms",
        "max-ttl-ms",
        "claim-window-ms",
        "started",
        "role",
        "version",
    ];
    for answer in [wire.call_strs("REDLOCK.NODE"), flat.call_strs("REDLOCK.NODE")] {
        assert_eq!(answer.pairs().iter().map(|(key, _)| key.string()).collect::<Vec<_>>(), fields);
        assert_eq!(answer.field("locks"), Some(&Answer::Int(1)));
        assert!(answer.field("longest-lease-ms").is_some_and(|lease| lease.int() >= 60_000));
        assert_eq!(answer.field("voting"), Some(&Answer::Int(1)));
        assert_eq!(answer.field("version"), Some(&Answer::text(env!("CARGO_PKG_VERSION"))));
    }
}

#[test]
fn every_node_has_a_node_id_of_its_own() {
    let id =
        |server: &Server| server.connect().call_strs("REDLOCK.NODE").field("node-id").map(Answer::string);
    let (one, other) = (Server::start(), Server::start());
    assert_eq!(id(&one), id(&one));
    assert_ne!(id(&one), id(&other));
}
