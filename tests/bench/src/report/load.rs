//! The CPU time that other programs use while the bench measures.

use std::collections::HashMap;
use std::fmt;
use std::fs::{read_dir, read_to_string};

/// A run is disturbed if other programs, or the host, use at least this share of the CPU time.
const TOLERATED: f64 = 0.05;

/// CPU time of the machine since its start, in ticks.
#[derive(Clone, Copy, Default)]
struct Ticks {
    all: f64,
    /// Time of all programs, without interrupts.
    in_programs: f64,
    /// Time that the host gave to other machines.
    stolen: f64,
    /// Time of this process and its descendants, also of those that have ended.
    ours: f64,
}

/// Observes the load of the machine since its creation.
pub(super) struct LoadWatch {
    since: Ticks,
}

/// The load of other programs and of the host, as shares of the CPU time of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ObservedLoad {
    others: f64,
    stolen: f64,
}

impl LoadWatch {
    pub(super) fn watch() -> Self {
        Self { since: ticks() }
    }

    pub(super) fn told(&self) -> ObservedLoad {
        seen(self.since, ticks())
    }
}

fn seen(before: Ticks, after: Ticks) -> ObservedLoad {
    let all = (after.all - before.all).max(1.0);
    let others = (after.in_programs - before.in_programs) - (after.ours - before.ours);
    ObservedLoad { others: (others / all).max(0.0), stolen: ((after.stolen - before.stolen) / all).max(0.0) }
}

impl fmt::Display for ObservedLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_quiet = self.others < TOLERATED && self.stolen < TOLERATED;
        let word = if is_quiet { "Undisturbed" } else { "DISTURBED BY OTHERS" };
        write!(
            f,
            "{word}: other programs took {:.1} % of the machine's CPU time meanwhile, its host {:.1} %",
            self.others * 100.0,
            self.stolen * 100.0
        )
    }
}

fn ticks() -> Ticks {
    let mut ticks = machine(&read_to_string("/proc/stat").unwrap_or_default());
    ticks.ours = ours();
    ticks
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn machine(stat: &str) -> Ticks {
    let line = stat.lines().next().unwrap_or_default();
    let of: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, _, _, _, _, stolen] = of[..] else { return Ticks::default() };
    Ticks { all: of.iter().sum(), in_programs: user + nice + system, stolen, ours: 0.0 }
}

/// The CPU time of this process and all its descendants.
fn ours() -> f64 {
    let processes: HashMap<u32, (u32, f64)> = read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let number: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((number, process(&read_to_string(format!("/proc/{number}/stat")).ok()?)?))
        })
        .collect();
    let me = std::process::id();
    let is_ours = |mut number: u32| loop {
        match processes.get(&number) {
            _ if number == me => return true,
            Some((parent, _)) if *parent != number => number = *parent,
            _ => return false,
        }
    };
    processes.iter().filter(|(number, _)| is_ours(**number)).map(|(_, (_, time))| time).sum()
}

/// The parent of a process, and its CPU time with that of its ended children.
fn process(stat: &str) -> Option<(u32, f64)> {
    // The name, in parentheses, may contain any characters.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let parent = words.get(1)?.parse().ok()?;
    let times = words.get(11..15)?.iter().filter_map(|word| word.parse::<f64>().ok());
    Some((parent, times.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_bench_itself_is_no_disturbance() {
        let before = machine("cpu  100 0 50 1000 0 5 5 0 0 0\ncpu0 1 1 1\n");
        let mut after = machine("cpu  300 0 150 1500 0 20 20 40 0 0\n");
        after.ours = 250.0;
        // 870 ticks passed, 300 of them in programs, of which 250 are ours.
        assert_eq!(seen(before, after), ObservedLoad { others: 50.0 / 870.0, stolen: 40.0 / 870.0 });
        assert!(seen(before, after).to_string().starts_with("DISTURBED"));
        after.ours = 300.0;
        after.stolen = 0.0;
        assert!(seen(before, after).to_string().starts_with("Undisturbed: other programs took 0.0 %"));
    }

    #[test]
    fn a_process_name_may_contain_any_characters() {
        let stat = "12 (a ) b (c) S 7 12 12 0 -1 4194304 100 0 0 0 30 20 4 6 20 0 1 0 100 1000 10";
        assert_eq!(process(stat), Some((7, 60.0)));
        assert_eq!(process("nonsense"), None);
    }

    #[test]
    fn this_process_has_used_some_time() {
        let start = std::time::Instant::now();
        let before = ours();
        // Several ticks of work.
        while start.elapsed() < std::time::Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        assert!(ours() >= before);
        assert!(ticks().all > 0.0);
    }
}
