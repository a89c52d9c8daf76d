//! The handshake: the first commands on a connection, and the meaning of their replies.
//!
//! The client sends all commands in one write, so that a handshake takes one round trip.

use super::target::{Login, Protocol};
use super::{ConnectFailure, Stream};
use crate::node_state::INCOMPLETE_REPLY;
use crate::wire::{self, Frame};
use bytes::BytesMut;
use redlock_contract::commands::Verb;
use redlock_contract::fields::node as fields;
use redlock_contract::{ErrorCode, Origin};
use redlock_proto::identity::NodeIdentity;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use tokio::io::AsyncWrite;

/// One command of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sentinel"), allow(dead_code, reason = "some commands are only for Sentinel"))]
enum HandshakeStep {
    Hello,
    Auth,
    Select,
    Role,
    Node,
    MasterAddress,
}

impl HandshakeStep {
    /// The name of the command, for error messages.
    fn name(self) -> &'static str {
        match self {
            Self::Hello => "HELLO",
            Self::Auth => "AUTH",
            Self::Select => "SELECT",
            Self::Role => "ROLE",
            Self::Node => Verb::Node.name(),
            Self::MasterAddress => "SENTINEL",
        }
    }
}

/// The commands to send, and the replies to expect.
pub(super) struct Handshake {
    login: Login,
    steps: Vec<HandshakeStep>,
    bytes: BytesMut,
}

impl Handshake {
    /// Starts a handshake: selects the protocol and the database, and logs in if there are credentials.
    pub(super) fn new(login: &Login) -> Self {
        let script = Self { login: login.clone(), steps: Vec::new(), bytes: BytesMut::new() };
        let credentials =
            login.credentials().map(|(user, password)| (user.map(str::as_bytes), password.as_bytes()));
        let script = match (login.protocol, credentials) {
            (Protocol::Resp2, None) => script,
            (Protocol::Resp2, Some((None, password))) => {
                script.say(HandshakeStep::Auth, &[b"AUTH", password])
            }
            (Protocol::Resp2, Some((Some(user), password))) => {
                script.say(HandshakeStep::Auth, &[b"AUTH", user, password])
            }
            (Protocol::Resp3, None) => script.say(HandshakeStep::Hello, &[b"HELLO", b"3"]),
            (Protocol::Resp3, Some((user, password))) => {
                // HELLO needs a user name; this is the name of the default user.
                let user = user.unwrap_or(b"default");
                script.say(HandshakeStep::Hello, &[b"HELLO", b"3", b"AUTH", user, password])
            }
        };
        match login.database {
            0 => script,
            database => {
                script.say(HandshakeStep::Select, &[b"SELECT", wire::Decimal::new(database).as_bytes()])
            }
        }
    }

    /// Asks for the node's identity. This is the last command of the handshake on every connection for locks.
    pub(super) fn ask_identity(self) -> Self {
        self.say(HandshakeStep::Node, &[Verb::Node.name().as_bytes()])
    }

    /// Asks whether the server is a master.
    #[cfg(feature = "sentinel")]
    pub(super) fn ask_role(self) -> Self {
        self.say(HandshakeStep::Role, &[b"ROLE"])
    }

    /// Asks a sentinel for the address of the master with this name.
    #[cfg(feature = "sentinel")]
    pub(super) fn ask_master(self, name: &str) -> Self {
        self.say(HandshakeStep::MasterAddress, &[b"SENTINEL", b"get-master-addr-by-name", name.as_bytes()])
    }

    fn say(mut self, step: HandshakeStep, words: &[&[u8]]) -> Self {
        wire::command(&mut self.bytes, words);
        self.steps.push(step);
        self
    }

    /// Sends the commands and reads all replies.
    pub(super) async fn hold(
        mut self,
        stream: &mut Box<dyn Stream>,
    ) -> Result<HandshakeReply, ConnectFailure> {
        let written = write_all(stream, &mut self.bytes).await;
        written.map_err(|error| ConnectFailure::of_stream(&error))?;
        let mut heard = HandshakeReply { answers: 0, last: Frame::Nil, leftover: BytesMut::new() };
        loop {
            if self.take_answers(&mut heard)? {
                return Ok(heard);
            }
            match tokio_util::io::read_buf(stream, &mut heard.leftover).await {
                Ok(0) => {
                    return Err(ConnectFailure::Unreachable(
                        "the server closed the connection during the handshake".to_owned(),
                    ));
                }
                Ok(_) => {}
                Err(error) => return Err(ConnectFailure::of_stream(&error)),
            }
        }
    }

