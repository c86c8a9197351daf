//! Provides TLS without sockets, as transformations of bytes, towards clients and servers.
//!
//! An [`Acceptor`] (for clients) or a [`Connector`] (for servers) holds what all connections share
//! and makes [`Channel`]s, one per connection. [`Tls`] configures the trust in servers, for
//! sessions and probes alike.

#![forbid(unsafe_code)]

mod acceptor;
mod by_name;
mod certificate;
mod challenge;
mod channel;
mod connector;
mod fingerprint;
mod http_acceptor;
mod identity;
pub mod messages;
mod policy;
mod tickets;
mod trust;

#[cfg(test)]
mod tests;

pub use self::{
    acceptor::Acceptor,
    by_name::{NamedIdentity, Rank},
    certificate::Names,
    challenge::{ALPN_ACME, ChallengeAcceptor},
    channel::{Channel, Progress},
    connector::{AlpnProtocol, Connector, ServerEncryption},
    fingerprint::{Fingerprint, NoFingerprint},
    http_acceptor::{ALPN_HTTP1, ALPN_HTTP2, HttpAcceptor, HttpProtocols},
    identity::{Pem, TlsIdentity},
    policy::ClientPolicy,
    tickets::{TicketKey, TicketKeys},
    trust::{Authorities, Tls, check_name, client_config},
};

/// ALPN name of PostgreSQL's protocol.
const ALPN_POSTGRESQL: &[u8] = b"postgresql";

/// Configuration key of certificates of trusted authorities for servers.
const SERVER_CA: &str = "[service.server_tls] ca";

/// Invalid certificate, key or name.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SetupError {
    /// A name that no certificate can contain.
    #[error("{0:?} is not a host name or IP address that a certificate can contain")]
    BadServerName(String),
    /// A file of certificates, or a private key, that cannot be used.
    #[error("{key}: {why}")]
    BadFile {
        /// Configuration key of the file.
        key: String,
        /// Description of the fault, with the file's path if known.
        why: String,
    },
    /// The TLS library rejects the configuration.
    #[error("cannot set up TLS: {0}")]
    Refused(String),
}

impl SetupError {
    fn bad(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self::BadFile {
            key: key.into(),
            why: why.into(),
        }
    }
}

/// Reason why a connection's TLS has failed. Only the remaining output of [`Channel::take_output`]
/// can still be sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChannelError {
    /// Error towards a client.
    #[error("{}", messages::with_client(.0))]
    WithClient(rustls::Error),
    /// Between us and a server.
    #[error("{}", messages::with_server(.0))]
    WithServer(rustls::Error),
    /// Unencrypted data, which an attacker could have inserted: it must not count as encrypted.
    #[error("received {0} bytes of unencrypted data after SSL request; connection closed")]
    Smuggled(usize),
    /// The peer sends data without an end.
    #[error("TLS handshake or message exceeds the limit of {0} bytes")]
    Overlong(usize),
    /// Direct TLS without ALPN: it could be meant for another protocol.
    #[error(
        "direct TLS without ALPN: the client must request protocol \"postgresql\" (libpq 17 does) \
         or begin with SSLRequest"
    )]
    NoAlpn,
    /// The end of the stream was not announced, so that an attacker may have caused it.
    #[error("connection closed without TLS close_notify; the last bytes may be missing")]
    Truncated,
    /// No data can be encrypted before the handshake or after the end.
    #[error("TLS is not established, or has ended")]
    NotOpen,
}

impl ChannelError {
    /// Returns whether the server's certificate is not accepted.
    pub fn is_untrusted_server(&self) -> bool {
        matches!(self, Self::WithServer(rustls::Error::InvalidCertificate(_)))
    }
}
