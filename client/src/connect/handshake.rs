//! What is said first on a connection, and what the answers mean.
//!
//! Everything is sent in one write and answered in one go, so that a connection costs one round trip however
//! much there is to say.

use super::target::{Login, Protocol};
use super::{ConnectFailure, Stream};
use crate::wire::{self, Frame};
use bytes::BytesMut;
use redlock_proto::identity::{NodeIdentity, Origin};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use tokio::io::AsyncWrite;

/// What a node says about itself when a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Which node it is.
    pub(crate) node: NodeIdentity,
    /// The module's version.
    pub(crate) version: String,
    /// How long the node still grants nothing.
    pub(crate) quarantine_ms: u64,
}

/// One question, known by what its answer has to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sentinel"), allow(dead_code, reason = "some questions are only asked there"))]
enum Step {
    Hello,
    Auth,
    Select,
    Role,
    Node,
    MasterAddress,
}

impl Step {
    /// What people call it.
    fn name(self) -> &'static str {
        match self {
            Self::Hello => "HELLO",
            Self::Auth => "AUTH",
            Self::Select => "SELECT",
            Self::Role => "ROLE",
            Self::Node => "REDLOCK.NODE",
            Self::MasterAddress => "SENTINEL",
        }
    }
}

/// What is going to be said, and which answers are owed.
pub(super) struct Handshake {
    login: Login,
    steps: Vec<Step>,
    bytes: BytesMut,
}

impl Handshake {
    /// Logs in, if there is something to log in with, and chooses protocol and database.
    pub(super) fn new(login: &Login) -> Self {
        let script = Self { login: login.clone(), steps: Vec::new(), bytes: BytesMut::new() };
        let credentials =
            login.credentials().map(|(user, password)| (user.map(str::as_bytes), password.as_bytes()));
        let script = match (login.protocol, credentials) {
            (Protocol::Resp2, None) => script,
            (Protocol::Resp2, Some((None, password))) => script.say(Step::Auth, &[b"AUTH", password]),
            (Protocol::Resp2, Some((Some(user), password))) => {
                script.say(Step::Auth, &[b"AUTH", user, password])
            }
            (Protocol::Resp3, None) => script.say(Step::Hello, &[b"HELLO", b"3"]),
            (Protocol::Resp3, Some((user, password))) => {
                // HELLO wants a name in any case; this is that of the user who has none.
                let user = user.unwrap_or(b"default");
                script.say(Step::Hello, &[b"HELLO", b"3", b"AUTH", user, password])
            }
        };
        match login.database {
            0 => script,
            database => script.say(Step::Select, &[b"SELECT", wire::Decimal::new(database).as_bytes()]),
        }
    }

    /// Asks the node who it is: the last question on every connection that is to be used for locks.
    pub(super) fn ask_identity(self) -> Self {
        self.say(Step::Node, &[b"REDLOCK.NODE"])
    }

    /// Asks whether this is a master.
    #[cfg(feature = "sentinel")]
    pub(super) fn ask_role(self) -> Self {
        self.say(Step::Role, &[b"ROLE"])
    }

    /// Asks a sentinel where the master of that name is.
    #[cfg(feature = "sentinel")]
    pub(super) fn ask_master(self, name: &str) -> Self {
        self.say(Step::MasterAddress, &[b"SENTINEL", b"get-master-addr-by-name", name.as_bytes()])
    }

    fn say(mut self, step: Step, words: &[&[u8]]) -> Self {
        wire::command(&mut self.bytes, words);
        self.steps.push(step);
        self
    }

    /// Says it all, and listens until every answer has come.
    pub(super) async fn hold(mut self, stream: &mut Box<dyn Stream>) -> Result<Heard, ConnectFailure> {
        let written = write_all(stream, &mut self.bytes).await;
        written.map_err(|error| ConnectFailure::of_stream(&error))?;
        let mut heard = Heard { answers: 0, last: Frame::Nil, leftover: BytesMut::new() };
        loop {
            if self.take_answers(&mut heard)? {
                return Ok(heard);
            }
            match tokio_util::io::read_buf(stream, &mut heard.leftover).await {
                Ok(0) => return Err(ConnectFailure::Unreachable("the server hung up at once".to_owned())),
                Ok(_) => {}
                Err(error) => return Err(ConnectFailure::of_stream(&error)),
            }
        }
    }

