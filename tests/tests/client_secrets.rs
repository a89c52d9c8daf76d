//! Secrets: passwords, private keys and owners are in no error, no report, no debug output and no log.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{Network, TTL, manager, until_all_answer};
use redlock_client::{Error, LockManager, Node, Tls};
use redlock_tests::{Certs, Fleet, SOON, Server, Wire, eventually, in_time};
use std::fmt::{Debug, Display};
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

const PASSWORD: &str = "open-sesame-7f3a";

/// Collected output, and the secrets that must not be in it.
#[derive(Default)]
struct PrintedText {
    text: String,
    secrets: Vec<String>,
}

impl PrintedText {
    fn debug(&mut self, value: &impl Debug) {
        self.text += &format!("{value:?}\n{value:#?}\n");
    }

    fn both(&mut self, value: &(impl Debug + Display)) {
        self.debug(value);
        self.text += &format!("{value}\n{value:#}\n");
    }

    #[track_caller]
    fn check(&self) {
        assert!(
            !self.secrets.is_empty() && self.text.len() > 100,
            "there are secrets to search for, and output to search"
        );
        for secret in &self.secrets {
            assert!(secret.len() >= 8, "a secret is too long to occur by chance");
            assert!(!self.text.contains(secret.as_str()), "{secret} is printed:\n{}", self.text);
        }
    }
}

/// Reads the commands that a node gets with `MONITOR`, as an administrator can.
struct Monitor {
    wire: Wire,
}

impl Monitor {
    fn of(node: &Server) -> Self {
        let mut wire = node.connect();
        assert_eq!(wire.call_strs("MONITOR"), redlock_tests::Answer::ok());
        Self { wire }
    }

    /// Waits for the next acquire that the node gets, and returns its owner.
    fn next_owner(&mut self) -> Vec<u8> {
        loop {
            let line = self.wire.receive().expect("a line of MONITOR").string();
            let words = decode_words(&line);
            if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"REDLOCK.ACQUIRE")) {
                return words[2].clone();
            }
        }
    }
}

/// Decodes the quoted words of a line of `MONITOR` into their original bytes.
fn decode_words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut bytes) = (Vec::new(), line.bytes());
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            word.push(match byte {
                b'\\' => match bytes.next().expect("an escaped byte") {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let digits = [bytes.next(), bytes.next()].map(|digit| digit.expect("a digit"));
                        let digits = std::str::from_utf8(&digits).expect("two digits");
                        u8::from_str_radix(digits, 16).expect("hexadecimal")
                    }
                    other => other,
                },
                other => other,
            });
        }
        words.push(word);
    }
    words
}

/// An owner in each form in which it could be printed: as `Owner::expose` returns it, escaped, and as numbers.
fn printed_forms(owner: &[u8]) -> [String; 3] {
    let digits = owner.iter().map(|byte| format!("{byte:02x}")).collect();
    [digits, owner.escape_ascii().to_string(), format!("{owner:?}").trim_matches(['[', ']']).to_owned()]
}

#[tokio::test]
async fn owners_are_printed_nowhere() {
    CapturedLog::open();
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let mut monitor = Monitor::of(&network.fleet[2]);
    let mut output = PrintedText::default();

    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    output.secrets.extend(printed_forms(&monitor.next_owner()));
    output.debug(&guard);
    output.debug(&guard.held());
    output.debug(&manager.inspect("lock").await.expect("a runtime"));

    let contended = manager.try_acquire("lock", TTL).await.expect_err("the lock is held");
    output.secrets.extend(printed_forms(&monitor.next_owner()));
    assert!(matches!(contended, Error::Contended(_)));
    output.both(&contended);

    for node in network.fleet.iter() {
        node.connect().call_strs("DEL lock");
    }
    let lost = guard.extend().await.expect_err("the lock was deleted");
    assert!(matches!(lost, Error::Lost { .. }));
    output.both(&lost);
    output.both(&guard.release().await);

    let detached = manager.try_acquire("lock", TTL).await.expect("a free lock").detach();
    assert_eq!(detached.owner.as_bytes(), &monitor.next_owner()[..], "a detached lock exposes its owner");
    output.secrets.extend(printed_forms(detached.owner.as_bytes()));
    assert!(output.secrets.contains(&detached.owner.expose()));
    output.debug(&detached);

    network.fleet[0].kill();
    network.fleet[1].kill();
    let outage = manager.try_acquire("other", TTL).await.expect_err("one of three nodes is not a majority");
    output.secrets.extend(printed_forms(&monitor.next_owner()));
    assert!(matches!(outage, Error::NoQuorum(_)));
    output.both(&outage);
    output.debug(&manager);
    output.check();
}

#[tokio::test]
async fn a_detached_lock_can_be_released_with_its_owner() {
    CapturedLog::open();
    let mut fleet = Fleet::start(3);
    let manager = manager(fleet.urls());
    let detached = manager.try_acquire("lock", TTL).await.expect("a free lock").detach();
    in_time("the flush ends", SOON, manager.flush()).await;
    let words = [&b"REDLOCK.RELEASE"[..], b"lock", detached.owner.as_bytes()];
    assert!(!fleet.is_free("lock"), "a detached lock outlives its guard");
    eventually("every node has released the lock", SOON, || {
        fleet.iter().for_each(|node| drop(node.connect().call(&words)));
        fleet.is_free("lock").then_some(())
    });
}

