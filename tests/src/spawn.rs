//! Child processes that never outlive the test process.
//!
//! A `Drop` does not run when the test process is killed. With `PR_SET_PDEATHSIG` the kernel kills a child when its
//! parent ends. "Parent" means the thread that forked, and the test runner's threads end with their test. So one thread
//! that never ends forks every child of this process.

// System calls between fork and exec, which the standard library does not offer.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type SpawnRequest = (Command, Sender<io::Result<Child>>);

/// Signals that background jobs of a shell or processes under `nohup` ignore. `spawn` resets them in the child.
const OFTEN_IGNORED: [libc::c_int; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];

/// Starts `command` as a child that the kernel kills when this process ends, even by SIGKILL. The child does not
/// inherit ignored SIGINT, SIGQUIT and SIGHUP.
///
/// # Errors
/// When the command cannot be started.
///
/// # Panics
/// Only if the thread that starts all children has died.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    let parent = std::process::id();
    // SAFETY: the closure runs in the forked child before exec and only makes system calls that are
    // async-signal-safe; it neither allocates nor touches a lock that another thread may hold.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // If the parent died before the call above, the kernel never sends the signal.
            if libc::getppid().unsigned_abs() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for signal in OFTEN_IGNORED {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let (reply, child) = channel();
    spawner().send((command, reply)).expect("the spawner thread runs as long as the process");
    child.recv().expect("the spawner thread answers every request")
}

/// Sends a signal to a child. The child must not have been reaped, because its process id could be another process's.
///
/// # Panics
/// When the kernel refuses.
pub fn signal(pid: u32, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(pid).expect("a process id fits pid_t");
    // SAFETY: a system call that touches no memory of ours.
    let outcome = unsafe { libc::kill(pid, signal) };
    assert_eq!(outcome, 0, "a child can be signalled");
}

fn spawner() -> &'static Sender<SpawnRequest> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (requests, inbox) = channel::<SpawnRequest>();
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    // The send fails only if the requesting thread died between sending and receiving. Then the
                    // child is never reaped.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        requests
    })
}
