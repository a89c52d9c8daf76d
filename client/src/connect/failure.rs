//! Why there is no connection.

use super::tls;
use crate::wire::ProtocolError;
use std::{fmt, io};

/// Why a node could not be reached, in words that may be shown: they name no password and no owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// Nobody is there, or whoever is there hung up.
    Unreachable(String),
    /// The server is there and will not have us; this is what it said.
    Refused(String),
    /// The server is there and has not loaded the module.
    NoModule,
    /// No secure connection: a certificate that is not trusted, or not given.
    Tls(String),
    /// Something is there that is no Redis.
    Foreign(ProtocolError),
}

impl ConnectFailure {
    /// What an error of the stream means, before or after TLS has begun.
    pub(super) fn of_stream(error: &io::Error) -> Self {
        if tls::is_at_fault(error) {
            Self::Tls(error.to_string())
        } else {
            Self::Unreachable(error.to_string())
        }
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::NoModule => f.write_str("the server has not loaded the redlock module"),
            Self::Tls(why) => write!(f, "no secure connection: {why}"),
            Self::Foreign(why) => write!(f, "what answers is no Redis: {why}"),
        }
    }
}

impl std::error::Error for ConnectFailure {}
