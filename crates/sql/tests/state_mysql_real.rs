//! Compares clients' settings on pooled connections of a real MariaDB with those on separate
//! connections.

#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "shared with the tests of the monitor")]
#[path = "../../monitor/tests/probe_real/rig.rs"]
mod rig;
#[path = "state_mysql_real/scripts.rs"]
mod scripts;
#[path = "state_mysql_real/session.rs"]
mod session;

use std::path::{Path, PathBuf};
use std::process::Command;

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::Volatility;
use evenkeel_sql::mysql::LexerModes;
use evenkeel_sql::session_state::mysql::{
    CatalogLookup, FOLLOWED, HoldPolicy, InitialSettings, ObservedResultReads, ResultReads,
    ServerSessionState, SessionState, SettingsDiff, StatementReply, TextAnalysis, bound_by_body,
    settings_diff, trackers,
};
use evenkeel_sql::session_state::settings::Interner;
use evenkeel_wire::mysql::trackers::Trackers;
use rig::{Server, is_root, program, run};
use session::{Answer, Connection, Part};

/// utf8mb4_general_ci
const COLLATION: u8 = 45;

/// A server started for the test, or one that runs already.
struct Place {
    _server: Option<Server>,
    socket: PathBuf,
}

/// Starts Debian's MariaDB. Instead, `EVENKEEL_TEST_MYSQL` may contain two sockets, separated by a
/// comma, of servers with empty data whose superuser has no password.
fn start(number: usize) -> Place {
    if let Ok(given) = std::env::var("EVENKEEL_TEST_MYSQL") {
        let socket = PathBuf::from(given.split(',').nth(number).unwrap());
        return Place {
            _server: None,
            socket,
        };
    }
    let server = Server::start(libc::SIGKILL, command);
    let place = Place {
        socket: server.path("sock"),
        _server: None,
    };
    server.until("mariadbd answers", || {
        connect(&place, COLLATION, "").is_ok()
    });
    Place {
        _server: Some(server),
        ..place
    }
}

fn command(dir: &Path, port: u16) -> Command {
    let data = format!("--datadir={}", dir.join("data").display());
    let install = program("mariadb-install-db", &[], "mariadb-server-core");
    let user: &[&str] = if is_root() { &["--user=root"] } else { &[] };
    // Not /tmp: a MariaDB that starts deletes the temporary tables of other servers there.
    std::fs::create_dir(dir.join("temporary")).unwrap();
    let temporary = format!("--tmpdir={}", dir.join("temporary").display());
    run(Command::new(install)
        .args([
            "--no-defaults",
            &data,
            &temporary,
            "--auth-root-authentication-method=normal",
        ])
        .args(["--skip-test-db", "--innodb-log-file-size=8M"])
        .args(user));
    let mut command = Command::new(program("mariadbd", &[], "mariadb-server-core"));
    let file = |option: &str, name: &str| format!("--{option}={}", dir.join(name).display());
    command
        .args([
            "--no-defaults",
            &data,
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
        ])
        .args([
            format!("--port={port}"),
            file("socket", "sock"),
            file("pid-file", "pid"),
            temporary,
        ])
        .args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"])
        // No statement waits for another, since there is only one thread.
        .args([
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=0",
        ])
        .args(user);
    command
}

fn connect(server: &Place, collation: u8, schema: &str) -> std::io::Result<Connection> {
    Connection::open(&server.socket, collation, schema)
}

/// Partial knowledge of the servers' routines and triggers.
struct Learnt;

impl CatalogLookup for Learnt {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Unknown
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn triggers(&self, name: &[u8]) -> Pins {
        match name {
            b"triggered" => bound_by_body(b"SET @hidden = 5", LexerModes::default()),
            _ => Pins::NONE,
        }
    }
}

/// Connection of the pool, with its known state.
struct Lent {
    connection: Connection,
    on: ServerSessionState,
}

/// Client with a direct connection and one through the pool.
struct Client {
    own: Connection,
    journal: SessionState,
    at: usize,
    is_held: bool,
}

/// Two servers that execute the same statements, so that their data is the same.
struct Scene {
    interner: Interner,
    observed_reads: ObservedResultReads,
    lent: Vec<Lent>,
    clients: Vec<Client>,
    direct: Place,
    server: Place,
    mariadb: bool,
    version: u32,
}

/// Converts a version to the number in version comments, such as 101119.
fn number(version: &str) -> u32 {
    let own = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = own.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || {
        numbers
            .next()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    };
    next() * 10_000 + next() * 100 + next()
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the variables that Evenkeel queries right after a connection's login.
fn fresh(connection: &mut Connection) -> Pairs {
    let names = FOLLOWED.join("','");
    let answer = connection.query(&format!(
        "SHOW SESSION VARIABLES WHERE Variable_name IN ('{names}')"
    ));
    assert_eq!(answer.error, None);
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_default().into_bytes();
    let rows = answer.rows();
    rows.iter()
        .map(|row| (cell(&row[0]), cell(&row[1])))
        .collect()
}

fn pairs(fresh: &Pairs) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    fresh
        .iter()
        .map(|(name, value)| (name.as_slice(), value.as_slice()))
}

