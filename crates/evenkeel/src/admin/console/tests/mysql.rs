//! Tests the console with the packets of MySQL clients.

use std::net::SocketAddr;

use evenkeel_wire::mysql::Parsed;
use evenkeel_wire::mysql::backend::ErrorReport;
use evenkeel_wire::mysql::build::{self, ResponseFields};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frame;
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::greeting::{self, First};
use evenkeel_wire::mysql::password::{self, Nonce, native, sha2};
use evenkeel_wire::mysql::server_scanner::{Event, ExpectedReply, ServerScanner, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admin::console::{Dialect, serve_session};
use crate::admin::tests::world::{DEADLINE, World};
use crate::status::{Command, KillWhich};

/// Capabilities of every client.
const OLD: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::MULTI_RESULTS);

/// Capabilities of newer clients.
const NEW: Capabilities = OLD.with(Capabilities::DEPRECATE_EOF);

/// Client that reads single packets.
struct Client {
    socket: TcpStream,
    received: Vec<u8>,
    nonce: Nonce,
    capabilities: Capabilities,
}

impl Client {
    /// Connects and reads the greeting.
    async fn to(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let mut client = Self {
            socket,
            received: Vec::new(),
            nonce: Nonce::of_random([1; 20]),
            capabilities: NEW,
        };
        let (sequence, payload) = client.packet().await.unwrap();
        assert_eq!(sequence, 0);
        let First::Greeting(greeting) = greeting::first(&payload).unwrap() else {
            panic!("an error");
        };
        assert!(greeting.capabilities.has(NEW));
        client.nonce = Nonce::from_bytes(greeting.nonce.whole().unwrap());
        client
    }

    async fn connect(world: &World, user: &str) -> Self {
        let mut client = Self::to(world.mysql).await;
        client
            .log_in(user, "", password::CACHING_SHA2)
            .await
            .unwrap();
        client
    }

    /// Logs in with a password. Returns the message of a refusal as the error.
    async fn log_in(&mut self, user: &str, password: &str, plugin: &[u8]) -> Result<(), String> {
        let secret = password.as_bytes();
        let proof = match plugin {
            _ if password.is_empty() => Vec::new(),
            password::NATIVE => native::Key::of_password(secret).prove(&self.nonce).to_vec(),
            _ => sha2::Key::of_password(secret).prove(&self.nonce).to_vec(),
        };
        let fields = ResponseFields {
            capabilities: self.capabilities,
            collation: 45,
            user: user.as_bytes(),
            proof: &proof,
            plugin,
            ..ResponseFields::default()
        };
        let mut out = Vec::new();
        build::response(&mut out, 1, &fields);
        self.socket.write_all(&out).await.unwrap();
        let mut due = 2;
        loop {
            let (sequence, payload) = self.packet().await.ok_or("it left")?;
            assert_eq!(sequence, due);
            due += 1;
            match payload.first() {
                Some(0) => return Ok(()),
                // The fast authentication has succeeded, and OK follows.
                Some(1) => assert_eq!(payload, [1, 3]),
                _ => return Err(error_text(&payload)),
            }
        }
    }

