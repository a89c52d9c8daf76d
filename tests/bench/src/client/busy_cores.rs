//! Cores that do not sleep while the bench measures.
//!
//! An idle core halts, and the time to wake it up depends on the machine: a virtual core often takes longer than a
//! node takes to answer. The kernel keeps cores awake for as long as a program holds a file open.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use super::round::{Measurement, Round, RoundPlan, run_interleaved};
use crate::report::Report;

/// A program writes here how many microseconds a core may take to wake up.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Measures the contenders again while no core may sleep, and begins a section of the report for the result.
/// If the kernel does not allow it, adds a remark and returns `None`.
pub(super) fn run_interleaved_on_busy_cores(
    report: &mut Report,
    section: &str,
    what: &str,
    turns: &[Measurement<'_>],
    rhythm: RoundPlan,
) -> Option<Vec<Vec<Round>>> {
    let awake = match BusyCores::keep() {
        Ok(awake) => awake,
        Err(error) => {
            report
                .remark(format!("Cores cannot be kept awake here ({error}): the aims are judged as it is."));
            return None;
        }
    };
    let rounds = run_interleaved(&format!("{what}, cores awake"), turns, rhythm);
    drop(awake);
    report.section(section, format!("The same while no core may fall asleep; {rhythm}"));
    Some(rounds)
}

/// Keeps all cores awake until dropped.
struct BusyCores {
    _request: File,
}

impl BusyCores {
    /// Opens the file; this usually needs root.
    fn keep() -> io::Result<Self> {
        let mut request = OpenOptions::new().write(true).open(LATENCY)?;
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _request: request })
    }
}
