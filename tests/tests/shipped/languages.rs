//! `client/LANGUAGES.md`: every snippet runs as the page shows it, and its quorum clients follow the fence rule.
//!
//! The Redis libraries come from `REDLOCK_PYTHON_PACKAGES`, a folder to import from, and `REDLOCK_NODE_PACKAGES`, a
//! folder with `node_modules` in it. `scripts/test` sets both. Without them, a test runs only if the library is
//! installed, and otherwise reports that it was skipped.

use crate::page::Page;
use crate::program::{describe, find, run};
use redlock_tests::{Answer, Fleet, Server, skip};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// The deadline of a snippet. A slower one hangs.
const LONG: Duration = Duration::from_secs(60);

/// A language of the page, and how the tests run its programs.
struct Language {
    name: &'static str,
    program: &'static str,
    /// The start of a comment. A block whose first line is a comment with a file name is a file to import.
    comment: &'static str,
    ending: &'static str,
    packages: &'static str,
    /// A program that succeeds if the Redis library is installed.
    probe: &'static str,
    /// The node timeout as the page sets it, and its replacement in these tests, which a busy machine does not exceed.
    timeouts: [&'static str; 2],
}

const PYTHON: Language = Language {
    name: "python",
    program: "python3",
    comment: "# ",
    ending: "py",
    packages: "REDLOCK_PYTHON_PACKAGES",
    probe: "import redis",
    timeouts: ["timeout=0.2", "timeout=20"],
};

const NODE: Language = Language {
    name: "javascript",
    program: "node",
    comment: "// ",
    ending: "mjs",
    packages: "REDLOCK_NODE_PACKAGES",
    probe: "import 'ioredis'",
    timeouts: ["timeout = 200", "timeout = 20_000"],
};

/// The folder in which the programs of the page run, with the files that they import.
struct Workdir {
    language: &'static Language,
    folder: TempDir,
}

impl Workdir {
    /// Creates the folder. Returns `None`, and logs why, if the language or its library is not installed.
    fn set_up(language: &'static Language) -> Option<Self> {
        let given = std::env::var_os(language.packages).map(PathBuf::from);
        if find(language.program).is_none() {
            assert!(
                given.is_none(),
                "{} is set, but {} is not installed",
                language.packages,
                language.program
            );
            skip(&format!("{} is not installed", language.program));
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        if let Some(packages) = given.as_ref().filter(|_| language.name == "javascript") {
            // Node.js resolves an import from the folder of the importing file, never from the environment.
            let packages =
                packages.canonicalize().expect("REDLOCK_NODE_PACKAGES names a folder").join("node_modules");
            std::os::unix::fs::symlink(packages, folder.path().join("node_modules")).expect("a link");
        }
        let workdir = Self { language, folder };
        for block in workdir.blocks().iter().filter(|block| block.file.is_some()) {
            let name = block.file.as_ref().expect("filtered above");
            let [short, long] = language.timeouts;
            assert!(block.text.contains(short), "{name} must contain {short}");
            fs::write(workdir.folder.path().join(name), block.text.replace(short, long)).expect("a file");
        }
        let probe = workdir.run("probe", language.probe, &[]);
        if !probe.status.success() {
            assert!(given.is_none(), "{} has no Redis library: {}", language.packages, describe(&probe));
            skip(&format!(
                "no Redis library for {}: {} does not name one",
                language.program, language.packages
            ));
            return None;
        }
        Some(workdir)
    }

    /// Runs a program of the page or of a test. `nodes` are the addresses in its `REDLOCK_NODES`.
    fn run(&self, name: &str, text: &str, nodes: &[String]) -> Output {
        let file = self.folder.path().join(format!("{name}.{}", self.language.ending));
        fs::write(&file, text).expect("a file");
        let mut command = Command::new(self.language.program);
        command.arg(&file).current_dir(self.folder.path()).env("REDLOCK_NODES", nodes.join(","));
        if let Some(packages) = std::env::var_os(PYTHON.packages) {
            command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
        }
        run(&mut command, LONG)
    }

    /// Runs a program that must succeed, as [`Workdir::run`], and returns its standard output.
    fn output(&self, name: &str, text: &str, nodes: &[String]) -> String {
        let output = self.run(name, text, nodes);
        assert!(output.status.success(), "{name}: {}", describe(&output));
        String::from_utf8(output.stdout).expect("readable output")
    }

    /// The code blocks of the page in this language.
    fn blocks(&self) -> Vec<Snippet> {
        let blocks = Page::open("client/LANGUAGES.md").blocks();
        let mut found = Vec::new();
        for (index, block) in
            blocks.iter().enumerate().filter(|(_, block)| block.language == self.language.name)
        {
            let first = block.text.lines().next().unwrap_or_default();
            let file =
                first.strip_prefix(self.language.comment).filter(|name| name.ends_with(self.language.ending));
            let shown = blocks.get(index + 1).filter(|next| next.language == "text");
            found.push(Snippet {
                title: format!("{} (line {})", block.heading, block.line),
                name: format!("line-{}", block.line),
                text: block.text.clone(),
                file: file.map(String::from),
                prints: shown.map(|next| next.text.clone()),
            });
        }
        found
    }
}

/// One code block of the page.
struct Snippet {
    title: String,
    name: String,
    text: String,
    /// The name under which other snippets import it. `None` for a snippet to run.
    file: Option<String>,
    /// The output that the page shows.
    prints: Option<String>,
}

fn every_snippet_prints_what_the_page_says(language: &'static Language, expected: usize) {
    let Some(workdir) = Workdir::set_up(language) else { return };
    let mut fleet = Fleet::start(5);
    let mut wire = fleet[0].connect();
    // The slow log of node 0 keeps every command: the snippets that wait are queued there.
    assert_eq!(wire.call_strs("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 100000"), Answer::ok());
    let mut count = 0;
    for snippet in workdir.blocks().iter().filter(|snippet| snippet.file.is_none()) {
        let printed = workdir.output(&snippet.name, &snippet.text, &fleet.urls());
        assert_eq!(Some(&printed), snippet.prints.as_ref(), "{}", snippet.title);
        assert!(fleet.is_free("orders:42"), "{} must release its lock", snippet.title);
        count += 1;
    }
    assert_eq!(count, expected, "the number of snippets on the page");
    let tickets = tickets(&wire.call_strs("SLOWLOG GET -1"));
    assert!(!tickets.is_empty(), "no snippet has waited in the queue");
    let now = UNIX_EPOCH.elapsed().expect("the clock is past 1970");
    for ticket in tickets {
        // The unit of the Rust client. A client with another unit would always be first or last in the queue.
        let drawn = Duration::from_micros(ticket >> 11);
        assert!(drawn <= now && now - drawn < 10 * LONG, "ticket {ticket} has another unit");
    }
}

/// The tickets of all requests with WAIT in a slow log.
fn tickets(log: &Answer) -> Vec<u64> {
    let commands = log.list().iter().map(|entry| entry.list()[3].list());
    let ticket = |words: &[Answer]| {
        let place = words.iter().position(|word| *word == Answer::text("WAIT"))?;
        words[place + 1].string().parse().ok()
    };
    commands.filter_map(ticket).collect()
}

#[test]
fn every_snippet_in_python_prints_what_the_page_says() {
    every_snippet_prints_what_the_page_says(&PYTHON, 4);
}

#[test]
fn every_snippet_in_javascript_prints_what_the_page_says() {
    every_snippet_prints_what_the_page_says(&NODE, 4);
}

const HOLD_IN_PYTHON: &str = "
import os
from redlock import Redlock
lock = Redlock(os.environ['REDLOCK_NODES'].split(',')).acquire('uneven', 60_000)
print(lock.fence if lock else 'none')
";

// A long timeout: on a busy machine, a node may answer late.
const HOLD_IN_JAVASCRIPT: &str = "
import { Redlock } from './redlock.mjs';
const locks = new Redlock(process.env.REDLOCK_NODES.split(','), 10_000);
const lock = await locks.acquire('uneven', 60_000);
console.log(lock ? String(lock.fence) : 'none');
locks.close();
";

/// Five nodes with different fences for the key `uneven`, as after crashes and network partitions.
fn uneven() -> Fleet {
    let fleet = Fleet::start(5);
    for (node, number) in fleet.iter().zip([3, 9, 5, 40, 7]) {
        let mut wire = node.connect();
        assert_eq!(
            wire.call_strs(&format!("REDLOCK.ACQUIRE uneven before 1000 FENCE {number}")).int(),
            number
        );
        assert_eq!(wire.call_strs("REDLOCK.RELEASE uneven before").int(), 1);
    }
    fleet
}

/// The number of nodes on which the lock has exactly the fence that the client printed.
fn confirmed(workdir: &Workdir, program: &str) -> usize {
    let mut fleet = uneven();
    let printed = workdir.output("hold", program, &fleet.urls());
    let fence: i64 = printed.trim().parse().unwrap_or_else(|_| panic!("no fence: {printed}"));
    fleet.fences("uneven").into_iter().filter(|held| *held == Some(fence)).count()
}

#[test]
fn the_python_client_has_one_fence_from_a_majority() {
    let Some(workdir) = Workdir::set_up(&PYTHON) else { return };
    assert!(confirmed(&workdir, HOLD_IN_PYTHON) >= 3);

    // The control: a client that takes the largest fence without a second round has no majority for it.
    let file = workdir.folder.path().join("redlock.py");
    let right = fs::read_to_string(&file).expect("the client");
    let wrong = naive(
        &right,
        &[
            ("numbers[self.majority - 1]", "numbers[-1]"),
            ("if answers.count(fence) < self.majority:", "if False:"),
            ("answers.count(fence) >= self.majority and ", ""),
        ],
    );
    fs::write(&file, wrong).expect("a file");
    assert!(confirmed(&workdir, HOLD_IN_PYTHON) < 3);
}

#[test]
fn the_javascript_client_has_one_fence_from_a_majority() {
    let Some(workdir) = Workdir::set_up(&NODE) else { return };
    assert!(confirmed(&workdir, HOLD_IN_JAVASCRIPT) >= 3);

    let file = workdir.folder.path().join("redlock.mjs");
    let right = fs::read_to_string(&file).expect("the client");
    let wrong = naive(
        &right,
        &[
            ("numbers[this.majority - 1]", "numbers.at(-1)"),
            ("if (agree() < this.majority) {", "if (false) {"),
            ("agree() >= this.majority && ", ""),
        ],
    );
    fs::write(&file, wrong).expect("a file");
    assert!(confirmed(&workdir, HOLD_IN_JAVASCRIPT) < 3);
}

/// The client of the page without some of its rules. The page must contain each of them exactly once.
fn naive(right: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(right.to_string(), |text, (rule, instead)| {
        assert_eq!(text.matches(rule).count(), 1, "the page must contain {rule:?} once");
        text.replace(rule, instead)
    })
}

const CONTEND_IN_PYTHON: &str = "
import os, random, time
from redlock import Redlock
locks = Redlock(os.environ['REDLOCK_NODES'].split(','))
for _ in range(10):
    while (lock := locks.acquire('crowded', 60_000)) is None:
        time.sleep(random.uniform(0.001, 0.02))
    with open('holders', 'a') as holders:
        holders.write(f'{lock.fence}\\n')
    locks.release(lock)
";

const CONTEND_IN_JAVASCRIPT: &str = "
import { appendFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { Redlock } from './redlock.mjs';
const locks = new Redlock(process.env.REDLOCK_NODES.split(','));
for (let round = 0; round < 10; round++) {
  let lock;
  while ((lock = await locks.acquire('crowded', 60_000)) === null) await setTimeout(1 + Math.random() * 20);
  appendFileSync('holders', `${lock.fence}\\n`);
  await locks.release(lock);
}
locks.close();
";

fn a_crowd_takes_turns(language: &'static Language, program: &str) {
    let Some(workdir) = Workdir::set_up(language) else { return };
    let mut fleet = Fleet::start(5);
    let nodes = fleet.urls();
    fleet[4].kill();
    thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            let (workdir, nodes) = (&workdir, &nodes);
            scope.spawn(move || workdir.output(name, program, nodes));
        }
    });
    let fences = holders(workdir.folder.path());
    assert_eq!(fences.len(), 30);
    assert!(took_turns(&fences), "{fences:?}");
}

