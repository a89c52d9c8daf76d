//! A clock that is the same for all processes of one machine.

// A system call: the standard library does not offer its clock as a number.
#![allow(unsafe_code)]

/// Nanoseconds of `CLOCK_MONOTONIC`, the same clock for every process.
///
/// # Panics
/// When the system call fails.
#[must_use]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to a place that holds one.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    assert_eq!(outcome, 0, "the kernel reads the clock");
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
