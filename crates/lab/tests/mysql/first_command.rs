//! Tests of a first command in one write with the last packet of the login.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use evenkeel_lab::{Haproxy, eventually, rootfs};
use evenkeel_wire::mysql::Parsed;
use evenkeel_wire::mysql::backend::{self, ErrorReport};
use evenkeel_wire::mysql::build::{self, ChangeUserFields, ResponseFields};
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::{self, Frame};
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::greeting::{self, First};
use evenkeel_wire::mysql::login::{
    Channel, Credential, Hello, ServerAuth, ServerAuthStep, ServerKey,
};
use evenkeel_wire::mysql::password::{Nonce, native};
use evenkeel_wire::mysql::startup::Attributes;
use tempfile::TempDir;

use super::client::{Client, Login, USUAL};
use super::lines;
use super::stage::{Setup, TestBed, config, shared, sql, start_mysql};
use crate::harness::certificates::{Certificates, write_private};
use crate::harness::line::Line;
use crate::harness::{DRIVERS, LIMIT, loopback};

/// Position of the command under TLS.
#[derive(Clone, Copy, Debug)]
enum Record {
    /// The record of the login's last packet.
    Same,
    /// The next record of the same write.
    Next,
}

/// A login whose client sends further commands with its last packet; `packets` counts its packets
/// until then.
#[derive(Clone, Copy)]
struct Eager<'a> {
    user: &'a str,
    password: &'a str,
    packets: usize,
}

const NATIVE: Eager<'_> = Eager {
    user: "sbtest",
    password: "sbtest",
    packets: 1,
};

/// Hash of `pa ss` as MySQL 9 stores it, in hex.
const STORED: &str = "0x24412430304124775D583F3D715C3E082A7C234B4F01301B28713E\
    77357476692E7072705673694D452E574B5858536C6443414C5A5A31734E6D437544577567354178743737";

/// Capabilities of both servers.
fn able() -> Capabilities {
    let able = USUAL.with(Capabilities::PROTOCOL_41);
    let able = able.with(Capabilities::SECURE_CONNECTION);
    able.with(Capabilities::PLUGIN_AUTH)
}

fn commands(texts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for text in texts {
        build::command(&mut out, Code::Query, text.as_bytes());
    }
    out
}

/// Returns the commands with a final COM_QUIT, so that the connection ends after all answers.
fn with_quit(texts: &[&str]) -> Vec<u8> {
    let mut out = commands(texts);
    build::command(&mut out, Code::Quit, b"");
    out
}

/// Returns packets as lines of text, with their numbers.
fn read(mut bytes: &[u8]) -> Vec<String> {
    let mut read = Vec::new();
    while let Parsed::Frame(found, length) = frame::frame(bytes, u32::MAX) {
        let line = match found.payload {
            [] => "empty".to_owned(),
            [1] => "columns".to_owned(),
            [3, b'd', b'e', b'f', ..] => "column".to_owned(),
            [backend::OK, ..] => "ok".to_owned(),
            [backend::EOF, ..] => "eof".to_owned(),
            [backend::ERROR, ..] => lines::error(&ErrorReport::read(found.payload).unwrap()),
            [_, value @ ..] => format!("value {}", lines::text(value)),
        };
        read.push(format!("{} {line}", found.sequence));
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "the beginning of a packet: {bytes:?}");
    read
}

/// Returns the lines of a result with one value.
fn result(value: &str) -> [String; 4] {
    let lines = ["1 columns", "2 column"].map(str::to_owned);
    let [columns, column] = lines;
    [
        columns,
        column,
        format!("3 value {value}"),
        "4 eof".to_owned(),
    ]
}

struct Talk {
    line: Line,
    join: Option<Box<ServerAuth>>,
    nonce: [u8; 20],
    agreed: Capabilities,
}

impl Talk {
    fn packet(&mut self) -> (u8, Vec<u8>) {
        loop {
            if let Parsed::Frame(found, length) = frame::frame(&self.line.incoming, u32::MAX) {
                let packet = (found.sequence, found.payload.to_vec());
                self.line.incoming.drain(..length);
                return packet;
            }
            assert!(self.line.receive(), "an end within a login");
        }
    }

