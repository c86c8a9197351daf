//! Answers challenges by which a certificate authority verifies a name during a handshake
//! (tls-alpn-01, RFC 8737).

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::{Channel, ChannelError, SetupError, identity, trust};

/// Name of the protocol of such a handshake (RFC 8737 §6.2).
pub const ALPN_ACME: &[u8] = b"acme-tls/1";

/// Acceptor of the handshakes that verify one name. No data follows them.
#[derive(Debug)]
pub struct ChallengeAcceptor(Arc<ServerConfig>);

impl ChallengeAcceptor {
    /// Creates an acceptor with the self-signed certificate of a challenge and its key, in PEM. It
    /// requests no client certificate, whatever the service demands: the authority has none.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SetupError> {
        let bad = |why| SetupError::bad("certificate of a challenge", why);
        let chain = identity::parse_chain(pem).map_err(bad)?;
        let key = identity::parse_key(pem).map_err(bad)?;
        let key = trust::provider().key_provider.load_private_key(key);
        let key = key.map_err(trust::refused)?;
        // Not compared with the key, as others are: the library would refuse to read a certificate
        // with the critical extension of challenges.
        let certified = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let mut config = ServerConfig::builder_with_provider(trust::provider())
            .with_safe_default_protocol_versions()
            .map_err(trust::refused)?
            .with_client_cert_verifier(WebPkiClientVerifier::no_client_auth())
            .with_cert_resolver(Arc::new(certified));
        config.alpn_protocols = vec![ALPN_ACME.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Accepts a client that offers [`ALPN_ACME`]. Its bytes are passed to [`Channel::receive`].
    pub fn accept(&self) -> Result<Channel, ChannelError> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&self.0));
        let connection = connection.map_err(ChannelError::WithClient)?;
        Ok(Channel::of_client(connection, None, false))
    }
}