    /// Returns the next packet. `None`: the console has closed the connection.
    async fn packet(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Parsed::Frame(frame, length) = frame::frame(&self.received, 1 << 20) {
                let packet = (frame.sequence, frame.payload.to_vec());
                self.received.drain(..length);
                return Some(packet);
            }
            let reading = self.socket.read_buf(&mut self.received);
            if timeout(DEADLINE, reading).await.unwrap().ok()? == 0 {
                return None;
            }
        }
    }

    async fn command(&mut self, code: Code, body: &[u8]) {
        let mut out = Vec::new();
        build::packet(&mut out, 0, |out| {
            out.push(code as u8);
            out.extend_from_slice(body);
        });
        self.socket.write_all(&out).await.unwrap();
    }

    /// Returns the results of a text, each as a list of rows, or the message of the error.
    async fn query(&mut self, text: &str) -> Result<Vec<Vec<Vec<String>>>, String> {
        self.command(Code::Query, text.as_bytes()).await;
        let mut boundaries = ServerScanner::new(self.capabilities);
        let (mut bytes, mut results) = (Vec::new(), Vec::new());
        loop {
            let (sequence, payload) = self.packet().await.ok_or("it left")?;
            build::packet(&mut bytes, sequence, |out| out.extend_from_slice(&payload));
            let Some(end) = whole(&mut boundaries.clone(), &bytes) else {
                continue;
            };
            let status = end?;
            results.push(rows(&bytes, self.capabilities));
            boundaries = ServerScanner::new(self.capabilities);
            bytes.clear();
            if !status.has(Status::MORE_RESULTS) {
                return Ok(results);
            }
        }
    }

    /// Returns the rows of a text with one result.
    async fn rows(&mut self, text: &str) -> Vec<Vec<String>> {
        let mut results = self.query(text).await.unwrap();
        assert_eq!(results.len(), 1, "{text}");
        results.remove(0)
    }
}

/// Returns the status at the end of a result, if the result is complete.
fn whole(boundaries: &mut ServerScanner, mut bytes: &[u8]) -> Option<Result<Status, String>> {
    loop {
        match boundaries.next(bytes, ExpectedReply::Results) {
            Step::Event {
                passed,
                event,
                length,
            } => {
                match event {
                    Event::Error(report) => return Some(Err(report_text(&report))),
                    Event::Ok(ok) => return Some(Ok(ok.status)),
                    Event::ResultEnd(end) => return Some(Ok(end.status())),
                    _ => {}
                }
                bytes = &bytes[passed + length..];
            }
            Step::Wait { .. } => return None,
            Step::Invalid(fault) => panic!("{fault}"),
        }
    }
}

/// Returns the values that follow the column definitions. NULL becomes the text `NULL`.
fn rows(mut bytes: &[u8], capabilities: Capabilities) -> Vec<Vec<String>> {
    let mut packets = Vec::new();
    while let Parsed::Frame(frame, length) = frame::frame(bytes, 1 << 20) {
        packets.push(frame.payload);
        bytes = &bytes[length..];
    }
    let columns = usize::from(packets[0][0]);
    let has_eof = !capabilities.has(Capabilities::DEPRECATE_EOF);
    let head = 1 + columns + usize::from(has_eof);
    if columns == 0 {
        return Vec::new();
    }
    packets[head..packets.len() - 1]
        .iter()
        .map(|row| values(row))
        .collect()
}

fn values(mut row: &[u8]) -> Vec<String> {
    let mut values = Vec::new();
    while let Some((first, rest)) = row.split_first() {
        let (length, rest) = match first {
            0xfb => {
                values.push("NULL".to_owned());
                row = rest;
                continue;
            }
            0xfc => (
                usize::from(u16::from_le_bytes([rest[0], rest[1]])),
                &rest[2..],
            ),
            length => (usize::from(*length), rest),
        };
        values.push(String::from_utf8_lossy(&rest[..length]).into_owned());
        row = &rest[length..];
    }
    values
}

fn error_text(payload: &[u8]) -> String {
    report_text(&ErrorReport::read(payload).expect("an error"))
}

fn report_text(report: &ErrorReport<'_>) -> String {
    let message = String::from_utf8_lossy(report.message);
    format!("{} {message}", report.code)
}

#[tokio::test]
async fn anybody_on_loopback_may_look_but_not_touch() {
    for capabilities in [OLD, NEW] {
        let world = World::start(Some("sesame")).await;
        let mut client = Client::to(world.mysql).await;
        client.capabilities = capabilities;
        client
            .log_in("me", "", password::CACHING_SHA2)
            .await
            .unwrap();
        let pools = client.rows("SHOW POOLS").await;
        assert_eq!(pools[0][0], "shop", "{pools:?}");
        let both = client.query("SHOW LISTS; SHOW VERSION;").await.unwrap();
        assert!(
            both.len() == 2 && both[1][0][0].starts_with("Evenkeel"),
            "{both:?}"
        );
        for text in ["PAUSE", "KILL 7", "RELOAD", "KILL shop", "RECONNECT"] {
            let error = client.query(text).await.unwrap_err();
            assert!(error.starts_with("1227 "), "{text}: {error}");
        }
        assert!(world.commands().is_empty());
    }
}

