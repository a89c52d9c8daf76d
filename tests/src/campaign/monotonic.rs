//! A clock that all processes of one machine read alike.

// One call into the kernel: the standard library does not give its clock away as a number.
#![allow(unsafe_code)]

/// Nanoseconds of `CLOCK_MONOTONIC`, the same for every process: what is earlier has the smaller number.
///
/// # Panics
/// When the kernel does not tell the time.
#[must_use]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to a place that holds one.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    assert_eq!(outcome, 0, "the kernel tells the time");
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
