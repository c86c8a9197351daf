//! Tests of the PROXY protocol in both directions: trusted peers, bytes that reach the server, and
//! rejections.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "peer/peer.rs"]
mod peer;

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_lab::Balancer;
use peer::{
    End, Kind, Listening, Scripted, connect, end_of, end_sending, receive, receive_all, send,
    service, stays, until_service,
};
use socket2::Socket;

const LISTED: &str = "accept_proxy_from = [\"127.0.0.1\", \"::1\"]\n";
const STRANGERS: &str = "accept_proxy_from = [\"10.9.8.7\"]\n";

/// `PROXY TCP4 192.0.2.7 192.0.2.8 4711 3306` in version 2.
const V2: [u8; 28] = [
    0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A, 0x21, 0x11, 0, 12, 192,
    0, 2, 7, 192, 0, 2, 8, 0x12, 0x67, 0x0C, 0xEA,
];
const V2_LOCAL: [u8; 16] = [
    0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A, 0x20, 0x00, 0, 0,
];
const V1: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 3306\r\n";
const V1_IPV6: &[u8] = b"PROXY TCP6 2001:db8::7 2001:db8::8 4711 3306\r\n";

on_both_drivers! {
    a_listed_peers_header_names_the_client_to_the_server
    without_a_usable_address_the_socket_names_the_client
    a_header_may_come_in_pieces_and_with_data_behind_it
    garbage_from_a_listed_peer_ends_the_connection_and_is_told
    a_listed_peer_that_is_slow_with_its_header_is_not_waited_for
    a_strangers_header_ends_the_connection_and_never_reaches_the_server
    a_strangers_header_byte_by_byte_never_reaches_the_server
    a_stranger_without_a_header_is_served_also_when_the_server_speaks_first
    a_server_that_resets_on_the_header_costs_no_client
}

/// A service with one server, whose connections the test accepts.
struct TestBed {
    listen: String,
    server: Listening,
    balancer: Balancer,
}

impl TestBed {
    fn new(io: &str, more: &str) -> TestBed {
        let listen = peer::own_address(Kind::V4);
        let server = Listening::new(Kind::V4);
        let service = service(&listen, &[&server.address], more);
        let config = format!("{service}\n[log]\nconnections = true\n");
        let balancer = peer::balancer(io, &config);
        TestBed {
            listen,
            server,
            balancer,
        }
    }

    fn client(&self) -> Socket {
        connect(&self.listen)
    }

    fn client_that_sends(&self, bytes: &[u8]) -> Socket {
        let client = self.client();
        send(&client, bytes);
        client
    }

    fn refused(&self) -> u64 {
        let status = self.balancer.status().unwrap();
        status["services"][0]["errors"]["proxy_header"]
            .as_u64()
            .unwrap()
    }

    #[track_caller]
    fn assert_told(&self, count: u64, words: &str) {
        peer::until("the count of refused headers", || self.refused() == count);
        peer::until("the line in the log", || {
            self.balancer.log().contains(words)
        });
    }

    /// Asserts that no connection to the server has a byte in it.
    #[track_caller]
    fn assert_server_saw_nothing(&self) {
        self.server.socket.set_nonblocking(true).unwrap();
        while let Ok((connection, _)) = self.server.socket.accept() {
            connection.set_nonblocking(false).unwrap();
            let seen = connection.peek(&mut [std::mem::MaybeUninit::uninit(); 1]);
            assert!(!matches!(seen, Ok(1..)), "the server got {seen:?} bytes");
        }
        self.server.socket.set_nonblocking(false).unwrap();
    }
}

/// Returns the line that a server receives first with `send_proxy = "v1"`.
fn header_line(server: &Socket) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(receive(server, 1));
    }
    String::from_utf8(line).unwrap()
}

fn address_of(socket: &Socket) -> SocketAddr {
    socket.local_addr().unwrap().as_socket().unwrap()
}

