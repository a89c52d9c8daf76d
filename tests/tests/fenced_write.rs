//! The fenced writes of the client's example `fenced_write_redis`, on real servers: the storage rejects a holder
//! that was overtaken, and never rejects the valid holder.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use redlock_client::{LockManager, Retry};
use redlock_tests::{FakeClock, Fleet, SOON, Server, in_time};
use std::time::Duration;
use tokio::task::JoinSet;

#[path = "../../client/examples/fenced_write_redis.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod example;

const KEY: &str = "document";

/// The storage that the holders write to: a plain server, without the module.
struct Store {
    server: Server,
}

impl Store {
    fn start() -> Self {
        Self { server: Server::builder().without_module().tcp().start() }
    }

    async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.server.url()).expect("an address");
        client.get_multiplexed_async_connection().await.expect("a running server takes connections")
    }
}

/// Writes, and returns whether the storage accepted the write.
async fn is_let_through(store: &mut MultiplexedConnection, write: &Cmd) -> bool {
    match write.query_async::<Value>(store).await {
        Ok(_) => true,
        Err(error) if example::is_stale(&error) => false,
        Err(other) => panic!("neither accepted nor rejected as stale: {other}"),
    }
}

/// Commands that write a value with a fence, and that read the stored value.
struct WriteMethod {
    name: &'static str,
    write: fn(&str, u64) -> Cmd,
    read: fn() -> Cmd,
}

const FORMS: [WriteMethod; 2] = [
    WriteMethod {
        name: "stream",
        write: |value, fence| example::write(KEY, value, fence),
        read: || example::read(KEY),
    },
    WriteMethod {
        name: "hash",
        write: |value, fence| example::set_field(KEY, "value", value, fence),
        read: || {
            let mut command = cmd("HGET");
            command.arg(KEY).arg("value");
            command
        },
    },
];

