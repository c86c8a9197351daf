//! Tests of a first command in one write with the last message of the login.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use evenkeel_lab::{Haproxy, eventually};
use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::backend::{self, Message};
use evenkeel_wire::postgres::frame::{self, LENGTH_MAX};
use evenkeel_wire::postgres::login::{Credential, ServerAuth, ServerAuthStep};
use tempfile::TempDir;

use super::client::{Client, Login, line};
use super::script::Script;
use super::stage::{Setup, TestBed, shared};
use crate::harness::certificates::{Certificates, write_private};
use crate::harness::line::Line;
use crate::harness::{DRIVERS, LIMIT, loopback};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Position of the command under TLS.
#[derive(Clone, Copy, Debug)]
enum Record {
    /// The record of the login's last message.
    Same,
    /// The next record of the same write.
    Next,
}

/// A login whose client sends further commands with its last message; `messages` counts its
/// messages until then.
#[derive(Clone, Copy)]
struct Eager<'a> {
    user: &'a str,
    messages: usize,
}

const SCRAM: Eager<'_> = Eager {
    user: "sbtest",
    messages: 3,
};

/// Returns messages as lines of text, except for variable ones of the greeting.
fn read(mut bytes: &[u8]) -> Vec<String> {
    let mut read = Vec::new();
    while let Parsed::Frame(found, length) = frame::frame(bytes, LENGTH_MAX) {
        read.push(line(&backend::message(found).unwrap()));
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "the beginning of a message: {bytes:?}");
    read
}

struct Talk {
    line: Line,
    join: Option<ServerAuth>,
}

impl Talk {
    fn begin(address: SocketAddr, certificates: Option<&Certificates>, user: &str) -> Talk {
        let mut line = Line::connect(address);
        if let Some(certificates) = certificates {
            line.send(&[&SSL_REQUEST]);
            line.receive();
            assert_eq!(std::mem::take(&mut line.incoming), b"S");
            line.encrypt(certificates);
        }
        let password = Credential::Password(b"sbtest".to_vec().into());
        let join = ServerAuth::new(
            user.into(),
            password,
            None,
            certificates.is_some(),
            [b'n'; 18],
        );
        let join = Some(join);
        Talk { line, join }
    }

    /// Returns the answer to the server's next request.
    fn answer(&mut self) -> Vec<u8> {
        loop {
            let Parsed::Frame(found, length) = frame::frame(&self.line.incoming, LENGTH_MAX) else {
                assert!(self.line.receive(), "an end within a login");
                continue;
            };
            let mut out = Vec::new();
            let Message::Authentication(request) = backend::message(found).unwrap() else {
                panic!("{found:?}");
            };
            match self.join.take().unwrap().message(request, &mut out) {
                ServerAuthStep::More(next) => self.join = Some(*next),
                other => panic!("{other:?}"),
            }
            self.line.incoming.drain(..length);
            if !out.is_empty() {
                return out;
            }
        }
    }

    /// Sends the messages of a login, the last one together with `more`.
    fn go_through(&mut self, eager: Eager<'_>, record: Record, more: &[u8]) {
        let login = Login {
            user: eager.user,
            ..Login::default()
        };
        let mut out = Script::startup(&login).0;
        for _ in 1..eager.messages {
            self.line.send(&[&out]);
            out = self.answer();
        }
        match record {
            Record::Same => self.line.send(&[&[&out, more].concat()]),
            Record::Next => self.line.send(&[&out, more]),
        }
    }

    /// Returns everything received after the login.
    fn receive_replies(mut self) -> Vec<String> {
        self.line.receive_all();
        let mut received = read(&self.line.incoming);
        if let Some(at) = received.iter().position(|line| line.starts_with('Z')) {
            received.drain(..=at);
        }
        received
    }
}

fn run_talk(
    address: SocketAddr,
    certificates: Option<&Certificates>,
    eager: Eager<'_>,
    (record, more): (Record, &Script),
) -> Vec<String> {
    let mut talk = Talk::begin(address, certificates, eager.user);
    talk.go_through(eager, record, &more.0);
    talk.receive_replies()
}

/// Starts Evenkeel with TLS and a file of users: one sends its password in cleartext, one its
/// certificate.
fn start_bed(io: &str, certificates: &Certificates) -> (TempDir, TestBed) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("users.toml");
    let own = "server_user = \"sbtest\"\nserver_password = \"sbtest\"\n";
    let users = format!(
        "[users.clear]\npassword = \"sbtest\"\ncleartext = true\n{own}\
         [users.hashed]\nmd5 = \"{MD5}\"\n{own}"
    );
    write_private(&path, &users);
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         [service.auth]\nusers_file = {:?}",
        certificates.at("server.crt"),
        certificates.at("server.key"),
        certificates.at("ca.crt"),
        path.display().to_string(),
    );
    let setup = Setup {
        tables: &tables,
        ..Setup::default()
    };
    (directory, TestBed::set_up(io, setup))
}

/// MD5 hash of password `sbtest` for user `hashed`.
const MD5: &str = "md5121b5fe5b9768679265f02dfa3e65d2c";

fn scripts() -> Vec<Script> {
    let batch = |script: Script, value| {
        let parsed = script.parse("", "select $1::text");
        parsed.bind("", &[value]).execute().sync()
    };
    let mut many = Script::new();
    for number in 0..300 {
        many = many.query(&format!("select 'n {number}'"));
    }
    let long = format!("select '{}'", "x".repeat(100_000));
    let mixed = Script::new().query("set work_mem = '5MB'");
    let mixed = batch(mixed, "bound").query("selec").query("show work_mem");
    vec![
        Script::new().terminate(),
        Script::new().query("select 'one'").terminate(),
        batch(Script::new(), "bound").terminate(),
        mixed.terminate(),
        many.terminate(),
        batch(Script::new().query(&long), "behind").terminate(),
    ]
}

