//! Why connecting failed.

use super::tls;
use crate::wire::ProtocolError;
use redlock_contract::ErrorCode;
use redlock_proto::{Failure, FailureKind};
use std::{fmt, io};

/// Why connecting to a node failed. The text contains no password and no owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// The client cannot open a connection, or the server closed it.
    Unreachable(String),
    /// The server refused the login or a command of the handshake, with this error.
    Refused {
        /// The step of the handshake, and the server's message.
        why: String,
        /// The code of the server's error.
        code: Option<ErrorCode>,
    },
    /// The server has not loaded the module.
    NoModule,
    /// The TLS handshake failed: a certificate is missing or not trusted.
    Tls(String),
    /// The server sent bytes that are not RESP.
    Foreign(ProtocolError),
}

impl ConnectFailure {
    /// Classifies an error of the stream: a TLS failure or an unreachable node.
    pub(super) fn of_stream(error: &io::Error) -> Self {
        if tls::is_at_fault(error) {
            Self::Tls(error.to_string())
        } else {
            Self::Unreachable(error.to_string())
        }
    }
}

impl From<&ConnectFailure> for Failure {
    fn from(failure: &ConnectFailure) -> Self {
        use ErrorCode::{NoAuth, NoPerm, WrongPass};
        let kind = match failure {
            ConnectFailure::NoModule => FailureKind::NoModule,
            ConnectFailure::Refused { code: Some(NoAuth | NoPerm | WrongPass), .. } => {
                FailureKind::LoginRefused
            }
            _ => FailureKind::Down,
        };
        Self::new(kind, failure.to_string())
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::Refused { why, .. } => write!(f, "refused: {why}"),
            Self::NoModule => f.write_str("the server has not loaded the redlock module"),
            Self::Tls(why) => write!(f, "no secure connection: {why}"),
            Self::Foreign(why) => write!(f, "not a Redis server: {why}"),
        }
    }
}

impl std::error::Error for ConnectFailure {}
