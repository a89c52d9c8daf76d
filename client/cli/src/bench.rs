//! `redlock bench`: measures how fast locks are on the user's nodes.
//!
//! `histogram.rs` draws the measured times, and `bar.rs` the progress.

mod bar;
mod histogram;

use crate::args::{BenchArgs, CommonArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::output::{Printer, Table, Tone, cell, counted, tame, toned};
use crate::run::signals::Interrupts;
use crate::status;
use bar::Bar;
use hdrhistogram::Histogram;
use redlock_client::{Health, LockManager, NodeHealth, WaitPolicy};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The time to live of the locks: long compared to any answer, and short in case this process is killed.
const TTL: Duration = Duration::from_secs(10);

/// The largest time in the histograms, in microseconds. Longer times count as this one.
const LONGEST_US: u64 = 60_000_000;

/// The measurements of one caller, or the sum of all callers.
struct Figures {
    cycles: u64,
    acquire: Histogram<u64>,
    release: Histogram<u64>,
    /// Failed cycles, by reason.
    failures: BTreeMap<&'static str, u64>,
    /// The exit code of the last failure.
    last_failure: Option<Code>,
}

/// The state that all callers share.
struct BenchState {
    locks: LockManager,
    is_over: AtomicBool,
    cycles: AtomicU64,
}

pub(crate) fn main(common: &CommonArgs, args: &BenchArgs, output: &Printer) -> Result<Code, ExitError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| ExitError::internal(format!("cannot start the async runtime: {error}")))?;
    runtime.block_on(bench(common, args, output))
}

async fn bench(common: &CommonArgs, args: &BenchArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    // Under the user's prefix, because the user may have no other permission, and under a unique name.
    let prefix = format!("{}redlock:bench:{}:", config.prefix(), uuid::Uuid::new_v4().simple());
    let locks = config.builder().key_prefix(prefix.as_bytes()).label("redlock bench");
    let locks =
        locks.wait_policy(if args.contended { WaitPolicy::Queue } else { WaitPolicy::Poll }).build()?;
    let mut interrupts = Interrupts::listen()?;
    let health = locks.health().await?;
    if !health.can_grant() {
        return Err(no_majority(&health));
    }
    let state = Arc::new(BenchState { locks, is_over: AtomicBool::new(false), cycles: AtomicU64::new(0) });
    let mut callers = JoinSet::new();
    let begun = Instant::now();
    for number in 0..args.tasks {
        let resource = if args.contended { "shared".to_owned() } else { number.to_string() };
        callers.spawn(run_cycles(Arc::clone(&state), resource));
    }
    let mut bar = Bar::new(args.duration, *output);
    tokio::select! {
        () = show_progress(&state, args, &mut bar) => {}
        // Report what was measured so far.
        _ = interrupts.next() => {}
    }
    state.is_over.store(true, Ordering::Relaxed);
    let mut all = Figures::new()?;
    while let Some(figures) = callers.join_next().await {
        all.add(&figures.map_err(|error| ExitError::internal(error.to_string()))??);
    }
    let took = begun.elapsed();
    // Only now: the terminal may print `^C` on the bar until the signal arrives.
    drop(bar);
    state.locks.flush().await;
    if output.is_json {
        output.json(&all.json(args, &health, took))?;
    } else {
        all.text(args, &health, took, *output)?;
    }
    // Without a single lock there is no measurement.
    Ok(all.last_failure.filter(|_| all.cycles == 0).unwrap_or(Code::Success))
}

/// The error if no lock can be granted, with the code of `redlock status`.
fn no_majority(health: &Health) -> ExitError {
    let standing = health.standing();
    let message = format!("no lock can be granted: {standing}; see redlock status");
    let error = match status::code(standing) {
        Code::Quarantined => ExitError::new(Code::Quarantined, "quarantined", message),
        _ => ExitError::new(Code::NoQuorum, "no_quorum", message),
    };
    error.with_nodes(health.nodes.iter().map(|node| {
        let answer = node.state.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        (node.node.to_string(), answer)
    }))
}

async fn run_cycles(state: Arc<BenchState>, resource: String) -> Result<Figures, ExitError> {
    let mut figures = Figures::new()?;
    while !state.is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match state.locks.acquire_timeout(&resource, TTL, Duration::from_secs(5)).await {
            Ok(guard) => {
                record(&mut figures.acquire, begun.elapsed());
                let begun = Instant::now();
                guard.release().await;
                record(&mut figures.release, begun.elapsed());
                figures.cycles += 1;
                state.cycles.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                *figures.failures.entry(error.reason()).or_default() += 1;
                figures.last_failure = Some(ExitError::from(error).code);
                // An unreachable node fails at once: pause before the next attempt.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    Ok(figures)
}

fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_micros()).unwrap_or(LONGEST_US));
}

