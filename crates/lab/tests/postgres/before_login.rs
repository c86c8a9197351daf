//! Tests of random message sequences before a login: each ends soon, with a short answer, and
//! without reaching a server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

use evenkeel_lab::eventually;

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{Setup, TestBed, start_own};
use crate::harness::rng::TestRng;
use crate::harness::{DRIVERS, LIMIT};

/// Number of sequences per driver, which are reproducible, and maximum of messages in each.
const SEQUENCES: u64 = 400;
const MESSAGES_MAX: u64 = 7;
/// Greetings, refusals and errors of both kinds are short.
const HEARD_LENGTH_MAX: usize = 2_000;

const SSL: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];
/// Beginning of a TLS handshake that is never completed.
const CLIENT_HELLO: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
const CLIENT_FIRST: &[u8] = b"SCRAM-SHA-256\0\0\0\0\x20n,,n=,r=abcdefghijklmnopqrstuvwx";
const WRITE: &str = "insert into before_login values (1)";

fn startup(user: &str) -> Vec<u8> {
    let login = Login {
        user,
        ..Login::default()
    };
    Script::startup(&login).0
}

/// Returns messages that may arrive before a login, valid there or not.
fn messages() -> Vec<Vec<u8>> {
    let message = |tag, body: &[u8]| Script::new().message(tag, body).0;
    let batch = Script::new().parse("", WRITE).bind("", &[]).execute();
    let whole = startup("sbtest");
    vec![
        SSL.to_vec(),
        GSS.to_vec(),
        CLIENT_HELLO.to_vec(),
        whole[..whole.len() / 2].to_vec(),
        whole,
        startup("nobody"),
        startup(""),
        vec![0, 0, 0, 8, 0, 3, 0, 0],
        vec![0, 0, 0, 9, 0, 3, 0, 2, 0],
        vec![0, 0, 0, 9, 0, 2, 0, 0, 0],
        // A cancel request that matches no session.
        vec![0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2],
        vec![0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0],
        vec![0, 0, 0, 0],
        message(b'p', CLIENT_FIRST),
        message(b'p', b"SCRAM-SHA-256-PLUS\0\0\0\0\x04y,,n"),
        message(b'p', b"c=biws,r=abcdefgh,p=AAAA"),
        message(b'p', b"sbtest\0"),
        message(b'p', b""),
        message(b'p', &[b'x'; 30_000]),
        vec![b'p', 0x7f, 0xff, 0xff, 0xff],
        vec![b'p', 0, 0, 0, 3],
        message(b'R', b"\0\0\0\0"),
        message(b'F', &[0; 10]),
        Script::new().query(WRITE).0,
        batch.sync().0,
        Script::new().copy_data(b"1\n").copy_done().0,
        Script::new().terminate().0,
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 40],
    ]
}

/// Sends a sequence, reads the whole answer, and returns its length.
fn send(address: SocketAddr, pieces: &[&[u8]]) -> usize {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // The connection may rightly have ended by now.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let since = Instant::now();
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {} ms", since.elapsed().as_millis()),
    }
    received.len()
}

#[test]
fn whatever_comes_before_a_login_ends_soon_and_reaches_no_server() {
    let (_lab, server) = start_own();
    let login = Login {
        user: "postgres",
        password: "postgres",
        ..Login::default()
    };
    let mut admin =
        Client::log_in(server.address, &login).unwrap_or_else(|reply| panic!("{reply}"));
    admin.run("create table before_login (a int)");
    admin.run("grant all on before_login to public");
    let messages = messages();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, Setup::default());
        let mut rng = TestRng(7);
        for number in 0..SEQUENCES {
            let count = 1 + rng.below(MESSAGES_MAX);
            let chosen: Vec<usize> = (0..count).map(|_| rng.index(messages.len())).collect();
            let mut pieces: Vec<&[u8]> = chosen.iter().map(|one| &*messages[*one]).collect();
            let joined = pieces.concat();
            if number % 2 == 0 {
                pieces = vec![&joined];
            }
            let length = send(bed.address, &pieces);
            assert!(
                length <= HEARD_LENGTH_MAX,
                "{io}: {length} bytes for {chosen:?}"
            );
        }
        let left = eventually(LIMIT, "all clients gone", || {
            let clients = bed.status()["sessions"]["current"].as_u64();
            Ok((clients == Some(0)).then_some(()))
        });
        left.unwrap_or_else(|error| panic!("{io}: {error}: {}", bed.status()));
        let of_user = "select count(*) from pg_stat_activity where usename = 'sbtest'";
        assert_eq!(admin.value(of_user), "0", "{io}");
        assert_eq!(admin.value("select count(*) from before_login"), "0");
        assert_eq!(bed.client().value("select 'unharmed'"), "unharmed");
    }
}
