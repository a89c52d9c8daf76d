//! Ways to take and free a lock on one server.

use redlock_tests::{Answer, Wire};

/// Compare and delete, as every Redlock library does it.
pub(crate) const SCRIPT: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Makes a command of a key and an owner.
type BuildCommand = Box<dyn Fn(&str, &str) -> Vec<String>>;

/// Which of the servers a contender runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerChoice {
    /// One without a module.
    Plain,
    /// One with the least that a module can do, `examples/floor.rs`.
    Floor,
    /// One with the module.
    Locks,
}

/// A way to take and free a lock.
pub(crate) struct LockCommands {
    pub(crate) name: &'static str,
    pub(crate) on: ServerChoice,
    pub(crate) acquire: fn(&str, &str) -> Vec<String>,
    pub(crate) release: BuildCommand,
}

fn set_nx_px(key: &str, owner: &str) -> Vec<String> {
    words(&["SET", key, owner, "NX", "PX", "30000"])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The contenders that the plain server knows, then the least of modules, and ours as the last.
pub(crate) fn all(plain: &mut Wire) -> Vec<LockCommands> {
    let sha = plain.call(&["SCRIPT", "LOAD", SCRIPT]).string();
    let mut all = vec![
        LockCommands {
            name: LUA,
            on: ServerChoice::Plain,
            acquire: set_nx_px,
            release: Box::new(move |key, owner| words(&["EVALSHA", &sha, "1", key, owner])),
        },
        LockCommands {
            name: DEL,
            on: ServerChoice::Plain,
            acquire: set_nx_px,
            release: Box::new(|key, _| words(&["DEL", key])),
        },
    ];
    for (name, command, test) in [(DELIFEQ, "DELIFEQ", ""), ("SET NX PX + DELEX IFEQ", "DELEX", "IFEQ")] {
        let known = plain.call(&["COMMAND", "INFO", command]);
        if !matches!(known.list().first(), None | Some(Answer::Nil)) {
            let release = move |key: &str, owner: &str| {
                words(
                    &[command, key, test, owner]
                        .into_iter()
                        .filter(|word| !word.is_empty())
                        .collect::<Vec<_>>(),
                )
            };
            all.push(LockCommands {
                name,
                on: ServerChoice::Plain,
                acquire: set_nx_px,
                release: Box::new(release),
            });
        }
    }
    all.extend(
        [(FLOOR, ServerChoice::Floor), ("REDLOCK.ACQUIRE + REDLOCK.RELEASE", ServerChoice::Locks)].map(
            |(name, on)| LockCommands {
                name,
                on,
                acquire: |key, owner| words(&["REDLOCK.ACQUIRE", key, owner, "30000"]),
                release: Box::new(|key, owner| words(&["REDLOCK.RELEASE", key, owner])),
            },
        ),
    );
    all
}

pub(crate) const LUA: &str = "SET NX PX + EVALSHA (owner check)";
pub(crate) const DEL: &str = "SET NX PX + DEL (no owner check)";
pub(crate) const DELIFEQ: &str = "SET NX PX + DELIFEQ";
pub(crate) const FLOOR: &str = "the least a module can do";