#[tokio::test]
async fn the_user_admin_shows_the_token_and_may_change_things() {
    let world = World::start(Some("sesame")).await;
    for plugin in [password::CACHING_SHA2, password::NATIVE] {
        for wrong in ["", "open", "sesame "] {
            let mut stranger = Client::to(world.mysql).await;
            let error = stranger.log_in("admin", wrong, plugin).await.unwrap_err();
            assert!(error.starts_with("1045 "), "{wrong}: {error}");
            assert!(stranger.packet().await.is_none());
        }
        let mut client = Client::to(world.mysql).await;
        client.log_in("admin", "sesame", plugin).await.unwrap();
        assert!(client.rows("PAUSE shop").await.is_empty());
        client.query("KILL 7").await.unwrap();
    }
    let pause = Command::Pause {
        service: "orders".to_owned(),
        database: Some("shop".to_owned()),
    };
    let kill = Command::Kill {
        service: "orders".to_owned(),
        which: KillWhich::Client(7),
    };
    assert_eq!(world.commands()[..2], [pause, kill]);
}

#[tokio::test]
async fn a_client_that_is_let_in_unasked_may_have_sent_a_proof_all_the_same() {
    let world = World::start(None).await;
    for plugin in [password::CACHING_SHA2, password::NATIVE] {
        let mut client = Client::to(world.mysql).await;
        client.log_in("me", "whatever", plugin).await.unwrap();
        assert_eq!(client.rows("SELECT USER()").await, [["me"]]);
    }
}

#[tokio::test]
async fn what_drivers_ask_for_at_their_beginning_is_answered() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    let comment = client.rows("select @@version_comment limit 1").await;
    assert!(comment[0][0].starts_with("Evenkeel "), "{comment:?}");
    assert_eq!(client.rows("SELECT DATABASE()").await, [["NULL"]]);
    client.command(Code::InitDb, b"evenkeel").await;
    assert_eq!(client.packet().await.unwrap().1[0], 0);
    assert_eq!(
        client.rows("SELECT DATABASE(), 1").await,
        [["evenkeel", "1"]]
    );
    assert_eq!(client.rows("SHOW DATABASES").await, [["evenkeel"]]);
    let tables = client.rows("SHOW TABLES FROM evenkeel").await;
    assert!(tables.contains(&vec!["pools".to_owned()]), "{tables:?}");
    let variables = client.rows("SHOW VARIABLES LIKE 'lower\\_case%'").await;
    assert_eq!(variables, [["lower_case_table_names", "0"]]);
    let rules = client.rows("SELECT name, hits FROM rules").await;
    assert!(!rules.is_empty());
    let processes = client.rows("SHOW FULL PROCESSLIST").await;
    assert_eq!(processes[0].len(), 8);
    for (code, body, first) in [
        (Code::Ping, &b""[..], 0),
        (Code::ResetConnection, b"", 0),
        (Code::SetOption, b"\0\0", 0xfe),
        (Code::FieldList, b"pools\0", 0xfe),
        (Code::Statistics, b"", b'S'),
        (Code::StmtPrepare, b"SHOW POOLS", 0xff),
    ] {
        client.command(code, body).await;
        let (sequence, payload) = client.packet().await.unwrap();
        assert_eq!((sequence, payload[0]), (1, first), "{code:?}");
    }
    client.command(Code::Quit, b"").await;
    assert!(client.packet().await.is_none());
}

