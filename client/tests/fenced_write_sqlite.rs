//! The statements of the example `fenced_write_sqlite` work as documented, also when several holders write at
//! once.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use example::{Documents, FENCED_WRITE, SCHEMA, StoreError};
use rusqlite::{Connection, params};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

#[path = "../examples/fenced_write_sqlite.rs"]
#[allow(unreachable_pub, reason = "an example is a program of its own")]
mod example;

const ID: &str = "document";

/// Maps the outcome to a value that tests can compare: the error is the rejected fence.
fn stale<T>(outcome: Result<T, StoreError>) -> Result<T, u64> {
    outcome.map_err(|error| match error {
        StoreError::Stale { fence } => fence,
        StoreError::Database(error) => panic!("the database failed: {error}"),
    })
}

fn documents() -> Documents {
    Documents::new(Connection::open_in_memory().expect("a database in memory")).expect("a new table")
}

#[test]
fn the_example_runs() {
    example::main().unwrap();
}

#[test]
fn a_stale_fence_is_rejected_and_an_equal_or_newer_one_accepted() {
    let documents = documents();
    let largest = u64::try_from(i64::MAX).unwrap();
    for (fence, body, outcome) in [
        (5, "first", Ok(())),
        (5, "the same holder again", Ok(())),
        (4, "too late", Err(4)),
        (9, "the next holder", Ok(())),
        (5, "too late", Err(5)),
        (8, "too late", Err(8)),
        (largest, "the last of all", Ok(())),
        (largest - 1, "too late by one", Err(largest - 1)),
    ] {
        assert_eq!(stale(documents.write(ID, body, fence)), outcome, "{fence}: {body}");
    }
    assert_eq!(stale(documents.read(ID, largest)), Ok(Some("the last of all".into())));
}

#[test]
fn a_read_makes_the_database_reject_older_holders() {
    let documents = documents();
    assert_eq!(
        stale(documents.read(ID, 3)),
        Ok(None),
        "no document yet, and the database stores the fence of the read"
    );
    assert_eq!(stale(documents.write(ID, "older than the read", 2)), Err(2));
    assert_eq!(stale(documents.write(ID, "as new as the read", 3)), Ok(()));

    assert_eq!(stale(documents.read(ID, 6)), Ok(Some("as new as the read".into())));
    assert_eq!(stale(documents.write(ID, "between read and write", 3)), Err(3));
    assert_eq!(stale(documents.read(ID, 5)), Err(5), "a stale read is rejected too");
    assert_eq!(stale(documents.read(ID, 6)), Ok(Some("as new as the read".into())));
}

#[test]
fn documents_have_fences_of_their_own() {
    let documents = documents();
    assert_eq!(stale(documents.write("a", "…", 100)), Ok(()));
    assert_eq!(stale(documents.write("b", "…", 1)), Ok(()));
    assert_eq!(stale(documents.write("a", "…", 99)), Err(99));
}

/// Records every successful write, in the order of the database.
const HISTORY: &str = "
    CREATE TABLE history (place INTEGER PRIMARY KEY AUTOINCREMENT, fence INTEGER NOT NULL);
    CREATE TRIGGER on_insert AFTER INSERT ON document
        BEGIN INSERT INTO history (fence) VALUES (new.fence); END;
    CREATE TRIGGER on_update AFTER UPDATE ON document
        BEGIN INSERT INTO history (fence) VALUES (new.fence); END;";

/// A database in a file: several connections can write to it at once.
struct OnDisk(PathBuf);

impl OnDisk {
    fn new(name: &str) -> Self {
        let database = Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name));
        let _ = std::fs::remove_file(&database.0);
        let connection = database.connect();
        connection.execute(SCHEMA, []).expect("a new table");
        connection.execute_batch(HISTORY).expect("a history of the table");
        database
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(&self.0).expect("a database in cargo's target folder");
        // Waits for the writes of other connections. This test covers no machine crash, so writes need no
        // sync.
        connection.busy_timeout(Duration::from_secs(60)).expect("a timeout");
        connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF").expect("settings");
        connection
    }

    fn history(&self) -> Vec<u64> {
        let connection = self.connect();
        let mut statement = connection.prepare("SELECT fence FROM history ORDER BY place").expect("a table");
        let fences = statement.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
        fences.map(|fence| fence.expect("a number").try_into().expect("not negative")).collect()
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const HOLDERS: u64 = 4;
const ROUNDS: u64 = 100;

/// Writes from several connections at once. Each connection uses its own increasing fences, each of them
/// twice. Returns how many writes succeeded according to `write`.
fn write_at_once(database: &OnDisk, write: impl Fn(&Connection, u64) -> bool + Sync) -> usize {
    let start = Barrier::new(usize::try_from(HOLDERS).unwrap_or(usize::MAX));
    thread::scope(|scope| {
        let writers: Vec<_> = (1..=HOLDERS)
            .map(|who| {
                let (write, start) = (&write, &start);
                scope.spawn(move || {
                    let connection = database.connect();
                    start.wait();
                    let fences = (0..ROUNDS).flat_map(|round| [round * HOLDERS + who; 2]);
                    fences.filter(|fence| write(&connection, *fence)).count()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer that ends")).sum()
    })
}

fn goes_back(history: &[u64]) -> bool {
    history.windows(2).any(|pair| pair[1] < pair[0])
}

#[test]
fn no_write_lands_after_a_newer_one_when_all_write_at_once() {
    let database = OnDisk::new("fenced_at_once.db");
    let written = write_at_once(&database, |connection, fence| {
        connection.execute(FENCED_WRITE, params![ID, "…", fence.cast_signed()]).expect("a statement") == 1
    });
    let history = database.history();
    assert!(!goes_back(&history), "a write landed after a newer one: {history:?}");
    assert_eq!(history.len(), written, "every reported write is in the history, and no other");
    assert_eq!(history.last(), Some(&(HOLDERS * ROUNDS)), "the newest holder is never rejected");
    assert_eq!(
        history.iter().filter(|fence| **fence == HOLDERS * ROUNDS).count(),
        2,
        "its second write is accepted too"
    );
}

/// The control: with the check and the write in two statements, another holder does write between them.
#[test]
fn a_check_before_the_write_would_not_be_enough() {
    let database = OnDisk::new("checked_before.db");
    database.connect().execute(FENCED_WRITE, params![ID, "…", 1]).expect("a document");
    let newest = |connection: &Connection| {
        let fence = connection.query_row("SELECT fence FROM document", [], |row| row.get::<_, i64>(0));
        fence.expect("a document").cast_unsigned()
    };
    let (older, newer) = (database.connect(), database.connect());
    assert!(newest(&older) <= 7, "the older holder checks");
    let unchecked = "UPDATE document SET fence = ?1";
    newer.execute(FENCED_WRITE, params![ID, "…", 8]).expect("the newer holder writes");
    older.execute(unchecked, params![7]).expect("the older holder writes");
    assert!(goes_back(&database.history()));
}
