//! Access control: which user may run which command on which key, and the ACL categories of the commands.

use redlock_tests::{Answer, Server, Wire, granted, skip};
use std::collections::BTreeSet;

const COMMANDS_PAGE: &str = include_str!("../../module/COMMANDS.md");
const OPERATIONS_PAGE: &str = include_str!("../../module/OPERATIONS.md");

/// Connects as a user that has these ACL rules and no others.
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
fn a_user_runs_only_the_commands_that_its_rules_allow() {
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
fn key_patterns_apply_to_every_key_of_a_command() {
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
fn read_permission_allows_inspect_and_not_acquire() {
    let server = Server::start();
    let mut wire = user(&server, "%R~* +@all");
    assert_eq!(wire.call_strs("REDLOCK.INSPECT a"), Answer::Nil);
    assert!(refused(&wire.call_strs("REDLOCK.ACQUIRE a me 60000")));
    assert!(refused(&wire.call_strs("REDLOCK.EXTEND a me 60000")));
    assert!(refused(&wire.call_strs("REDLOCK.RELEASE a me")));
}

/// The commands of the module in an ACL category. `ACL CAT` leaves the commands of modules out on Redis 7.2 and Redict.
fn category(wire: &mut Wire, name: &str) -> BTreeSet<String> {
    let commands = wire.call_strs("COMMAND LIST FILTERBY MODULE redlock");
    let commands = commands.list().iter().map(Answer::string);
    let is_in = |command: &String| {
        let info = wire.call(&["COMMAND", "INFO", command]);
        info.list()[0].list()[6].list().iter().any(|category| category.string() == format!("@{name}"))
    };
    // The server shows a name in the case in which the module registered it.
    commands.filter(is_in).map(|command| command.to_lowercase()).collect()
}

#[test]
fn commands_are_in_the_categories_that_match_their_effect() {
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
        skip(&format!("{flavor} does not let a module add an ACL category"));
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

/// The commands with which a user can read the owner of a lock, and the ACL category that COMMANDS.md names. Servers
/// other than Valkey 8.1 and later have no COMMANDLOG.
const SHOW_OWNERS: [(&str, &str); 7] = [
    ("DUMP key", "read"),
    ("MIGRATE 127.0.0.1 1 key 0 1000", "dangerous"),
    ("MONITOR", "dangerous"),
    ("SLOWLOG GET", "dangerous"),
    ("COMMANDLOG GET 1 slow", "dangerous"),
    ("SYNC", "dangerous"),
    ("PSYNC ? -1", "dangerous"),
];

/// The users of a guide: their names and rules. The default user is turned off there.
fn users(page: &str) -> Vec<(&str, &str)> {
    let rules = page.lines().filter_map(|line| line.strip_prefix("ACL SETUSER "));
    rules.filter_map(|rule| rule.split_once(' ')).filter(|(name, _)| *name != "default").collect()
}

#[test]
fn no_user_of_the_guides_can_read_owners() {
    let server = Server::start();
    let mut wire = server.connect();
    let has_category = server.flavor().at_least(7, 4);
    let all = [users(COMMANDS_PAGE), users(OPERATIONS_PAGE)].concat();
    assert!(all.len() > 7, "{all:?}");
    for (name, rules) in all.into_iter().filter(|(_, rules)| has_category || !rules.contains("@redlock")) {
        assert_eq!(wire.call_strs(&format!("ACL SETUSER {name} reset {rules}")), Answer::ok(), "{rules}");
        // A key that the user may use.
        let key = rules.split(' ').find_map(|rule| rule.split_once('~')).map_or("key", |(_, keys)| keys);
        for (line, _) in SHOW_OWNERS {
            let dry = wire.call_strs(&format!("ACL DRYRUN {name} {}", line.replace("key", key)));
            assert_ne!(dry, Answer::ok(), "{name}: {line}");
        }
    }
}

#[test]
fn the_commands_that_show_owners_are_in_the_guide_with_their_categories() {
    let server = Server::start();
    let mut wire = server.connect();
    let (_, list) = COMMANDS_PAGE.split_once("These users can read the owners").expect("a list");
    let (list, _) = list.split_once("\n\n`REDLOCK.ADMIT`").expect("the end of the list");
    for (line, category) in SHOW_OWNERS {
        let command = line.split(' ').next().unwrap_or_default();
        assert!(list.contains(&format!("`{command}`")), "{command} is not in COMMANDS.md");
        assert!(list.contains(&format!("`@{category}`")), "{category} is not in COMMANDS.md");
        let known = wire.call(&["COMMAND", "INFO", command]);
        if known.list()[0] == Answer::Nil {
            assert_eq!(command, "COMMANDLOG", "every server has the other commands");
            continue;
        }
        let listed = wire.call(&["ACL", "CAT", category]);
        let is_listed = |name: &Answer| name.string().split('|').next() == Some(&command.to_lowercase());
        assert!(listed.list().iter().any(is_listed), "{command} is not in @{category}");
    }
}

/// The list of COMMANDS.md is about real secrets, and no reply of the module is missing in it.
#[test]
fn an_image_and_the_log_of_commands_show_the_owner_and_replies_of_the_module_do_not() {
    let server = Server::start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("CONFIG SET slowlog-log-slower-than 0"), Answer::ok());
    granted(&wire.call_strs("REDLOCK.ACQUIRE key known-owner 60000"));
    let shows = |answer: &Answer| format!("{answer:?}").contains("known-owner");
    let Answer::Text(image) = wire.call_strs("DUMP key") else { panic!("DUMP returns an image") };
    assert!(image.windows(11).any(|part| part == b"known-owner"), "{image:?}");
    assert!(shows(&wire.call_strs("SLOWLOG GET")));
    let log = wire.call_strs("COMMANDLOG GET 10 slow");
    assert!(shows(&log) || log.error_word() == Some("ERR"), "{log:?}");
    for line in ["REDLOCK.INSPECT key", "REDLOCK.NODE", "INFO redlock", "REDLOCK.ACQUIRE key other 1000"] {
        let answer = wire.call_strs(line);
        assert!(!shows(&answer), "{line}: {answer:?}");
    }
}