impl Scene {
    fn new(collations: &[u8], connections: usize) -> Scene {
        let (server, direct) = (start(0), start(1));
        let interner = Interner::new();
        for server in [&server, &direct] {
            let mut admin = connect(server, COLLATION, "").unwrap();
            for text in [
                "DROP DATABASE IF EXISTS app",
                "DROP DATABASE IF EXISTS other",
            ] {
                assert_eq!(admin.query(text).error, None);
            }
            for text in scripts::PREPARATION {
                assert_eq!(admin.query(text).error, None, "{text}");
            }
        }
        let version = connect(&server, COLLATION, "").unwrap().version;
        let mut scene = Scene {
            mariadb: version.contains("MariaDB"),
            version: number(&version),
            interner,
            observed_reads: ObservedResultReads::default(),
            lent: Vec::new(),
            clients: Vec::new(),
            direct,
            server,
        };
        for _ in 0..connections {
            let (connection, fresh) = scene.open();
            let on = ServerSessionState::new(pairs(&fresh), None, &scene.interner);
            let on = on.with_version(scene.mariadb, scene.version);
            scene.lent.push(Lent { connection, on });
        }
        for collation in collations {
            scene.join(*collation);
        }
        scene
    }

    fn open(&self) -> (Connection, Pairs) {
        let mut connection = connect(&self.server, 8, "").unwrap();
        let fresh = fresh(&mut connection);
        assert_eq!(
            connection.query(trackers(self.mariadb, self.version)).error,
            None
        );
        (connection, fresh)
    }

    fn join(&mut self, collation: u8) {
        let client = self.client(collation);
        self.clients.push(client);
    }

    fn client(&self, collation: u8) -> Client {
        let own = connect(&self.direct, collation, "app").unwrap();
        let (_, fresh) = self.open();
        let begin = InitialSettings {
            collation: u16::from(collation),
            schema: Some(b"app"),
            mariadb: self.mariadb,
            version: self.version,
        };
        Client {
            own,
            journal: SessionState::new(pairs(&fresh), begin, &self.interner),
            at: 0,
            is_held: false,
        }
    }

    /// Sends COM_RESET_CONNECTION for a pinned client. A client that remains pinned even then
    /// disconnects, and its connection is closed.
    fn reset(&mut self, client: usize) {
        let interner = &self.interner;
        let Client {
            own, journal, at, ..
        } = &mut self.clients[client];
        let Lent { connection, on } = &mut self.lent[*at];
        let mut pins = journal.pins;
        pins.release(UnpinEvent::ResetConnection);
        if pins.is_empty() {
            assert_eq!(own.reset().error, None);
            assert_eq!(connection.reset().error, None);
            let fresh = fresh(connection);
            assert_eq!(
                connection.query(trackers(self.mariadb, self.version)).error,
                None
            );
            on.apply_reset(pairs(&fresh), interner);
            journal.apply_reset(on, interner);
            // A reset discards the character set of the schema, but not the schema.
            let schema = journal.schema().unwrap().to_vec();
            assert_eq!(own.init_db(&schema).error, None);
            assert_eq!(connection.init_db(&schema).error, None);
            self.clients[client].is_held = false;
            return;
        }
        let at = *at;
        let (connection, fresh) = self.open();
        let on = ServerSessionState::new(pairs(&fresh), None, &self.interner);
        let on = on.with_version(self.mariadb, self.version);
        self.lent[at] = Lent { connection, on };
        self.clients[client] = self.client(COLLATION);
    }

    fn is_bound(&self, client: usize) -> bool {
        !self.clients[client].journal.pins.is_empty()
    }

    /// Returns the connections that no client has.
    fn free(&self) -> Vec<usize> {
        let taken = |at: usize| {
            let mut clients = self.clients.iter();
            clients.any(|client| {
                client.at == at && (client.is_held || !client.journal.pins.is_empty())
            })
        };
        (0..self.lent.len()).filter(|at| !taken(*at)).collect()
    }

    /// Prepares a connection for a client: connection `any`, unless the client has one.
    fn lend(&mut self, client: usize, meaning: &TextAnalysis, any: usize) {
        let needs = self.observed_reads.needs(meaning);
        if meaning.needs.is_empty() && std::mem::take(&mut self.clients[client].is_held) {
            self.ask(client);
        }
        let has_one = self.is_bound(client) || self.clients[client].is_held;
        if !has_one {
            let free = self.free();
            self.clients[client].at = free[any % free.len()];
        }
        if !has_one || !needs.is_empty() {
            self.fit(client, needs);
        }
    }