    /// Sends the packets of a login, the last one together with `more`.
    fn begin(
        address: SocketAddr,
        certificates: Option<&Certificates>,
        eager: Eager<'_>,
    ) -> (Talk, Vec<u8>) {
        let mut talk = Talk {
            line: Line::connect(address),
            join: None,
            nonce: [0; 20],
            agreed: able(),
        };
        let (_, payload) = talk.packet();
        let First::Greeting(greeting) = greeting::first(&payload).unwrap() else {
            panic!("no greeting: {payload:?}");
        };
        talk.nonce = greeting.nonce.whole().unwrap();
        let mut sequence = 1;
        if let Some(certificates) = certificates {
            let mut out = Vec::new();
            build::ssl_request(&mut out, 1, able(), 45);
            sequence = 2;
            talk.line.send(&[&out]);
            talk.line.encrypt(certificates);
        }
        let (mut out, channel) = (Vec::new(), channel(certificates));
        let credential = credential(eager.password);
        let started = ServerAuth::begin(
            &greeting,
            &hello(eager.user),
            (credential, channel, ServerKey::Ask),
            [7; 32],
            (sequence, &mut out),
        );
        talk.join = Some(started.unwrap());
        (talk, out)
    }

    /// Answers the server's requests up to the packet that is sent with `more`.
    fn go_through(&mut self, mut out: Vec<u8>, packets: usize, record: Record, more: &[u8]) {
        for _ in 1..packets {
            self.line.send(&[&out]);
            out.clear();
            while out.is_empty() {
                let (sequence, payload) = self.packet();
                let frame = Frame {
                    sequence,
                    payload: &payload,
                };
                match self.join.take().unwrap().message(frame, &mut out) {
                    ServerAuthStep::More(next) => self.join = Some(next),
                    ServerAuthStep::Done(_) => panic!("the login is over early"),
                    ServerAuthStep::Refused(refusal) => panic!("{refusal}: {payload:?}"),
                }
            }
        }
        match record {
            Record::Same => self.line.send(&[&[&out, more].concat()]),
            Record::Next => self.line.send(&[&out, more]),
        }
    }

    /// Returns everything received after the login, and of the login only its end.
    fn receive_replies(mut self) -> Vec<String> {
        self.line.receive_all();
        let mut received = read(&self.line.incoming);
        if let Some(at) = received.iter().position(|line| line.ends_with(" ok")) {
            received.drain(..=at);
        }
        received
    }
}

fn hello(user: &str) -> Hello<'_> {
    Hello {
        capabilities: USUAL,
        collation: 45,
        user: user.as_bytes(),
        schema: Some(b"sbtest"),
        attributes: Attributes::default(),
    }
}

fn credential(password: &str) -> Credential {
    Credential::Password(password.as_bytes().to_vec().into())
}

fn channel(certificates: Option<&Certificates>) -> Channel {
    match certificates {
        Some(_) => Channel::Secure,
        None => Channel::Plain,
    }
}

/// Returns the answer to a login whose last write contains everything else.
fn run_talk(
    address: SocketAddr,
    certificates: Option<&Certificates>,
    eager: Eager<'_>,
    (record, more): (Record, &[u8]),
) -> Vec<String> {
    let (mut talk, first) = Talk::begin(address, certificates, eager);
    talk.go_through(first, eager.packets, record, more);
    talk.receive_replies()
}

/// Starts Evenkeel with TLS and a file of users.
fn start_bed(io: &str, certificates: &Certificates) -> (TempDir, TestBed) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("users.toml");
    let own = "server_user = \"sbtest\"\nserver_password = \"sbtest\"\n";
    write_private(
        &path,
        &format!("[users.app]\nverifier = \"{STORED}\"\n{own}"),
    );
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\n[service.auth]\nusers_file = {:?}",
        certificates.at("server.crt"),
        certificates.at("server.key"),
        path.display().to_string(),
    );
    let setup = Setup {
        tables: &tables,
        ..Setup::default()
    };
    let bed = TestBed::start(
        |address| config(shared(), address, io, setup),
        |bed| Client::log_in(bed.address, &Login::default()).map(|_| ()),
    );
    (directory, bed)
}

