//! How long the claim window should be: the time that a node gives a waiter to claim a lock.
//!
//! With a short window, a distant client or one on a busy machine loses its grant. With a long window, a client that
//! has died without closing its connection delays all waiters behind it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redlock_tests::{Answer, Server, Wire};

use super::methods::LockMethod;
use super::rounds::{Contenders, fresh_key};
use crate::client::delay::Delays;
use crate::client::nodes::{ServerSets, url};
use crate::report::{Report, TerminalBar, median};

const WINDOWS_MS: [u64; 5] = [5, 20, 50, 100, 250];
const NODES: usize = 5;
const TIME: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
/// A client in another part of the world.
const FAR: Duration = Duration::from_millis(60);
/// Interval at which a client reaches the head of the queue and claims late or never, during a round.
const DEAF_EVERY: Duration = Duration::from_millis(200);
/// How long a slow client takes from the push to its claim, as in a garbage collection or on a busy host.
const SLOW: Duration = Duration::from_millis(60);
/// Spinning threads per core on the busy machine.
const BUSY_THREADS: usize = 4;

/// What disturbs the round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disturber {
    None,
    BusyMachine,
    Distance,
    DeafHeads,
    SlowHeads,
}

const TROUBLES: [(Disturber, &str); 5] = [
    (Disturber::None, "undisturbed"),
    (Disturber::BusyMachine, "busy machine"),
    (Disturber::Distance, "60 ms away"),
    (Disturber::DeafHeads, "4 deaf heads/s"),
    (Disturber::SlowHeads, "4 slow heads/s"),
];

pub(crate) fn measure(report: &mut Report) {
    let nodes = ServerSets::start(NODES);
    let servers: Vec<&Server> = nodes.with_module().iter().collect();
    let ways: Vec<_> = (0..NODES).map(|number| (FAR, nodes.ports(number)[1])).collect();
    let delays = Delays::start(&ways);
    let far: Vec<String> = delays.ports.iter().map(|port| url(*port)).collect();
    let near: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let start = |urls: &[String]| Contenders::start("", LockMethod::InLine, 4, urls, servers.clone());
    let (mut near, mut far) = (start(&near), start(&far));
    // By trouble and window: hand-offs per second, and unclaimed grants of a node per hundred hand-offs; for slow
    // heads, how many of a hundred lost their grant.
    let mut seen = vec![vec![(Vec::new(), Vec::new()); WINDOWS_MS.len()]; TROUBLES.len()];
    let progress = TerminalBar::of("claim windows", ROUNDS * WINDOWS_MS.len());
    for round in 0..ROUNDS {
        for turn in 0..WINDOWS_MS.len() {
            let which = (turn + round) % WINDOWS_MS.len();
            for server in &servers {
                let window = WINDOWS_MS[which].to_string();
                server.connect().call(&["CONFIG", "SET", "redlock.claim-window", &window]);
            }
            for (place, (trouble, _)) in TROUBLES.iter().enumerate() {
                let before = unclaimed(&servers);
                let crowd = if *trouble == Disturber::Distance { &mut far } else { &mut near };
                let (rate, slow_ones_lost) = disturbed(*trouble, &servers, crowd);
                let unclaimed = (unclaimed(&servers) - before) / NODES as f64 / (rate * TIME.as_secs_f64());
                let (rates, lost) = &mut seen[place][which];
                rates.push(rate);
                lost.push(slow_ones_lost.unwrap_or(unclaimed) * 100.0);
            }
            progress.step();
        }
    }
    drop(progress);
    report.section(
        "window",
        format!(
            "Hand-offs a second of 16 tasks in four processes, and grants of a node that nobody claimed per hundred; \
             of heads that claim after {} ms, how many per hundred lost the lock; {ROUNDS} rounds of {} s",
            SLOW.as_millis(),
            TIME.as_secs()
        ),
    );
    let mut head = vec!["claim window"];
    head.extend(TROUBLES.map(|(_, name)| name));
    let rows: Vec<_> = WINDOWS_MS
        .iter()
        .enumerate()
        .map(|(which, window)| {
            let cell = |place: usize| {
                let (rates, lost) = &seen[place][which];
                format!("{:.0} ({:.1})", median(rates), median(lost)).into()
            };
            let mut row = vec![format!("{window} ms").into()];
            row.extend((0..TROUBLES.len()).map(cell));
            row
        })
        .collect();
    report.table(&head, &rows);
}