/// Waits until the end of the run, and shows the progress.
async fn show_progress(state: &BenchState, args: &BenchArgs, bar: &mut Bar) {
    let begun = Instant::now();
    loop {
        bar.show(begun.elapsed(), state.cycles.load(Ordering::Relaxed));
        let left = args.duration.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_millis(100))).await;
    }
}

impl Figures {
    fn new() -> Result<Self, ExitError> {
        let histogram = || {
            let made = Histogram::new_with_bounds(1, LONGEST_US, 3);
            made.map_err(|error| ExitError::internal(format!("cannot create a histogram: {error}")))
        };
        let (acquire, release) = (histogram()?, histogram()?);
        Ok(Self { cycles: 0, acquire, release, failures: BTreeMap::new(), last_failure: None })
    }

    fn add(&mut self, other: &Self) {
        self.cycles += other.cycles;
        // Both have the same bounds, so no value is too large.
        let _ = self.acquire.add(&other.acquire);
        let _ = self.release.add(&other.release);
        for (reason, count) in &other.failures {
            *self.failures.entry(reason).or_default() += count;
        }
        self.last_failure = other.last_failure.or(self.last_failure);
    }

    #[allow(clippy::cast_precision_loss, reason = "no count of cycles comes near 2^53")]
    fn cycles_per_second(&self, took: Duration) -> f64 {
        (self.cycles as f64 / took.as_secs_f64().max(1e-9)).round()
    }

    fn json(&self, args: &BenchArgs, health: &Health, took: Duration) -> Value {
        let times = |histogram: &Histogram<u64>| {
            json!({
                "p50_us": histogram.value_at_quantile(0.5),
                "p90_us": histogram.value_at_quantile(0.9),
                "p99_us": histogram.value_at_quantile(0.99),
                "p999_us": histogram.value_at_quantile(0.999),
                "max_us": histogram.max(),
                "buckets": histogram::json(histogram),
            })
        };
        let node = |node: &NodeHealth| json!({"node": &*node.node, "answered": node.state.is_ok()});
        json!({
            "tasks": args.tasks,
            "contended": args.contended,
            "duration_ms": crate::duration::millis(took),
            "cycles": self.cycles,
            "cycles_per_second": self.cycles_per_second(took),
            "acquire": times(&self.acquire),
            "release": times(&self.release),
            "failures": self.failures,
            "nodes": health.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    }

    fn text(
        &self,
        args: &BenchArgs,
        health: &Health,
        took: Duration,
        output: Printer,
    ) -> Result<(), ExitError> {
        for node in &health.nodes {
            let state = match &node.state {
                Ok(_) => output.paint(Tone::Good, "answered"),
                Err(failure) => output.paint(Tone::Bad, &tame(&failure.to_string())),
            };
            output.line(&format!("{}  {state}", node.node))?;
        }
        let what = if args.contended { "all on one lock" } else { "each on its own lock" };
        output.line(&format!(
            "{} in {:.1} s: {} per second, {}, {what}",
            counted(self.cycles, "cycle"),
            took.as_secs_f64(),
            output.paint(Tone::Strong, &self.cycles_per_second(took).to_string()),
            counted(args.tasks.into(), "caller"),
        ))?;
        let mut table = Table::new(&["", "p50", "p90", "p99", "p99.9", "max"]);
        for (name, histogram) in [("acquire", &self.acquire), ("release", &self.release)] {
            let mut row = vec![cell(name)];
            row.extend(
                [0.5, 0.9, 0.99, 0.999].map(|share| cell(show_us(histogram.value_at_quantile(share)))),
            );
            row.push(cell(show_us(histogram.max())));
            table.row(row);
        }
        output.lines(&table.lines(output))?;
        for (name, histogram) in [("acquire", &self.acquire), ("release", &self.release)] {
            if self.cycles > 0 {
                output.line(&output.paint(Tone::Strong, name))?;
                output.lines(&histogram::lines(histogram))?;
            }
        }
        if !self.failures.is_empty() {
            let mut table = Table::new(&["failure", "times"]);
            for (reason, count) in &self.failures {
                table.row(vec![toned(Tone::Bad, *reason), cell(count.to_string())]);
            }
            output.lines(&table.lines(output))?;
        }
        Ok(())
    }
}

fn show_us(us: u64) -> String {
    crate::duration::show_latency(Duration::from_micros(us))
}
