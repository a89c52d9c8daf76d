//! A blocking connection to a server.

use crate::{Answer, resp};
use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The read and write timeout. A test fails with an error instead of hanging.
const SILENCE: Duration = Duration::from_secs(30);

/// A connection that sends only the commands that the test passes.
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

    /// Sends one command and waits for its reply. An error of the server is a reply, too.
    ///
    /// # Panics
    /// When the connection breaks. A test that expects that uses [`Wire::try_call`].
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Answer {
        self.try_call(arguments).unwrap_or_else(|error| {
            let name = arguments.first().map(|name| name.as_ref().escape_ascii().to_string());
            panic!("no reply to {}: {error}", name.unwrap_or_default())
        })
    }

    /// As [`Wire::call`], for a server that may be down.
    ///
    /// # Errors
    /// When the connection breaks or no reply comes within the timeout.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Answer> {
        self.send(arguments)?;
        resp::decode(&mut self.stream)
    }

    /// Sends a command that is written as one line, split at spaces; there is no quoting.
    pub fn call_strs(&mut self, line: &str) -> Answer {
        self.call(&line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>())
    }

    /// Sends the commands in batches, and returns all replies.
    ///
    /// # Panics
    /// As [`Wire::call`].
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: Vec<Vec<A>>) -> Vec<Answer> {
        // A server stops reading when its replies are not read, so a batch must fit the socket buffers.
        commands.chunks(256).flat_map(|batch| self.batch(batch)).collect()
    }

    /// Sends a command and does not wait. [`Wire::receive`] reads the reply.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = Vec::new();
        resp::encode(arguments, &mut bytes);
        self.stream.get_mut().write_all(&bytes)
    }

    /// Waits for the next reply or push.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes within the timeout.
    pub fn receive(&mut self) -> io::Result<Answer> {
        resp::decode(&mut self.stream)
    }

    /// Sends several commands in one write and does not wait. [`Wire::receive`] reads each reply.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn send_all<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| resp::encode(command, &mut bytes));
        self.stream.get_mut().write_all(&bytes)
    }

    fn batch<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Answer> {
        self.send_all(commands).expect("the server reads the pipeline");
        commands.iter().map(|_| self.receive().expect("a reply to every command of a pipeline")).collect()
    }
}
