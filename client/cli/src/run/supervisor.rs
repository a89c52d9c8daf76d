//! Supervises a command and its lock until one of them ends.

use super::command::{ChildCommand, ChildEvent};
use super::deadline::{Deadline, NextStep};
use super::signals::{Interrupt, Interrupts, exit_code};
use super::terminal::Terminal;
use super::watchdog::Watchdog;
use crate::exit::Code;
use crate::output::Printer;
use nix::sys::signal::Signal;
use redlock_client::{Guard, LostReason};
use std::time::Duration;
use tokio::time::Instant;

/// The longest time between two looks at the lock. A timer is late if the machine was suspended.
const LOOK: Duration = Duration::from_millis(100);

/// How the run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command ended by itself, with this status.
    Status(u8),
    /// The command died of a Ctrl-C at the terminal.
    Interrupted,
    /// The lock was lost, and the command was stopped.
    Lost(&'static str),
    /// The command ended, and the lock was already lost.
    FoundLost {
        why: &'static str,
        /// The status of the command, if no signal killed it.
        status: Option<u8>,
    },
}

impl Ending {
    /// The exit code of this process. It does not return if the command died of a Ctrl-C and this process can, too.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Status(status) => Code::Given(*status),
            Self::Interrupted => {
                super::signals::die_of_interrupt();
                Code::Given(130)
            }
            Self::Lost(_) | Self::FoundLost { .. } => Code::Lost,
        }
    }
}

/// A running command and everything that watches it.
pub(super) struct Supervisor<'a> {
    command: ChildCommand,
    watchdog: Watchdog,
    deadline: Deadline,
    interrupts: &'a mut Interrupts,
    terminal: Terminal,
    output: Printer,
    /// The end of the last known validity of the lock.
    valid_until: Instant,
    stopping: Option<Stopping>,
    /// Whether the next SIGTSTP is the one that we sent to our own group.
    hears_own_stop: bool,
}

/// A command that got SIGTERM because the lock is lost.
struct Stopping {
    why: &'static str,
    kill_at: Instant,
    is_killed: bool,
}