#[test]
fn commands_that_come_with_the_login_are_answered_in_their_order_as_at_a_server() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let long = format!("select '{}'", "x".repeat(100_000));
    let many: Vec<String> = (0..300)
        .map(|number| format!("select 'n {number}'"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let scripts = [
        with_quit(&[]),
        with_quit(&["select 'one'"]),
        with_quit(&["set @a = 'kept'", "select @a", "selec", "select 'after'"]),
        with_quit(&many),
        with_quit(&["select length(@a)", &long[..], "select 'behind'"]),
    ];
    let direct = |more: &Vec<u8>| run_talk(shared().address, None, NATIVE, (Record::Same, more));
    let expected: Vec<_> = scripts.iter().map(direct).collect();
    assert_eq!(expected[1], result("one"));
    assert_eq!(expected[3].len(), 4 * many.len());
    for io in DRIVERS {
        let (_directory, bed) = start_bed(io, &certificates);
        for (script, expected) in scripts.iter().zip(&expected) {
            for (tls, record) in [
                (None, Record::Same),
                (Some(&certificates), Record::Same),
                (Some(&certificates), Record::Next),
            ] {
                let received = run_talk(bed.address, tls, NATIVE, (record, script));
                let is_tls = tls.is_some();
                assert!(
                    received == *expected,
                    "{io} {is_tls} {record:?}: {received:?}"
                );
            }
        }
    }
}

#[test]
fn the_first_half_of_a_command_that_comes_with_the_login_waits_for_the_rest() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let script = with_quit(&["select 'one'", "select 'two'"]);
    for io in DRIVERS {
        let (_directory, bed) = start_bed(io, &certificates);
        for (tls, record) in [(None, Record::Same), (Some(&certificates), Record::Next)] {
            for cut in [1, 3, 5, 10, 20, script.len() - 3] {
                let (mut talk, first) = Talk::begin(bed.address, tls, NATIVE);
                talk.go_through(first, 1, record, &script[..cut]);
                thread::sleep(Duration::from_millis(20));
                talk.line.send(&[&script[cut..]]);
                let both = [result("one"), result("two")].concat();
                assert_eq!(talk.receive_replies(), both, "{io} {record:?} {cut}");
            }
        }
    }
}

/// The answer to an authentication switch is the last packet if the proof is known; otherwise the
/// whole password is.
#[test]
fn commands_may_come_with_whichever_packet_of_caching_sha2_is_the_last() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let script = with_quit(&["select 'one'"]);
    let of = |packets| Eager {
        user: "app",
        password: "pa ss",
        packets,
    };
    for io in DRIVERS {
        let (_directory, bed) = start_bed(io, &certificates);
        let (whole, fast) = (of(3), of(2));
        for (tls, eager, record) in [
            (Some(&certificates), whole, Record::Next),
            (Some(&certificates), fast, Record::Same),
            (Some(&certificates), fast, Record::Next),
            (None, fast, Record::Same),
        ] {
            let received = run_talk(bed.address, tls, eager, (record, &script));
            let (packets, is_tls) = (eager.packets, tls.is_some());
            assert_eq!(
                received,
                result("one"),
                "{io} {packets} {is_tls} {record:?}"
            );
        }
    }
}

/// The response to the greeting is the last packet if the proof is known. The client cannot know
/// that; if the proof is unknown, Evenkeel waits for the whole password.
#[test]
fn commands_may_come_with_the_response_where_mysql_s_greeting_names_caching_sha2() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-first-command");
    let script = with_quit(&["select 'one'"]);
    let eager = |address| {
        let eager = Eager {
            user: "app",
            password: "secret",
            packets: 1,
        };
        let received = run_talk(address, None, eager, (Record::Same, &script));
        let last = received.last().and_then(|line| line.split_once(' '));
        let refused = last.filter(|(_, line)| line.starts_with("error"));
        refused.map_or(received.clone(), |(_, error)| vec![error.to_owned()])
    };
    let log_in = |address| {
        let login = Login {
            user: "app",
            password: "secret",
            ..Login::default()
        };
        Client::log_in(address, &login).map(|_| ())
    };
    let renew = || {
        let renewed = "DROP USER IF EXISTS app@'127.0.0.1'; \
                       CREATE USER app@'127.0.0.1' IDENTIFIED BY 'secret'; \
                       GRANT ALL ON sbtest.* TO app@'127.0.0.1'";
        server.sql(renewed).unwrap();
    };
    renew();
    let unknown = eager(server.address);
    log_in(server.address).unwrap();
    assert_eq!(eager(server.address), result("one"));
    for io in DRIVERS {
        renew();
        let bed = TestBed::before(&server, io, Setup::default());
        assert_eq!(eager(bed.address), unknown, "{io}");
        log_in(bed.address).unwrap();
        assert_eq!(eager(bed.address), result("one"), "{io}");
    }
}