fn a_listed_peers_header_names_the_client_to_the_server(io: &str) {
    let bed = TestBed::new(io, &format!("{LISTED}send_proxy = \"v1\"\n"));
    for header in [V1, &V2, V1_IPV6] {
        let client = bed.client_that_sends(&[header, b"hello"].concat());
        let server = bed.server.accept();
        let expected = if header == V1_IPV6 { V1_IPV6 } else { V1 };
        assert_eq!(header_line(&server).as_bytes(), expected);
        assert_eq!(receive(&server, 5), b"hello");
        send(&server, b"back");
        assert_eq!(receive(&client, 4), b"back");
    }
    drop(bed);

    let bed = TestBed::new(io, &format!("{LISTED}send_proxy = \"v2\"\n"));
    let _client = bed.client_that_sends(V1);
    assert_eq!(receive(&bed.server.accept(), V2.len()), V2);
}

#[test]
fn a_probe_begins_with_a_header_without_addresses_except_at_a_port_of_its_own() {
    let health = "send_proxy = \"v2\"\n[service.health]\nprobe = \"tcp\"\n";
    let bed = TestBed::new("epoll", health);
    assert_eq!(receive_all(&bed.server.accept()), V2_LOCAL);

    let agent = Listening::new(Kind::V4);
    let (_, port) = agent.address.rsplit_once(':').unwrap();
    let bed = TestBed::new("epoll", &format!("{health}port = {port}\n"));
    assert_eq!(receive_all(&agent.accept()), b"");
    bed.assert_server_saw_nothing();
}

fn without_a_usable_address_the_socket_names_the_client(io: &str) {
    let bed = TestBed::new(io, &format!("{LISTED}send_proxy = \"v1\"\n"));
    let unknown: &[u8] = b"PROXY UNKNOWN\r\n";
    for header in [unknown, &V2_LOCAL] {
        let client = bed.client_that_sends(header);
        let (from, to) = (address_of(&client), &bed.listen);
        let (ip, port) = (from.ip(), from.port());
        let (to_ip, to_port) = to.split_once(':').unwrap();
        let expected = format!("PROXY TCP4 {ip} {to_ip} {port} {to_port}\r\n");
        assert_eq!(header_line(&bed.server.accept()), expected);
    }
}

fn a_header_may_come_in_pieces_and_with_data_behind_it(io: &str) {
    let bed = TestBed::new(io, LISTED);
    for header in [V1, &V2] {
        for cut in [1, 5, 12, 15, 17, header.len() - 1] {
            let client = bed.client_that_sends(&header[..cut]);
            stays("nobody is connected yet", Duration::from_millis(30), || {
                bed.server.socket.set_nonblocking(true).unwrap();
                let nobody = bed.server.socket.accept().is_err();
                bed.server.socket.set_nonblocking(false).unwrap();
                nobody
            });
            send(&client, &[&header[cut..], b"SELECT 1"].concat());
            let server = bed.server.accept();
            end_sending(&client);
            assert_eq!(receive_all(&server), b"SELECT 1", "cut at {cut}");
        }
    }
    assert_eq!(bed.refused(), 0);
}

fn garbage_from_a_listed_peer_ends_the_connection_and_is_told(io: &str) {
    let bed = TestBed::new(io, LISTED);
    let mut of_version_3 = V2;
    of_version_3[12] = 0x31;
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 nonsense 1 2\r\n",
        &of_version_3,
        &[b'P'; 4096],
    ];
    for (number, bytes) in (1..).zip(garbage) {
        end_of(&bed.client_that_sends(bytes));
        bed.assert_told(number, "PROXY header");
    }
    bed.assert_server_saw_nothing();
    // Other clients are served as before.
    let _client = bed.client_that_sends(&[V1, b"hello"].concat());
    assert_eq!(receive(&bed.server.accept(), 5), b"hello");
}

