//! Accepts TLS of HTTP clients: several certificates, and policies of client certificates, by the
//! server name that a client asks for.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};

use super::acceptor::{self, DEMANDED};
use super::by_name::{ByName, NamedIdentity, PolicyResolver};
use super::certificate::Hashes;
use super::tickets::PolicyTickets;
use super::{Authorities, Channel, ChannelError, ClientPolicy, SetupError, TicketKeys};

/// Name of HTTP/2 over TLS (RFC 9113 §3.2).
pub const ALPN_HTTP2: &[u8] = b"h2";

/// Name of HTTP/1.1 (RFC 7301 §6).
pub const ALPN_HTTP1: &[u8] = b"http/1.1";

/// State shared by all clients of an HTTP service. A reload creates a new one; connections keep
/// theirs.
#[derive(Debug)]
pub struct HttpAcceptor {
    names: Arc<ByName>,
    /// Policies; the first one is that of the service.
    policies: Vec<Policy>,
    /// `None`: there is no certificate yet.
    hashes: Option<Arc<Hashes>>,
}

/// Versions of HTTP that clients may choose by ALPN (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpProtocols {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, and HTTP/1.1 for clients that do not offer it.
    Http1And2,
}

impl HttpProtocols {
    fn names(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Self::Http1 => &[ALPN_HTTP1],
            Self::Http1And2 => &[ALPN_HTTP2, ALPN_HTTP1],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }
}

#[derive(Debug)]
struct Policy {
    identity: ClientPolicy,
    config: Arc<ServerConfig>,
}

impl HttpAcceptor {
    /// Creates an acceptor for these versions, with the certificate of the name that a client asks
    /// for, else the first one. Without a certificate each handshake fails. Clients must show a
    /// certificate of `client_ca`, or of the authorities of the name's certificate if that has its
    /// own.
    ///
    /// Clients may resume sessions by tickets, whose keys all workers share. A ticket is valid for
    /// its service and policy only.
    pub fn new(
        service: &str,
        identities: &[NamedIdentity],
        client_ca: Option<&Authorities>,
        protocols: HttpProtocols,
        keys: &Arc<TicketKeys>,
    ) -> Result<Self, SetupError> {
        let own = identities.iter().filter_map(|one| one.client_ca.as_ref());
        let names = Arc::new(ByName::new(identities));
        let policies = std::iter::once(client_ca).chain(own.map(Some));
        let policies = policies.enumerate().map(|(policy, client_ca)| {
            let identity = ClientPolicy::new(service, client_ca);
            let names = Arc::clone(&names);
            let resolver = Arc::new(PolicyResolver { names, policy });
            let mut config = acceptor::config(client_ca, resolver, DEMANDED)?;
            config.alpn_protocols = protocols.names();
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.ticketer = Arc::new(PolicyTickets {
                keys: Arc::clone(keys),
                policy: identity,
            });
            let config = Arc::new(config);
            Ok(Policy { identity, config })
        });
        Ok(Self {
            policies: policies.collect::<Result<_, SetupError>>()?,
            hashes: identities
                .first()
                .map(|first| Arc::new(Hashes::of(first.identity.certificate()))),
            names,
        })
    }

    /// Returns whether the policy depends on the name that a client asks for, which must then be
    /// read before [`HttpAcceptor::accept`].
    pub fn has_policies_by_name(&self) -> bool {
        self.policies.len() > 1
    }

    /// Accepts a client that asks for this name. Its bytes are passed to [`Channel::receive`]. The
    /// handshake fails if the library reads another name, with another policy.
    pub fn accept(&self, name: Option<&str>) -> Result<Channel, ChannelError> {
        let policy = self.policy_of(name.unwrap_or_default());
        let connection = UnbufferedServerConnection::new(Arc::clone(&policy.config));
        let connection = connection.map_err(ChannelError::WithClient)?;
        let channel = Channel::of_client(connection, self.hashes.clone(), false);
        Ok(channel.under(policy.identity))
    }

    /// Returns the policy for requests to this host.
    pub fn policy(&self, host: &str) -> &ClientPolicy {
        &self.policy_of(host).identity
    }

    /// Returns whether a host demands a certificate.
    pub fn demands_certificates(&self) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.identity.demands_certificate())
    }

    fn policy_of(&self, name: &str) -> &Policy {
        // The table numbers the policies of certificates from 1 on, in the same order.
        &self.policies[self.names.policy(name)]
    }
}
