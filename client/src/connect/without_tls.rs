//! The replacement for `tls.rs` when the feature `tls` is off.
//!
//! The types exist, so that all other code is the same with and without the feature. They have no values.

use super::{ConnectFailure, Stream};
use std::io;
use tokio::net::TcpStream;

/// The settings of the caller. The type has no values.
#[derive(Clone, Debug)]
pub(crate) enum Tls {}

/// Valid TLS settings. The type has no values.
#[derive(Clone, Debug)]
pub(crate) enum TlsSettings {}

/// Returns an error that names the missing feature.
pub(crate) fn settings(_: Option<&Tls>, _: &str) -> Result<TlsSettings, String> {
    Err("the address asks for TLS, and redlock-client was built without its feature `tls`".to_owned())
}

pub(super) async fn secure(
    _: TcpStream,
    _: &str,
    settings: &TlsSettings,
) -> Result<Box<dyn Stream>, ConnectFailure> {
    match *settings {}
}

pub(super) fn is_at_fault(_: &io::Error) -> bool {
    false
}
