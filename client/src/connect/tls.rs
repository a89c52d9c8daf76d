//! TLS: trusted authorities and the client certificate.

use super::{ConnectFailure, DetachedStream, Stream};
use socket2::SockRef;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// TLS settings of `rediss://` connections: trusted authorities and the client certificate.
///
/// By default the client trusts the certificate authorities of the system and sends no client certificate.
/// The client always verifies the server's certificate, which must be for the host in the address.
///
/// `build()` rejects PEM without a certificate or key. It opens no connection.
///
/// ```
/// # fn certificates(ca: Vec<u8>, certificate: Vec<u8>, key: Vec<u8>) {
/// let tls = redlock_client::Tls::new().ca_pem(ca).client_identity_pem(certificate, key);
/// let node = redlock_client::Node::new("rediss://redis-1.example:6380").tls(tls);
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Vec<Vec<u8>>,
    identity: Option<CertificateAndKey>,
}

#[derive(Clone)]
struct CertificateAndKey {
    certificates: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Trusts the certificate authorities of the system, and sends no client certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificate authorities in these PEM bytes instead of those of the system.
    ///
    /// Each further call adds authorities.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities.push(pem.into());
        self
    }

    /// Sends this certificate to servers that ask for one. `key` is its private key. Both are PEM bytes.
    ///
    /// Intermediate certificates follow the client's own certificate. Default: the client sends no
    /// certificate.
    #[must_use]
    pub fn client_identity_pem(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(CertificateAndKey { certificates: certificates.into(), key: key.into() });
        self
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        if self.authorities.is_empty() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(
                    "the system trusts no certificate authority; add one with `Tls::ca_pem`".to_owned()
                );
            }
        }
        for pem in &self.authorities {
            for certificate in certificates(pem).map_err(|why| format!("the certificate authority: {why}"))? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("the certificate authority: {error}"))?;
            }
        }
        Ok(roots)
    }

    fn config(&self) -> Result<ClientConfig, String> {
        // The provider is explicit, so that it does not depend on the other crates of the program.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(self.roots()?);
        let Some(identity) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let about = |why: &dyn fmt::Display| format!("the client certificate: {why}");
        let chain = certificates(&identity.certificates).map_err(|why| about(&why))?;
        // The message leaves out the parser's error, which may quote the key.
        let key = PrivateKeyDer::from_pem_slice(&identity.key)
            .map_err(|_| "the client key is not a private key in PEM format".to_owned())?;
        builder.with_client_auth_cert(chain, key).map_err(|error| about(&error))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err("no certificate in PEM format"),
    }
}

/// Shows the number of authorities and whether there is a client certificate, but not the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.len())
            .field("client_identity", &self.identity.is_some())
            .finish()
    }
}

/// TLS settings whose certificates are parsed and valid.
#[derive(Clone)]
pub(crate) struct TlsSettings(Arc<ClientConfig>);

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settings")
    }
}

/// The TLS settings for `host`, or why they are not valid.
pub(crate) fn settings(tls: Option<&Tls>, host: &str) -> Result<TlsSettings, String> {
    server_name(host)?;
    let config = tls.map_or_else(|| Tls::new().config(), Tls::config)?;
    Ok(TlsSettings(Arc::new(config)))
}

/// Runs the TLS handshake, and verifies that the server's certificate is for `host`.
pub(super) async fn secure(
    stream: TcpStream,
    host: &str,
    settings: &TlsSettings,
) -> Result<Box<dyn Stream>, ConnectFailure> {
    let name = server_name(host).map_err(ConnectFailure::Tls)?;
    match TlsConnector::from(Arc::clone(&settings.0)).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(ConnectFailure::of_stream(&error)),
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| format!("{host:?} is not a host name that TLS can check"))
}

impl Stream for TlsStream<TcpStream> {
    fn detach(self: Box<Self>) -> io::Result<Box<dyn DetachedStream>> {
        let (stream, session) = self.into_inner();
        Ok(Box::new(StreamOwned::new(session, stream.into_std()?)))
    }
}

impl DetachedStream for StreamOwned<ClientConnection, std::net::TcpStream> {
    fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.sock)
    }
}

/// Whether an error of a stream comes from TLS, not from the network.
///
/// A server may refuse the client's certificate after the TLS handshake, in place of its first reply.
pub(super) fn is_at_fault(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n";

    #[test]
    fn bad_certificates_are_told_apart_and_not_quoted() {
        const AUTHORITY: &str = include_str!("../node/tests/authority.pem");
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let shown =
            |certificate: &str, key: &str| Tls::new().ca_pem(AUTHORITY).client_identity_pem(certificate, key);
        assert!(settings(Some(&Tls::new().ca_pem(AUTHORITY)), "localhost").is_ok());
        let cases = [
            (Tls::new().ca_pem(""), "certificate authority"),
            (Tls::new().ca_pem("hush"), "certificate authority"),
            (Tls::new().ca_pem(junk), "certificate authority"),
            (Tls::new().ca_pem(AUTHORITY).ca_pem("hush"), "certificate authority"),
            (shown("", SECRET), "client certificate"),
            (shown(AUTHORITY, "hush"), "client key"),
            (shown(AUTHORITY, SECRET), "client certificate"),
        ];
        for (tls, about) in cases {
            let why = settings(Some(&tls), "localhost").expect_err("no settings");
            assert!(why.contains(about) && !why.contains("hush"), "{why}");
            assert!(!format!("{tls:?}").contains("hush"));
        }
    }

    #[test]
    fn names_that_no_certificate_can_have() {
        for host in ["localhost", "redis-1.example", "127.0.0.1", "::1"] {
            assert!(server_name(host).is_ok(), "{host}");
        }
        for host in ["", "a b", "under score..", "one/two"] {
            assert!(server_name(host).is_err(), "{host}");
        }
    }

    #[test]
    fn tells_tls_from_the_network() {
        let tls = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert!(is_at_fault(&tls));
        assert!(!is_at_fault(&io::Error::from(io::ErrorKind::ConnectionReset)));
        assert!(!is_at_fault(&io::Error::other("something else")));
    }
}
