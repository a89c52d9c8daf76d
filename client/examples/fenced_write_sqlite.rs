//! A fenced write in SQLite: the database rejects the writes of a holder whose lock another client has
//! acquired since.
//!
//! ```text
//! cargo run --example fenced_write_sqlite
//! ```
//!
//! PostgreSQL accepts the same statements, with `$1` for `?1`.

use redlock_client::LockManager;
use rusqlite::{Connection, OptionalExtension, params};
use std::fmt;
use std::time::Duration;

/// The table of the documents. Each row has the document and the largest fence that read or wrote it.
///
/// The fence is part of the row, so it is as durable as the document and always matches it. The column needs
/// 64 bits: fences never start again, and an `INTEGER` of PostgreSQL ends at 2^31.
pub const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS document (
        id    TEXT PRIMARY KEY,
        body  TEXT,
        fence BIGINT NOT NULL
    )";

/// Checks the fence and writes in one statement: no other write can come between the check and the write.
///
/// An equal fence passes. No two holders have the same fence, so it is the same holder with its next write.
/// If the fence is stale, the statement changes no row.
pub const FENCED_WRITE: &str = "
    INSERT INTO document (id, body, fence) VALUES (?1, ?2, ?3)
    ON CONFLICT (id) DO UPDATE SET body = excluded.body, fence = excluded.fence
    WHERE excluded.fence >= document.fence";

/// Reads the document for a later write, and stores the fence, so that the database rejects older holders
/// from then on. After a plain SELECT an older holder could still write between this read and the write.
///
/// If the fence is stale, the statement returns no row.
pub const FENCED_READ: &str = "
    INSERT INTO document (id, fence) VALUES (?1, ?2)
    ON CONFLICT (id) DO UPDATE SET fence = excluded.fence
    WHERE excluded.fence >= document.fence
    RETURNING body";

/// Why a document was not read or written.
#[derive(Debug)]
pub enum StoreError {
    /// A newer holder has read or written the document. The data of this holder is out of date: it must start
    /// again with a new lock.
    Stale {
        /// The fence that the database rejected.
        fence: u64,
    },
    /// The database itself failed.
    Database(rusqlite::Error),
}

/// Documents that only the newest holder of a lock can read and write.
pub struct Documents {
    connection: Connection,
}

impl Documents {
    /// Creates the table if it does not exist.
    pub fn new(connection: Connection) -> Result<Self, StoreError> {
        connection.execute(SCHEMA, [])?;
        Ok(Self { connection })
    }

    /// Reads the document for a later write under the same lock.
    pub fn read(&self, id: &str, fence: u64) -> Result<Option<String>, StoreError> {
        let mut statement = self.connection.prepare_cached(FENCED_READ)?;
        let row = statement.query_row(params![id, number(fence)], |row| row.get(0)).optional()?;
        row.ok_or(StoreError::Stale { fence })
    }

    /// Replaces the document.
    pub fn write(&self, id: &str, body: &str, fence: u64) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(FENCED_WRITE)?;
        match statement.execute(params![id, body, number(fence)])? {
            0 => Err(StoreError::Stale { fence }),
            _ => Ok(()),
        }
    }
}

/// The fence as a signed column value. Fences have 63 bits, so every fence fits.
fn number(fence: u64) -> i64 {
    i64::try_from(fence).unwrap_or(i64::MAX)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { fence } => {
                write!(f, "fence {fence} is stale: a newer holder has used the document")
            }
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {}

/// Two holders. The first one writes again after it has lost its lock.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = LockManager::in_memory(5);
    // With a database on disk these calls block: run them in `spawn_blocking`.
    let documents = Documents::new(Connection::open_in_memory()?)?;
    let ttl = Duration::from_millis(500);

    // The first holder reads the document and writes it twice under one lock.
    let first = locks.acquire("document:7", ttl).await?;
    documents.read("document:7", first.fence())?;
    documents.write("document:7", "a draft", first.fence())?;
    documents.write("document:7", "a better draft", first.fence())?;
    println!("fence {}: written twice", first.fence());

    // Then the first holder is paused: by a long garbage collection, a closed laptop, or the migration of a
    // virtual machine. A check of `is_valid` before the write does not help if the pause comes after the
    // check.
    first.lost().await;

    // The lock has expired. Another client acquires it and writes.
    let second = locks.acquire("document:7", ttl).await?;
    let draft = documents.read("document:7", second.fence())?.unwrap_or_default();
    documents.write("document:7", &format!("{draft}, corrected"), second.fence())?;
    println!("fence {}: written by the next holder", second.fence());

    // The first holder continues with its stale fence. The database rejects the write.
    match documents.write("document:7", "the last word", first.fence()) {
        Err(error @ StoreError::Stale { .. }) => println!("the first holder again: {error}"),
        Err(other) => return Err(other.into()),
        Ok(()) => return Err("a stale write went through".into()),
    }
    println!("the document is: {}", documents.read("document:7", second.fence())?.unwrap_or_default());

    second.release().await;
    Ok(())
}
