//! Tests of channels that are connected to each other in memory.

mod papers;
mod resumption;
mod setup;
mod trust;

use std::sync::Arc;

use rustls::{ClientConfig, version};

use self::papers::{Authority, Paper};
use super::{
    ALPN_POSTGRESQL, Acceptor, AlpnProtocol, Channel, ChannelError, Connector, Tls,
    channel::PENDING_BYTES_MAX,
    trust::{ServerVerifier, Trust, provider},
};

/// A client and Evenkeel, or Evenkeel and a server, and the bytes that each has read.
struct Pair {
    client: Channel,
    server: Channel,
    client_read: Vec<u8>,
    server_read: Vec<u8>,
}

impl Pair {
    fn new(acceptor: &Acceptor, connector: &Connector) -> Self {
        Self {
            client: connector.connect().unwrap(),
            server: acceptor.accept(&[]).unwrap(),
            client_read: Vec::new(),
            server_read: Vec::new(),
        }
    }

    /// Returns a pair after its handshake; the client trusts the server's authority.
    fn established() -> Self {
        let authority = Authority::new();
        let acceptor = authority.acceptor(None);
        let mut pair = Self::new(&acceptor, &verifying(&authority, "db.test"));
        pair.shake_hands(usize::MAX).unwrap();
        pair
    }

    /// Transfers bytes in pieces of `piece_bytes` at most until neither side has any left.
    fn shake_hands(&mut self, piece_bytes: usize) -> Result<(), ChannelError> {
        loop {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            self.client.take_output(&mut up);
            for piece in up.chunks(piece_bytes) {
                self.server.receive(piece, &mut self.server_read)?;
            }
            self.server.take_output(&mut down);
            for piece in down.chunks(piece_bytes) {
                self.client.receive(piece, &mut self.client_read)?;
            }
            if up.is_empty() && down.is_empty() {
                return Ok(());
            }
        }
    }

    /// Transfers what the client sends to the server in pieces.
    fn up(&mut self, plain: &[u8], piece_bytes: usize) {
        let mut cipher = Vec::new();
        self.client.send(plain, &mut cipher).unwrap();
        for piece in cipher.chunks(piece_bytes) {
            self.server.receive(piece, &mut self.server_read).unwrap();
        }
    }

    fn down(&mut self, plain: &[u8], piece_bytes: usize) {
        let mut cipher = Vec::new();
        self.server.send(plain, &mut cipher).unwrap();
        for piece in cipher.chunks(piece_bytes) {
            self.client.receive(piece, &mut self.client_read).unwrap();
        }
    }
}

/// Returns a connector that requires a certificate of that authority for that name.
fn verifying(authority: &Authority, server_name: &str) -> Connector {
    connector(&Tls::Verify {
        ca: Some(authority.trusted()),
        fingerprints: Vec::new(),
        server_name: server_name.to_owned(),
        identity: None,
    })
}

fn connector(tls: &Tls) -> Connector {
    Connector::new(tls, AlpnProtocol::Postgres)
        .unwrap()
        .unwrap()
}

/// Returns a connector that trusts every server and sends that certificate.
fn believing(paper: Option<&Paper>) -> Connector {
    connector(&Tls::Encrypt(paper.map(Paper::identity)))
}

/// Returns a connector that trusts every server and supports TLS 1.2 only.
fn old_connector(alpn: &[&[u8]]) -> Connector {
    let mut connector = believing(None);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS12])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(Trust::Any)))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    connector.config = Arc::new(config);
    connector
}

#[test]
fn a_handshake_and_data_pass_however_the_bytes_are_cut() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Some(&authority.trusted()));
    let client = authority.client("alice");
    let ways = [
        believing(Some(&client)),
        verifying(&authority, "db.test"),
        old_connector(&[ALPN_POSTGRESQL]),
    ];
    for way in &ways {
        for piece_bytes in [1, 2, 3, 4, 5, 6, 7, 64, 517, 4096] {
            let mut pair = Pair::new(&acceptor, way);
            pair.shake_hands(piece_bytes).unwrap();
            assert!(!pair.client.is_handshaking() && !pair.server.is_handshaking());
            pair.up(b"question", piece_bytes);
            pair.down(b"answer", piece_bytes);
            assert_eq!(pair.server_read, b"question");
            assert_eq!(pair.client_read, b"answer");
            assert!(pair.server.is_at_border() && pair.client.is_at_border());
        }
    }
}

