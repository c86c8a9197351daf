//! Tests the probes against peers that are silent, send invalid data or send slowly, and a scripted
//! MySQL login.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use evenkeel_monitor::probe::{
    HttpProbe, MysqlProbe, Observation, PostgresProbe, Probe, Target, TcpProbe, Tls,
};

use crate::asking::{account, ask, assert_failed, assert_passed};
use crate::rig::{PATIENCE, program, run, until};

const LIMIT: Duration = Duration::from_millis(400);

/// Listener that passes every connection to `behave`, and counts the completed ones.
struct Peer {
    target: Target,
    accepted: mpsc::Receiver<thread::JoinHandle<()>>,
}

impl Peer {
    fn start(behave: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::tcp(listener.local_addr().unwrap());
        let (tx, accepted) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let behave = behave.clone();
                if tx.send(thread::spawn(move || behave(stream))).is_err() {
                    return;
                }
            }
        });
        Self { target, accepted }
    }

    fn ask(&self, probe: Probe, tls: Tls) -> Observation {
        let observation = ask(
            probe,
            Some(account("monitor", "secret")),
            tls,
            &self.target,
            LIMIT,
        );
        // Each peer ends with its connection; a remaining peer means that the probe left one open.
        for peer in self.accepted.try_iter() {
            until("the probe has closed its connection", || peer.is_finished());
        }
        observation
    }
}

fn read_to_the_end(mut stream: TcpStream) {
    let mut sink = [0; 4096];
    let deadline = Instant::now() + PATIENCE;
    while matches!(stream.read(&mut sink), Ok(n) if n > 0) && Instant::now() < deadline {}
}

fn mysql() -> Probe {
    Probe::Mysql(MysqlProbe {
        query: "SELECT 1".to_owned(),
        ..Default::default()
    })
}

fn postgres() -> Probe {
    Probe::Postgres(PostgresProbe {
        query: "SELECT 1".to_owned(),
        ..Default::default()
    })
}

fn http() -> Probe {
    Probe::Http(HttpProbe {
        path: "/".to_owned(),
        host: None,
        status: Vec::new(),
        body: None,
    })
}

#[test]
fn a_silent_peer_is_given_up_at_the_time_limit_and_left_without_a_connection() {
    let peer = Peer::start(read_to_the_end);
    let silent = peer.ask(mysql(), Tls::Off);
    assert_failed(
        &silent,
        "timed out after 400 ms while waiting for the server's greeting",
    );
    for tls in [Tls::Off, Tls::Encrypt(None)] {
        assert_failed(
            &peer.ask(postgres(), tls),
            "timed out after 400 ms while logging in",
        );
    }
    let http_silent = peer.ask(http(), Tls::Off);
    assert_failed(
        &http_silent,
        "timed out after 400 ms while waiting for the HTTP response",
    );
    assert_failed(
        &peer.ask(http(), Tls::Encrypt(None)),
        "timed out after 400 ms while starting TLS",
    );
    // The TCP probe requires only that the connection is accepted.
    assert_passed(&peer.ask(Probe::Tcp(TcpProbe), Tls::Off));
}

#[test]
fn a_peer_that_speaks_something_else_is_quoted() {
    for banner in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"220 mail.test ESMTP\r\n",
        b"-ERR what\r\n",
    ] {
        let peer = Peer::start(move |mut stream| {
            let _ = stream.write_all(banner);
            read_to_the_end(stream);
        });
        let quoted = banner[..8].escape_ascii().to_string();
        let no = |protocol: &str| format!("not a {protocol} server: received \"{quoted}");
        assert_failed(&peer.ask(mysql(), Tls::Off), &no("MySQL"));
        assert_failed(&peer.ask(postgres(), Tls::Off), &no("PostgreSQL"));
        assert_failed(&peer.ask(http(), Tls::Off), &no("HTTP"));
        assert_failed(
            &peer.ask(http(), Tls::Encrypt(None)),
            "the server's response is not TLS",
        );
    }
}

