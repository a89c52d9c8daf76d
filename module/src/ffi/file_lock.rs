//! A file lock that one process holds until it ends.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Locks a file for this process. Returns false if another process holds the lock.
///
/// The lock belongs to this process alone. A lock made with `flock` would be shared with children that the server forks
/// to save its data set and that may outlive it.
pub(crate) fn lock_file(file: &File) -> bool {
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the file is open, and the description of the lock outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const whole) == 0 }
}