/// Runs one round under a trouble. Returns its hand-offs per second and, for slow heads, the share that lost its
/// grant.
fn disturbed(trouble: Disturber, servers: &[&Server], crowd: &mut Contenders<'_>) -> (f64, Option<f64>) {
    let key = fresh_key();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = if trouble == Disturber::BusyMachine { cores * BUSY_THREADS } else { 0 };
        for _ in 0..busy {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        if trouble == Disturber::DeafHeads {
            let wires: Vec<Wire> = servers.iter().map(|server| server.connect()).collect();
            let key = &key;
            scope.spawn(move || never_claim(wires, key));
        }
        let slow = (trouble == Disturber::SlowHeads).then(|| {
            let key = &key;
            scope.spawn(move || claim_slowly(servers, key))
        });
        let round = crowd.round_on(&key, TIME);
        over.store(true, Ordering::Relaxed);
        let lost = slow.map(|slow| slow.join().expect("a slow client that does not panic"));
        (round.handoffs_per_s, lost)
    })
}

/// Queues at the head again and again, and never claims its grants.
fn never_claim(mut wires: Vec<Wire>, key: &str) {
    for ticket in 1..TIME.as_millis() / DEAF_EVERY.as_millis() {
        // Another client must hold the lock first: an acquire of a free lock needs no claim.
        std::thread::sleep(DEAF_EVERY);
        let (ticket, owner) = (ticket.to_string(), format!("deaf-{ticket}"));
        for wire in &mut wires {
            let words = ["REDLOCK.ACQUIRE", key, &owner, "30000", "WAIT", &ticket, "60000", "nobody"];
            wire.call(&words);
        }
    }
}

/// Queues at the head again and again, and claims late. Returns the share of grants that were lost by then.
fn claim_slowly(servers: &[&Server], key: &str) -> f64 {
    let mut wires: Vec<Wire> = servers.iter().map(|server| server.connect()).collect();
    let mut news: Vec<Wire> = servers.iter().map(|server| server.connect()).collect();
    for listener in &mut news {
        listener.call(&["SUBSCRIBE", "redlock:grant:slow"]);
    }
    let (mut handed, mut lost) = (0, 0);
    for ticket in 1..TIME.as_millis() / DEAF_EVERY.as_millis() {
        std::thread::sleep(DEAF_EVERY);
        let (ticket, owner) = (ticket.to_string(), format!("slow-{ticket}"));
        let in_line = wires.iter_mut().all(|wire| {
            let words = ["REDLOCK.ACQUIRE", key, &owner, "30000", "WAIT", &ticket, "60000", "slow"];
            matches!(wire.call(&words), Answer::List(_))
        });
        // If no other client wants the lock any more, the nodes grant it at once.
        if in_line {
            let about = format!("grant {ticket} ");
            let hear = |listener: &mut Wire| {
                let news = listener.receive().expect("a push to the first waiter");
                news.list()[2].string()
            };
            for listener in &mut news {
                while !hear(listener).starts_with(&about) {}
            }
            std::thread::sleep(SLOW);
            let mut claim = |wire: &mut Wire| wire.call(&["REDLOCK.EXTEND", key, &owner, "30000"]);
            let had = wires.iter_mut().map(&mut claim).filter(|answer| *answer != Answer::Nil).count();
            handed += 1;
            lost += usize::from(had <= NODES / 2);
        }
        for wire in &mut wires {
            wire.call(&["REDLOCK.RELEASE", key, &owner]);
        }
    }
    lost as f64 / handed as f64
}

fn unclaimed(servers: &[&Server]) -> f64 {
    let of = |server: &&Server| -> f64 {
        let count = server.info("redlock", "redlock_unclaimed").and_then(|count| count.parse().ok());
        count.expect("the counter redlock_unclaimed")
    };
    servers.iter().map(of).sum()
}
