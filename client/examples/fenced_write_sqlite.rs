//! A fenced write in SQLite: the database turns away a holder whose lock has gone to somebody else.
//!
//! ```text
//! cargo run --example fenced_write_sqlite
//! ```
//!
//! PostgreSQL takes the same statements, with `$1` for `?1`.

use redlock_client::LockManager;
use rusqlite::{Connection, OptionalExtension, params};
use std::fmt;
use std::time::Duration;

/// Beside the document stands the largest fence that has come with it. It is part of the row, so it is as
/// durable as the document and cannot get out of step with it. It needs 64 bits: fences do not begin anew, and
/// an `INTEGER` of PostgreSQL ends at 2^31.
pub const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS document (
        id    TEXT PRIMARY KEY,
        body  TEXT,
        fence BIGINT NOT NULL
    )";

/// Checks the fence and writes, in one statement: nobody can come between the check and the write.
///
/// An equal fence passes. No two holders have the same, so it is the same holder with its next write. No row
/// is changed if the fence is stale.
pub const FENCED_WRITE: &str = "
    INSERT INTO document (id, body, fence) VALUES (?1, ?2, ?3)
    ON CONFLICT (id) DO UPDATE SET body = excluded.body, fence = excluded.fence
    WHERE excluded.fence >= document.fence";

/// Reads what a later write will build on, and leaves the fence behind, so that from here on older holders
/// are shut out. With a plain SELECT one of them could still write between this read and the write.
///
/// No row comes back if the fence is stale.
pub const FENCED_READ: &str = "
    INSERT INTO document (id, fence) VALUES (?1, ?2)
    ON CONFLICT (id) DO UPDATE SET fence = excluded.fence
    WHERE excluded.fence >= document.fence
    RETURNING body";

/// Why a document was not read or written.
#[derive(Debug)]
pub enum StoreError {
    /// A newer holder has been here. What this one knows is out of date: it has to start again with a new
    /// lock.
    Stale {
        /// The fence that was turned away.
        fence: u64,
    },
    /// The database itself failed.
    Database(rusqlite::Error),
}

/// Documents that only the newest holder of a lock may touch.
pub struct Documents {
    connection: Connection,
}

impl Documents {
    /// Makes the table if it is not there yet.
    pub fn new(connection: Connection) -> Result<Self, StoreError> {
        connection.execute(SCHEMA, [])?;
        Ok(Self { connection })
    }

    /// The document, as the ground for a later write under the same lock.
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

/// A fence as a column has it. Nodes count in 63 bits, so nothing is lost.
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
            Self::Stale { fence } => write!(f, "fence {fence} is stale: a newer holder has been here"),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {}

/// Two holders, of which the first one comes back too late.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = LockManager::in_memory(5);
    // A database that is not in memory keeps its caller waiting: then these calls belong in `spawn_blocking`.
    let documents = Documents::new(Connection::open_in_memory()?)?;
    let ttl = Duration::from_millis(500);

    // The first holder reads the document and writes it, twice under one lock.
    let first = locks.acquire("document:7", ttl).await?;
    documents.read("document:7", first.fence())?;
    documents.write("document:7", "a draft", first.fence())?;
    documents.write("document:7", "a better draft", first.fence())?;
    println!("fence {}: written twice", first.fence());

    // Then it is held up, by a long garbage collection, a laptop lid, a virtual machine being moved. It
    // would ask `is_valid` before it writes, but the pause may as well come right after the question.
    first.lost().await;

    // The lock has run out meanwhile, and somebody else gets it and writes.
    let second = locks.acquire("document:7", ttl).await?;
    let draft = documents.read("document:7", second.fence())?.unwrap_or_default();
    documents.write("document:7", &format!("{draft}, corrected"), second.fence())?;
    println!("fence {}: written by the next holder", second.fence());

    // The first holder goes on where it was. The database knows better.
    match documents.write("document:7", "the last word", first.fence()) {
        Err(error @ StoreError::Stale { .. }) => println!("the first holder again: {error}"),
        Err(other) => return Err(other.into()),
        Ok(()) => return Err("a stale write went through".into()),
    }
    println!("the document is: {}", documents.read("document:7", second.fence())?.unwrap_or_default());

    second.release().await;
    Ok(())
}
