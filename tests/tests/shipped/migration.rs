//! `client/MIGRATION.md`: the steps of the page, and locks of the module and of older libraries on one key.

use crate::page::Page;
use crate::program::{describe, find, run};
use redlock_tests::{Answer, SOON, Server, skip};
use std::process::Command;

#[test]
fn the_migration_works_as_the_page_says() {
    if find("redis-cli").is_none() {
        skip("redis-cli is not installed");
        return;
    }
    let server = Server::builder().tcp().start();
    let blocks = Page::open("client/MIGRATION.md").blocks();
    let (steps, shown) = match blocks.as_slice() {
        [steps, shown] if steps.language == "sh" && shown.language == "text" => (steps, shown),
        _ => panic!("the page must have one block of steps and one block of their output"),
    };
    let output = run(Command::new("sh").args(["-euc", &steps.text]).env("NODE", server.url()), SOON);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown.text);
}

/// The script with which older libraries release a lock.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

#[test]
fn a_release_of_an_older_library_does_not_free_a_lock_of_the_module() {
    let server = Server::start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(1..)));
    let answer = wire.call(&["EVAL", COMPARE_AND_DELETE, "1", "lock", "me"]);
    // Since Redis 7 an error inside a script keeps its first word.
    assert!(answer.string().contains("WRONGTYPE"), "{answer:?}");
    assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(1));
    assert_eq!(wire.call_strs("PTTL lock"), Answer::Int(-1));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
}

#[test]
fn a_library_that_runs_exists_before_set_is_excluded_too() {
    let server = Server::start();
    let mut wire = server.connect();
    let script = "if redis.call('exists', KEYS[1]) == 1 then return 0 end redis.call('set', KEYS[1], ARGV[1], 'PX', 60000) return 1";
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call(&["EVAL", script, "1", "lock", "old"]), Answer::Int(0));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    assert_eq!(wire.call(&["EVAL", script, "1", "lock", "old"]), Answer::Int(1));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Nil);
}

#[test]
fn a_lock_that_is_a_hash_is_an_error_on_both_sides() {
    let server = Server::start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("HSET lock holder 1"), Answer::Int(1));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000").error_word(), Some("WRONGTYPE"));
    assert_eq!(wire.call_strs("DEL lock"), Answer::Int(1));
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("HINCRBY lock holder 1").error_word(), Some("WRONGTYPE"));
}
