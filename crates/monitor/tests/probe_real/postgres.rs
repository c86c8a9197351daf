//! Tests the PostgreSQL probe against a real PostgreSQL.

use std::{
    fs::Permissions,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use evenkeel_monitor::probe::{
    Authorities, Fingerprint, Observation, PostgresProbe, Probe, Target, Tls,
};

use crate::asking::{
    account, ask, assert_failed, assert_passed, assert_refused, certificates, named_fingerprint,
    target,
};
use crate::rig::{PATIENCE, Server, is_root, program, run, until};

/// Server that this file's tests share while any of them runs.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

const HBA: &str = "
    local   all postgres                 trust
    local   all all                      scram-sha-256
    host    all md5      127.0.0.1/32    md5
    host    all clear    127.0.0.1/32    password
    hostssl all wantstls 127.0.0.1/32    scram-sha-256
    host    all monitor  127.0.0.1/32    scram-sha-256
    host    all single   127.0.0.1/32    scram-sha-256
    host    all gone     127.0.0.1/32    trust
";

const ACCOUNTS: &str = "
    CREATE ROLE monitor LOGIN PASSWORD 'secret';
    CREATE ROLE wantstls LOGIN PASSWORD 'secret';
    CREATE ROLE clear LOGIN PASSWORD 'secret';
    CREATE ROLE single LOGIN PASSWORD 'secret' CONNECTION LIMIT 0;
    SET password_encryption = 'md5'; CREATE ROLE md5 LOGIN PASSWORD 'secret';";

pub(crate) fn shared() -> Arc<Server> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = shared.upgrade().unwrap_or_else(|| Arc::new(start(&[])));
    *shared = Arc::downgrade(&server);
    server
}

fn start(options: &[&str]) -> Server {
    let server = Server::start(libc::SIGQUIT, |dir, port| command(dir, port, options));
    let socket = socket(&server);
    server.until("postgres answers", || {
        let postgres = Some(account("postgres", ""));
        let probe = select_one();
        let seen = ask(
            probe,
            postgres,
            Tls::Off,
            &Target::unix(socket.clone()),
            PATIENCE,
        );
        seen.outcome == evenkeel_monitor::probe::Outcome::Passed
    });
    sql(&server, ACCOUNTS);
    server
}

fn command(dir: &Path, port: u16, options: &[&str]) -> Command {
    let (authority, certificate, key) = certificates();
    let data = dir.join("data");
    for (name, text) in [
        ("ca.pem", authority),
        ("cert.pem", certificate),
        ("key.pem", key),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
        hand_over(&dir.join(name));
        std::fs::set_permissions(dir.join(name), Permissions::from_mode(0o600)).unwrap();
    }
    hand_over(dir);
    run(
        as_server_user(&mut Command::new(postgres_program("initdb")))
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=postgres",
                "--pgdata",
            ])
            .arg(&data),
    );
    std::fs::write(data.join("pg_hba.conf"), HBA.replace("    local", "local")).unwrap();
    let mut command = Command::new(postgres_program("postgres"));
    let file = |option: &str, name: &str| format!("--{option}={}", dir.join(name).display());
    as_server_user(&mut command)
        .arg("-D")
        .arg(&data)
        .args([
            format!("--port={port}"),
            format!("--unix_socket_directories={}", dir.display()),
        ])
        .args([
            file("ssl_cert_file", "cert.pem"),
            file("ssl_key_file", "key.pem"),
        ])
        .args(["--ssl=on", "--listen_addresses=127.0.0.1", "--fsync=off"])
        .args(["--shared_buffers=4MB", "--log_min_messages=debug1"])
        .args(options);
    command
}

fn postgres_program(name: &str) -> PathBuf {
    let places = ["/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/15/bin"];
    program(name, &places, "postgresql")
}

/// PostgreSQL refuses to run as root, so root runs it as the user `nobody`.
fn as_server_user(command: &mut Command) -> &mut Command {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/")
    } else {
        command
    }
}

