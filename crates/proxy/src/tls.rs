//! TLS without sockets: bytes in, bytes out, towards clients and towards servers.
//!
//! An [`Acceptor`] (for clients) or a [`Connector`] (for servers) holds what all connections share
//! and makes [`Channel`]s, one per connection. How far servers are trusted is said by [`Tls`], for
//! sessions and probes alike.

mod acceptor;
mod certificate;
mod channel;
mod connector;
mod identity;
pub(crate) mod messages;
mod trust;

#[cfg(test)]
mod tests;

pub(crate) use self::trust::{check_name, client_config};
pub use self::{
    acceptor::Acceptor,
    certificate::Names,
    channel::{Channel, Progress},
    connector::{AlpnProtocol, Connector, ServerEncryption},
    identity::TlsIdentity,
    trust::{Authorities, Tls},
};

/// The protocol that PostgreSQL's clients and servers name by ALPN.
const ALPN_POSTGRESQL: &[u8] = b"postgresql";

/// The key in the configuration that names certificates of trusted authorities for servers.
const SERVER_CA: &str = "[service.server_tls] ca";

/// What is wrong with certificates, keys or names that were given to us.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SetupError {
    /// A name that no certificate can carry.
    #[error("{0:?} is not a host name or IP address that a certificate can contain")]
    BadServerName(String),
    /// A file of certificates, or a private key, that cannot be used.
    #[error("{key}: {why}")]
    BadFile {
        /// The key in the configuration that names the file.
        key: String,
        /// What is wrong, the file's path included where it is known.
        why: String,
    },
    /// The TLS library refuses the whole.
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

/// Why a connection's TLS has failed. The connection is of no use any more, but for sending what
/// [`Channel::take_output`] has left to say.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChannelError {
    /// Between a client and us.
    #[error("{}", messages::with_client(.0))]
    WithClient(rustls::Error),
    /// Between us and a server.
    #[error("{}", messages::with_server(.0))]
    WithServer(rustls::Error),
    /// Who stands in between could have put them there: they must not count as encrypted.
    #[error("received {0} bytes of unencrypted data after SSL request; connection closed")]
    Smuggled(usize),
    /// The peer sends on and on without getting to an end.
    #[error("TLS handshake or message exceeds the limit of {0} bytes")]
    Overlong(usize),
    /// Direct TLS without the name of the protocol: it could be meant for somebody else.
    #[error(
        "direct TLS without ALPN: the client must request protocol \"postgresql\" (libpq 17 does) \
         or begin with SSLRequest"
    )]
    NoAlpn,
    /// The end of the stream was not announced, so that somebody may have cut it.
    #[error("connection closed without TLS close_notify; the last bytes may be missing")]
    Truncated,
    /// Nothing can be encrypted before the handshake is done or after the end.
    #[error("TLS is not established, or has ended")]
    NotOpen,
}
