//! A connection to a server, one command and one answer at a time.

use crate::{Answer, resp};
use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A server that says nothing for so long is stuck, and the test should say so instead of hanging.
const SILENCE: Duration = Duration::from_secs(30);

/// A connection that sends exactly the commands it is told to, and nothing of its own.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<UnixStream>,
}

impl Wire {
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command and waits for its answer. Errors of the server are answers too.
    ///
    /// # Panics
    /// When the connection breaks: no test expects that unless it says so with [`Wire::try_call`].
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Answer {
        self.try_call(arguments).unwrap_or_else(|error| {
            let name = arguments.first().map(|name| name.as_ref().escape_ascii().to_string());
            panic!("no answer to {}: {error}", name.unwrap_or_default())
        })
    }

    /// As [`Wire::call`], for a server that may be gone.
    ///
    /// # Errors
    /// When the connection breaks or the server keeps silent.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Answer> {
        self.send(arguments)?;
        resp::decode(&mut self.stream)
    }

    /// Sends a command written as on a terminal, split at spaces; there is no quoting.
    pub fn call_strs(&mut self, line: &str) -> Answer {
        self.call(&line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>())
    }

    /// Sends all commands before reading the first answer.
    ///
    /// # Panics
    /// As [`Wire::call`].
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: Vec<Vec<A>>) -> Vec<Answer> {
        // Batches bound what waits in the sockets: a server that is not read from stops reading.
        commands.chunks(256).flat_map(|batch| self.batch(batch)).collect()
    }

    /// Sends a command and does not wait; [`Wire::receive`] reads what comes.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = Vec::new();
        resp::encode(arguments, &mut bytes);
        self.stream.get_mut().write_all(&bytes)
    }

    /// Waits for the next answer or message.
    ///
    /// # Errors
    /// When the connection breaks or the server keeps silent.
    pub fn receive(&mut self) -> io::Result<Answer> {
        resp::decode(&mut self.stream)
    }

    /// Sends several commands in one write and does not wait; [`Wire::receive`] reads what comes.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn send_all<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| resp::encode(command, &mut bytes));
        self.stream.get_mut().write_all(&bytes)
    }

    fn batch<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Answer> {
        self.send_all(commands).expect("the server reads what a pipeline sends");
        commands.iter().map(|_| self.receive().expect("an answer to every command of a pipeline")).collect()
    }
}
