//! Child processes that cannot outlive the test, whatever ends it.
//!
//! A `Drop` does not run when the test process is killed. The kernel can be told to kill a child when its
//! parent goes (`PR_SET_PDEATHSIG`), but "parent" there means the thread that forked, and the test runner's
//! threads end with their test. So one thread that never ends forks every server of this process.

// One call into the kernel between fork and exec, which the standard library does not offer.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type SpawnRequest = (Command, Sender<io::Result<Child>>);

/// What a shell lets its background jobs ignore, and `nohup` all others. A child hears it again.
const OFTEN_IGNORED: [libc::c_int; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];

/// Starts `command` as a child that the kernel kills when this process ends, even by SIGKILL. It ignores no signal
/// only because this process does.
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
            // The parent may have died before the request was in place; then nobody would send the signal.
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
    spawner().send((command, reply)).expect("the spawner thread lives as long as the process");
    child.recv().expect("the spawner thread answers every order")
}

/// Sends a signal to a child that has not been reaped, so that its number is still its own.
///
/// # Panics
/// When the kernel does not let it be signalled.
pub fn signal(pid: u32, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(pid).expect("the kernel's process numbers are small");
    // SAFETY: a system call that touches no memory of ours.
    let outcome = unsafe { libc::kill(pid, signal) };
    assert_eq!(outcome, 0, "a child can be signalled");
}

fn spawner() -> &'static Sender<SpawnRequest> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel::<SpawnRequest>();
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    // An asker that is gone has no use for the child; its handle is dropped unreaped only
                    // when the asking thread died between its two lines above.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        orders
    })
}
