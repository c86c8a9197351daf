//! Configures TLS for probes: one configuration and server name per server.

use std::{io, net::IpAddr, sync::Arc};

use evenkeel_tls::{self as tls, Tls, messages::with_server};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    ProbeFailure, ProbeSetupError, Progress, Target, TargetAddress, messages, stream::Socket,
};

/// Returns a TLS client's configuration; `None` when TLS is off.
pub(super) fn client_config(tls: &Tls) -> Result<Option<Arc<ClientConfig>>, ProbeSetupError> {
    Ok(tls::client_config(tls)?.map(Arc::new))
}

/// Returns the server name: the one to verify, or the address (which is not sent).
pub(super) fn server_name(tls: &Tls, target: &Target) -> String {
    match (tls, &target.address) {
        (Tls::Verify { server_name, .. }, _) => server_name.clone(),
        (_, TargetAddress::Tcp(address)) => address.ip().to_string(),
        (_, TargetAddress::Unix(_)) => IpAddr::from([127, 0, 0, 1]).to_string(),
    }
}

/// Starts TLS on connections.
pub(crate) struct TlsStart {
    tls: Tls,
    config: Arc<ClientConfig>,
}

impl TlsStart {
    /// Returns `None` when TLS is off.
    pub(crate) fn new(tls: &Tls) -> Result<Option<Self>, ProbeSetupError> {
        Self::offering(tls, &[])
    }

    /// Returns a start that offers these protocols by ALPN (RFC 7301), or `None` when TLS is off.
    pub(super) fn offering(
        tls: &Tls,
        protocols: &[&[u8]],
    ) -> Result<Option<Self>, ProbeSetupError> {
        let Some(mut config) = tls::client_config(tls)? else {
            return Ok(None);
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Some(Self {
            tls: tls.clone(),
            config: Arc::new(config),
        }))
    }

    /// Completes the handshake, in which the server's certificate is checked.
    pub(super) async fn handshake<S: Socket>(
        &self,
        socket: S,
        target: &Target,
        progress: &Progress,
    ) -> Result<TlsStream<S>, ProbeFailure> {
        progress.step("starting TLS");
        self.shake_hands(socket, target).await
    }

    /// Completes the handshake without a record of the progress.
    pub(crate) async fn shake_hands<S: Socket>(
        &self,
        socket: S,
        target: &Target,
    ) -> Result<TlsStream<S>, ProbeFailure> {
        let connected = self.connect(socket, target).await;
        connected.map_err(|e| match messages::tls_inside(&e) {
            Some(e) => ProbeFailure::Misconfigured(with_server(e)),
            None => ProbeFailure::Failed(messages::io(&e)),
        })
    }

    /// Completes the handshake, or returns the library's error.
    pub(crate) async fn connect<S: Socket>(
        &self,
        socket: S,
        target: &Target,
    ) -> io::Result<TlsStream<S>> {
        let name = server_name(&self.tls, target);
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(name, socket).await
    }
}
