//! Passwords, keys and owners are in no error, no report, no debug print and no log.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{Network, TTL, manager, until_all_answer};
use redlock_client::{Error, LockManager, Node, Tls};
use redlock_tests::{Certs, Fleet, SOON, Server, Wire, eventually, in_time};
use std::fmt::{Debug, Display};
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

const PASSWORD: &str = "open-sesame-7f3a";

/// Everything that was printed, and what must not be in it.
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
            "there is something to look for, and where"
        );
        for secret in &self.secrets {
            assert!(secret.len() >= 8, "a secret that cannot be there by chance");
            assert!(!self.text.contains(secret.as_str()), "{secret} is printed:\n{}", self.text);
        }
    }
}

/// Looks over a node's shoulder, as only an administrator may.
struct Monitor {
    wire: Wire,
}

impl Monitor {
    fn of(node: &Server) -> Self {
        let mut wire = node.connect();
        assert_eq!(wire.call_strs("MONITOR"), redlock_tests::Answer::ok());
        Self { wire }
    }

    /// The owner of the next acquire that the node gets.
    fn next_owner(&mut self) -> Vec<u8> {
        loop {
            let line = self.wire.receive().expect("a monitor sees what goes on").string();
            let words = quoted(&line);
            if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"REDLOCK.ACQUIRE")) {
                return words[2].clone();
            }
        }
    }
}

