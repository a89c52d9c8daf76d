//! Whose turn it is at the terminal.
//!
//! The command has a process group of its own, so to the terminal it is in the background. That is as it should be:
//! Ctrl-C and Ctrl-Z reach our group, which may be a whole pipeline, and we pass them on. Only a command that wants to
//! read from the terminal needs to be in the foreground; the kernel stops it then with SIGTTIN or SIGTTOU, and it is
//! given the terminal and let go on.

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::{File, OpenOptions};

/// The terminal that this process was started from, if there is one.
pub(super) struct Terminal {
    tty: Option<File>,
    ours: Pid,
    command: Pid,
}

impl Terminal {
    pub(super) fn open(command: Pid) -> Self {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok();
        Self { tty, ours: getpgrp(), command }
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.tty.as_ref()?).ok()
    }

    /// Whether Ctrl-C reaches us or the command.
    pub(super) fn is_ours(&self) -> bool {
        self.foreground().is_some_and(|group| group == self.ours || group == self.command)
    }

    /// Whether Ctrl-C reaches the command, and not us.
    pub(super) fn is_the_commands(&self) -> bool {
        self.foreground() == Some(self.command)
    }

    /// Gives the terminal to the command, if it is ours to give; says whether it was.
    pub(super) fn lend(&self) -> bool {
        self.foreground() == Some(self.ours) && self.pass_to(self.command)
    }

    /// Takes the terminal back from the command.
    pub(super) fn take_back(&self) {
        if self.is_the_commands() {
            self.pass_to(self.ours);
        }
    }

    fn pass_to(&self, group: Pid) -> bool {
        let Some(tty) = &self.tty else { return false };
        // From the background the kernel would stop us for asking, unless the signal is blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let was_blocked = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        let passed = tcsetpgrp(tty, group).is_ok();
        if let Ok(mask) = was_blocked {
            let _ = mask.thread_set_mask();
        }
        passed
    }

    /// Stops this process with its whole group, as Ctrl-Z would have if the command did not have the terminal.
    /// Returns when somebody lets it go on; at once where there is no terminal, and so nobody who would. Says whether
    /// the group was sent a signal that we are going to hear of ourselves.
    pub(super) fn suspend(&self) -> bool {
        if self.tty.is_none() {
            return false;
        }
        // We listen for this signal ourselves, and do not stop of it.
        let is_sent = self.is_the_commands() && killpg(self.ours, Signal::SIGTSTP).is_ok();
        let _ = kill(Pid::this(), Signal::SIGSTOP);
        is_sent
    }

    /// Tells the others of our group that there was a Ctrl-C, if only the command has heard it.
    pub(super) fn share_interrupt(&self) {
        if self.is_the_commands() {
            let _ = killpg(self.ours, Signal::SIGINT);
        }
    }
}