#[test]
fn commands_that_come_with_the_login_are_answered_in_their_order_as_at_a_server() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let scripts = scripts();
    let direct = |more| run_talk(shared().address, None, SCRAM, (Record::Same, more));
    let expected: Vec<_> = scripts.iter().map(direct).collect();
    assert!(expected[0].is_empty(), "{:?}", expected[0]);
    assert_eq!(expected[1][1], "D one");
    assert_eq!(expected[4].len(), 4 * 300);
    for io in DRIVERS {
        let (_directory, bed) = start_bed(io, &certificates);
        for (script, expected) in scripts.iter().zip(&expected) {
            for (tls, record) in [
                (None, Record::Same),
                (Some(&certificates), Record::Same),
                (Some(&certificates), Record::Next),
            ] {
                let received = run_talk(bed.address, tls, SCRAM, (record, script));
                let is_tls = tls.is_some();
                assert!(
                    received == *expected,
                    "{io} {is_tls} {record:?}: {received:?}"
                );
            }
        }
    }
}

/// The last message is the startup packet if nothing is requested, otherwise the password.
#[test]
fn commands_may_come_with_the_last_message_of_every_kind_of_login() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let script = Script::new().query("select 'one'").terminate();
    for io in DRIVERS {
        let (_directory, bed) = start_bed(io, &certificates);
        for (user, tls, messages) in [
            ("clear", Some(&certificates), 2),
            ("hashed", Some(&certificates), 2),
            ("hashed", None, 2),
        ] {
            for record in [Record::Same, Record::Next] {
                let eager = Eager { user, messages };
                let received = run_talk(bed.address, tls, eager, (record, &script));
                let expected = ["T ?column?", "D one", "C SELECT 1", "Z Idle"];
                assert_eq!(
                    received,
                    expected,
                    "{io} {user} {} {record:?}",
                    tls.is_some()
                );
            }
        }
    }
}

#[test]
fn commands_may_come_with_the_startup_packet_where_a_certificate_says_who_it_is() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let users = certificates.at("users.toml");
    write_private(
        &users,
        "[users.sbtest]\ncertificate = true\nserver_password = \"sbtest\"\n",
    );
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         [service.auth]\nusers_file = {users:?}",
        certificates.at("server.crt"),
        certificates.at("server.key"),
        certificates.at("ca.crt"),
    );
    let setup = Setup {
        tables: &tables,
        ..Setup::default()
    };
    let eager = Eager {
        user: "sbtest",
        messages: 1,
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, setup);
        for script in scripts() {
            for record in [Record::Same, Record::Next] {
                let direct = run_talk(shared().address, None, SCRAM, (Record::Same, &script));
                let received = run_talk(bed.address, Some(&certificates), eager, (record, &script));
                assert!(received == direct, "{io} {record:?}: {received:?}");
            }
        }
    }
}

#[test]
fn the_first_half_of_a_command_that_comes_with_the_login_waits_for_the_rest() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let script = Script::new().query("select 'one'").query("select 'two'");
    let script = script.terminate();
    let direct = run_talk(shared().address, None, SCRAM, (Record::Same, &script));
    for io in DRIVERS {
        let (_directory, bed) = start_bed(io, &certificates);
        for (tls, record) in [(None, Record::Same), (Some(&certificates), Record::Next)] {
            for cut in [1, 4, 5, 12, 25, script.0.len() - 2] {
                let mut talk = Talk::begin(bed.address, tls, SCRAM.user);
                talk.go_through(SCRAM, record, &script.0[..cut]);
                thread::sleep(Duration::from_millis(20));
                talk.line.send(&[&script.0[cut..]]);
                assert_eq!(talk.receive_replies(), direct, "{io} {record:?} {cut}");
            }
        }
    }
}

/// The next message is taken as the awaited answer, not as a command.
#[test]
fn a_command_that_comes_before_the_password_ends_the_login_as_at_a_server() {
    let script = Script::new().query("select 'one'").terminate();
    let eager = Eager {
        user: "sbtest",
        messages: 1,
    };
    let sqlstate = |address| {
        let mut talk = Talk::begin(address, None, eager.user);
        talk.go_through(eager, Record::Same, &script.0);
        talk.line.receive_all();
        read(&talk.line.incoming)
    };
    let direct = sqlstate(shared().address);
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        assert_eq!(sqlstate(bed.address), direct, "{io}");
    }
}

/// HAProxy sends a startup packet, and accepts a password request or an error.
#[test]
fn haproxy_finds_it_up_by_a_pgsql_check() {
    let stages = DRIVERS.map(|io| TestBed::set_up(io, Setup::default()));
    let servers = stages.each_ref().map(|bed| bed.address);
    for user in ["sbtest", "nobody_knows"] {
        let (listen, option) = (loopback(), format!("option pgsql-check user {user}"));
        let haproxy = Haproxy::checking(&option, &servers, listen).unwrap();
        let both = ["UP L7OK"; 2];
        let found = eventually(LIMIT, "both are up", || {
            // Its socket exists a moment after it listens.
            Ok(haproxy
                .states()
                .is_ok_and(|states| states == both)
                .then_some(()))
        });
        found.unwrap_or_else(|error| panic!("{error}: {option}: {:?}", haproxy.states()));
        // They stay up: one failed check is not enough for DOWN.
        thread::sleep(Duration::from_secs(1));
        assert_eq!(haproxy.states().unwrap(), both, "{option}");
        let mut client = Client::connect(listen);
        assert_eq!(client.value("select 'through'"), "through");
    }
}
