//! Converts the setting for PROXY headers.

use evenkeel_config::plan::SendProxy;
use evenkeel_wire::proxy_header::ProxyVersion;

/// Returns the version of the header that is sent. `None`: no header is sent.
pub(super) fn proxy_version(send: SendProxy) -> Option<ProxyVersion> {
    match send {
        SendProxy::Off => None,
        SendProxy::V1 => Some(ProxyVersion::V1),
        SendProxy::V2 => Some(ProxyVersion::V2),
    }
}
