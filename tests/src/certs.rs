//! TLS certificates for servers and clients.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A certificate authority with one server's and one client's certificate, as files and as PEM text.
///
/// Every value has its own authority, so its certificates are not valid for another value's authority.
#[derive(Debug)]
pub struct Certs {
    folder: TempDir,
}

impl Certs {
    /// Creates an authority, a server certificate for `127.0.0.1` and `localhost`, and a client certificate.
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn new() -> Self {
        Self::for_hosts(&["127.0.0.1", "localhost"])
    }

    /// As [`Certs::new`], with a server certificate for other hosts.
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn for_hosts(hosts: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("rl-tls-").tempdir().expect("a folder for certificates");
        let certs = Self { folder };
        let authority_key = new_key();
        let mut authority = named("Redlock tests: authority", &[]);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let own = authority.self_signed(&authority_key).expect("an authority signs itself");
        certs.store("ca.crt", &own.pem());
        let issuer = Issuer::new(authority, authority_key);
        for (role, names) in [("server", hosts), ("client", &[])] {
            let key = new_key();
            let signed = named(&format!("Redlock tests: {role}"), names).signed_by(&key, &issuer);
            certs.store(&format!("{role}.crt"), &signed.expect("an authority signs").pem());
            certs.store(&format!("{role}.key"), &key.serialize_pem());
        }
        certs
    }

    /// The file of the authority's certificate.
    #[must_use]
    pub fn ca_cert(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// The file of the server's certificate.
    #[must_use]
    pub fn server_cert(&self) -> PathBuf {
        self.folder.path().join("server.crt")
    }

    /// The file of the server's key.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.folder.path().join("server.key")
    }

    /// The authority's certificate as PEM text.
    #[must_use]
    pub fn ca_pem(&self) -> Vec<u8> {
        self.load("ca.crt")
    }

    /// The client's certificate as PEM text.
    #[must_use]
    pub fn client_cert_pem(&self) -> Vec<u8> {
        self.load("client.crt")
    }

    /// The client's key as PEM text.
    #[must_use]
    pub fn client_key_pem(&self) -> Vec<u8> {
        self.load("client.key")
    }

    fn store(&self, name: &str, pem: &str) {
        fs::write(self.folder.path().join(name), pem).expect("a certificate can be written");
    }

    fn load(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(name)).expect("a certificate that was written can be read")
    }
}

impl Default for Certs {
    fn default() -> Self {
        Self::new()
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).expect("valid host names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