#[test]
fn a_postgres_error_in_plain_text_is_not_taken_for_a_message_of_a_gigabyte() {
    let peer = Peer::start(|mut stream| {
        let _ = stream.write_all(b"ERROR: no such thing\n");
        read_to_the_end(stream);
    });
    assert_failed(
        &peer.ask(postgres(), Tls::Off),
        "not a PostgreSQL server: received \"ERROR",
    );
}

#[test]
fn malformed_packets_end_the_probe_and_nothing_else() {
    let greeting = mysql_greeting("caching_sha2_password");
    // An empty packet instead of the public key, a switch to a plugin without a nonce, half a
    // greeting.
    let scripts: [Vec<Vec<u8>>; 3] = [
        vec![greeting.clone(), vec![2, 0, 0, 2, 1, 4], vec![0, 0, 0, 4]],
        vec![
            greeting,
            [&[24, 0, 0, 2, 0xfe][..], b"caching_sha2_password\0\0"].concat(),
        ],
        vec![vec![5, 0, 0, 0, 10, b'8', b'.', b'0', 0]],
    ];
    for script in scripts {
        let peer = Peer::start(move |mut stream| {
            let mut sink = [0; 4096];
            for packet in &script {
                let _ = stream.write_all(packet);
                let _ = stream.read(&mut sink);
            }
        });
        assert_failed(&peer.ask(mysql(), Tls::Off), "");
    }
}

// Fails without the code after `progress.passed` in probe/tcp.rs and probe/http.rs.
#[test]
fn the_goodbye_is_an_end_and_no_reset_though_the_peer_said_more_than_was_asked() {
    for (probe, answer) in [
        (Probe::Tcp(TcpProbe), ""),
        (http(), "HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n"),
    ] {
        let (tx, ends) = mpsc::channel();
        let peer = Peer::start(move |mut stream| {
            let mut request = [0; 4096];
            if !answer.is_empty() {
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
                // The reply has passed by now, and the rest arrives as surplus.
                thread::park_timeout(Duration::from_millis(50));
            }
            let wrote = stream.write_all(&[b'x'; 40_000]);
            let end = wrote.and_then(|()| stream.read(&mut request));
            // A reset that arrives after the end is visible only here.
            let _ = tx.send((end, stream.take_error()));
        });
        assert_passed(&peer.ask(probe, Tls::Off));
        let (end, error) = ends.recv_timeout(PATIENCE).unwrap();
        assert_eq!(end.unwrap(), 0);
        assert!(error.unwrap().is_none());
    }
}

#[test]
fn a_peer_that_closes_at_once_is_told_from_one_that_refuses() {
    let peer = Peer::start(drop);
    for probe in [mysql(), postgres(), http()] {
        let closed = peer.ask(probe, Tls::Off);
        let why = format!("{closed:?}");
        assert!(
            why.contains("closed the connection") || why.contains("reset"),
            "{why}"
        );
    }
}

#[test]
fn a_peer_that_trickles_does_not_outlast_the_time_limit() {
    let greeting = mysql_greeting("mysql_native_password");
    let scripts = [
        (mysql(), greeting, "timed out after 400 ms"),
        (
            postgres(),
            b"R\0\0\0\x08\0\0\0\0S\0\0\0\x40".repeat(9),
            "while logging in",
        ),
        (
            http(),
            b"HTTP/1.1 200 OK\r\nX-Slow: aaaaaaaaaaaaaaaaaaaa".repeat(9),
            "HTTP response",
        ),
    ];
    for (probe, script, words) in scripts {
        let peer = Peer::start(move |mut stream| {
            for byte in &script {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::park_timeout(Duration::from_millis(50));
            }
        });
        assert_failed(&peer.ask(probe, Tls::Off), words);
    }
}

#[test]
fn caching_sha2_password_goes_the_fast_way() {
    let peer = Peer::start(|mut stream| {
        let scramble = log_in(&mut stream);
        assert_eq!(scramble.len(), 32);
        send(&mut stream, 2, &[1, 3]);
        send(&mut stream, 3, OK);
        answer_query(&mut stream);
    });
    assert_passed(&peer.ask(mysql(), Tls::Off));
}

