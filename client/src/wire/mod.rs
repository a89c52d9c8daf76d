//! The bytes between client and node: commands go out, frames come in.
//!
//! Nothing here reads a socket or a clock; the same bytes give the same frames, however they were cut up on
//! their way.

mod decode;
mod encode;
mod frame;
mod push;

pub(crate) use decode::{ProtocolError, decode};
pub(crate) use encode::command;
pub(crate) use frame::Frame;
pub(crate) use push::Push;
pub(crate) use redlock_proto::Decimal;
