//! Cores that do not fall asleep.
//!
//! A core with nothing to do sleeps, and to wake it up takes time that depends on the machine and not on what is
//! measured. Something that runs only where nobody else wants to keeps it awake.

// One call into the kernel, which the standard library does not offer.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A process for every core that turns in place, with the least claim to it. They end with this value.
pub(crate) struct Awake {
    spinners: Vec<Child>,
}

impl Awake {
    pub(crate) fn keep() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { spinners: (0..cores).map(|_| spinner()).collect() }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinner in &mut self.spinners {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

/// A process of its own, so that its CPU time is nobody's.
fn spinner() -> Child {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
    let step_back = || {
        // SAFETY: zero is a value for this struct of numbers.
        let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: both calls only read what they are given, and may be made between fork and exec.
        let stepped_back = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter)
        };
        if stepped_back == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes two calls into the kernel and allocates nothing.
    unsafe { command.pre_exec(step_back) };
    command.spawn().expect("a shell can be started")
}
