//! Cores that do not fall asleep.
//!
//! A core with nothing to do halts, and to wake it takes time that depends on the machine and not on what is
//! measured: on a virtual one often longer than a node takes to answer. The kernel lets a program ask for cores
//! that answer at once, for as long as it keeps a file open.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use super::round::{Measurement, Round, RoundPlan, run_interleaved};
use crate::report::Report;

/// Where the kernel is told how many microseconds a core may take to wake up.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Has everybody take turns once more while no core may fall asleep, and begins a section for what comes out.
/// Where the kernel does not grant that there is nothing to tell but so.
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

/// Keeps all cores awake until it is dropped.
struct BusyCores {
    _request: File,
}

impl BusyCores {
    /// Asks for it; only root may, as a rule.
    fn keep() -> io::Result<Self> {
        let mut request = OpenOptions::new().write(true).open(LATENCY)?;
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _request: request })
    }
}
