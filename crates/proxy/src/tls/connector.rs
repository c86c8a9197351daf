//! TLS towards a server: whom we take it for, and who we are.

use std::{net::Ipv4Addr, sync::Arc};

use rustls::{ClientConfig, client::UnbufferedClientConnection, pki_types::ServerName};

use super::{ALPN_POSTGRESQL, Channel, ChannelError, SetupError, Tls, trust};

/// What is spoken inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlpnProtocol {
    /// PostgreSQL: named by ALPN, which older servers pass over.
    Postgres,
    /// A protocol that ALPN has no name for.
    Unnamed,
}

/// What all connections to a server share. A reload makes a new one; connections keep theirs.
#[derive(Clone, Debug)]
pub struct Connector {
    pub(super) config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// How a server is spoken to: nothing that fails becomes plaintext.
#[derive(Clone, Debug)]
pub enum ServerEncryption {
    /// TLS is off.
    Plaintext,
    /// Encrypted.
    Encrypted(Connector),
    /// TLS is on and cannot be set up, for this reason: it is not spoken to.
    Broken(String),
}

impl Connector {
    /// `None` when TLS is off.
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

    /// A new connection, its first flight ready to be taken.
    pub fn connect(&self) -> Result<Channel, ChannelError> {
        let connection =
            UnbufferedClientConnection::new(self.config.clone(), self.server_name.clone());
        Channel::to_server(connection.map_err(ChannelError::WithServer)?)
    }
}

/// An unverified server is asked for by an address, which is sent to nobody.
fn server_name(tls: &Tls) -> Result<ServerName<'static>, SetupError> {
    match tls {
        Tls::Verify { server_name, .. } => trust::check_name(server_name),
        Tls::Off | Tls::Encrypt(_) => Ok(ServerName::IpAddress(Ipv4Addr::LOCALHOST.into())),
    }
}