/// MariaDB requests authentication again at each change of user; here the received proof suffices.
#[test]
fn commands_may_come_with_a_change_of_user() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let answered = |address: SocketAddr, tls: Option<&Certificates>, login: &str| {
        let (mut talk, first) = Talk::begin(address, tls, NATIVE);
        let change = |talk: &Talk| {
            let nonce = Nonce::from_bytes(talk.nonce);
            let mut out = Vec::new();
            let fields = ChangeUserFields {
                capabilities: talk.agreed,
                user: b"sbtest",
                proof: &native::Key::of_password(b"sbtest").prove(&nonce),
                schema: b"sbtest",
                collation: 45,
                plugin: b"mysql_native_password",
                attributes: Attributes::default(),
            };
            build::change_user(&mut out, &fields);
            out
        };
        let script = with_quit(&["select coalesce(@a, 'none')"]);
        let change = [change(&talk), script].concat();
        let all = [commands(&["set @a = 'left'"]), change.clone()].concat();
        match login {
            "with it" => talk.go_through(first, 1, Record::Same, &all),
            "in the next record" => talk.go_through(first, 1, Record::Next, &all),
            _ => {
                // The change of user is the beginning of the single write.
                talk.go_through(first, 1, Record::Next, &commands(&["set @a = 'left'"]));
                let is_set = |bytes: &[u8]| bytes.len() > 4 && read(bytes).contains(&"1 ok".into());
                while !is_set(&talk.line.incoming) {
                    assert!(talk.line.receive());
                }
                talk.line.send(&[&change]);
            }
        }
        talk.receive_replies()
    };
    let expected = [vec!["1 ok".to_owned(); 2], result("none").to_vec()].concat();
    for io in DRIVERS {
        let (_directory, bed) = start_bed(io, &certificates);
        for (tls, login) in [
            (None, "before it"),
            (Some(&certificates), "before it"),
            (None, "with it"),
            (Some(&certificates), "with it"),
            (Some(&certificates), "in the next record"),
        ] {
            let received = answered(bed.address, tls, login);
            assert_eq!(received, expected, "{io} {} {login}", tls.is_some());
        }
    }
}

/// The next packet is taken as the awaited answer, not as a command.
#[test]
fn a_command_that_comes_before_the_answer_to_a_switch_ends_the_login_as_at_a_server() {
    let eager = |address: SocketAddr| {
        let mut talk = Talk {
            line: Line::connect(address),
            join: None,
            nonce: [0; 20],
            agreed: able(),
        };
        talk.packet();
        let mut out = Vec::new();
        let fields = ResponseFields {
            capabilities: able(),
            collation: 45,
            user: b"sbtest",
            plugin: b"caching_sha2_password",
            ..ResponseFields::default()
        };
        build::response(&mut out, 1, &fields);
        talk.line
            .send(&[&[out, with_quit(&["select 'one'"])].concat()]);
        talk.line.receive_all();
        let received = read(&talk.line.incoming);
        assert!(
            received.iter().all(|line| !line.contains("value one")),
            "{received:?}"
        );
        // The numbers differ: one answers the received packet, the other the awaited one.
        let last = received.last().and_then(|line| line.split_once(' '));
        last.map(|(_, error)| error.to_owned())
    };
    let direct = eager(shared().address);
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        assert_eq!(eager(bed.address), direct, "{io}");
    }
}

/// HAProxy sends its response and COM_QUIT in one write.
#[test]
fn haproxy_finds_it_up_by_a_mysql_check() {
    sql("create or replace user haproxy_check@'127.0.0.1'");
    let stages = DRIVERS.map(|io| TestBed::set_up(io, Setup::default()));
    let servers = stages.each_ref().map(|bed| bed.address);
    for option in [
        "option mysql-check",
        "option mysql-check user haproxy_check",
    ] {
        let listen = loopback();
        let haproxy = Haproxy::checking(option, &servers, listen).unwrap();
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
        assert_eq!(Client::connect(listen).value("select 'through'"), "through");
    }
}
