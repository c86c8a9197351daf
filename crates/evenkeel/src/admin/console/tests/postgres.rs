//! Tests the console with the messages of PostgreSQL clients.

use std::net::SocketAddr;

use evenkeel_wire::postgres::backend::{self, Message};
use evenkeel_wire::postgres::frame::{self, Frame};
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::postgres::login::{Credential, ServerAuth, ServerAuthStep};
use evenkeel_wire::postgres::{Parsed, build};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::admin::console::{Dialect, serve_session};
use crate::admin::tests::world::{DEADLINE, World};
use crate::status::{Command, KillWhich};

/// Client that reads single messages.
struct Client {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    async fn connect(world: &World, user: &str) -> Self {
        Self::to(world.postgres, user).await
    }

    async fn to(address: SocketAddr, user: &str) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let mut client = Self {
            socket,
            received: Vec::new(),
        };
        let mut out = Vec::new();
        build::ssl_request(&mut out);
        client.send(&out).await;
        let mut no = [0];
        client.socket.read_exact(&mut no).await.unwrap();
        assert_eq!(&no, b"N");
        out.clear();
        build::startup(&mut out, 2, [(&b"user"[..], user.as_bytes())]);
        client.send(&out).await;
        client
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Returns the next message. `None`: the console has closed the connection.
    async fn next(&mut self) -> Option<(char, String)> {
        let (tag, body) = self.next_raw().await?;
        Some((char::from(tag), String::from_utf8_lossy(&body).into_owned()))
    }

    async fn next_raw(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Parsed::Frame(Frame { tag, body }, length) =
                frame::frame(&self.received, 1 << 20)
            {
                let body = body.to_vec();
                self.received.drain(..length);
                return Some((tag, body));
            }
            let reading = self.socket.read_buf(&mut self.received);
            if timeout(DEADLINE, reading).await.unwrap().unwrap() == 0 {
                return None;
            }
        }
    }

    /// Reads until ReadyForQuery. Returns the tags and the texts.
    async fn answer(&mut self) -> (String, String) {
        let (mut tags, mut texts) = (String::new(), String::new());
        while let Some((tag, text)) = self.next().await {
            tags.push(tag);
            texts.push_str(&text);
            if tag == 'Z' {
                break;
            }
        }
        (tags, texts)
    }

    async fn query(&mut self, text: &str) -> (String, String) {
        let mut out = Vec::new();
        build::query(&mut out, text.as_bytes());
        self.send(&out).await;
        self.answer().await
    }

    /// Logs in with a password. Returns false if the console refused it.
    async fn log_in(&mut self, user: &str, password: &str) -> bool {
        let password = Zeroizing::new(password.as_bytes().to_vec());
        let credential = Credential::Password(password);
        let user = user.as_bytes().to_vec();
        let mut login = Box::new(ServerAuth::new(user, credential, None, false, [7; 18]));
        let mut out = Vec::new();
        while let Some((tag, body)) = self.next_raw().await {
            let message = backend::message(Frame { tag, body: &body }).unwrap();
            let Message::Authentication(request) = message else {
                return false;
            };
            match login.message(request, &mut out) {
                ServerAuthStep::More(next) => login = next,
                ServerAuthStep::Done(_) => return true,
                ServerAuthStep::Refused(_) => return false,
            }
            self.send(&out).await;
            out.clear();
        }
        false
    }
}

#[tokio::test]
async fn anybody_on_loopback_may_look_but_not_touch() {
    let world = World::start(Some("sesame")).await;
    let mut client = Client::connect(&world, "me").await;
    let (tags, texts) = client.answer().await;
    assert!(tags.starts_with('R') && tags.ends_with("SKZ"), "{tags}");
    assert!(texts.contains("Evenkeel"), "{texts}");
    let (tags, texts) = client.query("SHOW POOLS; SHOW VERSION").await;
    assert_eq!(tags, "TDDCTDCZ", "{texts}");
    assert!(
        texts.contains("shop") && texts.contains("cl_waiting"),
        "{texts}"
    );
    for text in [
        "PAUSE",
        "RESUME shop",
        "KILL_CLIENT 7",
        "RELOAD",
        "KILL shop",
        "RECONNECT",
    ] {
        let (tags, texts) = client.query(text).await;
        assert_eq!(tags, "EZ");
        assert!(texts.contains("42501"), "{text}: {texts}");
    }
    assert!(world.commands().is_empty());
}

#[tokio::test]
async fn the_user_admin_shows_the_token_and_may_change_things() {
    let world = World::start(Some("sesame")).await;
    let mut stranger = Client::connect(&world, "admin").await;
    assert!(!stranger.log_in("admin", "open").await);
    let mut client = Client::connect(&world, "admin").await;
    assert!(client.log_in("admin", "sesame").await);
    client.answer().await;
    for text in [
        "PAUSE shop",
        "RESUME orders/shop",
        "KILL_CLIENT 7",
        "KILL shop",
        "RELOAD",
    ] {
        let (tags, texts) = client.query(text).await;
        assert_eq!(tags, "NCZ", "{text}: {texts}");
    }
    let service = || "orders".to_owned();
    let database = || Some("shop".to_owned());
    let pause = Command::Pause {
        service: service(),
        database: database(),
    };
    let kill = |which| Command::Kill {
        service: service(),
        which,
    };
    let expect = [
        pause.clone(),
        Command::Resume {
            service: service(),
            database: database(),
        },
        kill(KillWhich::Client(7)),
        pause,
        kill(KillWhich::Database(database())),
        Command::Reload,
    ];
    assert_eq!(world.commands(), expect);
}