// Fails if the peer expects another password.
#[test]
fn caching_sha2_password_goes_the_full_way_with_the_servers_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let openssl = || Command::new(program("openssl", &[], "openssl"));
    let key = path.join("key.pem");
    run(openssl()
        .args(["genrsa", "-traditional", "-out"])
        .arg(&key)
        .arg("2048"));
    let public = run(openssl().args(["rsa", "-pubout", "-in"]).arg(&key));
    let (tx, passwords) = mpsc::channel();
    let peer = Peer::start(move |mut stream| {
        log_in(&mut stream);
        send(&mut stream, 2, &[1, 4]);
        assert_eq!(receive(&mut stream), [2]);
        send(&mut stream, 4, &[&[1], public.as_bytes()].concat());
        let _ = tx.send(decrypt(&path, &receive(&mut stream)));
        send(&mut stream, 6, OK);
        answer_query(&mut stream);
    });
    let monitor = Some(account("monitor", "secret"));
    assert_passed(&ask(mysql(), monitor, Tls::Off, &peer.target, PATIENCE));
    assert_eq!(passwords.recv_timeout(PATIENCE).unwrap(), b"secret\0");
}

const NONCE: &[u8; 20] = b"abcdefghijklmnopqrst";
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

fn mysql_greeting(plugin: &str) -> Vec<u8> {
    // Protocol 4.1, secure connection, plugin authentication; no TLS, and EOF packets of the old
    // kind.
    let capabilities: u32 = 0x0000_0001 | 0x0000_0200 | 0x0000_8000 | 0x0008_0000;
    let [c0, c1, c2, c3] = capabilities.to_le_bytes();
    let mut body = b"\x0a8.0.40\0\x01\0\0\0".to_vec();
    body.extend_from_slice(&NONCE[..8]);
    body.extend_from_slice(&[0, c0, c1, 45, 2, 0, c2, c3, 21]);
    body.extend_from_slice(&[0; 10]);
    body.extend_from_slice(&NONCE[8..]);
    body.push(0);
    body.extend_from_slice(plugin.as_bytes());
    body.push(0);
    [&[body.len() as u8, 0, 0, 0], &body[..]].concat()
}

fn send(stream: &mut TcpStream, sequence: u8, body: &[u8]) {
    let [low, middle, ..] = body.len().to_le_bytes();
    stream
        .write_all(&[&[low, middle, 0, sequence], body].concat())
        .unwrap();
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; usize::from(u16::from_le_bytes([header[0], header[1]]))];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Sends the greeting, and returns the client's response to the password challenge.
fn log_in(stream: &mut TcpStream) -> Vec<u8> {
    stream
        .write_all(&mysql_greeting("caching_sha2_password"))
        .unwrap();
    let response = receive(stream);
    // Capabilities, packet size, character set, filler; then the user's name, then the scramble
    // with its length.
    let rest = response[32..].strip_prefix(b"monitor\0").unwrap();
    rest[1..=usize::from(rest[0])].to_vec()
}

fn answer_query(stream: &mut TcpStream) {
    assert_eq!(receive(stream), b"\x03SELECT 1");
    send(stream, 1, OK);
    assert_eq!(receive(stream), [1], "the client quits");
}

/// Decrypts the client's response: RSA with OAEP around the password mixed with the nonce.
fn decrypt(dir: &Path, secret: &[u8]) -> Vec<u8> {
    std::fs::write(dir.join("secret"), secret).unwrap();
    let mut openssl = Command::new(program("openssl", &[], "openssl"));
    openssl.args([
        "pkeyutl",
        "-decrypt",
        "-pkeyopt",
        "rsa_padding_mode:oaep",
        "-inkey",
    ]);
    openssl
        .arg(dir.join("key.pem"))
        .arg("-in")
        .arg(dir.join("secret"));
    openssl.arg("-out").arg(dir.join("plain"));
    run(&mut openssl);
    let mixed = std::fs::read(dir.join("plain")).unwrap();
    mixed
        .iter()
        .zip(NONCE.iter().cycle())
        .map(|(m, n)| m ^ n)
        .collect()
}
