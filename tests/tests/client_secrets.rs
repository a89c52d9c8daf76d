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
struct Prints {
    text: String,
    secrets: Vec<String>,
}

impl Prints {
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
    fn next_owner(&mut self) -> String {
        loop {
            let line = self.wire.receive().expect("a monitor sees what goes on").string();
            let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            if words.first().is_some_and(|word| word.eq_ignore_ascii_case("REDLOCK.ACQUIRE")) {
                return words[2].to_string();
            }
        }
    }
}

#[tokio::test]
async fn owners_are_printed_nowhere() {
    Log::open();
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let mut monitor = Monitor::of(&network.fleet[2]);
    let mut prints = Prints::default();

    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    prints.secrets.push(monitor.next_owner());
    prints.debug(&guard);
    prints.debug(&guard.held());
    prints.debug(&manager.inspect("lock").await.expect("a runtime"));

    let contended = manager.try_acquire("lock", TTL).await.expect_err("it is held");
    prints.secrets.push(monitor.next_owner());
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
    assert_eq!(detached.owner.expose(), monitor.next_owner(), "on purpose it can be had");
    prints.secrets.push(detached.owner.expose().to_string());
    prints.debug(&detached);

    network.fleet[0].kill();
    network.fleet[1].kill();
    let outage = manager.try_acquire("other", TTL).await.expect_err("one is too few");
    prints.secrets.push(monitor.next_owner());
    assert!(matches!(outage, Error::NoQuorum(_)));
    prints.both(&outage);
    prints.debug(&manager);
    prints.check();
}

#[tokio::test]
async fn a_detached_lock_can_be_freed_by_whoever_knows_the_owner() {
    Log::open();
    let mut fleet = Fleet::start(3);
    let manager = manager(fleet.urls());
    let detached = manager.try_acquire("lock", TTL).await.expect("a free lock").detach();
    in_time("closing ends", SOON, manager.close()).await;
    let owner = detached.owner.expose();
    assert!(!fleet.is_free("lock"), "it outlives its guard");
    eventually("everybody has let go", SOON, || {
        fleet.iter().for_each(|node| drop(node.connect().call(&["REDLOCK.RELEASE", "lock", owner])));
        fleet.is_free("lock").then_some(())
    });
}

#[tokio::test]
async fn passwords_are_printed_nowhere() {
    Log::open();
    let mut prints = Prints { secrets: vec![PASSWORD.into()], ..Prints::default() };
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
    let told = replies[0].said.as_ref().ok().and_then(|said| said.field("requirepass"));
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
    Log::open();
    let certs = Certs::new();
    let tls = || Tls::new().ca_pem(certs.ca_pem());
    let tls = tls().client_identity_pem(certs.client_cert_pem(), certs.client_key_pem());
    let key = String::from_utf8(certs.client_key_pem()).expect("PEM is text");
    let line = key.lines().nth(1).expect("a key has a second line").to_string();
    let bytes = format!("{:?}", certs.client_key_pem());
    let mut prints = Prints { secrets: vec![line, bytes[1..60].to_string()], ..Prints::default() };
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
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn open() -> &'static Self {
        static LOG: LazyLock<Log> = LazyLock::new(|| {
            let log = Log::default();
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

impl io::Write for Log {
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
    let log = Log::open();
    let mut network = Network::before(Fleet::start_with(3, |_, node| node.password(PASSWORD)));
    let mut monitor = Monitor::of(&network.fleet[0]);
    let login = |url: &String| url.replace("://", &format!("://:{PASSWORD}@"));
    let manager = manager(network.urls().iter().map(login));
    let mut prints = Prints { secrets: vec![PASSWORD.into()], ..Prints::default() };
    // The monitor is waited for in this thread: what it shall see must have been sent.
    until_all_answer(&manager).await;

    let guard = manager.acquire("a-named-lock", TTL).await.expect("a free lock");
    prints.secrets.push(monitor.next_owner());
    guard.extend().await.expect("a lock that is held");
    drop(manager.try_acquire("a-named-lock", TTL).await.expect_err("it is held"));
    prints.secrets.push(monitor.next_owner());
    guard.release().await;
    network.proxies.iter().for_each(redlock_tests::Proxy::cut);
    network.fleet[1].kill();
    network.fleet[2].kill();
    drop(manager.try_acquire("a-named-lock", TTL).await.expect_err("one is too few"));
    prints.text = log.text();
    assert!(prints.text.contains("a-named-lock"), "what is no secret is there:\n{}", prints.text);
    prints.check();
}