fn a_listed_peer_that_is_slow_with_its_header_is_not_waited_for(io: &str) {
    let bed = TestBed::new(io, &format!("{LISTED}connect_timeout_ms = 300\n"));
    let silent = bed.client();
    let half = bed.client_that_sends(&V1[..20]);
    let gone = bed.client_that_sends(&V1[..20]);
    drop(gone);
    end_of(&silent);
    end_of(&half);
    bed.assert_told(3, "not received within 300 ms");
    bed.assert_server_saw_nothing();
}

fn a_strangers_header_ends_the_connection_and_never_reaches_the_server(io: &str) {
    for more in [STRANGERS, "send_proxy = \"v1\"\n"] {
        let bed = TestBed::new(io, more);
        for (number, header) in (1..).zip([V1, &V2]) {
            let client = bed.client_that_sends(&[header, b"hello"].concat());
            let server = bed.server.accept();
            if more != STRANGERS {
                assert!(header_line(&server).starts_with("PROXY TCP4 127.0.0.1 "));
            }
            end_of(&client);
            let seen = end_of_without_bytes(&server);
            assert!(seen, "the server got something of it");
            bed.assert_told(number, "accept_proxy_from");
        }
    }
}

fn a_strangers_header_byte_by_byte_never_reaches_the_server(io: &str) {
    let bed = TestBed::new(io, STRANGERS);
    for header in [V1, &V2] {
        let client = bed.client();
        let server = bed.server.accept();
        for byte in header {
            use std::io::Write;
            if (&client).write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        end_of(&client);
        assert!(end_of_without_bytes(&server), "the server got a part of it");
    }
    bed.assert_told(2, "accept_proxy_from");
}

/// Returns true if the connection ends, in whatever way, before a byte arrives.
fn end_of_without_bytes(mut server: &Socket) -> bool {
    use std::io::Read;
    match server.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => peer::is_reset(&error),
    }
}

fn a_stranger_without_a_header_is_served_also_when_the_server_speaks_first(io: &str) {
    let bed = TestBed::new(io, STRANGERS);
    let client = bed.client();
    let server = bed.server.accept();
    send(&server, b"5.5.5-greeting");
    assert_eq!(receive(&client, 14), b"5.5.5-greeting");
    // These bytes begin like a header, but are none.
    send(&client, b"PRO");
    send(&client, b"POSAL");
    assert_eq!(receive(&server, 8), b"PROPOSAL");
    end_sending(&client);
    assert_eq!(receive_all(&server), b"");
    drop(server);
    assert_eq!(end_of(&client), End::Clean);

    // All bytes of the client may look like the beginning of a header.
    let client = bed.client_that_sends(b"PROXY");
    end_sending(&client);
    let server = bed.server.accept();
    assert_eq!(receive_all(&server), b"PROXY");
    drop(server);
    assert_eq!(end_of(&client), End::Clean);
    until_service(&bed.balancer, "no refusal", |service| {
        service["errors"]["proxy_header"] == 0
    });
}

/// Two servers reset before the header is sent, while it is sent, or just after: all must have the
/// same effect.
fn a_server_that_resets_on_the_header_costs_no_client(io: &str) {
    let resetting = [Kind::V4, Kind::Unix].map(|kind| {
        Scripted::start(kind, |client| {
            client.set_linger(Some(Duration::ZERO)).unwrap();
        })
    });
    let good = Scripted::start(Kind::V4, |client| {
        assert!(header_line(client).starts_with("PROXY TCP4 127.0.0.1 "));
        send(client, b"yes");
        end_of(client);
    });
    let listen = peer::own_address(Kind::V4);
    let [one, other] = resetting.each_ref().map(Scripted::address);
    let more = "send_proxy = \"v1\"\nretries = 10\n\
                [service.health]\nprobe = \"off\"\nfall = 100\n";
    let balancer = peer::balancer(io, &service(&listen, &[one, other, good.address()], more));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..40 {
                    assert_eq!(receive(&connect(&listen), 3), b"yes");
                }
            });
        }
    });
    let service = &balancer.status().unwrap()["services"][0];
    assert!(service["retries_total"].as_u64().unwrap() > 50, "{service}");
}
