//! Defines the TLS settings for clients and servers.

use std::path::PathBuf;

use evenkeel_tls::Fingerprint;

use super::{Address, Secret};
use crate::setting::words;

/// `[service.tls]` of a database service: TLS to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPlan {
    /// Certificate of the service, followed by intermediate certificates.
    pub certificate: PemFile,
    /// Private key of the certificate.
    pub key: PemFile,
    /// Authorities that sign client certificates. `None`: certificates are not requested.
    pub client_ca: Option<PemFile>,
    /// True if plaintext is refused. Default false.
    pub required: bool,
}

/// `[service.tls]` of an HTTP service: TLS to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpTlsPlan {
    /// Certificates from files, for the names that clients ask for. The first one is also that of
    /// other names.
    pub certificates: Vec<NamedCertificate>,
    /// Names whose certificates come by ACME, in lower case and each once. `[acme]` is then set.
    pub acme: Vec<String>,
    /// Authorities that sign client certificates, which are then demanded. `None`: certificates are
    /// not requested.
    pub client_ca: Option<PemFile>,
}

/// Certificate of an HTTP service from files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCertificate {
    /// The certificate.
    pub own: OwnCertificate,
    /// Authorities of the client certificates that its names demand. `None`: those of the service.
    pub client_ca: Option<PemFile>,
}

/// Path and content of a file at the time when the configuration was read. A renewed certificate
/// therefore changes the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Checked content of the file.
    pub text: Secret,
}

/// `[service.server_tls]`: TLS to servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// Mode. `None`: see [`ServerTls::mode_for`] and [`ServerTls::mode_for_http`].
    pub mode: Option<TlsMode>,
    /// Authorities (PEM) that sign server certificates, in addition to those of the system.
    pub ca: Option<PemFile>,
    /// Server certificates that are accepted whatever their issuer, name and validity. If there are
    /// any, other certificates are accepted only if `ca` signs them.
    pub fingerprints: Vec<Fingerprint>,
    /// Certificate for servers that request one. `None`: no certificate.
    pub own: Option<OwnCertificate>,
}

/// Certificate with its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// Certificate, followed by intermediate certificates.
    pub certificate: PemFile,
    /// Private key of the certificate.
    pub key: PemFile,
}

impl ServerTls {
    /// Returns the mode for connections to a database server. When none is set: off on loopback and
    /// Unix sockets, verify for other addresses.
    pub fn mode_for(&self, address: &Address) -> TlsMode {
        match self.mode {
            Some(mode) => mode,
            None if address.is_local() => TlsMode::Off,
            None => TlsMode::Verify,
        }
    }

    /// Returns the mode for HTTP. When none is set: off, as most web servers have no TLS at the
    /// port for their balancer; verify if there are keys that require TLS.
    pub fn mode_for_http(&self) -> TlsMode {
        let requires_tls = self.ca.is_some() || self.own.is_some();
        match self.mode {
            Some(mode) => mode,
            None if requires_tls => TlsMode::Verify,
            None => TlsMode::Off,
        }
    }
}

words! {
    /// Level of TLS to a server.
    pub enum TlsMode {
        /// Plaintext.
        Off = "off",
        /// Encrypted; the certificate is not checked.
        Encrypt = "encrypt",
        /// Encrypted; the certificate must be signed by an authority and name the server.
        Verify = "verify",
    }
}
