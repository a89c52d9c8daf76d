//! CPU time of this process and of servers, and how often this process sleeps.

// One system call that the standard library does not offer.
#![allow(unsafe_code)]

use redlock_tests::Server;

/// CPU time in microseconds that this process has used so far, user and system.
pub(crate) fn own_us() -> f64 {
    let usage = usage();
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// How often threads of this process have slept so far: their voluntary context switches.
pub(crate) fn own_sleeps() -> f64 {
    usage().ru_nvcsw as f64
}

fn usage() -> libc::rusage {
    // SAFETY: the struct consists of numbers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer leads to a live struct of the type that the kernel fills.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(outcome, 0, "getrusage succeeds");
    usage
}

/// CPU time in microseconds that a server has used so far, by its own count.
pub(crate) fn server_us(server: &Server) -> f64 {
    let of = |name: &str| -> f64 {
        let seconds = server.info("cpu", name).and_then(|seconds| seconds.parse().ok());
        seconds.expect("INFO cpu has its fields")
    };
    (of("used_cpu_sys") + of("used_cpu_user")) * 1e6
}
