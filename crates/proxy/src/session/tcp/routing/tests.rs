//! Tests the choice of a service by the server name, with scripted clients and servers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_engine::scripted::{Peer, Seen};
use evenkeel_policy::http::route::{Conditions, HostPattern, Route, RouteTable};
use evenkeel_wire::proxy_header::ProxyVersion;

use crate::record::{CutReason, TerminationReason};
use crate::service::Service;
use crate::service::tls_routes::{TlsRouteTarget, TlsRoutes};
use crate::settings::ServiceSettings;
use crate::testing::{TestPlane, settings, snapshot};

const UNLIMITED: u32 = u32::MAX;
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Returns a ClientHello of about `length` bytes, in records of at most `size` bytes.
fn hello_in_records(name: Option<&str>, length: usize, size: usize) -> Vec<u8> {
    let extension = |kind: u16, content: &[u8]| [&kind.to_be_bytes()[..], &sized(content)].concat();
    let mut extensions = extension(51, &vec![7; length]);
    if let Some(name) = name {
        let entry = [&[0][..], &sized(name.as_bytes())].concat();
        extensions.extend(extension(0, &sized(&entry)));
    }
    let extensions = sized(&extensions);
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &extensions,
    ]
    .concat();
    let message_length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1], &message_length[1..], &body].concat();
    let records = message.chunks(size);
    records
        .flat_map(|part| [&[22, 3, 1][..], &sized(part)].concat())
        .collect()
}

fn hello(name: &str) -> Vec<u8> {
    hello_in_records(Some(name), 8, 16_384)
}

/// A service with routes: `*.shop.example` leads to another service, `old.shop.example` to its own
/// servers, and `gone.example` to a removed service.
struct Rig {
    plane: TestPlane,
    /// Service with the server 3, or the server 1 if the first one has none.
    target: Arc<Service>,
}

impl Rig {
    /// The first service has the servers 1 and 2.
    fn new() -> Self {
        Self::with(settings(), settings(), UNLIMITED, true)
    }

    fn without_servers() -> Self {
        Self::with(settings(), settings(), UNLIMITED, false)
    }

    fn with(own: ServiceSettings, target: ServiceSettings, limit: u32, has_servers: bool) -> Self {
        let limits: &[u32] = if has_servers { &[UNLIMITED; 2] } else { &[] };
        let mut plane = TestPlane::new(own.clone(), limits);
        let own_servers = plane.servers.clone();
        let target = plane.add_service("target", target, &[limit]);
        let route = |host: &str, target: TlsRouteTarget| Route {
            conditions: Conditions {
                hosts: vec![HostPattern::parse(host).unwrap()],
                ..Conditions::default()
            },
            protects: false,
            target,
        };
        let routes = vec![
            route(
                "*.shop.example",
                TlsRouteTarget::Service(Arc::downgrade(&target)),
            ),
            route("old.shop.example", TlsRouteTarget::Own),
            route("gone.example", TlsRouteTarget::Service(Weak::new())),
        ];
        let mut view = snapshot(own, &own_servers);
        view.tls_routes = Some(Arc::new(TlsRoutes {
            table: RouteTable::new(routes),
            hello_timeout: HELLO_TIMEOUT,
        }));
        plane.service.replace_view(view);
        Self { plane, target }
    }

    /// Starts a client that sends these bytes, and returns it, the id of the server that it is
    /// connected to, and the server.
    fn served(&self, bytes: &[u8]) -> (Peer, u64, Peer) {
        let client = self.plane.client();
        client.send(bytes);
        let (id, server) = self.accepted();
        (client, id, server)
    }

    fn accepted(&self) -> (u64, Peer) {
        let (id, server) = self.plane.next_connect();
        server.accept();
        self.plane.stage.settle();
        (id, server)
    }

    /// Starts a client that sends these bytes, which no server gets, and returns the reason.
    fn refused(&self, bytes: &[u8]) -> TerminationReason {
        let client = self.plane.client();
        client.send(bytes);
        let record = self.plane.next_record();
        assert!(self.plane.try_next_connect().is_none());
        assert_eq!(client.seen(), Seen::End);
        record.ending
    }
}

fn unrouted(why: &str) -> TerminationReason {
    TerminationReason::Unrouted(why.to_owned())
}

/// TO SEE THIS RED: let `choose` return `None` for each name.
#[test]
fn the_server_name_leads_a_client_to_the_service_of_its_route() {
    let rig = Rig::new();
    let sent = [hello("Pay.SHOP.example"), b"early data".to_vec()].concat();
    let (client, id, server) = rig.served(&sent);
    assert_eq!((id, server.take()), (3, sent));
    let active = || (rig.plane.service.active(), rig.target.active());
    assert_eq!(active(), (1, 1));
    server.send(b"server hello");
    rig.plane.stage.settle();
    assert_eq!(client.take(), b"server hello");
    client.end();
    server.end();
    let record = rig.plane.next_record();
    assert_eq!(record.ending, TerminationReason::ClientClosed);
    assert_eq!(
        (&*record.service, record.server.as_deref()),
        ("shop", Some("db3"))
    );
    assert_eq!(active(), (0, 0));
    let sessions = |service: &Service| service.counters.sessions.get();
    assert_eq!(
        (sessions(&rig.plane.service), sessions(&rig.target)),
        (1, 1)
    );
}

