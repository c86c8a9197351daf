//! Configures TLS for probes: one configuration and server name per server.

use std::{net::IpAddr, sync::Arc};

use evenkeel_tls::{self as tls, Tls};
use rustls::ClientConfig;

use super::{ProbeSetupError, Target};

/// Returns a TLS client's configuration; `None` when TLS is off.
pub(super) fn client_config(tls: &Tls) -> Result<Option<Arc<ClientConfig>>, ProbeSetupError> {
    Ok(tls::client_config(tls)?.map(Arc::new))
}

/// Returns the server name: the one to verify, or the address (which is not sent).
pub(super) fn server_name(tls: &Tls, target: &Target) -> String {
    match (tls, target) {
        (Tls::Verify { server_name, .. }, _) => server_name.clone(),
        (_, Target::Tcp(address)) => address.ip().to_string(),
        (_, Target::Unix(_)) => IpAddr::from([127, 0, 0, 1]).to_string(),
    }
}