/// What the supervisor waits for.
enum SupervisorEvent {
    Child(Option<ChildEvent>),
    Signal(Interrupt),
    Lost(LostReason),
    Timer,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        command: ChildCommand,
        watchdog: Watchdog,
        deadline: Deadline,
        interrupts: &'a mut Interrupts,
        output: Printer,
    ) -> Self {
        let terminal = Terminal::open(command.group());
        let valid_until = Instant::now();
        Self {
            command,
            watchdog,
            deadline,
            interrupts,
            terminal,
            output,
            valid_until,
            stopping: None,
            hears_own_stop: false,
        }
    }

    /// Watches until the command has ended, by itself or because the lock was lost.
    pub(super) async fn watch(mut self, guard: &Guard) -> Ending {
        let ended = loop {
            let pause = self.look_after(guard);
            let is_running = self.stopping.is_none();
            let event = tokio::select! {
                event = self.command.events.recv() => SupervisorEvent::Child(event),
                signal = self.interrupts.next() => SupervisorEvent::Signal(signal),
                reason = guard.lost(), if is_running => SupervisorEvent::Lost(reason),
                () = tokio::time::sleep(pause) => SupervisorEvent::Timer,
            };
            match event {
                SupervisorEvent::Child(Some(ChildEvent::Stopped(signal))) => self.stopped(signal, guard),
                SupervisorEvent::Child(Some(event)) => break event,
                // Both threads that wait for the command have ended; no event can follow.
                SupervisorEvent::Child(None) => break ChildEvent::Ended(1),
                SupervisorEvent::Signal(signal) => self.pass_on(signal),
                SupervisorEvent::Lost(lost) => self.stop(reason(lost)),
                SupervisorEvent::Timer => {}
            }
        };
        self.ended(ended, guard).await
    }

    /// Does what is due, and returns when to look again.
    fn look_after(&mut self, guard: &Guard) -> Duration {
        let now = Instant::now();
        let remaining = guard.remaining();
        if !remaining.is_zero() {
            self.valid_until = now + remaining;
            self.watchdog.allow(self.deadline.last_moment(remaining));
        }
        if let Some(stopping) = &mut self.stopping {
            if !stopping.is_killed && now >= stopping.kill_at {
                stopping.is_killed = true;
                self.command.signal_group(Signal::SIGKILL);
            }
            return stopping.kill_at.saturating_duration_since(now).clamp(Duration::from_millis(1), LOOK);
        }
        match self.deadline.due(remaining) {
            // The validity has ended; the guard is about to report the reason.
            NextStep::Kill if remaining.is_zero() => Duration::from_millis(1),
            NextStep::Nothing(time) => time.clamp(Duration::from_millis(1), LOOK),
            NextStep::Term | NextStep::Kill => {
                self.stop("it could not be extended in time");
                Duration::ZERO
            }
        }
    }

    /// Sends SIGTERM to the command, and sets the time for SIGKILL: before another client can hold the lock.
    fn stop(&mut self, why: &'static str) {
        if self.stopping.is_some() {
            return;
        }
        let now = Instant::now();
        let latest = self.valid_until.checked_sub(self.deadline.margin).unwrap_or(now);
        let kill_at = (now + self.deadline.kill_after).min(latest).max(now);
        self.output.note(&format!("the lock is lost ({why}): stopping the command"));
        self.command.signal_group(Signal::SIGTERM);
        // A stopped process handles SIGTERM only after it continues.
        self.command.signal_group(Signal::SIGCONT);
        self.stopping = Some(Stopping { why, kill_at, is_killed: false });
    }

    fn pass_on(&mut self, signal: Interrupt) {
        match signal.0 {
            Signal::SIGTSTP if std::mem::take(&mut self.hears_own_stop) => {}
            // The command stops; then this process stops, too: see `stopped`.
            Signal::SIGTSTP | Signal::SIGCONT | Signal::SIGWINCH => self.command.signal_group(signal.0),
            other if signal.ends() => {
                self.command.signal_group(other);
                if other != Signal::SIGINT && other != Signal::SIGQUIT {
                    self.command.signal_group(Signal::SIGCONT);
                }
            }
            other => self.command.signal(other),
        }
    }

    /// Handles a stop of the command: by Ctrl-Z, or because it wants the terminal.
    fn stopped(&mut self, signal: Signal, guard: &Guard) {
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants_terminal && self.terminal.lend() {
            self.command.signal_group(Signal::SIGCONT);
            return;
        }
        if !wants_terminal && signal != Signal::SIGTSTP {
            // Another process stopped only the command. Keep holding the lock.
            return;
        }
        let had_terminal = self.terminal.is_the_commands();
        self.hears_own_stop = self.terminal.suspend();
        // This process continues. The command continues only if the lock is still valid.
        if !matches!(self.deadline.due(guard.remaining()), NextStep::Nothing(_)) {
            self.stop("its validity ended while the command was stopped");
            return;
        }
        if had_terminal || wants_terminal {
            self.terminal.lend();
        }
        self.command.signal_group(Signal::SIGCONT);
    }

    async fn ended(self, event: ChildEvent, guard: &Guard) -> Ending {
        // A SIGKILL this close to the end of the validity came from the watchdog.
        let is_killed = event == ChildEvent::Died(Signal::SIGKILL);
        let is_valid = match self.deadline.due(guard.remaining()) {
            NextStep::Kill => guard.is_valid() && !is_killed,
            NextStep::Term | NextStep::Nothing(_) => true,
        };
        let was_at_terminal = self.terminal.is_ours();
        if self.stopping.is_some() {
            self.command.end_stragglers().await;
        } else {
            self.command.reap();
        }
        let is_interrupt = event == ChildEvent::Died(Signal::SIGINT) && was_at_terminal;
        if is_interrupt {
            self.terminal.share_interrupt();
        }
        self.terminal.take_back();
        self.watchdog.dismiss();
        match (self.stopping, event) {
            (Some(stopping), _) => Ending::Lost(stopping.why),
            (None, _) if !is_valid => {
                let status = match event {
                    ChildEvent::Ended(status) => Some(status),
                    ChildEvent::Died(_) | ChildEvent::Stopped(_) => None,
                };
                Ending::FoundLost { why: "its validity ended", status }
            }
            (None, ChildEvent::Died(_)) if is_interrupt => Ending::Interrupted,
            (None, ChildEvent::Died(signal)) => Ending::Status(exit_code(signal)),
            (None, ChildEvent::Ended(status)) => Ending::Status(status),
            (None, ChildEvent::Stopped(_)) => Ending::Status(1),
        }
    }
}

fn reason(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Gone => "a majority of the nodes no longer holds it",
        LostReason::Released => "it was released",
        _ => "its validity ended",
    }
}