/// TO SEE THIS RED: let `peek_until` show only the first bytes.
#[test]
fn a_hello_in_many_records_and_pieces_is_waited_for_and_reaches_the_server_whole() {
    let rig = Rig::new();
    for (length, size) in [(8, 16_384), (2_000, 16_384), (2_000, 100), (15_000, 1_400)] {
        let sent = hello_in_records(Some("pay.shop.example"), length, size);
        let client = rig.plane.client();
        for piece in sent.chunks(sent.len().div_ceil(200)) {
            assert!(rig.plane.try_next_connect().is_none(), "before the hello");
            client.send(piece);
            rig.plane.stage.settle();
        }
        let (id, server) = rig.accepted();
        assert_eq!((id, server.take()), (3, sent), "{length} {size}");
    }
}

#[test]
fn an_exact_name_is_preferred_to_an_earlier_wildcard() {
    let rig = Rig::new();
    let (_client, id, _server) = rig.served(&hello("old.shop.example"));
    assert_eq!((id, rig.target.active()), (1, 0));
}

/// TO SEE THIS RED: close every client without a route.
#[test]
fn clients_without_a_route_use_the_services_own_servers() {
    let rig = Rig::new();
    let nameless = hello_in_records(None, 8, 16_384);
    let too_long = hello_in_records(Some("pay.shop.example"), 20_000, 16_384);
    let other = hello("other.example");
    let not_tls = b"GET / HTTP/1.1".to_vec();
    for sent in [
        nameless,
        too_long,
        other,
        not_tls,
        b"\x16\x03\x01\x00\x00".to_vec(),
    ] {
        let (_client, id, server) = rig.served(&sent);
        assert_eq!((id, server.take()), (1, sent));
    }
    assert_eq!(rig.target.active(), 0);
}

#[test]
fn clients_without_a_route_are_closed_with_a_reason_if_there_are_no_servers() {
    let rig = Rig::without_servers();
    assert_eq!(
        rig.refused(&hello("other.example")),
        unrouted("no route for the server name other.example")
    );
    let nameless = hello_in_records(None, 8, 16_384);
    assert_eq!(
        rig.refused(&nameless),
        unrouted("the client sends no server name")
    );
    let not_tls = "the client does not begin with a TLS handshake";
    assert_eq!(rig.refused(b"GET / HTTP/1.1"), unrouted(not_tls));
    let too_long = hello_in_records(Some("pay.shop.example"), 20_000, 16_384);
    let why = "ClientHello exceeds the limit of 16384 bytes";
    assert_eq!(rig.refused(&too_long), unrouted(why));
    assert_eq!(rig.plane.service.counters.unrouted.get(), 4);
    let (_client, id, _server) = rig.served(&hello("pay.shop.example"));
    assert_eq!(id, 1);
}

/// TO SEE THIS RED: leave the time limit out.
#[test]
fn a_client_that_is_silent_or_slow_is_closed_after_the_limit() {
    let rig = Rig::new();
    let sent = hello("pay.shop.example");
    for piece in [&[][..], &sent[..sent.len() - 1]] {
        let client = rig.plane.client();
        client.send(piece);
        rig.plane.advance(HELLO_TIMEOUT - Duration::from_millis(1));
        assert!(rig.plane.try_next_record().is_none());
        rig.plane.advance(Duration::from_millis(1));
        let why = "no complete ClientHello within 5000 ms (hello_timeout_ms)";
        assert_eq!(rig.plane.next_record().ending, unrouted(why));
        assert_eq!(client.seen(), Seen::End);
    }
    assert!(rig.plane.try_next_connect().is_none());
}

#[test]
fn a_client_that_leaves_before_its_hello_is_no_error() {
    let rig = Rig::new();
    for piece in [&[][..], &[22, 3]] {
        let client = rig.plane.client();
        client.send(piece);
        client.end();
        let record = rig.plane.next_record();
        assert_eq!(record.ending, TerminationReason::ClientClosed);
    }
    assert_eq!(rig.plane.service.counters.unrouted.get(), 0);
}

#[test]
fn a_route_to_a_removed_service_closes_the_client() {
    let rig = Rig::new();
    let why = "the service of the route was removed";
    assert_eq!(rig.refused(&hello("gone.example")), unrouted(why));
}