    fn fit(&mut self, client: usize, needs: ResultReads) {
        let client = &mut self.clients[client];
        let Lent { connection, on } = &mut self.lent[client.at];
        let mut sql = Vec::new();
        let SettingsDiff::Put { schema } = settings_diff(on, &mut client.journal, needs, &mut sql)
        else {
            return;
        };
        if let Some(schema) = schema {
            let answer = connection.init_db(&schema);
            assert_eq!(answer.error, None);
            hear(&answer.parts, on, None, &self.interner);
        }
        if !sql.is_empty() {
            let sql = String::from_utf8(sql).unwrap();
            let answer = connection.query(&sql);
            assert_eq!(answer.error, None, "{sql}");
            hear(&answer.parts, on, None, &self.interner);
        }
        client.journal.restored(on, &self.interner);
    }

    /// Runs a text on both connections of a client.
    fn run(&mut self, at: usize, text: &str, any: usize) -> (Answer, Answer) {
        let text = &scripts::of(text, self.mariadb);
        let meaning = self.clients[at]
            .journal
            .read(text.as_bytes(), Some(&Learnt));
        self.observed_reads.note(meaning.needs);
        self.lend(at, &meaning, any);
        let client = &mut self.clients[at];
        let Lent { connection, on } = &mut self.lent[client.at];
        let journal = &mut client.journal;
        let direct = client.own.query(text);
        journal.sent(&meaning, on);
        let answer = connection.query(text);
        for (index, part) in answer.parts.iter().enumerate() {
            hear(
                std::slice::from_ref(part),
                on,
                Some(&mut *journal),
                &self.interner,
            );
            let reply = StatementReply {
                status: part.status,
                insert_id: part.insert_id,
                warnings: part.warnings,
                has_trackers: true,
                is_result: false,
                value: part.lock_value(),
            };
            journal.succeeded(&meaning, index, &reply, on, &self.interner);
        }
        if let Some((code, _)) = answer.error {
            journal.failed(&meaning, code, on);
        }
        let last = answer.parts.last().map(|part| part.status);
        let status = if answer.error.is_some() { None } else { last };
        journal.ready(status, on, &self.interner);
        client.is_held = client.journal.hold(&self.observed_reads) != HoldPolicy::Release;
        if !client.is_held {
            self.ask(at);
        }
        (answer, direct)
    }

    /// Queries the state of the previous statement, before the connection is released.
    fn ask(&mut self, client: usize) {
        let client = &mut self.clients[client];
        let Lent { connection, on } = &mut self.lent[client.at];
        let others = client.journal.pins.iter();
        let mut others = others.filter(|pin| !matches!(pin, Pin::Settings | Pin::InsertId));
        if others.next().is_some() {
            return;
        }
        let Some(question) = client.journal.state_query(&self.observed_reads) else {
            return;
        };
        let answer = connection.query(str::from_utf8(question.text()).unwrap());
        assert_eq!(answer.error, None);
        hear(&answer.parts, on, Some(&mut client.journal), &self.interner);
        if question.moves_trackers() {
            let answer = connection.query(trackers(self.mariadb, self.version));
            hear(&answer.parts, on, Some(&mut client.journal), &self.interner);
        }
        for text in client.journal.setting_queries(self.version) {
            let answer = connection.query(str::from_utf8(&text).unwrap());
            assert_eq!(answer.error, None);
            hear(&answer.parts, on, Some(&mut client.journal), &self.interner);
        }
        client.journal.query_answered(on, &self.interner);
    }
}

fn hear(
    parts: &[Part],
    on: &mut ServerSessionState,
    mut journal: Option<&mut SessionState>,
    interner: &Interner,
) {
    for part in parts {
        let mut trackers = Trackers::new(&part.session_state);
        for tracker in trackers.by_ref() {
            on.record_report(&tracker.change, interner);
            if let Some(journal) = &mut journal {
                journal.record_report(&tracker.change, interner);
            }
        }
        assert!(!trackers.is_broken(), "{:?}", part.session_state);
    }
}

