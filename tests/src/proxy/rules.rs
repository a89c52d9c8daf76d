//! The rules of a proxy: what it does with connections, commands and replies.

use std::time::Duration;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A fault that hits the next command of a name, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// The proxy holds the command, and all that follows it on its connection, until `release_held`.
    Hold,
    /// The proxy closes the client's connection and holds the command until `release_held`: the server gets a command
    /// long after its connection was closed.
    DeliverAfterClose,
    /// The proxy ends the connection and does not forward the command.
    CutBefore,
    /// The proxy forwards half of the command and ends the connection.
    CutInside,
    /// The proxy forwards the command, and ends the connection instead of forwarding the reply.
    DropReply,
}

/// What the proxy does with new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AcceptMode {
    /// Accept and forward them.
    #[default]
    Accept,
    /// Accept and close them.
    AcceptThenClose,
    /// Do not listen, so that the kernel refuses them.
    Refuse,
}

/// All rules in force. Every direction of a connection checks them before each step.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) accept_mode: AcceptMode,
    pub(super) to_server: DirectionRules,
    pub(super) to_client: DirectionRules,
    /// A command name, and the bytes that replace the replies to it.
    pub(super) forged_reply: Option<(String, Vec<u8>)>,
    /// The proxy discards pushes.
    pub(super) drop_pushes: bool,
    pub(super) fault: Option<(String, CommandFault)>,
    /// The number of cuts. Connections with a smaller number end.
    pub(super) cuts: u64,
    /// The number of releases. The proxy forwards items that were held at a smaller number.
    pub(super) releases: u64,
}

/// The rules of one direction.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectionRules {
    /// The proxy holds all bytes.
    pub(super) hold: bool,
    /// The proxy discards all bytes, and goes on to discard those of each connection that has lost bytes.
    pub(super) drop: bool,
    /// How long the proxy delays bytes.
    pub(super) delay: Duration,
    /// After this many more bytes the proxy ends the connection that carries them.
    pub(super) cut_after: Option<usize>,
}

impl Rules {
    pub(super) fn direction(&self, way: Direction) -> &DirectionRules {
        match way {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    pub(super) fn direction_mut(&mut self, way: Direction) -> &mut DirectionRules {
        match way {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    /// Resets all rules and releases held items.
    pub(super) fn clear(&mut self) {
        *self = Self { cuts: self.cuts, releases: self.releases + 1, ..Self::default() };
    }

    /// Takes the fault for a command of this name.
    pub(super) fn take_fault(&mut self, name: Option<&str>) -> Option<CommandFault> {
        self.fault.take_if(|(awaited, _)| Some(awaited.as_str()) == name).map(|(_, fault)| fault)
    }

    /// The bytes that replace a reply to a command of this name.
    pub(super) fn forged(&self, name: Option<&str>) -> Option<&[u8]> {
        let (forged, bytes) = self.forged_reply.as_ref()?;
        (Some(forged.as_str()) == name).then_some(bytes)
    }
}
