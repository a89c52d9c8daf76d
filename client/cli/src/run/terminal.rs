//! Which process group is in the foreground of the terminal.
//!
//! The command has a process group of its own, in the background of the terminal. So Ctrl-C and Ctrl-Z reach our group,
//! which may be a whole pipeline, and we pass them on. Only a command that reads from the terminal must be in the
//! foreground: the kernel stops it with SIGTTIN or SIGTTOU, and we give it the terminal and continue it.

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::{File, OpenOptions};

/// The controlling terminal of this process, if it has one.
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

    /// Gives the terminal to the command if our group has it. Returns whether that worked.
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
        // In the background, this call would stop us with SIGTTOU, unless the signal is blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let was_blocked = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        let passed = tcsetpgrp(tty, group).is_ok();
        if let Ok(mask) = was_blocked {
            let _ = mask.thread_set_mask();
        }
        passed
    }

    /// Stops this process, and its whole group if the command has the terminal: Ctrl-Z has not reached the group then.
    /// Returns when this process continues; at once without a terminal, because no shell would continue it. Returns
    /// whether it sent SIGTSTP to the group, which this process receives, too.
    pub(super) fn suspend(&self) -> bool {
        if self.tty.is_none() {
            return false;
        }
        // This process handles SIGTSTP, so only SIGSTOP below stops it.
        let is_sent = self.is_the_commands() && killpg(self.ours, Signal::SIGTSTP).is_ok();
        let _ = kill(Pid::this(), Signal::SIGSTOP);
        is_sent
    }

    /// Sends SIGINT to our group if only the command got the Ctrl-C.
    pub(super) fn share_interrupt(&self) {
        if self.is_the_commands() {
            let _ = killpg(self.ours, Signal::SIGINT);
        }
    }
}
