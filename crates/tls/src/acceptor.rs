//! Accepts TLS from clients: own certificate, and trust in client certificates.

use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    server::{
        NoServerSessionStorage, ResolvesServerCert, UnbufferedServerConnection,
        WebPkiClientVerifier, danger::ClientCertVerifier,
    },
};

use super::by_name::ByName;
use super::certificate::Hashes;
use super::{ALPN_POSTGRESQL, Authorities, Channel, ChannelError, SetupError, TlsIdentity, trust};

const SECTION: &str = "[service.tls]";

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
        let mut config = config(client_ca, identity.resolver())?;
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

    /// Creates an acceptor for HTTP/1.1, with the certificate of the name that a client asks for,
    /// else the first one. Clients may resume sessions by tickets, whose keys all workers share;
    /// they end with the acceptor, so that no ticket outlives a change of `client_ca`.
    pub fn for_http(
        first: &TlsIdentity,
        more: &[TlsIdentity],
        client_ca: Option<&Authorities>,
    ) -> Result<Self, SetupError> {
        let mut config = config(client_ca, Arc::new(ByName::new(first, more)))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(trust::refused)?;
        Ok(Self {
            config: Arc::new(config),
            hashes: Arc::new(Hashes::of(first.certificate())),
            is_required: false,
            asks_certificates: client_ca.is_some(),
        })
    }

    /// Accepts a client that may name a protocol by ALPN. Its bytes are passed to
    /// [`Channel::receive`].
    pub fn accept_unnamed(&self) -> Result<Channel, ChannelError> {
        self.channel(false)
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
            Arc::clone(&self.hashes),
            must_name_protocol,
        ))
    }
}

fn config(
    client_ca: Option<&Authorities>,
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, SetupError> {
    Ok(ServerConfig::builder_with_provider(trust::provider())
        .with_safe_default_protocol_versions()
        .map_err(trust::refused)?
        .with_client_cert_verifier(verifier(client_ca)?)
        .with_cert_resolver(certificates))
}

fn verifier(client_ca: Option<&Authorities>) -> Result<Arc<dyn ClientCertVerifier>, SetupError> {
    let Some(authorities) = client_ca else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    WebPkiClientVerifier::builder_with_provider(authorities.roots(), trust::provider())
        .allow_unauthenticated()
        .build()
        .map_err(trust::refused)
}
