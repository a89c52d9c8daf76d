//! What stands in for TLS where the feature `tls` is off.
//!
//! The types exist, so that all other code reads the same with and without it, but there are no values of them.

use super::{ConnectFailure, Stream};
use std::io;
use tokio::net::TcpStream;

/// Certificates that cannot be given.
#[derive(Clone, Debug)]
pub(crate) enum Tls {}

/// Settings that cannot be had.
#[derive(Clone, Debug)]
pub(crate) enum TlsSettings {}

/// Refuses, and says what is missing.
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