/// TO SEE THIS RED: let `choose` return a target without its permit.
#[test]
fn the_limits_of_the_target_apply() {
    let target = ServiceSettings {
        max_connections: 2,
        queue_length: 1,
        ..settings()
    };
    let rig = Rig::with(settings(), target, 1, true);
    let (first, _, first_server) = rig.served(&hello("a.shop.example"));
    let waiting = rig.plane.client();
    waiting.send(&hello("b.shop.example"));
    assert!(rig.plane.try_next_connect().is_none());
    assert_eq!((rig.target.queued(), rig.plane.service.queued()), (1, 0));
    let third = hello("c.shop.example");
    assert_eq!(rig.refused(&third), TerminationReason::OverLimit);
    assert_eq!(rig.target.counters.over_limit.get(), 1);
    first.end();
    first_server.end();
    let (id, server) = rig.accepted();
    assert_eq!((id, server.take()), (3, hello("b.shop.example")));
    // The own servers have no such limit.
    let (_client, id, _server) = rig.served(b"?");
    assert_eq!(id, 1);
}

/// TO SEE THIS RED: give `ConnectRequest` the client's own service.
#[test]
fn another_server_of_the_target_gets_the_whole_hello_after_a_failure() {
    let rig = Rig::new();
    let client = rig.plane.client();
    client.send(&hello("pay.shop.example"));
    for _ in 0..2 {
        let (id, server) = rig.plane.next_connect();
        assert_eq!(id, 3);
        server.refuse();
        rig.plane.advance(Duration::from_secs(1));
    }
    let (id, server) = rig.accepted();
    assert_eq!((id, server.take()), (3, hello("pay.shop.example")));
    assert_eq!(rig.target.counters.retries.get(), 2);
}

#[test]
fn proxy_headers_of_clients_and_for_servers_are_separate_from_the_hello() {
    let own = ServiceSettings {
        accept_proxy_from: vec!["192.0.2.0/24".parse().unwrap()],
        ..settings()
    };
    let target = ServiceSettings {
        send_proxy: Some(ProxyVersion::V1),
        ..settings()
    };
    let header = b"PROXY TCP4 198.51.100.7 198.51.100.8 4711 443\r\n";
    let rig = Rig::with(own.clone(), target.clone(), UNLIMITED, true);
    let sent = [&header[..], &hello("pay.shop.example")].concat();
    let (client, id, server) = rig.served(&sent);
    assert_eq!((id, server.take()), (3, sent));
    client.end();
    server.end();
    let address = "198.51.100.7:4711".parse().ok();
    assert_eq!(rig.plane.next_record().client, address);
    let header = [&header[..], b"GET /"].concat();
    let (_client, id, server) = rig.served(&header);
    assert_eq!((id, server.take()), (1, b"GET /".to_vec()));

    let rig = Rig::with(settings(), target, UNLIMITED, true);
    let (_client, id, server) = rig.served(&hello("pay.shop.example"));
    // A script has no address.
    let expected = [&b"PROXY UNKNOWN\r\n"[..], &hello("pay.shop.example")].concat();
    assert_eq!((id, server.take()), (3, expected));

    let own = ServiceSettings {
        send_proxy: Some(ProxyVersion::V1),
        ..settings()
    };
    let rig = Rig::with(own, settings(), UNLIMITED, true);
    let client = rig.plane.client();
    client.send(b"PROXY TCP4 198.51.100.7 198.51.100.8 4711 443\r\n");
    let (_, server) = rig.accepted();
    assert_eq!(server.take(), b"PROXY UNKNOWN\r\n");
    let ending = rig.plane.next_record().ending;
    assert!(
        matches!(ending, TerminationReason::ProxyHeader(_)),
        "{ending:?}"
    );
}

/// TO SEE THIS RED: let `SessionHandle::matches` compare only the client's own service.
#[test]
fn commands_for_both_services_reach_a_routed_session() {
    let rig = Rig::new();
    let (client, id, server) = rig.served(&hello("pay.shop.example"));
    let (own, target) = (rig.plane.service.id, rig.target.id);
    let matches = |service, server| {
        let mut matches = false;
        rig.plane
            .each_session(|session| matches |= session.matches(service, server));
        matches
    };
    assert!(matches(None, None) && matches(None, Some(id)));
    assert!(matches(Some(own), None) && matches(Some(target), None));
    assert!(matches(Some(target), Some(id)));
    // The own service may list the server, too, and stop to use it.
    assert!(!matches(Some(own), Some(id)));
    assert!(!matches(Some(999), None) && !matches(Some(target), Some(1)));
    let ending = TerminationReason::Cut(CutReason::Removed);
    rig.plane.each_session(|session| {
        if session.matches(Some(target), None) {
            session.cut(ending.clone());
        }
    });
    assert_eq!(rig.plane.next_record().ending, ending);
    assert_eq!((client.seen(), server.seen()), (Seen::Reset, Seen::Reset));
}

#[test]
fn a_session_is_cut_while_its_hello_is_awaited() {
    let rig = Rig::new();
    let client = rig.plane.client();
    client.send(&[22, 3]);
    let ending = TerminationReason::Cut(CutReason::Shutdown);
    rig.plane
        .each_session(|session| session.cut(ending.clone()));
    assert_eq!(rig.plane.next_record().ending, ending);
    assert_ne!(client.seen(), Seen::Open);
    assert_eq!(rig.plane.service.active(), 0);
}