fn hand_over(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

const NOBODY: u32 = 65534;

fn socket(server: &Server) -> PathBuf {
    server.path(&format!(".s.PGSQL.{}", server.port))
}

fn sql(server: &Server, text: &str) -> String {
    let mut psql = Command::new(postgres_program("psql"));
    psql.arg("-h")
        .arg(server.dir.path())
        .arg("-p")
        .arg(server.port.to_string());
    run(psql.args(["-X", "-At", "-U", "postgres", "-d", "postgres", "-c", text]))
}

fn select_one() -> Probe {
    Probe::Postgres(PostgresProbe {
        query: "SELECT 1".to_owned(),
        ..Default::default()
    })
}

fn ask_as(server: &Server, user: &str, password: &str) -> Observation {
    ask(
        select_one(),
        Some(account(user, password)),
        Tls::Off,
        &target(server),
        PATIENCE,
    )
}

fn verify(server: &Server, server_name: &str) -> Tls {
    let ca = Authorities::from_pem(&std::fs::read(server.path("ca.pem")).unwrap()).unwrap();
    Tls::Verify {
        ca: Some(ca),
        fingerprints: Vec::new(),
        server_name: server_name.to_owned(),
        identity: None,
    }
}

#[test]
fn scram_md5_and_cleartext_passwords_pass_and_wrong_ones_name_the_account() {
    let server = shared();
    for user in ["monitor", "md5", "clear"] {
        assert_passed(&ask_as(&server, user, "secret"));
        let wrong = ask_as(&server, user, "wrong");
        assert_refused(
            &wrong,
            &format!("refused the monitor account '{user}': password"),
        );
        assert_refused(&wrong, "[service.monitor]");
        assert_refused(&ask_as(&server, user, ""), "password");
    }
}

#[test]
fn an_account_that_may_not_log_in_is_told_from_a_dead_server() {
    let server = shared();
    assert_refused(
        &ask_as(&server, "stranger", "secret"),
        "no pg_hba.conf entry",
    );
    assert_refused(
        &ask_as(&server, "gone", "secret"),
        "role \"gone\" does not exist",
    );
    let mut nowhere = account("monitor", "secret");
    nowhere.database = Some("nosuch".to_owned());
    let missing = ask(
        select_one(),
        Some(nowhere),
        Tls::Off,
        &target(&server),
        PATIENCE,
    );
    assert_refused(&missing, "database \"nosuch\" does not exist");
}

#[test]
fn a_unix_socket_is_asked_too_and_tls_is_left_out_there() {
    let server = shared();
    let target = Target::unix(socket(&server));
    for tls in [Tls::Off, Tls::Encrypt(None), verify(&server, "db.test")] {
        let monitor = Some(account("monitor", "secret"));
        assert_passed(&ask(select_one(), monitor, tls, &target, PATIENCE));
    }
}

#[test]
fn tls_encrypts_with_any_certificate_and_verifies_with_the_right_one() {
    let server = shared();
    let ask_tls = |tls| {
        let wants_tls = Some(account("wantstls", "secret"));
        ask(select_one(), wants_tls, tls, &target(&server), PATIENCE)
    };
    assert_refused(&ask_tls(Tls::Off), "no encryption");
    assert_passed(&ask_tls(Tls::Encrypt(None)));
    assert_passed(&ask_tls(verify(&server, "db.test")));
    assert_passed(&ask_tls(verify(&server, "127.0.0.1")));
    assert_failed(
        &ask_tls(verify(&server, "other.test")),
        "server certificate is not valid for this name",
    );
    let public = Tls::Verify {
        ca: None,
        fingerprints: Vec::new(),
        server_name: "db.test".to_owned(),
        identity: None,
    };
    let untrusted = ask_tls(public);
    assert_failed(&untrusted, "server certificate is not trusted");
    assert_failed(
        &untrusted,
        "set [service.server_tls] ca = \"…\", or accept exactly this certificate",
    );
    let pinned = |fingerprint: Fingerprint| Tls::Verify {
        ca: None,
        fingerprints: vec![fingerprint],
        server_name: "other.test".to_owned(),
        identity: None,
    };
    let named = named_fingerprint(&untrusted);
    assert_passed(&ask_tls(pinned(named)));
    let other = "00".repeat(32).parse().unwrap();
    assert_failed(
        &ask_tls(pinned(other)),
        &format!(
            "not one of [service.server_tls] fingerprints: if the server has a new \
                  certificate, add \"{named}\""
        ),
    );
}

#[test]
fn a_query_that_fails_or_takes_too_long_fails_in_its_words() {
    let server = shared();
    let ask_query = |query: &str, limit| {
        let probe = Probe::Postgres(PostgresProbe {
            query: query.to_owned(),
            ..Default::default()
        });
        ask(
            probe,
            Some(account("monitor", "secret")),
            Tls::Off,
            &target(&server),
            limit,
        )
    };
    let failed = ask_query("SELECT nonsense", PATIENCE);
    assert_failed(
        &failed,
        "query failed: column \"nonsense\" does not exist (SQLSTATE 42703)",
    );
    let late = ask_query("SELECT pg_sleep(30)", Duration::from_millis(800));
    assert_failed(&late, "timed out after 800 ms while running the query");
    assert_passed(&ask_query("SELECT generate_series(1, 100000)", PATIENCE));
}

#[test]
fn a_server_that_is_full_passes_with_a_note() {
    let full = ask_as(&shared(), "single", "secret");
    assert_passed(&full);
    assert!(
        full.note
            .unwrap()
            .contains("too many connections on the server: too many connections")
    );
}

// Fails without the wait for the connection's end in probe/postgres.rs.
#[test]
fn the_probe_says_terminate_before_it_closes() {
    let server = start(&["--log_disconnections=on"]);
    for tls in [Tls::Off, Tls::Encrypt(None)] {
        let monitor = Some(account("monitor", "secret"));
        assert_passed(&ask(select_one(), monitor, tls, &target(&server), PATIENCE));
    }
    let ended = || server.log().matches("disconnection: session time").count();
    let from_monitor = |log: String| log.matches("user=monitor").count();
    server.until("both sessions ended", || {
        ended() >= 2 && from_monitor(server.log()) >= 2
    });
    let log = server.log();
    assert!(!log.contains("unexpected EOF"), "{log}");
    assert!(!log.contains("could not receive data"), "{log}");
}

#[test]
fn a_server_without_tls_a_frozen_one_and_a_killed_one_fail_each_in_its_words() {
    let server = start(&["--ssl=off"]);
    let monitor = || Some(account("monitor", "secret"));
    let no_tls = ask(
        select_one(),
        monitor(),
        Tls::Encrypt(None),
        &target(&server),
        PATIENCE,
    );
    assert_failed(&no_tls, "the server does not support TLS");
    server.signal(libc::SIGSTOP);
    let limit = Duration::from_millis(600);
    let frozen = ask(select_one(), monitor(), Tls::Off, &target(&server), limit);
    assert_failed(&frozen, "timed out after 600 ms while logging in");
    server.signal(libc::SIGCONT);
    assert_passed(&ask_as(&server, "monitor", "secret"));
    // A smart shutdown waits for the open session, and accepts no other connection meanwhile.
    let mut holder = hold_session(&server);
    server.signal(libc::SIGTERM);
    until("the server is shutting down", || {
        let seen = ask_as(&server, "monitor", "secret");
        format!("{seen:?}").contains("Failed(\"the database system is shutting down")
    });
    server.signal(libc::SIGQUIT);
    holder.wait().unwrap();
    until("the server is gone", || {
        format!("{:?}", ask_as(&server, "monitor", "secret")).contains("connection refused")
    });
}

fn hold_session(server: &Server) -> std::process::Child {
    let mut psql = Command::new(postgres_program("psql"));
    psql.arg("-h")
        .arg(server.dir.path())
        .arg("-p")
        .arg(server.port.to_string());
    psql.args([
        "-X",
        "-U",
        "postgres",
        "-d",
        "postgres",
        "-c",
        "SELECT pg_sleep(60)",
    ]);
    let holder = psql.stderr(Stdio::null()).spawn().unwrap();
    let held = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60)%'";
    until("a session is open", || sql(server, held).trim() == "1");
    holder
}