/// Pseudorandom numbers; the seed is printed when a test fails.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// Fails without `EffectKind::SetCharset`, without the `NULL` of user variables in `settings_diff`,
/// or without its handling of leftover state.
#[test]
fn settings_follow_clients_from_connection_to_connection_as_if_they_had_their_own() {
    let seed = std::env::var("EVENKEEL_TEST_SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut scene = Scene::new(&[45, 8, 33], 5);
    scene.observed_reads.note(ResultReads::ALL);
    let texts = std::env::var("EVENKEEL_TEST_TEXTS").map_or(600, |count| count.parse().unwrap());
    for _ in 0..texts {
        let client = dice.below(scene.clients.len());
        if scene.is_bound(client) && dice.below(6) == 0 {
            scene.reset(client);
            println!("client {client}: reset");
        }
        let text = scripts::text(|bound| dice.below(bound));
        for text in text.split(" >> ") {
            let (through, direct) = scene.run(client, text, dice.below(8));
            let Client { at, journal, .. } = &scene.clients[client];
            println!("client {client} on {at}: {text} [{}]", journal.pins);
            assert_eq!(through.outcome(), direct.outcome(), "{text}");
        }
        if dice.below(4) == 0 {
            let (through, direct) = scene.run(client, scripts::SHOWN, dice.below(8));
            let at = scene.clients[client].at;
            println!("client {client} on {at}: looks");
            assert_eq!(through.outcome().1, direct.outcome().1);
            for (through, direct) in through.rows().iter().zip(direct.rows()) {
                assert_eq!(*through, direct);
            }
        }
    }
}

/// Returns values that a variable may have, as SQL text.
fn values(row: &[Option<String>]) -> Vec<String> {
    let cell = |index: usize| row[index].clone().unwrap_or_default();
    let (kind, value) = (cell(1), cell(4));
    match kind.as_str() {
        "BOOLEAN" if value == "ON" => vec!["OFF".to_owned()],
        "BOOLEAN" => vec!["ON".to_owned()],
        "ENUM" => cell(3)
            .split(',')
            .take(4)
            .map(|one| format!("'{one}'"))
            .collect(),
        "SET" | "FLAGSET" => vec![format!("'{}'", cell(3).split(',').next().unwrap())],
        "INT" | "INT UNSIGNED" | "BIGINT" | "BIGINT UNSIGNED" | "DOUBLE" => {
            vec![cell(2), format!("{value} + 1")]
        }
        _ => match cell(0).as_str() {
            "LC_MESSAGES" | "LC_TIME_NAMES" => vec!["'de_DE'".to_owned()],
            "TIME_ZONE" => vec!["'+05:00'".to_owned()],
            "DEFAULT_STORAGE_ENGINE" | "STORAGE_ENGINE" | "ENFORCE_STORAGE_ENGINE" => {
                vec!["Aria".to_owned()]
            }
            name if name.starts_with("CHARACTER_SET") => vec!["greek".to_owned()],
            name if name.starts_with("COLLATION") => vec!["greek_bin".to_owned()],
            _ => vec!["'1'".to_owned(), "''".to_owned()],
        },
    }
}

/// Checks for each variable of a session that it moves with its client and is not visible to the
/// next one.
#[test]
fn every_variable_follows_its_client_or_binds_it() {
    const VARIABLES: &str = "SELECT variable_name, variable_type, numeric_min_value,
        enum_value_list, session_value FROM information_schema.system_variables
        WHERE session_value IS NOT NULL AND read_only = 'NO'
        AND variable_scope LIKE 'SESSION%' AND variable_name NOT LIKE 'session_track%'
        AND variable_name NOT IN ('pseudo_thread_id', 'debug', 'debug_dbug')";
    let mut scene = Scene::new(&[45, 45], 2);
    const OF_MYSQL: &str = "SELECT variable_name, CASE WHEN variable_value IN ('ON', 'OFF')
        THEN 'BOOLEAN' WHEN variable_value RLIKE '^[0-9]+$' THEN 'INT' ELSE 'VARCHAR' END, '0', '',
        variable_value FROM performance_schema.session_variables
        WHERE variable_name NOT LIKE 'session_track%'
        AND variable_name NOT IN ('pseudo_thread_id', 'max_execution_time')";
    let text = if scene.mariadb { VARIABLES } else { OF_MYSQL };
    let mut admin = connect(&scene.direct, COLLATION, "").unwrap();
    let rows = admin.query(text).rows();
    let (mut followed, mut bound) = (0, Vec::new());
    for row in &rows {
        let name = row[0].clone().unwrap();
        for value in values(row) {
            let text = format!("SET SESSION {name} = {value}");
            let (through, direct) = scene.run(0, &text, 0);
            assert_eq!(through.outcome(), direct.outcome(), "{text}");
            if direct.error.is_some() {
                continue;
            }
            if scene.is_bound(0) {
                bound.push(format!("{name}: {}", scene.clients[0].journal.pins));
                scene.reset(0);
                continue;
            }
            followed += 1;
            for (client, at) in [(0, 1), (1, 0), (1, 1)] {
                let (through, direct) = scene.run(client, scripts::SHOWN, at);
                assert_eq!(through.outcome().1, direct.outcome().1, "{text}");
                for (through, direct) in through.rows().iter().zip(direct.rows()) {
                    assert_eq!(*through, direct, "{text}, client {client} on {at}");
                }
            }
            scene.reset(0);
        }
    }
    println!("{followed} follow; {}", bound.join(", "));
    assert!(followed > 80);
}
