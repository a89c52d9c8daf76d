//! What a proxy does to the bytes that come through it.

use std::time::Duration;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to the next command of a name when it reaches the proxy, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// It waits in the proxy, and so does what follows it on its connection, until `release_held`.
    Hold,
    /// It waits in the proxy until `release_held`, while its sender finds the connection closed at once: a packet
    /// that arrives long after its connection.
    DeliverAfterClose,
    /// Its connection ends, and the server never hears of it.
    CutBefore,
    /// Half of it reaches the server, then its connection ends.
    CutInside,
    /// It reaches the server, and its connection ends when the reply is there; the client never hears of it.
    DropReply,
}

/// What the proxy does with new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AcceptMode {
    /// They come through.
    #[default]
    Accept,
    /// They are let in and thrown out.
    AcceptThenClose,
    /// Nobody listens: the kernel refuses them.
    Refuse,
}

/// Everything in force now; whoever carries bytes looks here before every step.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) accept_mode: AcceptMode,
    pub(super) to_server: DirectionRules,
    pub(super) to_client: DirectionRules,
    /// Replies to commands of this name are replaced by these bytes.
    pub(super) forged_reply: Option<(String, Vec<u8>)>,
    /// What the server says without being asked does not arrive.
    pub(super) drop_pushes: bool,
    pub(super) fault: Option<(String, CommandFault)>,
    /// Counts up: connections that are older end.
    pub(super) cuts: u64,
    /// Counts up: what a fault held before goes on its way.
    pub(super) releases: u64,
}

/// One direction.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectionRules {
    /// Bytes wait here.
    pub(super) hold: bool,
    /// Bytes are thrown away.
    pub(super) drop: bool,
    /// Bytes wait here for so long.
    pub(super) delay: Duration,
    /// After so many more bytes the connection that carries them ends.
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

    /// Everything as at the start, and what was held goes on its way.
    pub(super) fn clear(&mut self) {
        *self = Self { cuts: self.cuts, releases: self.releases + 1, ..Self::default() };
    }

    /// Takes the fault that is set for a command of this name.
    pub(super) fn take_fault(&mut self, name: Option<&str>) -> Option<CommandFault> {
        self.fault.take_if(|(awaited, _)| Some(awaited.as_str()) == name).map(|(_, fault)| fault)
    }

    /// What the client gets instead of a reply to a command of this name.
    pub(super) fn forged(&self, name: Option<&str>) -> Option<&[u8]> {
        let (forged, bytes) = self.forged_reply.as_ref()?;
        (Some(forged.as_str()) == name).then_some(bytes)
    }
}
