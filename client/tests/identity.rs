//! What a client does when another node answers at an address, or a node that has forgotten its state.
//!
//! The servers are scripted: they answer as a node does, with the identity that the test sets.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use redlock_client::{Error, LockManager, NonVotingReason, Retry};
use redlock_tests::{SOON, eventually_async, in_time};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const TTL: Duration = Duration::from_secs(60);

/// The reply to `REDLOCK.NODE`: names and values, each value a text or a number.
type Fields = Vec<(&'static str, String)>;

fn number(name: &'static str, value: u64) -> (&'static str, String) {
    (name, format!(":{value}\r\n"))
}

fn text(name: &'static str, value: &str) -> (&'static str, String) {
    (name, format!("${}\r\n{value}\r\n", value.len()))
}

/// The reply of an older module.
fn old(id: &str) -> Fields {
    vec![text("node-id", id), text("version", "0.1.0"), number("quarantine-ms", 0)]
}

fn node(id: &str, incarnation: u64, high_water: u64, origin: &str) -> Fields {
    let more = [number("incarnation", incarnation), number("high-water", high_water), text("origin", origin)];
    old(id).into_iter().chain(more).chain([number("voting", 1), text("non-voting-reason", "")]).collect()
}

/// A server that grants every lock, and whose identity a test can change.
struct Scripted {
    url: String,
    script: Arc<Script>,
}

struct Script {
    fields: Mutex<Fields>,
    /// The reply to an acquire.
    to_acquire: Mutex<String>,
    acquires: AtomicUsize,
    /// How often a client requested the identity.
    identity_requests: AtomicUsize,
    /// Counts the starts. Each start closes all earlier connections.
    started: watch::Sender<u64>,
}

impl Scripted {
    async fn start(fields: Fields) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("an address"));
        let script = Arc::new(Script {
            fields: Mutex::new(fields),
            to_acquire: Mutex::new(":1\r\n".into()),
            acquires: AtomicUsize::new(0),
            identity_requests: AtomicUsize::new(0),
            started: watch::Sender::new(0),
        });
        let shared = Arc::clone(&script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { url, script }
    }

    /// Simulates another server at the same address.
    fn restart_as(&self, fields: Fields) {
        self.set_fields(fields);
        self.script.started.send_modify(|count| *count += 1);
    }

    /// Changes the identity of the running server.
    fn set_fields(&self, fields: Fields) {
        *self.script.fields.lock().expect("no panic") = fields;
    }

    fn answer_acquires(&self, reply: &str) {
        *self.script.to_acquire.lock().expect("no panic") = reply.into();
    }

    fn acquires(&self) -> usize {
        self.script.acquires.load(Ordering::SeqCst)
    }

    fn identity_requests(&self) -> usize {
        self.script.identity_requests.load(Ordering::SeqCst)
    }

    fn manager(&self) -> LockManager {
        LockManager::builder()
            .retry(Retry::fixed(Duration::from_millis(5)).give_up_after(SOON))
            .nodes([self.url.clone()])
            .build()
            .expect("an address")
    }
}