#[test]
fn a_flight_may_be_cut_at_every_byte() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(None);
    let connector = verifying(&authority, "db.test");
    let mut flight = Vec::new();
    connector.connect().unwrap().take_output(&mut flight);
    for cut in 0..=flight.len() {
        let mut server = acceptor.accept(&[]).unwrap();
        let first = server.receive(&flight[..cut], &mut Vec::new()).unwrap();
        assert_eq!(first.has_output, cut == flight.len(), "cut at {cut}");
        let second = server.receive(&flight[cut..], &mut Vec::new()).unwrap();
        assert!(second.has_output && !second.is_established, "cut at {cut}");
    }
}

#[test]
fn data_of_every_size_comes_out_as_it_went_in() {
    let mut pair = Pair::established();
    for size in [1, 100, 16_383, 16_384, 16_385, 40_000, 1 << 20] {
        let data: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        for piece_bytes in [977, usize::MAX] {
            pair.server_read.clear();
            pair.client_read.clear();
            pair.up(&data, piece_bytes);
            pair.down(&data, piece_bytes);
            assert!(
                pair.server_read == data && pair.client_read == data,
                "{size}"
            );
        }
    }
}

#[test]
fn sending_nothing_sends_nothing() {
    let mut pair = Pair::established();
    let mut cipher = Vec::new();
    pair.client.send(b"", &mut cipher).unwrap();
    assert!(cipher.is_empty());
}

#[test]
fn nothing_is_encrypted_before_the_handshake_is_done() {
    let authority = Authority::new();
    let mut client = verifying(&authority, "db.test").connect().unwrap();
    let mut cipher = Vec::new();
    assert_eq!(
        client.send(b"secret", &mut cipher),
        Err(ChannelError::NotOpen)
    );
    assert!(cipher.is_empty());
}

#[test]
fn what_was_not_taken_yet_goes_out_before_data() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(None);
    let mut pair = Pair::new(&acceptor, &verifying(&authority, "db.test"));
    let mut flight = Vec::new();
    pair.client.take_output(&mut flight);
    pair.server.receive(&flight, &mut Vec::new()).unwrap();
    flight.clear();
    pair.server.take_output(&mut flight);
    pair.client.receive(&flight, &mut Vec::new()).unwrap();
    // The client's Finished was not taken yet: it is sent first.
    pair.up(b"at once", usize::MAX);
    assert_eq!(pair.server_read, b"at once");
}

#[test]
fn an_announced_end_is_told_from_a_cut() {
    let mut pair = Pair::established();
    pair.up(b"last words", usize::MAX);
    assert_eq!(pair.server.ended(), Err(ChannelError::Truncated));
    let mut goodbye = Vec::new();
    pair.client.close(&mut goodbye);
    let only_goodbye = goodbye.len();
    goodbye.extend_from_slice(b"whatever follows is nobody's");
    let progress = pair
        .server
        .receive(&goodbye, &mut pair.server_read)
        .unwrap();
    assert!(progress.is_closed && only_goodbye > 0);
    assert_eq!(pair.server.ended(), Ok(()));
    assert_eq!(pair.server_read, b"last words");
    // The other direction is still open.
    pair.down(b"and yours", usize::MAX);
    assert_eq!(pair.client_read, b"and yours");
    let mut nothing = Vec::new();
    pair.client.close(&mut nothing);
    assert_eq!(
        pair.client.send(b"more", &mut nothing),
        Err(ChannelError::NotOpen)
    );
    assert!(nothing.is_empty());
}

