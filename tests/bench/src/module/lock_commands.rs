//! Ways to acquire and release a lock on one server.

use redlock_tests::{Answer, Wire};

/// Compares the owner and deletes the key, as every Redlock library does.
pub(crate) const SCRIPT: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Builds a command from a key and an owner.
type BuildCommand = Box<dyn Fn(&str, &str) -> Vec<String>>;

/// The server that a contender runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerChoice {
    /// A server without a module.
    Plain,
    /// A server with the minimal module, `examples/floor.rs`.
    Floor,
    /// A server with the Redlock module.
    Locks,
    /// The same, with keyspace notifications, which no client subscribes to.
    Notifying,
}

/// A way to acquire and release a lock.
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

/// All contenders: first those that the plain server supports, then the minimal module, last the Redlock module.
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
        [(FLOOR, ServerChoice::Floor), (NOTIFYING, ServerChoice::Notifying), (MODULE, ServerChoice::Locks)]
            .map(|(name, on)| LockCommands {
                name,
                on,
                acquire: |key, owner| words(&["REDLOCK.ACQUIRE", key, owner, "30000"]),
                release: Box::new(|key, owner| words(&["REDLOCK.RELEASE", key, owner])),
            }),
    );
    all
}

pub(crate) const LUA: &str = "SET NX PX + EVALSHA (owner check)";
pub(crate) const DEL: &str = "SET NX PX + DEL (no owner check)";
pub(crate) const DELIFEQ: &str = "SET NX PX + DELIFEQ";
const MODULE: &str = "REDLOCK.ACQUIRE + REDLOCK.RELEASE";
const NOTIFYING: &str = "REDLOCK, with notifications to nobody";
pub(crate) const FLOOR: &str = "the least a module can do";
