//! Fields that belong to one connection only, and names that pose as others.

use super::grammar;
use super::head::{KnownName, Underscores};

/// Fields that are never copied: they are generated, or they belong to one connection (RFC 9110
/// §7.6.1).
const GENERATED: u64 = KnownName::Connection.bit()
    | KnownName::ContentLength.bit()
    | KnownName::Host.bit()
    | KnownName::Http2Settings.bit()
    | KnownName::KeepAlive.bit()
    | KnownName::ProxyConnection.bit()
    | KnownName::Te.bit()
    | KnownName::TransferEncoding.bit()
    | KnownName::Upgrade.bit();

/// Names that no program may read from a field of another name.
const NEVER_POSED: [KnownName; 9] = [
    KnownName::Connection,
    KnownName::ContentLength,
    KnownName::Http2Settings,
    KnownName::KeepAlive,
    KnownName::ProxyConnection,
    KnownName::TransferEncoding,
    KnownName::ClientCert,
    KnownName::ClientCertChain,
    KnownName::SecWebSocketKey,
];

/// Fields that `Connection` cannot remove: they are for all recipients, or say who the client is.
/// Those that are generated need no mention.
const NEVER_NOMINATED: [KnownName; 26] = [
    KnownName::Age,
    KnownName::Authorization,
    KnownName::CacheControl,
    KnownName::ClientCert,
    KnownName::ClientCertChain,
    KnownName::ContentEncoding,
    KnownName::ContentRange,
    KnownName::ContentType,
    KnownName::Cookie,
    KnownName::Date,
    KnownName::Expect,
    KnownName::Forwarded,
    KnownName::Location,
    KnownName::MaxForwards,
    KnownName::Origin,
    KnownName::ProxyAuthorization,
    KnownName::SetCookie,
    KnownName::StrictTransportSecurity,
    KnownName::Vary,
    KnownName::XForwardedFor,
    KnownName::XForwardedHost,
    KnownName::XForwardedPort,
    KnownName::XForwardedPrefix,
    KnownName::XForwardedProto,
    KnownName::XRealIp,
    KnownName::XRequestId,
];

/// Returns whether a field of the name is never copied.
#[inline]
pub(crate) fn is_generated(known: KnownName) -> bool {
    known.bit() & GENERATED != 0
}

/// Returns whether `Connection` may remove a field of the name.
pub(crate) fn may_be_nominated(name: &[u8]) -> bool {
    !(NEVER_NOMINATED.iter()).any(|known| grammar::folded_eq(known.text().as_bytes(), name))
}

/// Returns whether a request field with `_` or `.` in its name is dropped: because it could pose as
/// another one.
pub(crate) fn poses(name: &[u8], underscores: Underscores) -> bool {
    if underscores == Underscores::Drop && name.contains(&b'_') {
        return true;
    }
    (NEVER_POSED.iter()).any(|known| grammar::folded_eq(known.text().as_bytes(), name))
}
