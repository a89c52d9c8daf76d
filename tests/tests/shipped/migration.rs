//! `client/MIGRATION.md`: old and new locks on one key, step by step as the page shows it.

use crate::page::Page;
use crate::program::{find, run, told};
use redlock_tests::{Answer, SOON, Server, skip};
use std::process::Command;

#[test]
fn a_whole_migration_goes_as_the_page_says() {
    if find("redis-cli").is_none() {
        skip("no redis-cli here");
        return;
    }
    let server = Server::builder().tcp().start();
    let blocks = Page::open("client/MIGRATION.md").blocks();
    let (steps, shown) = match blocks.as_slice() {
        [steps, shown] if steps.language == "sh" && shown.language == "text" => (steps, shown),
        _ => panic!("the page has one block of steps and one of what they show"),
    };
    let output = run(Command::new("sh").args(["-euc", &steps.text]).env("NODE", server.url()), SOON);
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown.text);
}

/// What every library of old releases with.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

#[test]
fn a_release_of_old_does_not_free_a_lock_of_the_module() {
    let server = Server::start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(1..)));
    let answer = wire.call(&["EVAL", COMPARE_AND_DELETE, "1", "lock", "me"]);
    // Since Redis 7 the first word of an error inside a script is kept.
    assert!(answer.string().contains("WRONGTYPE"), "{answer:?}");
    assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(1));
    assert_eq!(wire.call_strs("PTTL lock"), Answer::Int(-1));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
}

#[test]
fn a_library_that_looks_before_it_sets_is_kept_out_too() {
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