/// The words of a line of `MONITOR`, each in quotes, as the bytes that they were.
fn quoted(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut bytes) = (Vec::new(), line.bytes());
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            word.push(match byte {
                b'\\' => match bytes.next().expect("what is escaped") {
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

/// An owner in every guise in which it could be printed: as `Owner::expose` gives it out, escaped, and as numbers.
fn guises(owner: &[u8]) -> [String; 3] {
    let digits = owner.iter().map(|byte| format!("{byte:02x}")).collect();
    [digits, owner.escape_ascii().to_string(), format!("{owner:?}").trim_matches(['[', ']']).to_owned()]
}

#[tokio::test]
async fn owners_are_printed_nowhere() {
    CapturedLog::open();
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let mut monitor = Monitor::of(&network.fleet[2]);
    let mut prints = PrintedText::default();

    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    prints.secrets.extend(guises(&monitor.next_owner()));
    prints.debug(&guard);
    prints.debug(&guard.held());
    prints.debug(&manager.inspect("lock").await.expect("a runtime"));

    let contended = manager.try_acquire("lock", TTL).await.expect_err("it is held");
    prints.secrets.extend(guises(&monitor.next_owner()));
    assert!(matches!(contended, Error::Contended(_)));
    prints.both(&contended);

    for node in network.fleet.iter() {
        node.connect().call_strs("DEL lock");
    }
    let lost = guard.extend().await.expect_err("it is gone");
    assert!(matches!(lost, Error::Lost { .. }));
    prints.both(&lost);
    prints.both(&guard.release().await);

    let detached = manager.try_acquire("lock", TTL).await.expect("a free lock").detach();
    assert_eq!(detached.owner.as_bytes(), &monitor.next_owner()[..], "on purpose it can be had");
    prints.secrets.extend(guises(detached.owner.as_bytes()));
    assert!(prints.secrets.contains(&detached.owner.expose()));
    prints.debug(&detached);

    network.fleet[0].kill();
    network.fleet[1].kill();
    let outage = manager.try_acquire("other", TTL).await.expect_err("one is too few");
    prints.secrets.extend(guises(&monitor.next_owner()));
    assert!(matches!(outage, Error::NoQuorum(_)));
    prints.both(&outage);
    prints.debug(&manager);
    prints.check();
}

#[tokio::test]
async fn a_detached_lock_can_be_freed_by_whoever_knows_the_owner() {
    CapturedLog::open();
    let mut fleet = Fleet::start(3);
    let manager = manager(fleet.urls());
    let detached = manager.try_acquire("lock", TTL).await.expect("a free lock").detach();
    in_time("closing ends", SOON, manager.flush()).await;
    let words = [&b"REDLOCK.RELEASE"[..], b"lock", detached.owner.as_bytes()];
    assert!(!fleet.is_free("lock"), "it outlives its guard");
    eventually("everybody has let go", SOON, || {
        fleet.iter().for_each(|node| drop(node.connect().call(&words)));
        fleet.is_free("lock").then_some(())
    });
}

#[tokio::test]
async fn passwords_are_printed_nowhere() {
    CapturedLog::open();
    let mut prints = PrintedText { secrets: vec![PASSWORD.into()], ..PrintedText::default() };
    let fleet = Fleet::start_with(3, |_, node| node.password("another-one-19c2"));
    let login = |url: &String| url.replace("://", &format!("://app:{PASSWORD}@"));
    let urls: Vec<String> = fleet.urls().iter().map(login).collect();

    let node = Node::new(&urls[0]);
    prints.both(&node);
    prints.both(&node.login("app", PASSWORD));
    prints.debug(&LockManager::builder().nodes(&urls));
    let manager = manager(&urls);
    prints.debug(&manager);

    let refused = manager.try_acquire("lock", TTL).await.expect_err("no such user");
    prints.both(&refused);
    let report = manager.health().await.expect("a runtime");
    prints.debug(&report);
    prints.debug(&manager.inspect("lock").await.expect("a runtime"));

    // A server tells its own password to whoever may ask for its settings.
    let server_password =
        fleet.urls().iter().map(|url| url.replace("://", "://:another-one-19c2@")).collect::<Vec<_>>();
    let operator = client::manager(&server_password);
    let replies = operator.ask(&redlock_client::Query::config("requirepass")).await.expect("a runtime");
    let told = replies[0].response.as_ref().ok().and_then(|said| said.field("requirepass"));
    assert_eq!(told.as_ref().and_then(|said| said.text()), Some("another-one-19c2"));
    prints.secrets.push("another-one-19c2".into());
    prints.debug(&replies);
    prints.debug(&told);

    // Addresses that cannot be read must not be read out.
    let unreadable = [
        format!("redis://app:{PASSWORD}@host:port"),
        format!("redis://app:{PASSWORD}@host:99999"),
        format!("redis://app:{PASSWORD}@host/database"),
        format!("http://app:{PASSWORD}@host"),
        format!("app:{PASSWORD}@host"),
        format!("redis+unix://?user=app&pass={PASSWORD}&db=x"),
        format!("redis://app:{PASSWORD}@ho st"),
    ];
    for url in unreadable {
        prints.both(&Node::new(&url));
        let built = LockManager::builder().nodes([&url]).build();
        match built {
            Err(error) => prints.both(&error),
            // A name that only the network can tell to be wrong.
            Ok(manager) => prints.debug(&manager),
        }
    }
    prints.check();
}

#[test]
fn keys_are_printed_nowhere() {
    CapturedLog::open();
    let certs = Certs::new();
    let tls = || Tls::new().ca_pem(certs.ca_pem());
    let tls = tls().client_identity_pem(certs.client_cert_pem(), certs.client_key_pem());
    let key = String::from_utf8(certs.client_key_pem()).expect("PEM is text");
    let line = key.lines().nth(1).expect("a key has a second line").to_string();
    let bytes = format!("{:?}", certs.client_key_pem());
    let mut prints = PrintedText { secrets: vec![line, bytes[1..60].to_string()], ..PrintedText::default() };
    prints.debug(&tls);
    prints.debug(&Node::new("rediss://host").tls(tls.clone()));
    let builder = LockManager::builder().nodes(["rediss://host"]).tls(tls);
    prints.debug(&builder);
    prints.debug(&builder.build().expect("certificates that can be read"));
    prints.check();
}

/// Keeps what is logged, by all tests of this program. Each begins by asking for it: what somebody logs before anybody
/// listens may stay unheard for good, because what nobody wants to hear is remembered.
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
    let mut prints = PrintedText { secrets: vec![PASSWORD.into()], ..PrintedText::default() };
    // The monitor is waited for in this thread: what it shall see must have been sent.
    until_all_answer(&manager).await;

    let guard = manager.acquire("a-named-lock", TTL).await.expect("a free lock");
    prints.secrets.extend(guises(&monitor.next_owner()));
    guard.extend().await.expect("a lock that is held");
    drop(manager.try_acquire("a-named-lock", TTL).await.expect_err("it is held"));
    prints.secrets.extend(guises(&monitor.next_owner()));
    guard.release().await;
    network.proxies.iter().for_each(redlock_tests::Proxy::cut);
    network.fleet[1].kill();
    network.fleet[2].kill();
    drop(manager.try_acquire("a-named-lock", TTL).await.expect_err("one is too few"));
    prints.text = log.text();
    assert!(prints.text.contains("a-named-lock"), "what is no secret is there:\n{}", prints.text);
    prints.check();
}
