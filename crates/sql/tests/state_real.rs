//! Compares clients' settings on pooled connections of a real PostgreSQL with those on separate
//! connections.

#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "shared with the tests of the monitor")]
#[path = "../../monitor/tests/probe_real/rig.rs"]
mod rig;
#[path = "state_real/scripts.rs"]
mod scripts;
#[path = "state_real/session.rs"]
mod session;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use evenkeel_sql::session_state::analysis;
use evenkeel_sql::session_state::settings::{
    AcceptedSettings, Interner, ServerSessionState, SessionState, from_startup, held_state,
};
use evenkeel_wire::postgres::TransactionStatus;
use rig::{Server, is_root, program, run};
use session::{Answer, Connection};

const NOBODY: u32 = 65534;

/// Returns a program of Debian's PostgreSQL, or of the one in the directory that
/// `EVENKEEL_TEST_POSTGRES` contains.
fn postgres_program(name: &str) -> PathBuf {
    match std::env::var("EVENKEEL_TEST_POSTGRES") {
        Ok(dir) => PathBuf::from(dir).join(name),
        Err(_) => {
            let places = ["/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/15/bin"];
            program(name, &places, "postgresql")
        }
    }
}

/// PostgreSQL refuses to run as root, so root runs it as the user `nobody`.
fn as_server_user(command: &mut Command) -> &mut Command {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    command
}

