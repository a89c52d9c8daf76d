//! Collects what the page shows.
//!
//! The counters are read all the time, so that a page that was just opened shows the last minutes. The nodes are asked
//! for their locks, and the doctor looks, only while somebody reads the page.

use crate::activity::RateHistory;
use crate::config::Config;
use crate::doctor;
use crate::exit::ExitError;
use crate::group_report::GroupReport;
use crate::snapshot::{ScanScope, Snapshot};
use crate::status;
use redlock_client::LockManager;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often to read the counters of the nodes.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// How old the locks may be: requests of several readers within this time share one answer of the nodes.
const LOCKS_MAX_AGE: Duration = Duration::from_secs(1);
/// How long a reader waits for newer locks. After that the reader gets the last ones, with their age.
const LOCKS_WAIT: Duration = Duration::from_secs(5);
/// How old the findings may be.
const FINDINGS_MAX_AGE: Duration = Duration::from_secs(30);
/// How many steps of `SCAN` one answer takes on each node, as in `redlock top`.
const STEPS: usize = 50;

/// What the page shows.
pub(crate) struct LiveState {
    locks: LockManager,
    config: Config,
    scope: ScanScope,
    history: Mutex<RateHistory>,
    /// The results of `status` and `ls`.
    nodes: OnDemand,
    /// The result of `doctor`.
    findings: OnDemand,
}

impl LiveState {
    pub(crate) fn new(locks: LockManager, config: Config, limit: usize) -> Self {
        let scope = ScanScope::new(config.prefix(), "*", STEPS, limit);
        let (nodes, findings) = (OnDemand::new(LOCKS_MAX_AGE), OnDemand::new(FINDINGS_MAX_AGE));
        Self { locks, config, scope, history: Mutex::default(), nodes, findings }
    }

    /// Reads the counters, and collects what readers ask for. Never ends.
    pub(crate) async fn watch(&self) {
        let nodes = self.nodes.keep(|| self.look());
        let findings = self.findings.keep(|| doctor::report(&self.locks, &self.config));
        tokio::join!(self.sample(), nodes, findings);
    }

    async fn sample(&self) {
        let mut ticks = interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Ok(report) = GroupReport::take(&self.locks).await {
                let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
                history.add(Instant::now(), report.nodes);
            }
        }
    }

    async fn look(&self) -> Result<Value, ExitError> {
        let snapshot = Snapshot::take(&self.locks, &self.scope).await?;
        let mut locks = snapshot.json(&snapshot.rows());
        locks["error"] = json!(snapshot.check_majority().err().map(|error| error.message));
        let mut status = status::json(&snapshot.group);
        spell_fences(&mut locks["locks"]);
        spell_fences(&mut status["nodes"]);
        Ok(json!({"status": status, "ls": locks}))
    }

    /// The state as JSON: the results of `status`, `ls` and `doctor`, and the history of requests.
    pub(crate) async fn json(&self) -> Result<String, ExitError> {
        let findings = self.findings.get(Duration::ZERO).await.transpose()?;
        let missing = || ExitError::internal("the nodes have not answered yet".to_owned());
        let mut state = self.nodes.get(LOCKS_WAIT).await.unwrap_or_else(|| Err(missing()))?;
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner).json(Instant::now());
        state["activity"] = history;
        state["doctor"] = json!(findings);
        Ok(state.to_string())
    }
}

/// A JSON object that is made anew when a reader asks for it and the last one is too old.
struct OnDemand {
    max_age: Duration,
    latest: watch::Sender<Option<(Instant, Result<Value, ExitError>)>>,
    asked: Notify,
}

impl OnDemand {
    fn new(max_age: Duration) -> Self {
        Self { max_age, latest: watch::Sender::new(None), asked: Notify::new() }
    }

    fn is_fresh(&self) -> bool {
        self.latest.borrow().as_ref().is_some_and(|(made, _)| made.elapsed() < self.max_age)
    }

    /// Makes the object whenever a reader asks, one at a time. Never ends.
    async fn keep<F: Future<Output = Result<Value, ExitError>>>(&self, make: impl Fn() -> F) {
        loop {
            self.asked.notified().await;
            if !self.is_fresh() {
                let made = make().await;
                self.latest.send_replace(Some((Instant::now(), made)));
            }
        }
    }

    /// The latest object, with its age in seconds as `age_s`. If it is too old, waits for a newer one, but not longer
    /// than this. `None` before the first.
    async fn get(&self, wait: Duration) -> Option<Result<Value, ExitError>> {
        let mut latest = self.latest.subscribe();
        if !self.is_fresh() {
            self.asked.notify_one();
            let _ = timeout(wait, latest.changed()).await;
        }
        let (made, object) = latest.borrow().clone()?;
        Some(object.map(|mut object| {
            object["age_s"] = json!(made.elapsed().as_secs_f64());
            object
        }))
    }
}

/// Makes the fence of each element a string: browsers round numbers above 2^53.
fn spell_fences(list: &mut Value) {
    for entry in list.as_array_mut().into_iter().flatten() {
        if let Some(fence) = entry.get_mut("fence") {
            *fence = json!(fence.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test]
    async fn readers_share_an_object_until_it_is_too_old() {
        let wait = Duration::from_secs(60);
        let cell = OnDemand::new(Duration::MAX);
        let made = AtomicU64::new(0);
        let make = || async {
            tokio::task::yield_now().await;
            Ok(json!({"count": made.fetch_add(1, Ordering::Relaxed) + 1}))
        };
        let read = async {
            let (one, other) = tokio::join!(cell.get(wait), cell.get(wait));
            let count = |object: Option<Result<Value, ExitError>>| object.unwrap().unwrap()["count"].clone();
            assert_eq!(
                (count(one), count(other), count(cell.get(wait).await)),
                (json!(1), json!(1), json!(1))
            );
        };
        tokio::select! {
            () = cell.keep(make) => {}
            () = read => {}
        }
        // An object that is always too old.
        let old = OnDemand::new(Duration::ZERO);
        assert!(old.get(Duration::ZERO).await.is_none(), "nobody has made the object");
        let read = async {
            let mut count = 0;
            for _ in 0..3 {
                let object = old.get(wait).await.unwrap().unwrap();
                let made = object["count"].as_u64().unwrap();
                assert!(made > count, "{made} after {count}");
                count = made;
            }
        };
        tokio::select! {
            () = old.keep(make) => {}
            () = read => {}
        }
    }
}
