//! Tests the MySQL probe against a real MariaDB.

use std::{
    path::Path,
    process::Command,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use evenkeel_monitor::probe::{
    Authorities, Fingerprint, MysqlProbe, Observation, Probe, Target, Tls,
};

use crate::asking::{
    account, ask, assert_failed, assert_passed, assert_refused, certificates, named_fingerprint,
    target,
};
use crate::rig::{PATIENCE, Server, is_root, program, run, until};

/// Directory into which `scripts/mariadb-plugins` unpacks the plugins if the server package is not
/// installed.
const PLUGINS_UNPACKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mariadb-plugins");
const PLUGINS_INSTALLED: &str = "/usr/lib/mysql/plugin";

/// Server that this file's tests share while any of them runs.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

const ACCOUNTS: &str = "
    DELETE FROM mysql.global_priv WHERE user = ''; FLUSH PRIVILEGES;
    CREATE DATABASE app;
    CREATE USER monitor IDENTIFIED BY 'secret';
    CREATE USER nopassword;
    CREATE USER locked IDENTIFIED BY 'secret' ACCOUNT LOCK;
    CREATE USER expired IDENTIFIED BY 'secret' PASSWORD EXPIRE;
    CREATE USER elsewhere@'192.0.2.1' IDENTIFIED BY 'secret';
    CREATE USER wantstls IDENTIFIED BY 'secret' REQUIRE SSL;
    CREATE USER single IDENTIFIED BY 'secret' WITH MAX_USER_CONNECTIONS 1;";

pub(crate) fn shared() -> Arc<Server> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = shared.upgrade().unwrap_or_else(|| Arc::new(start(&[])));
    *shared = Arc::downgrade(&server);
    server
}

fn start(options: &[&str]) -> Server {
    let server = Server::start(libc::SIGKILL, |dir, port| command(dir, port, options));
    server.until("mariadbd listens", || {
        std::os::unix::net::UnixStream::connect(server.path("sock")).is_ok()
    });
    sql(&server, ACCOUNTS);
    server
}

fn command(dir: &Path, port: u16, options: &[&str]) -> Command {
    let (authority, certificate, key) = certificates();
    std::fs::write(dir.join("ca.pem"), authority).unwrap();
    std::fs::write(dir.join("cert.pem"), certificate).unwrap();
    std::fs::write(dir.join("key.pem"), key).unwrap();
    let data = format!("--datadir={}", dir.join("data").display());
    // A server that starts deletes the temporary tables of other servers in the same directory.
    std::fs::create_dir(dir.join("temporary")).unwrap();
    let temporary = format!("--tmpdir={}", dir.join("temporary").display());
    let install = program("mariadb-install-db", &[], "mariadb-server-core");
    let user: &[&str] = if is_root() { &["--user=root"] } else { &[] };
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
            &temporary,
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
        ])
        .args([
            format!("--port={port}"),
            file("socket", "sock"),
            file("pid-file", "pid"),
        ])
        .args([file("ssl-cert", "cert.pem"), file("ssl-key", "key.pem")])
        .args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"])
        .args([
            "--innodb-flush-log-at-trx-commit=0",
            "--default-password-lifetime=0",
        ])
        .args(["--disconnect-on-expired-password=ON"])
        .args(user)
        .args(options);
    command
}

fn sql(server: &Server, text: &str) -> String {
    let client = program("mariadb", &[], "mariadb-client-core");
    let socket = format!("--socket={}", server.path("sock").display());
    run(Command::new(client).args(["--no-defaults", &socket, "--user=root", "-N", "-e", text]))
}