fn start() -> Server {
    let server = Server::start(libc::SIGQUIT, |dir, port| {
        if is_root() {
            chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        std::fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        let data = dir.join("data");
        let mut initdb = Command::new(postgres_program("initdb"));
        run(as_server_user(&mut initdb)
            .args(["--no-sync", "--auth=trust", "--username=postgres"])
            .args(["--encoding=UTF8", "--locale=C", "--pgdata"])
            .arg(&data));
        let mut command = Command::new(postgres_program("postgres"));
        as_server_user(&mut command)
            .arg("-D")
            .arg(&data)
            .args([
                format!("--port={port}"),
                format!("--unix_socket_directories={}", dir.display()),
            ])
            .args(["--listen_addresses=", "--fsync=off", "--shared_buffers=4MB"]);
        command
    });
    server.until("postgres answers", || connect(&server, &[]).is_ok());
    server
}

fn connect(server: &Server, startup: &[(&str, &str)]) -> std::io::Result<Connection> {
    Connection::open(&server.path(&format!(".s.PGSQL.{}", server.port)), startup)
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
}

struct Scene {
    interner: Interner,
    lent: Vec<Lent>,
    clients: Vec<Client>,
    server: Server,
}

impl Scene {
    fn new(startups: &[&[(&str, &str)]]) -> Scene {
        let server = start();
        let interner = Interner::new();
        let mut admin = connect(&server, &[]).unwrap();
        for text in scripts::PREPARATION {
            assert_eq!(admin.query(text).error, None, "{text}");
        }
        let lent = (0..4).map(|_| lend(&server, &interner)).collect();
        let mut scene = Scene {
            interner,
            lent,
            clients: Vec::new(),
            server,
        };
        for startup in startups {
            scene.join(startup);
        }
        scene
    }

    fn join(&mut self, parameters: &[(&str, &str)]) {
        let own = connect(&self.server, parameters).unwrap();
        let bytes = parameters
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let startup = from_startup(bytes, &self.interner).unwrap();
        let on = &self.lent[0].on;
        let reported = AcceptedSettings::default().greeting(&startup, on, &self.interner);
        self.clients.push(Client {
            own,
            journal: SessionState::new(startup, reported, on),
            at: 0,
        });
    }

    /// Returns the connections to which no client is pinned.
    fn free(&self) -> Vec<usize> {
        let is_bound = |at: usize| {
            let mut clients = self.clients.iter();
            clients.any(|client| client.at == at && !client.journal.pins.is_empty())
        };
        (0..self.lent.len()).filter(|at| !is_bound(*at)).collect()
    }

    /// Asks the server what a client that may be pinned without need holds on its connection.
    fn ask(&mut self, client: usize) {
        let client = &mut self.clients[client];
        if !client.journal.can_be_asked() {
            return;
        }
        let Lent { connection, on } = &mut self.lent[client.at];
        let question = client.journal.question(on);
        let mut sql = Vec::new();
        question.write(&mut sql);
        let answer = connection.query(&String::from_utf8(sql).unwrap());
        if let Some(error) = answer.error {
            // A value cannot be written in the client's encoding.
            return assert!(error.contains("22P05"), "{error}");
        }
        let mut rows = held_state::Rows::default();
        rows.begin(0);
        answer.rows.iter().for_each(|row| rows.add(&data_row(row)));
        rows.end(answer.rows.len() as u64);
        let held = rows.read().unwrap();
        client
            .journal
            .answered(&question, &held, on, &self.interner);
    }

    /// Prepares a connection for a client: connection `any`, unless the client is pinned to its
    /// present one.
    fn lend(&mut self, client: usize, any: usize) {
        self.ask(client);
        if self.clients[client].journal.pins.is_empty() {
            self.clients[client].at = any;
        }
        self.prepare(client);
    }

    /// Sets the client's settings on its connection.
    fn prepare(&mut self, client: usize) {
        let client = &mut self.clients[client];
        let Lent { connection, on } = &mut self.lent[client.at];
        let mut sql = Vec::new();
        if let Some(wanted) = on.prepare(&client.journal, &self.interner, &mut sql) {
            let sql = String::from_utf8(sql).unwrap();
            let answer = connection.query(&sql);
            assert_eq!(answer.error, None, "{sql}");
            for (name, value) in &answer.reports {
                on.record_report(name, value, &self.interner);
            }
            on.restored(wanted, &self.interner);
        }
        let own = client.journal.settings().clone();
        let reported = &mut client.journal.reported;
        reported.catch_up(on, &own, &self.interner, |_, _| {});
    }

    /// Runs a text on both connections of a client. Returns the transaction status after it.
    fn run(&mut self, at: usize, text: &str) -> TransactionStatus {
        let client = &mut self.clients[at];
        let Lent { connection, on } = &mut self.lent[client.at];
        let journal = &mut client.journal;
        let analysis = analysis::read(text.as_bytes(), journal.reported.backslashes(), None);
        journal.sent(&analysis);
        let direct = client.own.query(text);
        let answer = connection.query(text);
        assert_eq!(answer.outcome(), direct.outcome(), "{text}");
        for statement in 0..answer.completed {
            journal.succeeded(&analysis, statement);
        }
        if answer.error.is_some() {
            journal.failed(Some(&analysis));
        }
        for (name, value) in &answer.reports {
            on.record_report(name, value, &self.interner);
            journal.reported.record_report(name, value, &self.interner);
        }
        if journal.ready(answer.status, on, &self.interner) {
            self.restore(at, answer.status);
        }
        answer.status
    }

    /// Restores settings of the startup message that the client has reset.
    fn restore(&mut self, client: usize, status: TransactionStatus) {
        if status == TransactionStatus::Idle {
            return self.prepare(client);
        }
        let client = &mut self.clients[client];
        let Lent { connection, on } = &mut self.lent[client.at];
        let mut sql = Vec::new();
        client.journal.restore(on, &mut sql);
        let sql = String::from_utf8(sql).unwrap();
        let answer = connection.query(&sql);
        assert_eq!(answer.error, None, "{sql}");
        for (name, value) in &answer.reports {
            on.record_report(name, value, &self.interner);
            client
                .journal
                .reported
                .record_report(name, value, &self.interner);
        }
    }

    /// Checks that the server shows the same settings on both connections, and that the client
    /// received the same reports.
    fn compare(&mut self, client: usize) {
        let client = &mut self.clients[client];
        let lent = &mut self.lent[client.at].connection;
        let shown: [Answer; 2] = [&mut client.own, lent].map(|on| on.query(scripts::ALL_SETTINGS));
        assert_eq!(shown[1].error, shown[0].error);
        let [direct, through] = shown.map(|answer| answer.rows);
        for (direct, through) in direct.iter().zip(&through) {
            let readable = |row: &[Option<Vec<u8>>]| {
                let cell = |cell: &Option<Vec<u8>>| {
                    cell.as_ref()
                        .map(|text| String::from_utf8_lossy(text).into_owned())
                };
                row.iter().map(cell).collect::<Vec<_>>()
            };
            assert_eq!(readable(through), readable(direct));
        }
        assert_eq!(through.len(), direct.len());
        let reported = client.journal.reported.values();
        for (name, value) in &client.own.reports {
            let name = name.to_ascii_lowercase();
            if let Some(reported) = reported.get(&name) {
                let text = String::from_utf8_lossy;
                assert_eq!(text(reported), text(value), "{}", text(&name));
            }
        }
    }
}

/// Returns a DataRow message.
fn data_row(columns: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for column in columns {
        let length = column.as_ref().map_or(u32::MAX, |value| value.len() as u32);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(column.as_deref().unwrap_or_default());
    }
    let length = body.len() as u32 + 4;
    [&b"D"[..], &length.to_be_bytes(), &body].concat()
}

fn lend(server: &Server, interner: &Interner) -> Lent {
    let connection = connect(server, &[]).unwrap();
    let reports = connection
        .reports
        .iter()
        .map(|(name, value)| (name.as_slice(), value.as_slice()));
    let on = ServerSessionState::new(reports, interner);
    Lent { connection, on }
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

const STARTUPS: [&[(&str, &str)]; 3] = [
    &[],
    &[
        ("application_name", "two"),
        ("TimeZone", "europe/berlin"),
        (
            "options",
            "-c my.a=begun -c search_path=x,y -c DateStyle=sql",
        ),
    ],
    &[
        ("client_encoding", "latin1"),
        ("options", "--default-transaction-isolation=serializable"),
    ],
];

/// Fails without `SessionState::answered`.
#[test]
fn a_client_whose_settings_the_server_reports_is_not_bound() {
    let mut scene = Scene::new(&[&[]]);
    scene.lend(0, 0);
    for (round, text) in [
        "SELECT set_config('my.b', 'x' || 'y', false)",
        "SELECT set_config('work_mem', 1 || 'MB', false), set_config('DateStyle', 'ger' || 'man', \
         false)",
        "SELECT set_config('role', 'a' || 'pp', false)",
        "DO $$ BEGIN SET search_path TO \"A b\", c; RESET work_mem; END $$",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(scene.run(0, text), TransactionStatus::Idle);
        scene.lend(0, (round + 1) % 2);
        assert_eq!(scene.clients[0].at, (round + 1) % 2, "{text}");
        scene.compare(0);
    }
}

/// Fails without the savepoints of `SessionState::apply`, or without the reset of `DateStyle`.
#[test]
fn settings_follow_clients_from_connection_to_connection_as_if_they_had_their_own() {
    let seed = std::env::var("EVENKEEL_TEST_SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut scene = Scene::new(&STARTUPS);
    let mut last: Vec<Vec<String>> = vec![Vec::new(); STARTUPS.len()];
    let texts = std::env::var("EVENKEEL_TEST_TEXTS").map_or(400, |count| count.parse().unwrap());
    for _ in 0..texts {
        let client = dice.below(STARTUPS.len());
        let free = scene.free();
        scene.lend(client, free[dice.below(free.len())]);
        println!(
            "client {client} on {}: {:?}",
            scene.clients[client].at, last[client]
        );
        scene.compare(client);
        last[client].clear();
        loop {
            let text = scripts::text(|bound| dice.below(bound));
            if scripts::cannot_be_followed(&text) && !STARTUPS[client].is_empty() {
                continue;
            }
            let status = scene.run(client, &text);
            last[client].push(text);
            if status == TransactionStatus::Idle {
                break;
            }
        }
    }
}

#[test]
fn a_client_that_is_bound_keeps_its_settings_until_it_resets_them() {
    let mut scene = Scene::new(&[&[]]);
    scene.lend(0, 0);
    for (text, is_bound) in [
        ("SET my.a = 1", false),
        ("SELECT set_config('my.' || 'b', 'x', false)", true),
        ("SET my.c = 2", true),
        // The role may have changed, too, which the server reports when it is asked.
        ("RESET ALL", true),
    ] {
        assert_eq!(scene.run(0, text), TransactionStatus::Idle);
        assert_eq!(
            !scene.clients[0].journal.pins.is_empty(),
            is_bound,
            "{text}"
        );
        scene.lend(0, 1);
        scene.compare(0);
    }
    assert_eq!(scene.clients[0].at, 1);
}

#[test]
fn a_wrong_setting_of_a_startup_message_is_refused_by_the_server_and_changes_nothing() {
    let mut scene = Scene::new(&[]);
    let interner = &scene.interner;
    let parameters = [(&b"options"[..], &b"-c work_mem=1MB -c nonsense=1"[..])];
    let startup = from_startup(parameters.into_iter(), interner).unwrap();
    assert!(AcceptedSettings::default().is_missing(&startup));
    let Lent { connection, on } = &mut scene.lent[0];
    let journal = SessionState::new(startup, on.login().clone(), on);
    let mut sql = Vec::new();
    assert!(on.prepare(&journal, interner, &mut sql).is_some());
    let answer = connection.query(&String::from_utf8(sql).unwrap());
    assert!(answer.error.unwrap().contains("42704"));
    let work_mem = connection.query("SHOW work_mem").rows;
    assert_eq!(work_mem[0][0].as_deref(), Some(&b"4MB"[..]));
}