/// The fences of the holders, in the order in which they held the lock.
fn holders(folder: &Path) -> Vec<u64> {
    let text = fs::read_to_string(folder.join("holders")).expect("a client has held the lock");
    text.lines().map(|line| line.parse().expect("a fence")).collect()
}

/// Whether the fences strictly increase, in the order of the holders.
fn took_turns(fences: &[u64]) -> bool {
    fences.is_sorted() && fences.iter().collect::<BTreeSet<_>>().len() == fences.len()
}

#[test]
fn three_python_clients_take_turns_with_a_node_down() {
    a_crowd_takes_turns(&PYTHON, CONTEND_IN_PYTHON);
}

#[test]
fn three_javascript_clients_take_turns_with_a_node_down() {
    a_crowd_takes_turns(&NODE, CONTEND_IN_JAVASCRIPT);
}

/// Runs the script of the page's fenced write on fences that are equal as doubles, and on fences of different lengths.
#[test]
fn the_fenced_write_in_javascript_compares_all_digits() {
    let page = Page::open("client/LANGUAGES.md");
    let script = page.text.split("lua: `").nth(1).and_then(|rest| rest.split('`').next()).expect("a script");
    let server = Server::start();
    let mut wire = server.connect();
    let mut write = |fence: &str| wire.call(&["EVAL", script, "1", "data:42", fence, "x"]).int() == 1;
    assert!(write("9") && write("10") && write("10"), "the same holder may write again");
    assert!(!write("9"), "a shorter number is smaller");
    assert!(write("9007199254740993"));
    assert!(!write("9007199254740992"), "the next smaller number, which is equal as a double");
    assert!(write("9223372036854775807") && !write("9223372036854775806"));
}

#[test]
fn a_repeated_or_decreasing_fence_is_detected() {
    assert!(took_turns(&[1, 2, 5]));
    assert!(!took_turns(&[1, 2, 2]));
    assert!(!took_turns(&[1, 5, 2]));
}
