//! The storage that the locks protect: every process writes to it over a socket.

use super::now_ns;
use redlock_sim::SessionId;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tempfile::TempDir;

/// Whether a storage checks the fence of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// The storage rejects a smaller fence than it has seen.
    Checked,
    /// The storage accepts every write.
    Ignored,
}

/// One write that the storage got.
#[derive(Clone, Copy, Debug)]
pub struct WriteRecord {
    /// When the storage decided about it. The storage decides about one write at a time.
    pub at_ns: u64,
    /// The attempt that wrote.
    pub session: SessionId,
    /// The number of the lock.
    pub key: usize,
    /// The fence of the write.
    pub fence: u64,
    /// Whether the storage accepted it.
    pub accepted: bool,
}

/// A storage on a Unix socket, in threads of this process.
#[derive(Debug)]
pub struct Storage {
    dir: TempDir,
    state: Arc<Mutex<StorageState>>,
}

#[derive(Debug)]
struct StorageState {
    fencing: Fencing,
    newest: HashMap<usize, u64>,
    writes: Vec<WriteRecord>,
}

impl Storage {
    /// Opens a storage.
    ///
    /// # Panics
    /// When the folder or the socket cannot be created.
    #[must_use]
    pub fn open(fencing: Fencing) -> Self {
        let home = tempfile::Builder::new().prefix("rl-").tempdir().expect("a folder for the storage");
        let storage = Self {
            dir: home,
            state: Arc::new(Mutex::new(StorageState { fencing, newest: HashMap::new(), writes: Vec::new() })),
        };
        let listener = UnixListener::bind(storage.socket_path()).expect("a socket for the storage");
        let state = Arc::clone(&storage.state);
        // The thread runs until the test process ends. Only this campaign uses the socket.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                thread::spawn(move || serve(&client, &state));
            }
        });
        storage
    }

    /// The path of the storage's socket.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.dir.path().join("storage")
    }

    /// All writes so far, in the order of the storage's decisions.
    #[must_use]
    pub fn writes(&self) -> Vec<WriteRecord> {
        lock(&self.state).writes.clone()
    }
}

/// Serves one client until it disconnects.
fn serve(client: &UnixStream, state: &Mutex<StorageState>) {
    let mut answers = client;
    for line in BufReader::new(client).lines().map_while(Result::ok) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [session, key, fence] = numbers[..] else { return };
        let key = usize::try_from(key).expect("keys are few");
        let was_taken = lock(state).decide(session, key, fence);
        let answer: &[u8] = if was_taken { b"taken\n" } else { b"stale\n" };
        if answers.write_all(answer).is_err() {
            return;
        }
    }
}

impl StorageState {
    fn decide(&mut self, session: SessionId, key: usize, fence: u64) -> bool {
        let newest = self.newest.entry(key).or_default();
        let was_taken = fence >= *newest || self.fencing == Fencing::Ignored;
        if was_taken {
            *newest = fence.max(*newest);
        }
        self.writes.push(WriteRecord { at_ns: now_ns(), session, key, fence, accepted: was_taken });
        was_taken
    }
}

fn lock(state: &Mutex<StorageState>) -> MutexGuard<'_, StorageState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection of a client process to the storage.
#[derive(Debug)]
pub struct Writer {
    stream: tokio::io::BufReader<tokio::net::UnixStream>,
}

impl Writer {
    /// Connects to a storage.
    ///
    /// # Errors
    /// When the storage is not reachable.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        let stream = tokio::net::UnixStream::connect(socket).await?;
        Ok(Self { stream: tokio::io::BufReader::new(stream) })
    }

    /// Writes under a lock, and waits for the storage's decision.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn write(&mut self, session: SessionId, key: usize, fence: u64) -> io::Result<()> {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
        self.stream.write_all(format!("{session} {key} {fence}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer).await?;
        Ok(())
    }
}
