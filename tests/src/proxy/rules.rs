//! What a proxy does to the bytes that come through it.

use std::time::Duration;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    There,
    /// From the server to the client.
    Back,
}

/// What happens to the next command of a name when it reaches the proxy, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// It waits in the proxy, and so does what follows it on its connection, until `let_go`.
    Hold,
    /// It waits in the proxy until `let_go`, while its sender finds the connection closed at once: a packet
    /// that arrives long after its connection.
    Strand,
    /// Its connection ends, and the server never hears of it.
    CutBefore,
    /// Half of it reaches the server, then its connection ends.
    CutInside,
    /// It reaches the server, and its connection ends when the reply is there; the client never hears of it.
    LoseReply,
}

/// How the proxy meets those who connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Door {
    /// They come through.
    #[default]
    Open,
    /// They are let in and thrown out.
    Slammed,
    /// Nobody listens: the kernel refuses them.
    Closed,
}

/// Everything in force now; whoever carries bytes looks here before every step.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) door: Door,
    pub(super) there: Lane,
    pub(super) back: Lane,
    /// Replies to commands of this name are replaced by these bytes.
    pub(super) impostor: Option<(String, Vec<u8>)>,
    /// What the server says without being asked does not arrive.
    pub(super) hush: bool,
    pub(super) ambush: Option<(String, Deed)>,
    /// Counts up: connections that are older end.
    pub(super) cuts: u64,
    /// Counts up: what an ambush kept before goes on its way.
    pub(super) let_gos: u64,
}

/// One direction.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    /// Bytes wait here.
    pub(super) hold: bool,
    /// Bytes are thrown away.
    pub(super) lose: bool,
    /// Bytes wait here for so long.
    pub(super) delay: Duration,
    /// After so many more bytes the connection that carries them ends.
    pub(super) fuse: Option<usize>,
}

impl Rules {
    pub(super) fn lane(&self, way: Way) -> &Lane {
        match way {
            Way::There => &self.there,
            Way::Back => &self.back,
        }
    }

    pub(super) fn lane_mut(&mut self, way: Way) -> &mut Lane {
        match way {
            Way::There => &mut self.there,
            Way::Back => &mut self.back,
        }
    }

    /// Everything as at the start, and what was held goes on its way.
    pub(super) fn clear(&mut self) {
        *self = Self { cuts: self.cuts, let_gos: self.let_gos + 1, ..Self::default() };
    }

    /// The deed that waits for a command of this name, which it meets now.
    pub(super) fn spring(&mut self, name: Option<&str>) -> Option<Deed> {
        self.ambush.take_if(|(awaited, _)| Some(awaited.as_str()) == name).map(|(_, deed)| deed)
    }

    /// What the client gets instead of a reply to a command of this name.
    pub(super) fn forged(&self, name: Option<&str>) -> Option<&[u8]> {
        let (forged, bytes) = self.impostor.as_ref()?;
        (Some(forged.as_str()) == name).then_some(bytes)
    }
}
