//! Signals that this process passes on to the command.

use crate::exit::ExitError;
use nix::sys::signal::{Signal, raise};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use tokio::signal::unix::{self, SignalKind};

/// Signals that end a wait, and that go to the whole process group of the command.
const ENDINGS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals whose meaning depends on the command.
const OTHERS: [Signal; 5] =
    [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// Receives the signals of this process.
pub(crate) struct Interrupts {
    ignored: u64,
    streams: Vec<(Signal, unix::Signal)>,
    /// The last signal that ends a wait.
    ending: Option<Interrupt>,
}

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupt(pub(crate) Signal);

impl Interrupt {
    /// The exit code for this signal, as in a shell.
    pub(crate) fn exit_code(self) -> u8 {
        exit_code(self.0)
    }

    /// Whether the signal goes to all processes of the command.
    pub(crate) fn ends(self) -> bool {
        ENDINGS.contains(&self.0)
    }
}

/// The exit code that a shell gives a process that died of a signal.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0).saturating_add(128)
}

impl Interrupts {
    /// Listens for the signals that end a wait.
    pub(crate) fn listen() -> Result<Self, ExitError> {
        let mut interrupts = Self { ignored: ignored(), streams: Vec::new(), ending: None };
        interrupts.add(&ENDINGS)?;
        Ok(interrupts)
    }

    /// Also listens for the other signals that go to the command. Before it runs, Ctrl-Z must stop this process.
    pub(crate) fn listen_to_all(&mut self) -> Result<(), ExitError> {
        self.add(&OTHERS)
    }

    fn add(&mut self, signals: &[Signal]) -> Result<(), ExitError> {
        for signal in signals {
            if self.streams.iter().any(|(known, _)| known == signal) {
                continue;
            }
            // A signal that is ignored at the start, as under nohup, stays ignored, also for the command.
            if self.ignored & (1 << (*signal as i32 - 1)) != 0 {
                continue;
            }
            let stream = unix::signal(SignalKind::from_raw(*signal as i32));
            let stream = stream
                .map_err(|error| ExitError::internal(format!("cannot listen for {signal}: {error}")))?;
            self.streams.push((*signal, stream));
        }
        Ok(())
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Interrupt {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Interrupt> {
        for (signal, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                let interrupt = Interrupt(*signal);
                if interrupt.ends() {
                    self.ending = Some(interrupt);
                }
                return Poll::Ready(interrupt);
            }
        }
        Poll::Pending
    }

    /// The next signal that ends a wait. Ctrl-Z stops this process, as without a handler. Cancel safe.
    pub(crate) async fn next_ending(&mut self) -> Interrupt {
        loop {
            let interrupt = self.next().await;
            if interrupt.ends() {
                return interrupt;
            }
            if interrupt.0 == Signal::SIGTSTP {
                let _ = raise(Signal::SIGSTOP);
            }
        }
    }

    /// The last signal that ends a wait, also if nothing has waited for it; `None` if there was none.
    pub(crate) fn ending(&mut self) -> Option<Interrupt> {
        while self.poll_next(&mut Context::from_waker(Waker::noop())).is_ready() {}
        self.ending
    }
}

/// The ignored signals, one bit each, from `/proc`. 0 on systems without it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Lets this process die of SIGINT, as without a handler. A shell stops its script then; after an exit code it would
/// continue the script.
pub(crate) fn die_of_interrupt() {
    let _ = signal_hook::low_level::emulate_default_handler(Signal::SIGINT as i32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_exit_codes_of_shells() {
        assert_eq!(exit_code(Signal::SIGINT), 130);
        assert_eq!(exit_code(Signal::SIGKILL), 137);
        assert_eq!(exit_code(Signal::SIGTERM), 143);
    }
}