#[test]
fn a_changed_byte_ends_the_channel_with_an_alert() {
    let mut pair = Pair::established();
    let mut cipher = Vec::new();
    pair.client.send(b"DELETE FROM a", &mut cipher).unwrap();
    pair.client.send(b" WHERE false", &mut cipher).unwrap();
    let last = cipher.len() - 1;
    cipher[last] ^= 1;
    let fault = pair
        .server
        .receive(&cipher, &mut pair.server_read)
        .unwrap_err();
    assert!(matches!(fault, ChannelError::WithClient(_)), "{fault}");
    assert!(pair.server_read.is_empty(), "half a statement is none");
    let (mut alert, mut nothing) = (Vec::new(), Vec::new());
    pair.server.take_output(&mut alert);
    let received = pair.client.receive(&alert, &mut nothing).unwrap_err();
    assert!(received.to_string().contains("BadRecordMac"), "{received}");
    for end in [&mut pair.server, &mut pair.client] {
        assert_eq!(end.receive(b"", &mut nothing), Err(ChannelError::NotOpen));
        assert_eq!(end.send(b"x", &mut nothing), Err(ChannelError::NotOpen));
    }
}

#[test]
fn plaintext_where_tls_should_begin_is_refused() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(None);
    assert_eq!(acceptor.accept(b"Q").err(), Some(ChannelError::Smuggled(1)));
    for plaintext in [
        &b"SELECT 1"[..],
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"GET / HTTP/1.1\r\n",
    ] {
        let mut server = acceptor.accept(&[]).unwrap();
        let fault = server.receive(plaintext, &mut Vec::new()).unwrap_err();
        assert!(fault.to_string().contains("is not TLS"), "{fault}");
    }
    let mut client = verifying(&authority, "db.test").connect().unwrap();
    let fault = client
        .receive(b"N, and no more\r\n", &mut Vec::new())
        .unwrap_err();
    let words = fault.to_string();
    assert!(
        words.contains("[service.server_tls] mode = \"off\""),
        "{words}"
    );
}

#[test]
fn a_handshake_that_never_ends_is_ended() {
    let authority = Authority::new();
    let mut server = authority.acceptor(None).accept(&[]).unwrap();
    // A ClientHello of 60,000 bytes in records of one byte each.
    let mut message = vec![1, 0, 0xea, 0x60];
    message.resize(60_000, 0);
    let mut sent = 0;
    let fault = message.iter().find_map(|&byte| {
        sent += 6;
        server
            .receive(&[0x16, 3, 1, 0, 1, byte], &mut Vec::new())
            .err()
    });
    assert_eq!(fault, Some(ChannelError::Overlong(PENDING_BYTES_MAX)));
    assert!(sent <= PENDING_BYTES_MAX + 6);
}

#[test]
fn what_was_agreed_can_be_told() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(None);
    let check = |connector: &Connector, version: &str, alpn: Option<&[u8]>| {
        let mut pair = Pair::new(&acceptor, connector);
        assert_eq!(
            (pair.server.version(), pair.server.cipher().as_str()),
            ("", "")
        );
        pair.shake_hands(usize::MAX).unwrap();
        for end in [&pair.client, &pair.server] {
            assert_eq!(end.version(), version);
            assert_eq!(end.alpn(), alpn);
            assert!(end.cipher().starts_with("TLS_"), "{}", end.cipher());
        }
    };
    check(
        &verifying(&authority, "db.test"),
        "TLSv1.3",
        Some(b"postgresql"),
    );
    check(&old_connector(&[]), "TLSv1.2", None);
    let plain = Connector::new(&Tls::Encrypt(None), AlpnProtocol::Unnamed).unwrap();
    check(&plain.unwrap(), "TLSv1.3", None);
    assert!(
        Connector::new(&Tls::Off, AlpnProtocol::Postgres)
            .unwrap()
            .is_none()
    );
}

#[test]
fn direct_tls_must_name_the_protocol() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(None);
    let shake = |connector: &Connector, is_direct: bool| {
        let mut pair = Pair::new(&acceptor, connector);
        if is_direct {
            pair.server = acceptor.accept_direct().unwrap();
        }
        pair.shake_hands(usize::MAX)
    };
    let silent = old_connector(&[]);
    assert_eq!(shake(&verifying(&authority, "db.test"), true), Ok(()));
    assert_eq!(shake(&silent, true), Err(ChannelError::NoAlpn));
    assert_eq!(shake(&silent, false), Ok(()));
    for is_direct in [true, false] {
        let other = shake(&old_connector(&[b"http/1.1"]), is_direct).unwrap_err();
        assert!(
            other.to_string().contains("ALPN protocol other than"),
            "{other}"
        );
    }
}
