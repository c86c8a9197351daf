//! Opens TLS to a server, with the trust in its certificate and the own identity.

use std::{net::Ipv4Addr, sync::Arc};

use rustls::{ClientConfig, client::UnbufferedClientConnection, pki_types::ServerName};

use super::{ALPN_POSTGRESQL, Channel, ChannelError, SetupError, Tls, trust};

/// Protocol inside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlpnProtocol {
    /// PostgreSQL: named by ALPN, which older servers ignore.
    Postgres,
    /// A protocol without an ALPN name.
    Unnamed,
}

/// State shared by all connections to a server. A reload creates a new one; connections keep
/// theirs.
#[derive(Clone, Debug)]
pub struct Connector {
    pub(super) config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// Encryption towards a server: a failure never falls back to plaintext.
#[derive(Clone, Debug)]
pub enum ServerEncryption {
    /// TLS is off.
    Plaintext,
    /// Encrypted.
    Encrypted(Connector),
    /// TLS is on and cannot be set up, for this reason: no connection is made.
    Broken(String),
}

impl Connector {
    /// Creates a connector, or returns `None` when TLS is off.
    pub fn new(tls: &Tls, speaks: AlpnProtocol) -> Result<Option<Self>, SetupError> {
        let Some(mut config) = trust::client_config(tls)? else {
            return Ok(None);
        };
        if speaks == AlpnProtocol::Postgres {
            config.alpn_protocols = vec![ALPN_POSTGRESQL.to_vec()];
        }
        Ok(Some(Self {
            config: Arc::new(config),
            server_name: server_name(tls)?,
        }))
    }

    /// Starts a new connection; its first output is ready to be taken.
    pub fn connect(&self) -> Result<Channel, ChannelError> {
        self.connect_offering(self.config.alpn_protocols.clone())
    }

    /// Starts a new connection that offers these protocols by ALPN (RFC 7301), the preferred one
    /// first. Its first output is ready to be taken.
    pub fn connect_offering(&self, protocols: Vec<Vec<u8>>) -> Result<Channel, ChannelError> {
        let connection = UnbufferedClientConnection::new_with_alpn(
            self.config.clone(),
            self.server_name.clone(),
            protocols,
        );
        Channel::to_server(connection.map_err(ChannelError::WithServer)?)
    }
}

/// Returns the name to verify. An unverified server is identified by an address, which is not sent.
fn server_name(tls: &Tls) -> Result<ServerName<'static>, SetupError> {
    match tls {
        Tls::Verify { server_name, .. } => trust::check_name(server_name),
        Tls::Off | Tls::Encrypt(_) => Ok(ServerName::IpAddress(Ipv4Addr::LOCALHOST.into())),
    }
}
