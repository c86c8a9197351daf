//! TLS on both sides.

use std::path::PathBuf;

use super::{Address, Secret};

/// `[service.tls]`: TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPlan {
    /// The service's own certificate, and those between it and the authority.
    pub certificate: PemFile,
    /// The key that belongs to it.
    pub key: PemFile,
    /// Authorities that sign clients' certificates. `None`: clients are not asked for one.
    pub client_ca: Option<PemFile>,
    /// Plaintext is refused. Default false.
    pub required: bool,
}

/// A file as it was when the configuration was read: a renewed certificate is another plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFile {
    /// Where.
    pub path: PathBuf,
    /// What it held; checked.
    pub text: Secret,
}

/// `[service.server_tls]`: TLS towards servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// `None`: off on loopback and Unix sockets, verify elsewhere.
    pub mode: Option<TlsMode>,
    /// Certificates (PEM) that sign the servers' own, beside the system's.
    pub ca: Option<PemFile>,
    /// Our own certificate, for servers that ask for one. `None`: we have none.
    pub own: Option<OwnCertificate>,
}

/// A certificate, and the key that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// The certificate, and those between it and the authority.
    pub certificate: PemFile,
    /// Its private key.
    pub key: PemFile,
}

impl ServerTls {
    /// What holds for one server.
    pub fn mode_for(&self, address: &Address) -> TlsMode {
        match self.mode {
            Some(mode) => mode,
            None if address.is_local() => TlsMode::Off,
            None => TlsMode::Verify,
        }
    }
}

/// How far TLS towards a server goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Plaintext.
    Off,
    /// Encrypted; the certificate is not looked at.
    Encrypt,
    /// Encrypted, and the certificate must be signed and name the server.
    Verify,
}