fn select_one() -> Probe {
    Probe::Mysql(MysqlProbe {
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
fn the_right_password_passes_and_the_wrong_one_names_the_account() {
    let server = shared();
    assert_passed(&ask_as(&server, "monitor", "secret"));
    assert_passed(&ask_as(&server, "nopassword", ""));
    let wrong = ask_as(&server, "monitor", "wrong");
    assert_refused(&wrong, "the server refused the monitor account 'monitor'");
    assert_refused(&wrong, "[service.monitor]");
    assert_refused(&ask_as(&server, "stranger", "secret"), "Access denied");
}

#[test]
fn a_unix_socket_is_asked_too_and_tls_is_left_out_there() {
    let server = shared();
    let target = Target::unix(server.path("sock"));
    let monitor = account("monitor", "secret");
    for tls in [Tls::Off, Tls::Encrypt(None), verify(&server, "db.test")] {
        assert_passed(&ask(
            select_one(),
            Some(monitor.clone()),
            tls,
            &target,
            PATIENCE,
        ));
    }
    let nowhere = Target::unix(server.path("nosuch"));
    let nobody = ask(select_one(), Some(monitor), Tls::Off, &nowhere, PATIENCE);
    assert_failed(&nobody, "no such socket file");
}

#[test]
fn an_account_that_may_not_log_in_is_told_from_a_dead_server() {
    let server = shared();
    assert_refused(&ask_as(&server, "locked", "secret"), "ACCOUNT UNLOCK");
    assert_refused(
        &ask_as(&server, "expired", "secret"),
        "password of the account has expired",
    );
    assert_refused(&ask_as(&server, "elsewhere", "secret"), "elsewhere");
    let mut nowhere = account("monitor", "secret");
    nowhere.database = Some("app".to_owned());
    let denied = ask(
        select_one(),
        Some(nowhere),
        Tls::Off,
        &target(&server),
        PATIENCE,
    );
    assert_refused(
        &denied,
        "Access denied for user 'monitor'@'%' to database 'app'",
    );
}

#[test]
fn a_query_that_the_server_refuses_fails_with_the_servers_words() {
    let server = shared();
    let probe = Probe::Mysql(MysqlProbe {
        query: "SELECT nonsense FROM nowhere.at_all".to_owned(),
        ..Default::default()
    });
    let monitor = Some(account("monitor", "secret"));
    let failed = ask(probe, monitor, Tls::Off, &target(&server), PATIENCE);
    assert_failed(&failed, "query failed: SELECT command denied");
}

#[test]
fn a_query_that_takes_too_long_ends_with_the_time_limit() {
    let server = shared();
    let probe = Probe::Mysql(MysqlProbe {
        query: "SELECT SLEEP(30)".to_owned(),
        ..Default::default()
    });
    let monitor = Some(account("monitor", "secret"));
    let late = ask(
        probe,
        monitor,
        Tls::Off,
        &target(&server),
        Duration::from_millis(800),
    );
    assert_failed(&late, "timed out after 800 ms while running the query");
}

#[test]
fn tls_encrypts_with_any_certificate_and_verifies_with_the_right_one() {
    let server = shared();
    let ask_tls = |tls| {
        let wants_tls = Some(account("wantstls", "secret"));
        ask(select_one(), wants_tls, tls, &target(&server), PATIENCE)
    };
    assert_refused(&ask_tls(Tls::Off), "Access denied");
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
fn a_server_that_is_full_passes_with_a_note() {
    let server = shared();
    let socket = format!("--socket={}", server.path("sock").display());
    let mut holder = Command::new(program("mariadb", &[], "mariadb-client-core"));
    holder.args([
        "--no-defaults",
        &socket,
        "--user=single",
        "--password=secret",
    ]);
    let mut holder = holder.args(["-e", "SELECT SLEEP(60)"]).spawn().unwrap();
    let held = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'single'";
    until("the account's only connection is taken", || {
        sql(&server, held).trim() == "1"
    });
    let full = ask_as(&server, "single", "secret");
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_passed(&full);
    assert!(
        full.note
            .unwrap()
            .contains("too many connections on the server")
    );
}

// Fails without `connection.disconnect()` in probe/mysql.rs.
#[test]
fn the_probe_quits_so_that_the_server_counts_nothing_as_aborted() {
    let server = start(&[]);
    let aborted = || sql(&server, "SHOW GLOBAL STATUS LIKE 'Aborted%'");
    let before = aborted();
    for tls in [Tls::Off, Tls::Encrypt(None), verify(&server, "db.test")] {
        let monitor = Some(account("monitor", "secret"));
        assert_passed(&ask(select_one(), monitor, tls, &target(&server), PATIENCE));
    }
    let left = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'monitor'";
    until("the probes' sessions are gone", || {
        sql(&server, left).trim() == "0"
    });
    assert_eq!(aborted(), before);
    // One round trip after the login, and no queries of the library itself.
    let questions = "SHOW GLOBAL STATUS LIKE 'Com_select'";
    let count = |text: String| {
        text.split_whitespace()
            .last()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let selects = count(sql(&server, questions));
    assert_passed(&ask_as(&server, "monitor", "secret"));
    assert_eq!(count(sql(&server, questions)), selects + 1);
}

#[test]
fn the_account_may_use_ed25519() {
    let dir = plugins();
    let plugin = Path::new(&dir).join("auth_ed25519.so");
    assert!(
        plugin.exists(),
        "{} is missing: run scripts/mariadb-plugins",
        plugin.display()
    );
    let server = start(&[
        &format!("--plugin-dir={dir}"),
        "--plugin-load-add=auth_ed25519",
    ]);
    sql(
        &server,
        "CREATE USER edward IDENTIFIED VIA ed25519 USING PASSWORD('secret')",
    );
    assert_passed(&ask_as(&server, "edward", "secret"));
    assert_refused(&ask_as(&server, "edward", "wrong"), "Access denied");
}

fn plugins() -> String {
    std::env::var("EVENKEEL_MARIADB_PLUGINS").unwrap_or_else(|_| {
        let unpacked = Path::new(PLUGINS_UNPACKED).exists();
        let dir = if unpacked {
            PLUGINS_UNPACKED
        } else {
            PLUGINS_INSTALLED
        };
        dir.to_owned()
    })
}

#[test]
fn a_server_without_tls_a_frozen_one_and_a_killed_one_fail_each_in_its_words() {
    let server = start(&["--skip-ssl"]);
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
    assert_failed(
        &frozen,
        "timed out after 600 ms while waiting for the server's greeting",
    );
    server.signal(libc::SIGCONT);
    assert_passed(&ask_as(&server, "monitor", "secret"));
    server.kill();
    assert_failed(&ask_as(&server, "monitor", "secret"), "connection refused");
}
