//! Which master serves which key.

use crate::wire::Frame;
use std::fmt;
use std::sync::Arc;

/// How many parts the keys of every cluster fall into.
const SLOTS: usize = 16_384;

/// The slot of a key. Of a key with braces only what is between the first pair counts, so that keys can be
/// made to share a slot.
pub(super) fn slot_of(key: &[u8]) -> usize {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    usize::from(crc16(tag.unwrap_or(key))) % SLOTS
}

/// The checksum that clusters share keys out by: CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| match sum & 0x8000 {
            0 => sum << 1,
            _ => (sum << 1) ^ 0x1021,
        })
    })
}

/// Where a member of a cluster listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Place {
    /// Reads `host:port`; without a host it is that of whoever says so.
    pub(super) fn parse(text: &str, speaker: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = if host.is_empty() { speaker } else { host };
        Some(Self { host: host.into(), port: port.parse().ok()? })
    }

    /// Reads a member as `CLUSTER SLOTS` lists it: endpoint, port, id, and what else there is to say.
    fn read(member: &Frame, speaker: Option<&str>) -> Option<Self> {
        let items = member.as_items()?;
        let host = match items.first()? {
            // "Wherever you have reached me."
            Frame::Nil => speaker?,
            endpoint => match endpoint.as_text()? {
                "" => speaker?,
                // It is to be known by its name, and nobody has told it any.
                "?" => items.get(3)?.field("ip")?.as_text()?,
                host => host,
            },
        };
        Some(Self { host: host.into(), port: u16::try_from(items.get(1)?.as_integer()?).ok()? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The masters of a cluster, and what each of them serves.
#[derive(Clone, Debug)]
pub(super) struct SlotMap {
    places: Vec<Place>,
    /// For every slot the index of its master.
    masters: Vec<Option<usize>>,
}

impl SlotMap {
    /// Reads the reply to `CLUSTER SLOTS`, given by `speaker`. `None` if it makes no sense, or if nobody
    /// serves anything.
    pub(super) fn read(frame: &Frame, speaker: Option<&str>) -> Option<Self> {
        let mut map = Self { places: Vec::new(), masters: vec![None; SLOTS] };
        for range in frame.as_items()? {
            let [first, last, master, ..] = range.as_items()? else { return None };
            let slot = |frame: &Frame| usize::try_from(frame.as_integer()?).ok();
            let master = map.index(Place::read(master, speaker)?);
            map.masters.get_mut(slot(first)?..=slot(last)?)?.fill(Some(master));
        }
        (!map.places.is_empty()).then_some(map)
    }

    fn index(&mut self, place: Place) -> usize {
        let known = self.places.iter().position(|known| *known == place);
        known.unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        })
    }

    /// Believes a member that has said who serves a slot.
    pub(super) fn assign(&mut self, slot: usize, place: Place) {
        let master = self.index(place);
        if let Some(current) = self.masters.get_mut(slot) {
            *current = Some(master);
        }
    }

    /// Who serves a slot. For one that nobody serves it is any master: it will say so itself.
    pub(super) fn master_of(&self, slot: usize) -> Option<&Place> {
        let master = self.masters.get(slot).copied().flatten().unwrap_or_default();
        self.places.get(master)
    }

    /// Everybody who serves something.
    pub(super) fn all_masters(&self) -> Vec<Place> {
        let serves = |index: &usize| self.masters.contains(&Some(*index));
        let serving = self.places.iter().enumerate().filter(|(index, _)| serves(index));
        serving.map(|(_, place)| place.clone()).collect()
    }

    /// Whether this member serves something.
    pub(super) fn has_master(&self, place: &Place) -> bool {
        let index = self.places.iter().position(|known| known == place);
        index.is_some_and(|index| self.masters.contains(&Some(index)))
    }
}

#[cfg(test)]
mod tests;
