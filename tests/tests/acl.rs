//! Who may do what: permissions on commands, keys and categories.

use redlock_tests::{Answer, Server, Wire, skip};
use std::collections::BTreeSet;

/// A connection of a user with these rules and no others.
fn user(server: &Server, rules: &str) -> Wire {
    let mut wire = server.connect();
    assert_eq!(wire.call_strs(&format!("ACL SETUSER user reset on nopass {rules}")), Answer::ok(), "{rules}");
    assert_eq!(wire.call_strs("AUTH user any"), Answer::ok());
    wire
}

fn refused(answer: &Answer) -> bool {
    answer.error_word() == Some("NOPERM")
}

#[test]
fn a_user_runs_only_the_commands_it_was_given() {
    let server = Server::start();
    let mut wire = user(&server, "~* +redlock.acquire +redlock.release");
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a me 60000"), Answer::Int(1..)));
    assert!(refused(&wire.call_strs("REDLOCK.EXTEND a me 60000")));
    assert!(refused(&wire.call_strs("REDLOCK.INSPECT a")));
    assert!(refused(&wire.call_strs("REDLOCK.NODE")));
    assert!(refused(&wire.call_strs("REDLOCK.MACQUIRE 1 a me 60000")));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE a me"), Answer::Int(1));
}

#[test]
fn key_patterns_hold_for_every_key_of_a_command() {
    let server = Server::start();
    let mut wire = user(&server, "~jobs:* +@all");
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE jobs:1 me 60000"), Answer::Int(1..)));
    for line in [
        "REDLOCK.ACQUIRE other me 60000",
        "REDLOCK.EXTEND other me 60000",
        "REDLOCK.RELEASE other me",
        "REDLOCK.INSPECT other",
        "REDLOCK.MACQUIRE 2 jobs:2 other me 60000",
        "REDLOCK.MEXTEND 2 jobs:1 other me 60000",
        "REDLOCK.MRELEASE 2 jobs:1 other me",
    ] {
        assert!(refused(&wire.call_strs(line)), "{line}");
    }
    assert!(matches!(wire.call_strs("REDLOCK.MACQUIRE 2 jobs:1 jobs:2 me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("REDLOCK.MRELEASE 2 jobs:1 jobs:2 me"), Answer::Int(1));
}

#[test]
fn permission_to_read_is_enough_to_look_and_not_to_take() {
    let server = Server::start();
    let mut wire = user(&server, "%R~* +@all");
    assert_eq!(wire.call_strs("REDLOCK.INSPECT a"), Answer::Nil);
    assert!(refused(&wire.call_strs("REDLOCK.ACQUIRE a me 60000")));
    assert!(refused(&wire.call_strs("REDLOCK.EXTEND a me 60000")));
    assert!(refused(&wire.call_strs("REDLOCK.RELEASE a me")));
}

fn category(wire: &mut Wire, name: &str) -> BTreeSet<String> {
    let answer = wire.call(&["ACL", "CAT", name]);
    assert!(matches!(answer, Answer::List(_)), "ACL CAT {name}: {answer:?}");
    // A name is shown in the case in which the module registered it.
    answer.list().iter().map(|command| command.string().to_lowercase()).collect()
}

#[test]
fn commands_are_in_the_categories_of_what_they_do() {
    let server = Server::start();
    let flavor = server.flavor();
    if !flavor.at_least(7, 2) {
        skip(&format!("{flavor} has no ACL categories for module commands"));
        return;
    }
    let mut wire = server.connect();
    let cases: [(&str, &[&str], &[&str]); 3] = [
        ("write", &["acquire", "extend", "release", "macquire", "mextend", "mrelease"], &["inspect", "node"]),
        ("read", &["inspect", "node"], &["acquire", "extend", "release", "macquire", "mextend", "mrelease"]),
        ("fast", &["acquire", "extend", "release", "inspect", "node"], &[]),
    ];
    for (name, present, absent) in cases {
        let commands = category(&mut wire, name);
        for command in present {
            assert!(commands.contains(&format!("redlock.{command}")), "{command} is not in @{name}");
        }
        for command in absent {
            assert!(!commands.contains(&format!("redlock.{command}")), "{command} is in @{name}");
        }
    }
    let mut reader = user(&server, "~* +@read");
    assert_eq!(reader.call_strs("REDLOCK.INSPECT a"), Answer::Nil);
    assert!(refused(&reader.call_strs("REDLOCK.ACQUIRE a me 60000")));
}

#[test]
fn the_module_has_a_category_of_its_own() {
    let server = Server::start();
    let flavor = server.flavor();
    if !flavor.at_least(7, 4) {
        skip(&format!("{flavor} lets no module add an ACL category"));
        return;
    }
    let commands = category(&mut server.connect(), "redlock");
    for command in ["acquire", "extend", "release", "inspect", "macquire", "mextend", "mrelease", "node"] {
        assert!(commands.contains(&format!("redlock.{command}")), "{command} is not in @redlock");
    }
    let mut wire = user(&server, "~* +@redlock");
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE a me 60000"), Answer::Int(1..)));
    assert!(refused(&wire.call_strs("GET a")));
}
