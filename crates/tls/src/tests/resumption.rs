//! Tests of session tickets: for whom they are valid.

use std::sync::Arc;

use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, version};

use super::papers::{Authority, Paper, expired, named};
use crate::trust::{ServerVerifier, Trust, provider};
use crate::{
    Authorities, Channel, ChannelError, HttpAcceptor, HttpProtocols, NamedIdentity, Rank,
    TicketKey, TicketKeys,
};

/// Clients that remember their sessions.
struct Client {
    config: Arc<ClientConfig>,
    name: &'static str,
}

impl Client {
    fn new(name: &'static str, certificate: Option<&Paper>, is_old: bool) -> Self {
        let versions = match is_old {
            true => &[&version::TLS12][..],
            false => &[&version::TLS13],
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(Trust::Any)));
        let mut config = match certificate {
            Some(paper) => config.with_client_cert_resolver(paper.identity().resolver()),
            None => config.with_no_client_auth(),
        };
        config.resumption = Resumption::in_memory_sessions(8);
        Self {
            config: Arc::new(config),
            name,
        }
    }

    /// Connects, and returns how the handshake ended at the server.
    fn connect(&self, acceptor: &HttpAcceptor) -> Result<Option<HandshakeKind>, ChannelError> {
        let name = ServerName::try_from(self.name).unwrap();
        let client = UnbufferedClientConnection::new(Arc::clone(&self.config), name).unwrap();
        let mut client = Channel::to_server(client).unwrap();
        let mut server = acceptor.accept(Some(self.name)).unwrap();
        let mut read = Vec::new();
        loop {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            client.take_output(&mut up);
            server.receive(&up, &mut read)?;
            server.take_output(&mut down);
            client.receive(&down, &mut read)?;
            if up.is_empty() && down.is_empty() {
                return Ok(server.handshake_kind());
            }
        }
    }
}

fn identity(authority: &Authority, name: &str, client_ca: Option<Authorities>) -> NamedIdentity {
    NamedIdentity {
        identity: authority.server(name).identity(),
        client_ca,
        rank: Rank::File,
    }
}

fn acceptor(
    authority: &Authority,
    service: &str,
    client_ca: Option<&Authorities>,
    keys: &Arc<TicketKeys>,
) -> HttpAcceptor {
    let identities = [identity(authority, "shop.test", None)];
    HttpAcceptor::new(service, &identities, client_ca, HttpProtocols::Http1, keys).unwrap()
}

const FULL: Result<Option<HandshakeKind>, ChannelError> = Ok(Some(HandshakeKind::Full));
const RESUMED: Result<Option<HandshakeKind>, ChannelError> = Ok(Some(HandshakeKind::Resumed));

fn both_versions(check: impl Fn(bool)) {
    check(false);
    check(true);
}

#[test]
fn tickets_outlive_a_reload_and_an_upgrade() {
    both_versions(|is_old| {
        let authority = Authority::new();
        let keys = Arc::new(TicketKeys::new().unwrap());
        let client = Client::new("shop.test", None, is_old);
        assert_eq!(
            client.connect(&acceptor(&authority, "web", None, &keys)),
            FULL
        );
        let reloaded = acceptor(&authority, "web", None, &keys);
        assert_eq!(client.connect(&reloaded), RESUMED);
        let next = Arc::new(TicketKeys::new().unwrap());
        let upgraded = acceptor(&authority, "web", None, &next);
        let texts = keys.export().into_iter().map(|key| key.to_text());
        let read = texts.map(|text| TicketKey::from_text(&text).unwrap());
        next.adopt(read.collect());
        assert_eq!(client.connect(&upgraded), RESUMED);
        let other = acceptor(&authority, "other", None, &keys);
        assert_eq!(client.connect(&other), FULL, "another service");
    });
}

