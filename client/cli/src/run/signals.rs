//! Signals that are passed on.

use crate::exit::ExitError;
use nix::sys::signal::Signal;
use std::future::poll_fn;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind};

/// Signals that end a wait, and that a command gets with its whole group.
const ENDINGS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that have a meaning of the command's own.
const OTHERS: [Signal; 5] =
    [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// Signals that this process gets.
pub(crate) struct Interrupts {
    ignored: u64,
    streams: Vec<(Signal, unix::Signal)>,
}

/// A signal that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupt(pub(crate) Signal);

impl Interrupt {
    /// As shells have it.
    pub(crate) fn exit_code(self) -> u8 {
        exit_code(self.0)
    }

    /// Whether it is meant for all processes of a command.
    pub(crate) fn ends(self) -> bool {
        ENDINGS.contains(&self.0)
    }
}

/// What a shell says of a process that died of a signal.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0).saturating_add(128)
}

impl Interrupts {
    /// Listens for the signals that end a wait.
    pub(crate) fn listen() -> Result<Self, ExitError> {
        let mut interrupts = Self { ignored: ignored(), streams: Vec::new() };
        interrupts.add(&ENDINGS)?;
        Ok(interrupts)
    }

    /// Listens for all that a command may want to hear of. Before it runs, a stop is for this process alone.
    pub(crate) fn listen_to_all(&mut self) -> Result<(), ExitError> {
        self.add(&OTHERS)
    }

    fn add(&mut self, signals: &[Signal]) -> Result<(), ExitError> {
        for signal in signals {
            // Whoever started us with a signal ignored, as nohup does, wants the command to ignore it too.
            if self.ignored & (1 << (*signal as i32 - 1)) != 0 {
                continue;
            }
            let stream = unix::signal(SignalKind::from_raw(*signal as i32));
            let stream =
                stream.map_err(|error| ExitError::internal(format!("{signal} cannot be heard: {error}")))?;
            self.streams.push((*signal, stream));
        }
        Ok(())
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Interrupt {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(Interrupt(*signal));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that are ignored, as the kernel tells it: one bit each. None where it does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Ends this process as Ctrl-C would have ended it: a shell that runs a script stops the script then, and goes on
/// after a mere exit code.
pub(crate) fn die_of_interrupt() {
    let _ = signal_hook::low_level::emulate_default_handler(Signal::SIGINT as i32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_codes_of_shells() {
        assert_eq!(exit_code(Signal::SIGINT), 130);
        assert_eq!(exit_code(Signal::SIGKILL), 137);
        assert_eq!(exit_code(Signal::SIGTERM), 143);
    }
}
