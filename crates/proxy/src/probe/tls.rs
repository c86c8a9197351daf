//! TLS as the probes use it: one configuration per server, and the name to ask it for.

use std::{net::IpAddr, sync::Arc};

use rustls::ClientConfig;

use super::{ProbeSetupError, Target};
use crate::tls::{self, Tls};

/// What a TLS client needs; `None` when TLS is off.
pub(super) fn client_config(tls: &Tls) -> Result<Option<Arc<ClientConfig>>, ProbeSetupError> {
    Ok(tls::client_config(tls)?.map(Arc::new))
}

/// The name to ask for: the one to verify, or the address (which is sent to nobody).
pub(super) fn server_name(tls: &Tls, target: &Target) -> String {
    match (tls, target) {
        (Tls::Verify { server_name, .. }, _) => server_name.clone(),
        (_, Target::Tcp(address)) => address.ip().to_string(),
        (_, Target::Unix(_)) => IpAddr::from([127, 0, 0, 1]).to_string(),
    }
}