#[tokio::test]
async fn passwords_are_printed_nowhere() {
    CapturedLog::open();
    let mut output = PrintedText { secrets: vec![PASSWORD.into()], ..PrintedText::default() };
    let fleet = Fleet::start_with(3, |_, node| node.password("another-one-19c2"));
    let login = |url: &String| url.replace("://", &format!("://app:{PASSWORD}@"));
    let urls: Vec<String> = fleet.urls().iter().map(login).collect();

    let node = Node::new(&urls[0]);
    output.both(&node);
    output.both(&node.login("app", PASSWORD));
    output.debug(&LockManager::builder().nodes(&urls));
    let manager = manager(&urls);
    output.debug(&manager);

    let refused = manager.try_acquire("lock", TTL).await.expect_err("no such user");
    output.both(&refused);
    let report = manager.health().await.expect("a runtime");
    output.debug(&report);
    output.debug(&manager.inspect("lock").await.expect("a runtime"));

    // A server returns its own password to a client that may read its configuration.
    let server_password =
        fleet.urls().iter().map(|url| url.replace("://", "://:another-one-19c2@")).collect::<Vec<_>>();
    let operator = client::manager(&server_password);
    let replies = operator.ask(&redlock_client::Query::config("requirepass")).await.expect("a runtime");
    let reported = replies[0].response.as_ref().ok().and_then(|reply| reply.field("requirepass"));
    assert_eq!(reported.as_ref().and_then(|value| value.text()), Some("another-one-19c2"));
    output.secrets.push("another-one-19c2".into());
    output.debug(&replies);
    output.debug(&reported);

    // An error about an invalid address must not contain its password.
    let invalid = [
        format!("redis://app:{PASSWORD}@host:port"),
        format!("redis://app:{PASSWORD}@host:99999"),
        format!("redis://app:{PASSWORD}@host/database"),
        format!("http://app:{PASSWORD}@host"),
        format!("app:{PASSWORD}@host"),
        format!("redis+unix://?user=app&pass={PASSWORD}&db=x"),
        format!("redis://app:{PASSWORD}@ho st"),
    ];
    for url in invalid {
        output.both(&Node::new(&url));
        let built = LockManager::builder().nodes([&url]).build();
        match built {
            Err(error) => output.both(&error),
            // Only a DNS lookup shows that this host name is wrong.
            Ok(manager) => output.debug(&manager),
        }
    }
    output.check();
}

#[test]
fn private_keys_are_printed_nowhere() {
    CapturedLog::open();
    let certs = Certs::new();
    let tls = || Tls::new().ca_pem(certs.ca_pem());
    let tls = tls().client_identity_pem(certs.client_cert_pem(), certs.client_key_pem());
    let key = String::from_utf8(certs.client_key_pem()).expect("PEM is text");
    let line = key.lines().nth(1).expect("a key has a second line").to_string();
    let bytes = format!("{:?}", certs.client_key_pem());
    let mut output = PrintedText { secrets: vec![line, bytes[1..60].to_string()], ..PrintedText::default() };
    output.debug(&tls);
    output.debug(&Node::new("rediss://host").tls(tls.clone()));
    let builder = LockManager::builder().nodes(["rediss://host"]).tls(tls);
    output.debug(&builder);
    output.debug(&builder.build().expect("valid certificates"));
    output.check();
}

/// The log of all tests of this program. Each test opens it first: `tracing` remembers that a log statement had no
/// subscriber, and may then skip the statement for good.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    fn open() -> &'static Self {
        static LOG: LazyLock<CapturedLog> = LazyLock::new(|| {
            let log = CapturedLog::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(tracing::Level::TRACE)
                .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
                .with_writer(move || writer.clone());
            subscriber.init();
            log
        });
        &LOG
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nothing_secret_is_logged() {
    let log = CapturedLog::open();
    let mut network = Network::with_proxies(Fleet::start_with(3, |_, node| node.password(PASSWORD)));
    let mut monitor = Monitor::of(&network.fleet[0]);
    let login = |url: &String| url.replace("://", &format!("://:{PASSWORD}@"));
    let manager = manager(network.urls().iter().map(login));
    let mut output = PrintedText { secrets: vec![PASSWORD.into()], ..PrintedText::default() };
    // Reading the monitor blocks this thread, so the client must be connected before.
    until_all_answer(&manager).await;

    let guard = manager.acquire("a-named-lock", TTL).await.expect("a free lock");
    output.secrets.extend(printed_forms(&monitor.next_owner()));
    guard.extend().await.expect("a lock that is held");
    drop(manager.try_acquire("a-named-lock", TTL).await.expect_err("the lock is held"));
    output.secrets.extend(printed_forms(&monitor.next_owner()));
    guard.release().await;
    network.proxies.iter().for_each(redlock_tests::Proxy::cut);
    network.fleet[1].kill();
    network.fleet[2].kill();
    drop(manager.try_acquire("a-named-lock", TTL).await.expect_err("one of three nodes is not a majority"));
    output.text = log.text();
    assert!(output.text.contains("a-named-lock"), "the log names the lock:\n{}", output.text);
    output.check();
}
