//! Measures the memory of an idle TLS connection, in a separate process so that nothing else
//! counts.

#![expect(clippy::unwrap_used, reason = "tests")]

use evenkeel_tls::{Acceptor, AlpnProtocol, Channel, Connector, Tls, TlsIdentity};

/// Maximum memory of TLS per client, in bytes. A client without TLS may use 8 kB after its login.
const BYTES_MAX: usize = 6 << 10;
const PAIRS: usize = 1_000;

#[test]
fn idle_channels_take_little_memory() {
    let certified = rcgen::generate_simple_self_signed(vec!["db.test".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let identity =
        TlsIdentity::from_pem("[service.tls]", certificate.as_bytes(), key.as_bytes()).unwrap();
    let acceptor = Acceptor::new(&identity, None, false).unwrap();
    let connector = Connector::new(&Tls::Encrypt(None), AlpnProtocol::Postgres).unwrap();
    let connector = connector.unwrap();
    let make = |count: usize| -> Vec<(Channel, Channel)> {
        (0..count).map(|_| talked(&acceptor, &connector)).collect()
    };
    let warm = make(50);
    let before = resident_bytes();
    let pairs = make(PAIRS);
    let bytes = resident_bytes().saturating_sub(before) / PAIRS / 2;
    println!("{bytes} bytes each");
    assert!(bytes < BYTES_MAX, "{bytes} bytes each");
    drop((warm, pairs));
}

/// Returns both ends after a handshake and a few kilobytes in each direction.
fn talked(acceptor: &Acceptor, connector: &Connector) -> (Channel, Channel) {
    let (mut client, mut server) = (connector.connect().unwrap(), acceptor.accept(&[]).unwrap());
    let mut plain = Vec::new();
    loop {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.take_output(&mut up);
        server.receive(&up, &mut plain).unwrap();
        server.take_output(&mut down);
        client.receive(&down, &mut plain).unwrap();
        if up.is_empty() && down.is_empty() {
            break;
        }
    }
    let mut cipher = Vec::new();
    client.send(&[7; 3_000], &mut cipher).unwrap();
    server.receive(&cipher, &mut plain).unwrap();
    cipher.clear();
    server.send(&[8; 3_000], &mut cipher).unwrap();
    client.receive(&cipher, &mut plain).unwrap();
    (client, server)
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
