//! `scripts/bench client`: the client crate against a hand-written quorum loop.
//!
//! Both acquire and release locks on this machine: the client on servers with the module, the loop on plain ones.
//! The contenders take turns within one run; the report shows the medians of the ratios of all rounds.
//!
//! | file | subject |
//! |---|---|
//! | `lock_client.rs` | the interface of a contender |
//! | `quorum_loop.rs`, `redlock_client_loop.rs` | the two contenders |
//! | `nodes.rs`, `delay.rs`, `delayed_nodes.rs` | the servers, and delays before them |
//! | `runtime.rs`, `cpu.rs`, `round.rs` | the runtime, CPU time, and one round |
//! | `healthy.rs` | one task and many tasks, on two kinds of runtime |
//! | `faults.rs` | hung, dead and slow nodes |
//! | `growth/` | more nodes, tasks, groups and longer keys |
//! | `busy_cores.rs` | cores that do not sleep |
//! | `requests.rs` | requests to a node for one lock |
//! | `sharing.rs` | many readers of one shared lock |

mod busy_cores;
pub(crate) mod cpu;
pub(crate) mod delay;
mod delayed_nodes;
mod faults;
mod growth;
mod healthy;
pub(crate) mod lock_client;
pub(crate) mod nodes;
pub(crate) mod quorum_loop;
pub(crate) mod redlock_client_loop;
mod requests;
pub(crate) mod round;
mod runtime;
mod sharing;

pub(crate) use delay::{MODE as DELAYS, serve as serve_delays};

use std::sync::Arc;
use std::time::Duration;

use lock_client::{LockClient, TaskKeys};
use nodes::{ServerSets, url};
use quorum_loop::QuorumLoop;
use redlock_client_loop::RedlockClient;
use round::{Measurement, Round, RoundPlan, turn, typical};
use runtime::BenchRuntime;

use crate::report::{Cell, Report, figure, ratio_of};

/// Many short rounds: other load on the machine affects few of them, and neighbours equally.
const SHORT: RoundPlan =
    RoundPlan { warm_up: Duration::from_millis(400), rounds: 31, time: Duration::from_millis(200) };
pub(crate) const PIECES: [&str; 6] = ["healthy", "requests", "shared", "growth", "slow", "down"];
/// The usual number of nodes.
const FIVE: [usize; 5] = [0, 1, 2, 3, 4];

/// Measures the named pieces, or all of them if none is named.
pub(crate) fn measure(report: &mut Report, pieces: &[String]) {
    let wanted = |piece: &str| pieces.is_empty() || pieces.iter().any(|one| one == piece);
    let usual = BenchRuntime::multi_thread();
    let single = BenchRuntime::current_thread();
    // Nine healthy nodes and the victims of faults, each as a plain server and as one with the module.
    let mut nodes = ServerSets::start(9 + faults::VICTIMS);
    if wanted("healthy") {
        healthy::measure(report, "healthy", &usual, &nodes);
        healthy::measure(report, "healthy-one-thread", &single, &nodes);
    }
    if wanted("requests") {
        requests::measure(report, &usual, &nodes);
    }
    if wanted("shared") {
        sharing::measure(report, &usual, &nodes);
    }
    if wanted("growth") {
        growth::measure(report, &usual, &nodes);
    }
    if wanted("slow") {
        faults::slow(report, &usual, &nodes);
    }
    // The last piece, because it kills nodes.
    if wanted("down") {
        faults::hung_and_dead(report, &usual, &mut nodes);
    }
}

/// The two contenders on the same nodes.
struct Pair {
    by_hand: Arc<QuorumLoop>,
    ours: Arc<RedlockClient>,
    keys: TaskKeys,
}

impl Pair {
    fn connect(stage: &BenchRuntime, nodes: &ServerSets, choice: &[usize]) -> Self {
        let ports = choice.iter().map(|number| nodes.ports(*number));
        let (plain, with_module) = ports.map(|[plain, with_module]| (url(plain), url(with_module))).unzip();
        Self::connect_to(stage, plain, with_module)
    }

    fn connect_to(stage: &BenchRuntime, plain: Vec<String>, with_module: Vec<String>) -> Self {
        Self {
            by_hand: Arc::new(stage.run(QuorumLoop::connect(plain))),
            ours: Arc::new(stage.run(RedlockClient::connect(with_module))),
            keys: TaskKeys::unused(),
        }
    }

    /// Rounds of both contenders, the loop first. `awake` names the nodes that answer: the others cannot report their
    /// CPU time.
    fn turns<'a>(
        &self,
        stage: &'a BenchRuntime,
        nodes: &'a ServerSets,
        tasks: usize,
        awake: &[usize],
    ) -> [Measurement<'a>; 2] {
        let plain = awake.iter().map(|number| &nodes.of::<QuorumLoop>()[*number]).collect();
        let with_module = awake.iter().map(|number| &nodes.of::<RedlockClient>()[*number]).collect();
        [
            turn(stage, &self.by_hand, tasks, self.keys, plain),
            turn(stage, &self.ours, tasks, self.keys, with_module),
        ]
    }
}

/// The columns of the usual table; `against` is the name of the last column.
pub(crate) fn head(against: &'static str) -> Vec<&'static str> {
    vec!["", "p50 us", "p99 us", "cycles/s", "client CPU us", "server CPU us", "refused", against]
}

/// A row of the usual table; its last column is the ratio of the p50 to that of `base`.
pub(crate) fn row(name: &str, rounds: &[Round], base: &[Round]) -> Vec<Cell> {
    vec![
        name.into(),
        figure(typical(rounds, |round| round.p50_us), 1),
        figure(typical(rounds, |round| round.p99_us), 1),
        figure(typical(rounds, |round| round.cycles_per_s), 0),
        figure(typical(rounds, |round| round.client_cpu_us), 2),
        figure(typical(rounds, |round| round.server_cpu_us), 2),
        rounds.iter().map(|round| round.refused).sum::<usize>().into(),
        figure(ratio_of(rounds, base, |round| round.p50_us), 3),
    ]
}