impl WriteMethod {
    /// The stored value in debug format: a stream wraps the value in a list.
    async fn stored(&self, store: &mut MultiplexedConnection) -> String {
        format!("{:?}", (self.read)().query_async::<Value>(store).await.expect("a value"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_runs() {
    let store = Store::start();
    in_time("the example ends", SOON, example::run(&store.server.url())).await.unwrap();
    let left: Vec<String> = cmd("KEYS").arg("*").query_async(&mut store.connect().await).await.unwrap();
    assert_eq!(left, [""; 0], "the example deletes its keys");
}

#[tokio::test]
async fn a_stale_fence_is_turned_away_an_equal_or_newer_one_is_not() {
    const EXACT: u64 = 1 << 53;
    let largest = u64::try_from(i64::MAX).unwrap();
    for form in FORMS {
        let store = Store::start();
        let mut connection = store.connect().await;
        let mut newest = String::new();
        for (fence, passes) in [
            (5, true),
            (5, true),
            (4, false),
            (9, true),
            // As text, 9 sorts after 10.
            (10, true),
            (9, false),
            // These two are equal as doubles.
            (EXACT, true),
            (EXACT + 1, true),
            (EXACT, false),
            (largest, true),
            (largest - 1, false),
            (largest, true),
        ] {
            let value = format!("written with {fence}");
            let write = (form.write)(&value, fence);
            assert_eq!(is_let_through(&mut connection, &write).await, passes, "{}: {fence}", form.name);
            if passes {
                newest = value;
            }
            let stored = form.stored(&mut connection).await;
            assert!(stored.contains(&newest), "{}, after {fence}: {stored}", form.name);
        }
    }
}

#[tokio::test]
async fn a_read_shuts_older_holders_out() {
    let store = Store::start();
    let mut connection = store.connect().await;
    let read = |fence| example::get_field(KEY, "value", fence);
    let write = |value, fence| example::set_field(KEY, "value", value, fence);
    let nothing: Option<String> = read(3).query_async(&mut connection).await.unwrap();
    assert_eq!(nothing, None, "the key is empty, but the read stores its fence");
    for (command, passes) in [
        (write("older than the read", 2), false),
        (write("as new as the read", 3), true),
        (read(6), true),
        (write("between read and write", 3), false),
        (read(5), false),
        (read(6), true),
    ] {
        assert_eq!(is_let_through(&mut connection, &command).await, passes, "{command:?}");
    }
    let stored: String = read(6).query_async(&mut connection).await.unwrap();
    assert_eq!(stored, "as new as the read");

    // The control: after a plain read the older holder can still write, and a write based on the read undoes that.
    let _: Value = cmd("HGET").arg("plain").arg("value").query_async(&mut connection).await.unwrap();
    let late = example::set_field("plain", "value", "between read and write", 3);
    assert!(is_let_through(&mut connection, &late).await);
}

/// For the nodes, a minute passes that the first holder does not notice, as if it were paused together with its
/// clocks. Nothing on its side could stop the write.
#[tokio::test]
async fn a_paused_holder_that_still_believes_in_its_lock_is_turned_away() {
    let clock = FakeClock::new();
    clock.freeze_module();
    let nodes = Fleet::start_with(3, |_, node| node.clock(&clock));
    let [one, other] = [(); 2].map(|()| LockManager::builder().nodes(nodes.urls()).build().unwrap());
    let ttl = Duration::from_secs(60);

    for form in FORMS {
        let store = Store::start();
        let mut connection = store.connect().await;

        let first = one.acquire(form.name, ttl).await.unwrap();
        assert!(is_let_through(&mut connection, &(form.write)("first", first.fence())).await);

        // A lock ends after its deadline, not at it.
        clock.advance_module(ttl + Duration::from_millis(1));
        let second = other.acquire(form.name, ttl).await.unwrap();
        assert!(first.is_valid() && second.is_valid(), "both holders consider their lock valid");
        assert!(second.fence() > first.fence());
        assert!(is_let_through(&mut connection, &(form.write)("second", second.fence())).await);

        assert!(
            !is_let_through(&mut connection, &(form.write)("late", first.fence())).await,
            "{}",
            form.name
        );
        let stored = form.stored(&mut connection).await;
        assert!(stored.contains("second") && !stored.contains("late"), "{}: {stored}", form.name);
        assert!(is_let_through(&mut connection, &(form.write)("second again", second.fence())).await);

        // The control: a storage that ignores fences accepts the late write.
        let _: () = cmd("SET").arg("unfenced").arg("second").query_async(&mut connection).await.unwrap();
        let _: () = cmd("SET").arg("unfenced").arg("late").query_async(&mut connection).await.unwrap();
        let unfenced: String = cmd("GET").arg("unfenced").query_async(&mut connection).await.unwrap();
        assert_eq!(unfenced, "late");
    }
}

/// The storage must accept every write of the valid holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_in_its_time_is_never_turned_away() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 10;
    let nodes = Fleet::start(3);
    let store = Store::start();
    let retry = Retry::exponential(Duration::from_millis(1), Duration::from_millis(20));
    let managers = [(); 2].map(|()| {
        LockManager::builder().nodes(nodes.urls()).retry(retry.clone()).build().expect("addresses of nodes")
    });
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let locks = managers[task % managers.len()].clone();
        let mut store = store.connect().await;
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = locks.acquire("counter", Duration::from_secs(30)).await.unwrap();
                let read = example::get_field("counter", "count", guard.fence());
                let count: Option<usize> = read.query_async(&mut store).await.unwrap();
                let next = (count.unwrap_or(0) + 1).to_string();
                let write = example::set_field("counter", "count", &next, guard.fence());
                assert!(is_let_through(&mut store, &write).await, "a valid write was rejected: {guard:?}");
                assert!(is_let_through(&mut store, &example::write(KEY, &next, guard.fence())).await);
                guard.release().await;
            }
        });
    }
    in_time("all tasks have written", 6 * SOON, tasks.join_all()).await;
    let mut connection = store.connect().await;
    let count: usize = cmd("HGET").arg("counter").arg("count").query_async(&mut connection).await.unwrap();
    assert_eq!(count, TASKS * ROUNDS, "no write was lost");
}
