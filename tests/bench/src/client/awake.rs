//! Cores that do not fall asleep.
//!
//! A core with nothing to do halts, and to wake it takes time that depends on the machine and not on what is
//! measured: on a virtual one often longer than a node takes to answer. The kernel lets a program ask for cores
//! that answer at once, for as long as it keeps a file open.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// Where the kernel is told how many microseconds a core may take to wake up.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Keeps all cores awake until it is dropped.
pub(crate) struct Awake {
    _request: File,
}

impl Awake {
    /// Asks for it; only root may, as a rule.
    pub(crate) fn keep() -> io::Result<Self> {
        let mut request = OpenOptions::new().write(true).open(LATENCY)?;
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _request: request })
    }
}