#[test]
fn a_ticket_does_not_resume_under_another_client_certificate_policy() {
    both_versions(|is_old| {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let keys = Arc::new(TicketKeys::new().unwrap());
        let paper = authority.client("alice");
        let open = acceptor(&authority, "web", None, &keys);
        let demanding = acceptor(&authority, "web", Some(&authority.trusted()), &keys);
        let strange = acceptor(&authority, "web", Some(&stranger.trusted()), &keys);

        let anonymous = Client::new("shop.test", None, is_old);
        assert_eq!(anonymous.connect(&open), FULL);
        assert_eq!(anonymous.connect(&open), RESUMED);
        assert!(anonymous.connect(&demanding).is_err(), "no certificate");

        let alice = Client::new("shop.test", Some(&paper), is_old);
        assert_eq!(alice.connect(&open), FULL);
        assert_eq!(alice.connect(&demanding), FULL, "from open to demanding");
        assert_eq!(alice.connect(&demanding), RESUMED);
        assert_eq!(alice.connect(&open), FULL, "from demanding to open");
        assert_eq!(alice.connect(&demanding), FULL);
        assert!(alice.connect(&strange).is_err(), "of another authority");
    });
}

#[test]
fn a_name_with_own_authorities_demands_their_certificates() {
    both_versions(|is_old| {
        let (authority, partners) = (Authority::new(), Authority::new());
        let keys = Arc::new(TicketKeys::new().unwrap());
        let identities = [
            identity(&authority, "shop.test", None),
            identity(&authority, "partner.test", Some(partners.trusted())),
        ];
        let acceptor =
            HttpAcceptor::new("web", &identities, None, HttpProtocols::Http1, &keys).unwrap();
        assert!(acceptor.has_policies_by_name() && acceptor.demands_certificates());
        let paper = partners.client("alice");
        assert_eq!(
            Client::new("shop.test", None, is_old).connect(&acceptor),
            FULL
        );
        let anonymous = Client::new("partner.test", None, is_old);
        assert!(anonymous.connect(&acceptor).is_err());
        let other = authority.client("mallory");
        let stranger = Client::new("partner.test", Some(&other), is_old);
        assert!(stranger.connect(&acceptor).is_err());
        let partner = Client::new("partner.test", Some(&paper), is_old);
        assert_eq!(partner.connect(&acceptor), FULL);
        assert_eq!(partner.connect(&acceptor), RESUMED);
    });
}

#[test]
fn a_name_that_was_read_differently_is_refused() {
    let (authority, partners) = (Authority::new(), Authority::new());
    let keys = Arc::new(TicketKeys::new().unwrap());
    let identities = [
        identity(&authority, "shop.test", None),
        identity(&authority, "partner.test", Some(partners.trusted())),
    ];
    let acceptor =
        HttpAcceptor::new("web", &identities, None, HttpProtocols::Http1, &keys).unwrap();
    let client = Client::new("partner.test", None, false);
    let name = ServerName::try_from("partner.test").unwrap();
    let client = UnbufferedClientConnection::new(client.config, name).unwrap();
    let mut client = Channel::to_server(client).unwrap();
    let mut server = acceptor.accept(Some("shop.test")).unwrap();
    let (mut up, mut read) = (Vec::new(), Vec::new());
    client.take_output(&mut up);
    let refused = server.receive(&up, &mut read).unwrap_err().to_string();
    assert!(refused.contains("no server certificate chain"), "{refused}");
}

#[test]
fn a_certificate_that_has_expired_since_is_refused() {
    // The certificate is valid for two more seconds.
    both_versions(|is_old| {
        let authority = Authority::new();
        let keys = Arc::new(TicketKeys::new().unwrap());
        let mut params = expired(named("alice.test"));
        params.not_after =
            (std::time::SystemTime::now() + std::time::Duration::from_secs(2)).into();
        let paper = authority.sign(&params);
        let acceptor = acceptor(&authority, "web", Some(&authority.trusted()), &keys);
        let alice = Client::new("shop.test", Some(&paper), is_old);
        assert_eq!(alice.connect(&acceptor), FULL);
        assert_eq!(alice.connect(&acceptor), RESUMED);
        std::thread::sleep(std::time::Duration::from_millis(3_100));
        let error = alice.connect(&acceptor).unwrap_err().to_string();
        assert!(error.contains("expired"), "{error}");
    });
}
