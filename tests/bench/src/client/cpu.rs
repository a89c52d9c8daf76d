//! CPU time of this process and of servers, and how often this process falls asleep.

// One call into the kernel, which the standard library does not offer.
#![allow(unsafe_code)]

use redlock_tests::Server;

/// CPU time in microseconds that this process has used so far, in user and kernel.
pub(crate) fn own_us() -> f64 {
    let usage = usage();
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// How often threads of this process have given a core up so far because they had nothing to do.
pub(crate) fn own_sleeps() -> f64 {
    usage().ru_nvcsw as f64
}

fn usage() -> libc::rusage {
    // SAFETY: the struct holds numbers only, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct that the pointer leads to, which lives on our stack.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(outcome, 0, "a process can be asked for its own usage");
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