#[tokio::test]
async fn without_a_token_nobody_may_change_anything() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "admin").await;
    client.answer().await;
    let (tags, texts) = client.query("RELOAD").await;
    assert!(tags == "EZ" && texts.contains("token_file"), "{texts}");
}

#[tokio::test]
async fn the_extended_protocol_shows_tables_row_by_row() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    client.answer().await;
    let mut out = Vec::new();
    build::parse(&mut out, b"s", b"SHOW CLIENTS", b"");
    build::describe(&mut out, Target::Statement(b"s"));
    build::bind(&mut out, b"", b"s", &[]);
    build::execute(&mut out, b"", 1);
    build::execute(&mut out, b"", 0);
    build::sync(&mut out);
    client.send(&out).await;
    let (tags, texts) = client.answer().await;
    assert_eq!(tags, "1tT2DsDCZ", "{texts}");
    assert!(
        texts.contains("LISTEN") && texts.contains("10.1.2.3"),
        "{texts}"
    );
}

#[tokio::test]
async fn after_an_error_a_pipeline_is_skipped_up_to_its_sync() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    client.answer().await;
    let mut out = Vec::new();
    build::parse(&mut out, b"", b"SELECT one", b"");
    build::bind(&mut out, b"", b"", &[]);
    build::execute(&mut out, b"", 0);
    build::sync(&mut out);
    build::query(&mut out, b";");
    client.send(&out).await;
    assert_eq!(client.answer().await.0, "EZ");
    assert_eq!(client.answer().await.0, "IZ");
}

#[tokio::test]
async fn select_is_sql_over_the_tables_and_nothing_else() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    client.answer().await;
    let join = "SELECT c.user, max(s.remote_pid) AS pid, count(DISTINCT s.server) AS n \
                FROM clients c JOIN servers s ON s.user = c.user GROUP BY c.user ORDER BY n DESC";
    let (tags, texts) = client.query(join).await;
    assert_eq!(tags, "TDCZ", "{texts}");
    for part in ["pid", "ann", "4712", "2"] {
        assert!(texts.contains(part), "{part}: {texts}");
    }
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT count(*) FROM n";
    for (text, code, part) in [
        ("ATTACH ':memory:' AS other", "42601", "SHOW HELP"),
        ("PRAGMA table_list", "42601", "SHOW HELP"),
        ("DELETE FROM pools", "42601", "SHOW HELP"),
        (
            "WITH a AS (SELECT 1) DELETE FROM pools",
            "0A000",
            "its own tables",
        ),
        ("SELECT load_extension('x')", "0A000", "its own tables"),
        ("SELECT * FROM pragma_table_list", "0A000", "its own tables"),
        ("SELECT * FROM nobody", "42P01", "clients, config"),
        (
            "SELECT nobody FROM pools",
            "42703",
            "pools has database, user",
        ),
        ("SELECT user FROM", "42601", "incomplete input"),
        (endless, "57014", "1 s"),
    ] {
        let (tags, texts) = client.query(text).await;
        assert_eq!(tags, "EZ", "{text}: {texts}");
        assert!(
            texts.contains(code) && texts.contains(part),
            "{text}: {texts}"
        );
    }
    let (tags, texts) = client
        .query("SELECT 1; VALUES (2), (3); SELECT nobody; SELECT 4")
        .await;
    assert_eq!(tags, "TDCTDDCEZ", "{texts}");
}

#[tokio::test]
async fn the_extended_protocol_describes_what_select_gives() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    client.answer().await;
    let mut out = Vec::new();
    build::parse(
        &mut out,
        b"s",
        b"SELECT id AS number FROM clients ORDER BY 1",
        b"",
    );
    build::describe(&mut out, Target::Statement(b"s"));
    build::bind(&mut out, b"", b"s", &[]);
    build::execute(&mut out, b"", 1);
    build::execute(&mut out, b"", 0);
    build::sync(&mut out);
    for text in [
        &b"SELECT 1; SELECT 2"[..],
        b"SELECT * FROM pools WHERE user = $1",
    ] {
        build::parse(&mut out, b"", text, b"");
        build::sync(&mut out);
    }
    client.send(&out).await;
    let (tags, texts) = client.answer().await;
    assert_eq!(tags, "1tT2DsDCZ", "{texts}");
    assert!(texts.contains("number"), "{texts}");
    for part in ["one statement at a time", "$1 has no value"] {
        let (tags, texts) = client.answer().await;
        assert!(tags == "EZ" && texts.contains(part), "{texts}");
    }
}

#[tokio::test]
async fn whoever_breaks_the_protocol_is_told_and_sent_away() {
    let world = World::start(None).await;
    let mut client = Client::connect(&world, "me").await;
    client.answer().await;
    client.send(b"Q\x7f\xff\xff\xff").await;
    let (tag, text) = client.next().await.unwrap();
    assert!(tag == 'E' && text.contains("08P01"), "{text}");
    assert!(client.next().await.is_none());
}

#[tokio::test]
async fn from_elsewhere_everybody_must_show_the_token() {
    let elsewhere = "192.0.2.1".parse().unwrap();
    for (token, expect) in [
        (None, ('E', "28000")),
        (Some("sesame"), ('R', "SCRAM-SHA-256")),
    ] {
        let world = World::start(token).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let console = super::console(&world, token);
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            serve_session(&console, Dialect::Postgres, stream, elsewhere).await;
        });
        let mut client = Client::to(address, "me").await;
        let (tag, text) = client.next().await.unwrap();
        assert_eq!(tag, expect.0, "{text}");
        assert!(text.contains(expect.1), "{text}");
        drop(client);
        serving.await.unwrap();
    }
}
