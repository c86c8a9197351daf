//! Accepts TLS from clients: own certificate, and trust in client certificates.

use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    server::{
        NoServerSessionStorage, ResolvesServerCert, UnbufferedServerConnection,
        WebPkiClientVerifier, danger::ClientCertVerifier,
    },
};

use super::certificate::Hashes;
use super::{ALPN_POSTGRESQL, Authorities, Channel, ChannelError, SetupError, TlsIdentity, trust};

const SECTION: &str = "[service.tls]";

/// Clients need not have a certificate, but a wrong one ends the connection.
const REQUESTED: bool = false;

/// Clients must have a certificate.
pub(super) const DEMANDED: bool = true;

/// State shared by all clients of a service. A reload creates a new one; connections keep theirs.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    hashes: Arc<Hashes>,
    is_required: bool,
    asks_certificates: bool,
}

impl Acceptor {
    /// Reads the files of `[service.tls]`.
    pub fn from_pem_files(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
        is_required: bool,
    ) -> Result<Self, SetupError> {
        let identity = TlsIdentity::from_pem_files(SECTION, certificate, key)?;
        let client_ca = client_ca
            .map(|path| Authorities::read("[service.tls] client_ca", path))
            .transpose()?;
        Self::new(&identity, client_ca.as_ref(), is_required)
    }

    /// Creates an acceptor. With `client_ca` clients are requested to send a certificate. They need
    /// not have one, but a wrong one ends the connection: the login decides whether one is
    /// required.
    pub fn new(
        identity: &TlsIdentity,
        client_ca: Option<&Authorities>,
        is_required: bool,
    ) -> Result<Self, SetupError> {
        let mut config = config(client_ca, identity.resolver(), REQUESTED)?;
        config.alpn_protocols = vec![ALPN_POSTGRESQL.to_vec()];
        // No resumption, as in PostgreSQL: sessions are long, and discarded keys cannot leak.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            hashes: Arc::new(Hashes::of(identity.certificate())),
            is_required,
            asks_certificates: client_ca.is_some(),
        })
    }

    /// Returns whether clients must use TLS.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// Returns whether clients may log in by certificate.
    pub fn asks_certificates(&self) -> bool {
        self.asks_certificates
    }

    /// Accepts a client that sent an SSLRequest and received `S`. `behind` is data that followed
    /// the request, which must be empty (CVE-2021-23214).
    pub fn accept(&self, behind: &[u8]) -> Result<Channel, ChannelError> {
        match behind.len() {
            0 => self.channel(false),
            n => Err(ChannelError::Smuggled(n)),
        }
    }

    /// Accepts a client whose first byte is that of a TLS handshake: it must name the protocol by
    /// ALPN. Its bytes are passed to [`Channel::receive`].
    pub fn accept_direct(&self) -> Result<Channel, ChannelError> {
        self.channel(true)
    }

    fn channel(&self, must_name_protocol: bool) -> Result<Channel, ChannelError> {
        let connection = UnbufferedServerConnection::new(self.config.clone());
        let connection = connection.map_err(ChannelError::WithClient)?;
        Ok(Channel::of_client(
            connection,
            Some(Arc::clone(&self.hashes)),
            must_name_protocol,
        ))
    }
}

/// Returns the settings of a policy of client certificates; see [`REQUESTED`] and [`DEMANDED`].
pub(super) fn config(
    client_ca: Option<&Authorities>,
    certificates: Arc<dyn ResolvesServerCert>,
    is_demanded: bool,
) -> Result<ServerConfig, SetupError> {
    let mut config = ServerConfig::builder_with_provider(trust::provider())
        .with_safe_default_protocol_versions()
        .map_err(trust::refused)?
        .with_client_cert_verifier(verifier(client_ca, is_demanded)?)
        .with_cert_resolver(certificates);
    // Scanners report a server that leaves the order of suites to its clients.
    config.ignore_client_order = true;
    Ok(config)
}

fn verifier(
    client_ca: Option<&Authorities>,
    is_demanded: bool,
) -> Result<Arc<dyn ClientCertVerifier>, SetupError> {
    let Some(authorities) = client_ca else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let builder =
        WebPkiClientVerifier::builder_with_provider(authorities.roots(), trust::provider());
    let builder = match is_demanded {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    builder.build().map_err(trust::refused)
}
