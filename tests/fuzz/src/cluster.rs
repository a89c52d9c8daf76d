//! What the client makes of a cluster's replies, by the client's own files. They are formatted at home, where
//! they find their tests.

#![allow(dead_code, reason = "the client uses all of it")]

#[path = "../../../client/src/connect/cluster/command.rs"]
#[rustfmt::skip]
mod command;
#[path = "../../../client/src/connect/cluster/slots.rs"]
#[rustfmt::skip]
mod slots;

use crate::wire::Frame;

/// Reads a frame as everything that a cluster may answer or be asked.
pub(crate) fn read(frame: &Frame) {
    let _ = command::Command::read(frame);
    if let Some(command::Advice::Moved(slot, place)) = command::Advice::read(frame, "speaker")
        && let Some(mut map) = slots::SlotMap::read(frame, Some("speaker"))
    {
        map.assign(slot, place);
    }
    if let Some(map) = slots::SlotMap::read(frame, Some("speaker")) {
        let masters = map.all_masters();
        assert!(masters.iter().all(|place| map.has_master(place)));
        assert!(map.master_of(usize::MAX).is_some() && map.master_of(0).is_some());
    }
}