    /// Decodes the complete replies. Returns true when all replies have arrived.
    fn take_answers(&self, heard: &mut HandshakeReply) -> Result<bool, ConnectFailure> {
        while let Some(step) = self.steps.get(heard.answers) {
            match wire::decode(&mut heard.leftover) {
                Ok(None) => return Ok(false),
                // A push is not the reply to a command.
                Ok(Some(Frame::Push(_))) => {}
                Ok(Some(frame)) => {
                    self.check_reply(*step, &frame)?;
                    heard.answers += 1;
                    heard.last = frame;
                }
                Err(error) => return Err(ConnectFailure::Foreign(error)),
            }
        }
        Ok(true)
    }

    /// Checks the reply to one step. An error ends the handshake.
    fn check_reply(&self, step: HandshakeStep, frame: &Frame) -> Result<(), ConnectFailure> {
        let error = frame.error_message();
        let code = error.as_ref().and_then(|error| ErrorCode::of(error.as_bytes()));
        let refused = |why: &str| {
            let why = self.login.conceal(why.to_owned());
            Err(ConnectFailure::Refused { why: format!("{}: {why}", step.name()), code })
        };
        match (step, error, code) {
            (HandshakeStep::Node, _, Some(ErrorCode::UnknownCommand)) => Err(ConnectFailure::NoModule),
            // A user with permissions for locks only may not run ROLE. The handshake continues: a replica
            // grants nothing anyway.
            (HandshakeStep::Role, _, Some(ErrorCode::NoPerm)) => Ok(()),
            (_, Some(why), _) => refused(&why),
            (HandshakeStep::Role, None, _) => {
                match frame.as_items().and_then(<[Frame]>::first).and_then(Frame::as_text) {
                    Some("master") => Ok(()),
                    _ => refused("the server is not a master"),
                }
            }
            (_, None, _) => Ok(()),
        }
    }
}

/// The replies to a handshake.
pub(super) struct HandshakeReply {
    answers: usize,
    /// The last reply.
    last: Frame,
    /// Bytes that follow the last reply.
    pub(super) leftover: BytesMut,
}

impl HandshakeReply {
    /// Whether the node's module has wait queues, according to the reply to `REDLOCK.NODE`.
    pub(super) fn queues_clients(&self) -> bool {
        self.last.field(fields::CLAIM_WINDOW_MS).is_some()
    }

    /// The node's identity, from the reply to `REDLOCK.NODE`. The reply must also have the fields `version` and
    /// `quarantine-ms`.
    pub(super) fn identity(&self) -> Result<NodeIdentity, ConnectFailure> {
        let has_version = self.last.field(fields::VERSION).and_then(Frame::as_text).is_some();
        let quarantine = self.last.field(fields::QUARANTINE_MS).and_then(Frame::as_count);
        let is_complete = has_version && quarantine.is_some();
        node_identity(&self.last)
            .filter(|_| is_complete)
            .ok_or_else(|| ConnectFailure::Refused { why: INCOMPLETE_REPLY.to_owned(), code: None })
    }

    /// The master's host and port; `None` if the sentinel does not know the master.
    #[cfg(feature = "sentinel")]
    pub(super) fn master(&self) -> Option<(String, u16)> {
        match self.last.as_items()? {
            [host, port] => Some((host.as_text()?.to_owned(), port.as_text()?.parse().ok()?)),
            _ => None,
        }
    }
}

/// The identity in a reply to `REDLOCK.NODE`. An older module does not report all fields.
pub(crate) fn node_identity(reply: &Frame) -> Option<NodeIdentity> {
    let text = |name| reply.field(name).and_then(Frame::as_text);
    let number = |name| reply.field(name)?.as_count();
    Some(NodeIdentity {
        id: text(fields::ID)?.to_owned(),
        incarnation: number(fields::INCARNATION),
        high_water: number(fields::HIGH_WATER),
        common_high_water: number(fields::COMMON_HIGH_WATER),
        origin: text(fields::ORIGIN).and_then(Origin::named),
        is_voting: number(fields::VOTING).map(|voting| voting != 0),
    })
}

/// Writes and flushes all bytes.
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
