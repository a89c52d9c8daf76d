//! RESP: encodes commands and decodes replies.
//!
//! Nothing here reads a socket or a clock. The same bytes give the same frames, however they are split.

mod decode;
mod encode;
mod frame;
mod push;

pub(crate) use decode::{ProtocolError, decode};
pub(crate) use encode::command;
pub(crate) use frame::Frame;
pub(crate) use push::Push;
pub(crate) use redlock_proto::Decimal;
