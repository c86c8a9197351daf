//! Tests TLS channels on real sockets, with OpenSSL and libpq as peers.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use evenkeel_tls::{Acceptor, AlpnProtocol, Authorities, Channel, Connector, Tls, TlsIdentity};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Certificates of a server `db.test` and a client `alice`, in files.
struct Papers(TempDir);

impl Papers {
    fn new(authority: &str) -> Self {
        let papers = Self(tempfile::tempdir().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, authority);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        papers.write("ca.pem", &authority.pem());
        let server = CertificateParams::new(vec!["db.test".to_owned()]).unwrap();
        let mut client = CertificateParams::new(Vec::new()).unwrap();
        client.distinguished_name.push(DnType::CommonName, "alice");
        for (name, params) in [("server", server), ("client", client)] {
            let key = KeyPair::generate().unwrap();
            let signed = params.signed_by(&key, &authority).unwrap();
            papers.write(&format!("{name}.crt"), &signed.pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        }
        papers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file that only the owner can read: libpq requires that of a key.
    fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let mut file = file.open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn acceptor(&self) -> Acceptor {
        let (certificate, key) = (self.path("server.crt"), self.path("server.key"));
        let client_ca = self.path("ca.pem");
        Acceptor::from_pem_files(&certificate, &key, Some(&client_ca), true).unwrap()
    }

    fn connector(&self, server_name: &str) -> Connector {
        let (certificate, key) = (self.path("client.crt"), self.path("client.key"));
        let identity = TlsIdentity::from_pem_files("[service.server_tls]", &certificate, &key);
        let tls = Tls::Verify {
            ca: Some(Authorities::from_pem(&std::fs::read(self.path("ca.pem")).unwrap()).unwrap()),
            fingerprints: Vec::new(),
            server_name: server_name.to_owned(),
            identity: Some(identity.unwrap()),
        };
        let connector = Connector::new(&tls, AlpnProtocol::Postgres);
        connector.unwrap().unwrap()
    }
}

/// Sends and receives until the plaintext is complete, or TLS fails.
fn talk(
    stream: &mut TcpStream,
    channel: &mut Channel,
    plain: &mut Vec<u8>,
    is_enough: impl Fn(&Channel, &[u8]) -> bool,
) -> Result<(), String> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut chunk = [0; 1000];
    loop {
        let mut cipher = Vec::new();
        channel.take_output(&mut cipher);
        stream.write_all(&cipher).unwrap();
        if is_enough(channel, plain) {
            return Ok(());
        }
        let count = stream.read(&mut chunk).map_err(|e| e.to_string())?;
        if count == 0 {
            return Err("the peer has left".to_owned());
        }
        let received = channel.receive(&chunk[..count], plain);
        received.map_err(|fault| fault.to_string())?;
    }
}

/// Accepts one connection of libpq and replies to its StartupMessage with an error that contains
/// the observations. Returns the TLS error if the handshake fails.
fn answer_one(acceptor: Acceptor) -> (SocketAddr, JoinHandle<Result<(), String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(request, *b"\0\0\0\x08\x04\xd2\x16\x2f");
        stream.write_all(b"S").unwrap();
        let mut channel = acceptor.accept(&[]).unwrap();
        let mut plain = Vec::new();
        talk(&mut stream, &mut channel, &mut plain, |_, plain| {
            plain.ends_with(b"\0\0")
        })?;
        let text = format!("{} for {:?}", channel.version(), channel.client_name());
        let fields = format!("SFATAL\0VFATAL\0C28000\0M{text}\0\0");
        let mut message = vec![b'E'];
        message.extend_from_slice(&(fields.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(fields.as_bytes());
        let mut cipher = Vec::new();
        channel.send(&message, &mut cipher).unwrap();
        channel.close(&mut cipher);
        stream.write_all(&cipher).unwrap();
        Ok(())
    });
    (address, answering)
}

fn psql(address: SocketAddr, words: &str) -> Output {
    let port = address.port();
    let conninfo = format!("hostaddr=127.0.0.1 port={port} user=alice dbname=x {words}");
    Command::new("psql")
        .args(["-X", "-w", "-c", "SELECT 1", &conninfo])
        .env("PGCONNECT_TIMEOUT", "20")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap()
}

fn is_missing(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok();
    if !found {
        println!("skipped: there is no {program} on this machine");
    }
    !found
}

#[test]
fn libpq_verifies_us_in_full_and_we_know_it_by_its_certificate() {
    if is_missing("psql", "--version") {
        return;
    }
    let papers = Papers::new("our authority");
    let full = format!("sslmode=verify-full sslrootcert={}", papers.text("ca.pem"));
    let certificate = format!(
        "sslcert={} sslkey={}",
        papers.text("client.crt"),
        papers.text("client.key")
    );
    let seen = |words: &str| {
        let (address, answering) = answer_one(papers.acceptor());
        let output = psql(address, words);
        let said = String::from_utf8(output.stderr).unwrap();
        (said, answering.join().unwrap())
    };
    let (said, ended) = seen(&format!("host=db.test {full}"));
    assert!(said.contains("TLSv1.3 for None"), "{said}");
    assert_eq!(ended, Ok(()));
    let (said, _) = seen(&format!("host=db.test {full} {certificate}"));
    assert!(said.contains("TLSv1.3 for Some(\"alice\")"), "{said}");
    let old = "ssl_max_protocol_version=TLSv1.2";
    let (said, _) = seen(&format!("host=db.test {full} {certificate} {old}"));
    assert!(said.contains("TLSv1.2 for Some(\"alice\")"), "{said}");
    let (said, ended) = seen(&format!("host=other.test {full}"));
    assert!(said.contains("does not match host name"), "{said}");
    assert!(ended.is_err());
    let strange = Papers::new("others' authority");
    let of_others = format!("sslmode=verify-ca sslrootcert={}", strange.text("ca.pem"));
    let (said, ended) = seen(&format!("host=db.test {of_others}"));
    assert!(said.contains("certificate verify failed"), "{said}");
    assert!(ended.unwrap_err().contains("sslrootcert"));
}

#[test]
fn openssl_at_the_other_end_takes_us_for_a_client() {
    if is_missing("openssl", "version") {
        return;
    }
    let papers = Papers::new("our authority");
    let ask = |server_name: &str, arguments: &[&str]| {
        let server = start_openssl(&papers, arguments);
        let mut stream = TcpStream::connect(server.1).unwrap();
        let mut channel = papers.connector(server_name).connect().unwrap();
        let mut plain = Vec::new();
        talk(&mut stream, &mut channel, &mut plain, |channel, _| {
            !channel.is_handshaking()
        })?;
        let mut cipher = Vec::new();
        channel.send(b"stressed\n", &mut cipher).unwrap();
        stream.write_all(&cipher).unwrap();
        talk(&mut stream, &mut channel, &mut plain, |_, plain| {
            plain.ends_with(b"\n")
        })?;
        assert_eq!(plain, b"desserts\n");
        let alpn = channel.alpn().map(<[u8]>::to_vec);
        Ok::<_, String>((
            channel.version(),
            alpn,
            channel.end_point().map(|hash| hash.len()),
        ))
    };
    let named = ["-alpn", "postgresql"];
    let postgresql = Some(b"postgresql".to_vec());
    assert_eq!(
        ask("db.test", &named),
        Ok(("TLSv1.3", postgresql, Some(32)))
    );
    assert_eq!(
        ask("db.test", &["-tls1_2"]),
        Ok(("TLSv1.2", None, Some(32)))
    );
    let certificate_wanted = ["-Verify", "1", "-verify_return_error"];
    assert!(ask("db.test", &certificate_wanted).is_ok());
    let refused = ask("other.test", &[]).unwrap_err();
    assert!(
        refused.contains("server certificate is not valid for this name"),
        "{refused}"
    );
}

/// Server that sends each line back reversed; terminated on drop.
struct Reverser(Child, SocketAddr);

fn start_openssl(papers: &Papers, arguments: &[&str]) -> Reverser {
    let mut child = Command::new("openssl")
        .args(["s_server", "-rev", "-accept", "127.0.0.1:0"])
        .args([
            "-cert",
            &papers.text("server.crt"),
            "-key",
            &papers.text("server.key"),
        ])
        .args(["-CAfile", &papers.text("ca.pem")])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut addresses = lines.filter_map(|line| {
        let line = line.unwrap();
        line.strip_prefix("ACCEPT ")?.parse().ok()
    });
    let address = addresses.next().expect("s_server says where it listens");
    Reverser(child, address)
}

impl Drop for Reverser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
