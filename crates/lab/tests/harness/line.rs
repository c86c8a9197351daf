//! A connection on which a test controls the bytes of one write, and under TLS of one record.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::LIMIT;
use super::certificates::Certificates;

/// A plain or TLS connection.
pub(crate) struct Line {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Received bytes that were not yet taken.
    pub(crate) incoming: Vec<u8>,
}

impl Line {
    pub(crate) fn connect(address: SocketAddr) -> Line {
        let stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Line {
            stream,
            tls: None,
            incoming: Vec::new(),
        }
    }

    /// Starts TLS with the certificate of `sbtest`.
    pub(crate) fn encrypt(&mut self, certificates: &Certificates) {
        let read = |name| CertificateDer::from_pem_file(certificates.at(name)).unwrap();
        let key = PrivateKeyDer::from_pem_file(certificates.at("client.key")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(read("ca.crt")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![read("client.crt")], key)
            .unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        tls.set_buffer_limit(None);
        self.stream.set_read_timeout(Some(LIMIT)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream).unwrap();
        }
        self.tls = Some(Box::new(tls));
    }

    /// Sends all pieces in one write; under TLS each begins a record.
    pub(crate) fn send(&mut self, pieces: &[&[u8]]) {
        let mut out = Vec::new();
        for piece in pieces {
            match &mut self.tls {
                Some(tls) => tls.writer().write_all(piece).unwrap(),
                None => out.extend_from_slice(piece),
            }
        }
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut out).unwrap();
            }
        }
        self.stream.write_all(&out).unwrap();
    }

    /// Waits for more bytes; returns false at the end.
    pub(crate) fn receive(&mut self) -> bool {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no answer after {:?}", self.incoming);
            self.stream.set_read_timeout(Some(left)).unwrap();
            let mut bytes = [0; 16 * 1024];
            let mut arrived = match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => &bytes[..count],
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("no answer after {:?}", self.incoming)
                }
                Err(_) => return false,
            };
            let Some(tls) = &mut self.tls else {
                self.incoming.extend_from_slice(arrived);
                return true;
            };
            let before = self.incoming.len();
            while !arrived.is_empty() {
                tls.read_tls(&mut arrived).unwrap();
                tls.process_new_packets().unwrap();
                // Reading without data returns an error, which is expected.
                let _ = tls.reader().read_to_end(&mut self.incoming);
            }
            if self.incoming.len() > before {
                return true;
            }
        }
    }

    /// Receives all bytes up to the end.
    pub(crate) fn receive_all(&mut self) {
        while self.receive() {}
    }
}