/// Answers the commands of one connection, until the server restarts.
async fn serve(mut stream: TcpStream, script: Arc<Script>) {
    let mut started = script.started.subscribe();
    let mut unread = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        // A stopped server answers nothing.
        let count = tokio::select! {
            biased;
            _ = started.changed() => 0,
            read = stream.read(&mut bytes) => read.unwrap_or(0),
        };
        if count == 0 {
            return;
        }
        unread.extend_from_slice(&bytes[..count]);
        while let Some(words) = command(&mut unread) {
            let reply = script.reply(&words);
            if stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Removes one command from the front, once all of it has arrived. Arguments are bytes, not text, because of
/// owners.
fn command(unread: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut taken = 0;
    let count = header(unread, &mut taken, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = header(unread, &mut taken, b'$')?;
        words.push(unread.get(taken..taken + length)?.to_vec());
        taken += length + 2;
    }
    (taken <= unread.len()).then(|| unread.drain(..taken))?;
    Some(words)
}

/// Reads a line such as `*3` or `$15`, and advances past it.
fn header(unread: &[u8], taken: &mut usize, kind: u8) -> Option<usize> {
    let rest = &unread[*taken..];
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    assert_eq!(rest[0], kind);
    *taken += end + 1;
    let digits = std::str::from_utf8(&rest[1..end]).expect("digits").trim_end();
    Some(digits.parse().expect("a length"))
}

impl Script {
    fn reply(&self, words: &[Vec<u8>]) -> String {
        match words[0].as_slice() {
            b"HELLO" => "%1\r\n+proto\r\n:3\r\n".into(),
            b"REDLOCK.NODE" => {
                self.identity_requests.fetch_add(1, Ordering::SeqCst);
                let fields = self.fields.lock().expect("no panic");
                let body: String = fields
                    .iter()
                    .map(|(name, value)| format!("${}\r\n{name}\r\n{value}", name.len()))
                    .collect();
                format!("%{}\r\n{body}", fields.len())
            }
            b"REDLOCK.ACQUIRE" => {
                self.acquires.fetch_add(1, Ordering::SeqCst);
                self.to_acquire.lock().expect("no panic").clone()
            }
            _ => ":1\r\n".into(),
        }
    }
}

async fn acquires_a_lock(locks: &LockManager) {
    let taken = async || Some(locks.try_acquire("job", TTL).await.ok()?.release().await);
    eventually_async("the client uses the node", SOON, taken).await;
}

/// Waits until the client excludes the node for this reason. The client keeps excluding the node over several
/// reconnections, and sends it no acquire meanwhile.
async fn is_not_counted(server: &Scripted, locks: &LockManager, why: &str) {
    let (before, requests) = (server.acquires(), server.identity_requests());
    let refused = async || {
        let error = locks.try_acquire("job", TTL).await.expect_err("the node must not be counted");
        // The first error may be the connection that the restart closed.
        let names_reason = error.to_string().contains(&format!("down: {why}"));
        (names_reason && server.identity_requests() > requests + 3).then_some(())
    };
    eventually_async(why, SOON, refused).await;
    assert_eq!(server.acquires(), before, "{why}");
}

#[tokio::test]
async fn another_node_at_the_address_is_not_counted_until_it_is_admitted() {
    let server = Scripted::start(node("9bc1de5500", 7, 100, "new")).await;
    let locks = server.manager();
    acquires_a_lock(&locks).await;
    server.restart_as(node("3f2a51bc11", 1, 0, "new"));
    let why = "answers as node 3f2a51bc… now; it was node 9bc1de55…: admit it with `redlock admit`";
    is_not_counted(&server, &locks, why).await;
    let health = in_time("the node has answered", SOON, locks.health()).await.expect("a runtime");
    assert!(!health.can_grant());
    server.restart_as(node("3f2a51bc11", 2, 0, "admitted"));
    acquires_a_lock(&locks).await;
    // From now on this server is the node, and the earlier server is not.
    for origin in ["new", "admitted"] {
        server.restart_as(node("9bc1de5500", 8, 900, origin));
        is_not_counted(&server, &locks, "answers as node 9bc1de55… again, which node 3f2a51bc… has replaced")
            .await;
    }
    server.restart_as(node("3f2a51bc11", 3, 0, "admitted"));
    acquires_a_lock(&locks).await;
}

#[tokio::test]
async fn an_older_copy_of_a_node_is_not_counted() {
    let server = Scripted::start(node("n1", 7, 100, "new")).await;
    let locks = server.manager();
    acquires_a_lock(&locks).await;
    server.restart_as(node("n1", 4, 100, "new"));
    is_not_counted(&server, &locks, "it is an older copy of this node: its incarnation is 4, and was 7;")
        .await;
    server.restart_as(node("n1", 8, 100, "new"));
    acquires_a_lock(&locks).await;
}

#[tokio::test]
async fn a_node_whose_disk_was_restored_is_not_counted() {
    let server = Scripted::start(node("n1", 7, 100, "new")).await;
    let locks = server.manager();
    acquires_a_lock(&locks).await;
    // The high-water mark grows while the client is connected. The client reads it from the reply to
    // `health`.
    server.set_fields(node("n1", 7, 5_000, "new"));
    let health = in_time("the node has answered", SOON, locks.health()).await.expect("a runtime");
    assert_eq!(health.nodes[0].state.as_ref().expect("an answer of the node").high_water, Some(5_000));
    server.restart_as(node("n1", 8, 400, "new"));
    let why = "its high-water mark went back from 5000 to 400: its disk was restored";
    is_not_counted(&server, &locks, why).await;
    server.restart_as(node("n1", 9, 5_000, "new"));
    acquires_a_lock(&locks).await;
}

/// The identity changes on an open connection, for example behind a proxy that connects to another server.
#[tokio::test]
async fn a_node_that_forgets_fences_on_an_open_connection_is_not_counted() {
    let server = Scripted::start(node("n1", 7, 100, "new")).await;
    let locks = server.manager();
    acquires_a_lock(&locks).await;
    server.set_fields(node("n1", 7, 40, "new"));
    let health = in_time("the node has answered", SOON, locks.health()).await.expect("a runtime");
    assert_eq!(health.nodes[0].state.as_ref().expect("an answer of the node").high_water, Some(40));
    is_not_counted(&server, &locks, "its high-water mark went back from 100 to 40").await;
    server.set_fields(node("n1", 7, 100, "new"));
    acquires_a_lock(&locks).await;
}

#[tokio::test]
async fn nodes_of_an_older_module_are_used_without_identity_checks() {
    let server = Scripted::start(old("n1")).await;
    let locks = server.manager();
    acquires_a_lock(&locks).await;
    server.restart_as(old("n2"));
    acquires_a_lock(&locks).await;
    server.restart_as(node("n2", 1, 0, "new"));
    acquires_a_lock(&locks).await;
}

#[tokio::test]
async fn the_error_of_a_non_voting_node_names_the_reason() {
    let fields =
        old("n1").into_iter().chain([number("voting", 0), text("non-voting-reason", "it was promoted")]);
    let server = Scripted::start(fields.collect()).await;
    server.answer_acquires("-REDLOCKNOVOTE this node does not vote: it was promoted\r\n");
    let locks = server.manager();
    let refused = in_time("the node has answered", SOON, locks.try_acquire("job", TTL)).await;
    let error = refused.expect_err("the node does not vote");
    assert!(matches!(error, Error::Rejected(_)) && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("REDLOCKNOVOTE this node does not vote: it was promoted"), "{error}");
    assert_eq!(server.acquires(), 1, "the client sent it one acquire");
    let health = in_time("the node has answered", SOON, locks.health()).await.expect("a runtime");
    let state = health.nodes[0].state.as_ref().expect("an answer of the node");
    assert_eq!(state.non_voting.as_ref().map(NonVotingReason::name), Some("it was promoted"));
    assert!(!health.can_grant());
}

/// A master becomes a replica and is promoted and admitted, while the connection stays open. The client learns the new
/// node id from the node, so it does not count the node of before any more.
#[tokio::test]
async fn a_vote_that_is_lost_and_given_back_on_an_open_connection_is_noticed() {
    let server = Scripted::start(node("9bc1de5500", 7, 100, "new")).await;
    let locks = server.manager();
    acquires_a_lock(&locks).await;
    let mut replica = node("3f2a51bc11", 1, 100, "new");
    replica.retain(|(name, _)| *name != "voting");
    replica.push(number("voting", 0));
    server.set_fields(replica);
    server.answer_acquires("-REDLOCKNOVOTE this server does not vote\r\n");
    let requests = server.identity_requests();
    let has_asked = async |more: usize| {
        let connects = async || {
            let _ = locks.try_acquire("job", TTL).await;
            (server.identity_requests() >= requests + more).then_some(())
        };
        eventually_async("the client connects again", SOON, connects).await;
    };
    has_asked(1).await;
    server.set_fields(node("3f2a51bc11", 1, 900, "admitted"));
    server.answer_acquires(":1\r\n");
    has_asked(2).await;
    acquires_a_lock(&locks).await;
    assert_eq!(server.identity_requests(), requests + 2, "the client connects once for each change");
    server.restart_as(node("9bc1de5500", 8, 900, "new"));
    is_not_counted(&server, &locks, "answers as node 9bc1de55… again, which node 3f2a51bc… has replaced")
        .await;
}
