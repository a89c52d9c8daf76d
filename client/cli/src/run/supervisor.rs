//! Watches over a command and its lock until one of them ends.

use super::command::{ChildCommand, ChildEvent};
use super::deadline::{Deadline, NextStep};
use super::signals::{Interrupt, Interrupts, exit_code};
use super::terminal::Terminal;
use super::watchdog::Watchdog;
use crate::output::Printer;
use nix::sys::signal::Signal;
use redlock_client::{Guard, LostReason};
use std::time::Duration;
use tokio::time::Instant;

/// How often to look at the lock at least: the clock that is slept on stands still while the machine does.
const LOOK: Duration = Duration::from_millis(100);

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The command has ended by itself, with this status.
    Status(u8),
    /// The command has died of a Ctrl-C at the terminal.
    Interrupted,
    /// The lock was lost, and the command was stopped.
    Lost(&'static str),
    /// The command had ended by itself when the lock was found lost.
    FoundLost(&'static str),
}

/// A command, its lock, and all that goes with them.
pub(super) struct Supervisor {
    command: ChildCommand,
    watchdog: Watchdog,
    deadline: Deadline,
    interrupts: Interrupts,
    terminal: Terminal,
    output: Printer,
    /// Until when the lock could be believed when it last could.
    valid_until: Instant,
    stopping: Option<Stopping>,
    /// Whether the next SIGTSTP is one that we have sent to our own group.
    hears_own_stop: bool,
}

/// A command that was told to end.
struct Stopping {
    why: &'static str,
    kill_at: Instant,
    is_killed: bool,
}

/// What has happened.
enum SupervisorEvent {
    Of(Option<ChildEvent>),
    Signal(Interrupt),
    Lost(LostReason),
    Nothing,
}

impl Supervisor {
    pub(super) fn new(
        command: ChildCommand,
        watchdog: Watchdog,
        deadline: Deadline,
        interrupts: Interrupts,
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
            let news = tokio::select! {
                event = self.command.events.recv() => SupervisorEvent::Of(event),
                signal = self.interrupts.next() => SupervisorEvent::Signal(signal),
                reason = guard.lost(), if is_running => SupervisorEvent::Lost(reason),
                () = tokio::time::sleep(pause) => SupervisorEvent::Nothing,
            };
            match news {
                SupervisorEvent::Of(Some(ChildEvent::Stopped(signal))) => self.stopped(signal, guard),
                SupervisorEvent::Of(Some(event)) => break event,
                // Both watchers have gone without a word; there is nothing left to wait for.
                SupervisorEvent::Of(None) => break ChildEvent::Ended(1),
                SupervisorEvent::Signal(signal) => self.pass_on(signal),
                SupervisorEvent::Lost(lost) => self.stop(reason(lost)),
                SupervisorEvent::Nothing => {}
            }
        };
        self.ended(ended, guard).await
    }

    /// Does what is due, and says when to look again.
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
            // It is over, and the guard is about to say why.
            NextStep::Kill if remaining.is_zero() => Duration::from_millis(1),
            NextStep::Nothing(time) => time.clamp(Duration::from_millis(1), LOOK),
            NextStep::Term | NextStep::Kill => {
                self.stop("it could not be extended in time");
                Duration::ZERO
            }
        }
    }

    /// Tells the command to end, and leaves it what time there is: at most until the lock is somebody else's.
    fn stop(&mut self, why: &'static str) {
        if self.stopping.is_some() {
            return;
        }
        let now = Instant::now();
        let latest = self.valid_until.checked_sub(self.deadline.margin).unwrap_or(now);
        let kill_at = (now + self.deadline.kill_after).min(latest).max(now);
        self.output.note(&format!("the lock is lost ({why}): stopping the command"));
        self.command.signal_group(Signal::SIGTERM);
        // A process that is stopped hears of it only when it goes on.
        self.command.signal_group(Signal::SIGCONT);
        self.stopping = Some(Stopping { why, kill_at, is_killed: false });
    }

    fn pass_on(&mut self, signal: Interrupt) {
        match signal.0 {
            Signal::SIGTSTP if std::mem::take(&mut self.hears_own_stop) => {}
            // The command stops, and so do we when we see it: see `stopped`.
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

    /// The command was stopped: by Ctrl-Z, or because it wants the terminal.
    fn stopped(&mut self, signal: Signal, guard: &Guard) {
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants_terminal && self.terminal.lend() {
            self.command.signal_group(Signal::SIGCONT);
            return;
        }
        if !wants_terminal && signal != Signal::SIGTSTP {
            // Somebody wants the command to pause, and has not asked us to. The lock is held meanwhile.
            return;
        }
        let had_terminal = self.terminal.is_the_commands();
        self.hears_own_stop = self.terminal.suspend();
        // Somebody lets us go on. Not the command, if the lock has run out meanwhile.
        if !matches!(self.deadline.due(guard.remaining()), NextStep::Nothing(_)) {
            self.stop("it ran out while the command was stopped");
            return;
        }
        if had_terminal || wants_terminal {
            self.terminal.lend();
        }
        self.command.signal_group(Signal::SIGCONT);
    }

    async fn ended(self, event: ChildEvent, guard: &Guard) -> Ending {
        // Killed so shortly before the end, it was the watchdog's doing.
        let is_killed = event == ChildEvent::Died(Signal::SIGKILL);
        let is_valid = match self.deadline.due(guard.remaining()) {
            NextStep::Kill => guard.is_valid() && !is_killed,
            NextStep::Term | NextStep::Nothing(_) => true,
        };
        let was_at_terminal = self.terminal.is_ours();
        if self.stopping.is_some() {
            self.command.end_stragglers().await;
        } else {
            self.command.collect();
        }
        let is_interrupt = event == ChildEvent::Died(Signal::SIGINT) && was_at_terminal;
        if is_interrupt {
            self.terminal.share_interrupt();
        }
        self.terminal.take_back();
        self.watchdog.dismiss();
        match (self.stopping, event) {
            (Some(stopping), _) => Ending::Lost(stopping.why),
            (None, _) if !is_valid => Ending::FoundLost("its time was up"),
            (None, ChildEvent::Died(_)) if is_interrupt => Ending::Interrupted,
            (None, ChildEvent::Died(signal)) => Ending::Status(exit_code(signal)),
            (None, ChildEvent::Ended(status)) => Ending::Status(status),
            (None, ChildEvent::Stopped(_)) => Ending::Status(1),
        }
    }
}

fn reason(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Gone => "a majority of the nodes no longer has it",
        LostReason::Released => "it was released",
        _ => "its time was up",
    }
}
