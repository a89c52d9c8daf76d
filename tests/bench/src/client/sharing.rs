//! Many readers of one shared lock, against as many holders of locks of their own.

use std::sync::Arc;

use redlock_client::LockManager;

use super::healthy::MANY;
use super::lock_client::{LockClient, TTL, TaskKeys};
use super::nodes::{ServerSets, url};
use super::redlock_client_loop::RedlockClient;
use super::round::{run_interleaved, turn};
use super::runtime::BenchRuntime;
use super::{FIVE, SHORT, head, row};
use crate::report::{Report, ratio_of};

/// The name of the lock that all tasks share.
const SHARED: &str = "bench:shared";

/// The client with a shared lock: every task takes the same one.
struct SharedLockClient {
    manager: LockManager,
}

impl LockClient for SharedLockClient {
    const NAME: &'static str = "one shared lock";
    const WITH_MODULE: bool = true;
    const ACQUIRES: &'static [&'static str] = RedlockClient::ACQUIRES;
    const RELEASES: &'static str = RedlockClient::RELEASES;

    async fn connect(urls: Vec<String>) -> Self {
        let manager = LockManager::builder().nodes(urls).build();
        Self { manager: manager.expect("addresses of the bench itself") }
    }

    async fn cycle(&self, _key: &str) -> bool {
        let Ok(guard) = self.manager.try_acquire_shared(SHARED, TTL).await else { return false };
        guard.release().await.is_free_on_a_majority()
    }
}

pub(crate) fn measure(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    let urls = || FIVE.iter().map(|number| url(nodes.ports(*number)[1])).collect();
    let servers = || FIVE.iter().map(|number| &nodes.with_module()[*number]).collect();
    let exclusive = Arc::new(stage.run(RedlockClient::connect(urls())));
    let shared = Arc::new(stage.run(SharedLockClient::connect(urls())));
    let keys = TaskKeys::unused();
    let turns = [turn(stage, &exclusive, MANY, keys, servers()), turn(stage, &shared, MANY, keys, servers())];
    let rounds = run_interleaved("shared lock", &turns, SHORT);
    let names = ["exclusive locks, one for each task", SharedLockClient::NAME];
    let rows: Vec<_> = names.iter().zip(&rounds).map(|(name, of)| row(name, of, &rounds[0])).collect();
    report.section("shared", format!("Acquire and release, five nodes, tasks: {MANY}; {SHORT}"));
    report.table(&head("p50 x exclusive"), &rows);
    let throughput = ratio_of(&rounds[1], &rounds[0], |round| round.cycles_per_s);
    report.at_least("64 readers of one lock: throughput against locks of their own", throughput, 0.8);
}