    /// Takes the answers that have come in full; whether these were all.
    fn take_answers(&self, heard: &mut Heard) -> Result<bool, ConnectFailure> {
        while let Some(step) = self.steps.get(heard.answers) {
            match wire::decode(&mut heard.leftover) {
                Ok(None) => return Ok(false),
                // Answers nothing that was asked.
                Ok(Some(Frame::Push(_))) => {}
                Ok(Some(frame)) => {
                    self.judge(*step, &frame)?;
                    heard.answers += 1;
                    heard.last = frame;
                }
                Err(error) => return Err(ConnectFailure::Foreign(error)),
            }
        }
        Ok(true)
    }

    /// Whether one may go on after this answer.
    fn judge(&self, step: Step, frame: &Frame) -> Result<(), ConnectFailure> {
        let refused = |why: &str| {
            let why = self.login.conceal(why.to_owned());
            Err(ConnectFailure::Refused(format!("{}: {why}", step.name())))
        };
        match (step, frame.error_message()) {
            (Step::Node, Some(why)) if why.starts_with("ERR unknown command") => {
                Err(ConnectFailure::NoModule)
            }
            // A user for locks alone may not ask. Nothing depends on it: a replica grants nothing anyway.
            (Step::Role, Some(why)) if why.starts_with("NOPERM") => Ok(()),
            (_, Some(why)) => refused(&why),
            (Step::Role, None) => {
                match frame.as_items().and_then(<[Frame]>::first).and_then(Frame::as_text) {
                    Some("master") => Ok(()),
                    _ => refused("the server is no master"),
                }
            }
            (_, None) => Ok(()),
        }
    }
}

/// What came back.
pub(super) struct Heard {
    answers: usize,
    /// The answer to the last question.
    last: Frame,
    /// What was read beyond it.
    pub(super) leftover: BytesMut,
}

impl Heard {
    /// Whether the node's module queues clients, if that was the last question.
    pub(super) fn queues_clients(&self) -> bool {
        self.last.field("claim-window-ms").is_some()
    }

    /// The node's identity, if that was the last question.
    pub(super) fn identity(&self) -> Result<Identity, ConnectFailure> {
        let text = |name| self.last.field(name).and_then(Frame::as_text).map(str::to_owned);
        let number = |name| self.last.field(name).and_then(Frame::as_integer);
        let identity = || {
            Some(Identity {
                node: node_identity(&self.last)?,
                version: text("version")?,
                quarantine_ms: u64::try_from(number("quarantine-ms")?).ok()?,
            })
        };
        identity().ok_or_else(|| {
            ConnectFailure::Refused(
                "REDLOCK.NODE: the answer lacks what this client needs to know".to_owned(),
            )
        })
    }

    /// The master's host and port, if that was the last question; `None` if the sentinel knows no such master.
    #[cfg(feature = "sentinel")]
    pub(super) fn master(&self) -> Option<(String, u16)> {
        match self.last.as_items()? {
            [host, port] => Some((host.as_text()?.to_owned(), port.as_text()?.parse().ok()?)),
            _ => None,
        }
    }
}

/// Which node a reply to `REDLOCK.NODE` is of. An older module does not say all of it.
pub(crate) fn node_identity(reply: &Frame) -> Option<NodeIdentity> {
    let text = |name| reply.field(name).and_then(Frame::as_text);
    let number = |name| u64::try_from(reply.field(name)?.as_integer()?).ok();
    let origin =
        text("origin").map(|origin| if origin == "admitted" { Origin::Admitted } else { Origin::New });
    Some(NodeIdentity {
        id: text("node-id")?.to_owned(),
        incarnation: number("incarnation"),
        high_water: number("high-water"),
        origin,
        is_voting: number("voting").map(|voting| voting != 0),
    })
}

/// Writes everything, and leaves none of it with the stream.
pub(super) async fn write_all(stream: &mut Box<dyn Stream>, bytes: &mut BytesMut) -> io::Result<()> {
    let mut stream = Pin::new(stream);
    while !bytes.is_empty() {
        let written =
            poll_fn(|context| tokio_util::io::poll_write_buf(stream.as_mut(), context, bytes)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    poll_fn(|context| stream.as_mut().poll_flush(context)).await
}

#[cfg(test)]
mod tests;