#[tokio::test]
async fn after_an_error_a_text_ends_and_its_client_goes_on() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    for (text, code) in [
        ("SHOW LISTS; SHOW NOTHING; SHOW LISTS", "1064"),
        ("SELECT * FROM nobody", "1146"),
        ("SELECT nobody FROM pools", "1054"),
        ("SELECT @@nothing", "1193"),
        ("KILL QUERY 1", "1295"),
        ("", "1064"),
    ] {
        let error = client.query(text).await.unwrap_err();
        assert!(error.starts_with(code), "{text}: {error}");
    }
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
}

#[tokio::test]
async fn select_is_sql_over_the_tables_and_nothing_else() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    let join = "SELECT c.user, max(s.remote_pid), count(DISTINCT s.server) AS n \
                FROM `evenkeel`.`clients` c JOIN servers s ON s.user = c.user \
                WHERE c.user LIKE \"A%\" GROUP BY c.user ORDER BY n DESC";
    assert_eq!(client.rows(join).await, [["ann", "4712", "2"]]);
    let both = "SELECT @@autocommit = 1, VERSION() LIKE '8%', user(), count(*) > 1 FROM clients";
    assert_eq!(client.rows(both).await, [["1", "1", "me", "1"]]);
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT count(*) FROM n";
    for (text, beginning) in [
        ("ATTACH ':memory:' AS other", "1064 "),
        ("PRAGMA table_list", "1064 "),
        ("WITH a AS (SELECT 1) UPDATE pools SET user = 1", "1295 "),
        (
            "SELECT load_extension('x')",
            "1295 not authorized to use function",
        ),
        ("SELECT * FROM nobody", "1146 no such table: nobody"),
        (endless, "3024 the query was cancelled after 1 s"),
    ] {
        let error = client.query(text).await.unwrap_err();
        assert!(error.starts_with(beginning), "{text}: {error}");
    }
    let results = client.query("SELECT 1; SELECT 2").await.unwrap();
    assert_eq!(results, [[["1"]], [["2"]]]);
}

#[tokio::test]
async fn whoever_breaks_the_protocol_is_told_and_sent_away() {
    let world = World::start(None).await;
    for garbage in [
        &b"\xff\xff\xff\0"[..],
        b"\x01\0\0\x05\x0e",
        b"\x01\x40\0\0",
        b"\x01\0\0\0\x0e\x01\0\0\x01\x0e",
    ] {
        let mut client = Client::connect(&world, "me").await;
        client.socket.write_all(garbage).await.unwrap();
        let mut last = Vec::new();
        while let Some((_, payload)) = client.packet().await {
            last = payload;
        }
        assert!(error_text(&last).starts_with("1835 "), "{garbage:?}");
    }
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x20\0\0\x01\x05\x8a\x00\x00\0\0\0\0\x2d",
        b"\x01\0\0\x07\0",
    ] {
        let mut client = Client::to(world.mysql).await;
        let mut bytes = garbage.to_vec();
        bytes.resize(64, 0);
        client.socket.write_all(&bytes).await.unwrap();
        let (_, payload) = client.packet().await.unwrap();
        assert_eq!(payload[0], 0xff);
        assert!(client.packet().await.is_none());
    }
    assert!(world.commands().is_empty());
}

#[tokio::test]
async fn from_elsewhere_everybody_must_show_the_token() {
    let elsewhere = "192.0.2.1".parse().unwrap();
    for (token, given, expect) in [
        (None, "", Err("1045 remote access requires")),
        (Some("sesame"), "", Err("1045 Access denied")),
        (Some("sesame"), "sesame", Ok(())),
    ] {
        let world = World::start(token).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let console = super::console(&world, token);
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            serve_session(&console, Dialect::Mysql, stream, elsewhere).await;
        });
        let mut client = Client::to(address).await;
        let outcome = client.log_in("me", given, password::CACHING_SHA2).await;
        match expect {
            Ok(()) => assert_eq!(outcome, Ok(())),
            Err(beginning) => {
                let error = outcome.unwrap_err();
                assert!(error.starts_with(beginning), "{error}");
            }
        }
        drop(client);
        serving.await.unwrap();
    }
}
