//! Tests PostgreSQL services: their defaults, their keys, and the keys that they reject.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use evenkeel_config::plan::{
    Address, AuthSource, Consistency, DatabasePlan, Plan, PoolMode, Probe, ServicePlan, TlsMode,
};
use tempfile::TempDir;

use super::wrong::check;
use super::{load, plan, postgres, service};

/// Certificate and key, in files that other users cannot read.
pub(crate) struct Pair {
    directory: TempDir,
}

impl Pair {
    pub(crate) fn new(name: &str) -> Pair {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let pair = Pair {
            directory: TempDir::new().expect("a directory"),
        };
        pair.write("certificate.pem", &made.cert.pem());
        pair.write("key.pem", &made.signing_key.serialize_pem());
        pair
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("write");
        self.set_mode(name, 0o600);
    }

    fn set_mode(&self, name: &str, mode: u32) {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.path(name), permissions).expect("set the mode");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the keys that name the files.
    pub(crate) fn lines(&self) -> String {
        let line = |key: &str, file: &str| format!("{key} = '{}'", self.path(file).display());
        format!(
            "{}\n{}",
            line("certificate", "certificate.pem"),
            line("key", "key.pem")
        )
    }
}

fn of(text: &str) -> ServicePlan {
    plan(text).services.remove(0)
}

fn database(lines: &str) -> DatabasePlan {
    let service = of(&postgres(lines));
    service.database().expect("a database service").clone()
}

/// Checks a PostgreSQL service; `lines` begin in line 6.
fn check_postgres(lines: &str, expected: &str, words: &str) {
    check(&postgres(lines), expected, words);
}

#[test]
fn the_defaults_are_those_of_a_pooler() {
    let service = of(&postgres(""));
    assert_eq!(service.protocol_info().name, "postgres");
    assert_eq!(service.balance.name(), "least-connections");
    assert_eq!(service.idle_timeout_ms, 0);
    assert_eq!(service.health.probe_name(), "postgres");
    let database = service.database().expect("a database").clone();
    assert_eq!(database.times.login_timeout_ms, 10_000);
    assert_eq!(database.times.query_timeout_ms, 0);
    assert_eq!(
        (database.pool.mode, database.pool.size),
        (PoolMode::Transaction, 20)
    );
    assert!(!database.split.reads && database.split.primary_reads);
    assert_eq!(database.split.consistency, Consistency::ReadYourWrites);
    assert_eq!(database.failover.resume_at_once, 32);
    assert_eq!(database.auth.source, AuthSource::Server);
    assert_eq!(database.auth.account.expect("the monitor's").user, "m");
    assert_eq!(database.tls, None);
    let tcp = of(&service_of_tcp());
    assert_eq!((tcp.database(), tcp.idle_timeout_ms), (None, 28_800_000));
}

fn service_of_tcp() -> String {
    service("protocol = \"tcp\"")
}

#[test]
fn every_key_reaches_the_plan() {
    let service = of(&postgres(
        "query_timeout_ms = 1\ntransaction_timeout_ms = 2\nidle_in_transaction_timeout_ms = 3\n\
         login_timeout_ms = 4\nlogins_at_once = 22\nlogins_per_address = 23\nlag_ms_max = 5\nbalance = 'random-two'\nidle_timeout_ms = 6\n\
         [service.pool]\nmode = 'transaction'\nsize = 7\nservice_size = 8\nuser_size = 9\n\
         database_size = 10\nmin_idle = 2\nidle_ms = 11\nlifetime_ms = 12\nwait_ms = 13\n\
         queue_length = 14\nstatements_max = 15\nusers = { app = { size = 16 } }\n\
         [service.pool.databases.\"my data\"]\nsize = 0\n\
         [service.split]\nreads = true\nprimary_reads = false\nconsistency = 'global'\n\
         wait_ms = 17\nstale_ms = 18\n\
         [service.failover]\nwait_ms = 19\nqueue_length = 20\nresume_at_once = 21\n\
         [service.server_tls]\nmode = 'encrypt'",
    ));
    assert_eq!(
        (service.balance.name(), service.idle_timeout_ms),
        ("random-two", 6)
    );
    assert_eq!(service.server_tls.mode, Some(TlsMode::Encrypt));
    let DatabasePlan {
        times,
        pool,
        split,
        failover,
        logins_at_once,
        logins_per_address,
        ..
    } = service.database().expect("a database").clone();
    let found = [
        times.query_timeout_ms,
        times.transaction_timeout_ms,
        times.idle_in_transaction_timeout_ms,
        times.login_timeout_ms,
        split.lag_ms_max.expect("a limit"),
    ];
    assert_eq!(found, [1, 2, 3, 4, 5]);
    assert_eq!([logins_at_once, logins_per_address], [22, 23]);
    let sizes = [
        pool.size,
        pool.service_size,
        pool.user_size,
        pool.database_size,
        pool.min_idle,
    ];
    assert_eq!(
        (pool.mode, sizes),
        (PoolMode::Transaction, [7, 8, 9, 10, 2])
    );
    assert_eq!([pool.idle_ms, pool.lifetime_ms, pool.wait_ms], [11, 12, 13]);
    assert_eq!([pool.queue_length, pool.statements_max], [14, 15]);
    assert_eq!(
        [pool.size_of_user("app"), pool.size_of_user("else")],
        [16, 9]
    );
    assert_eq!(
        [
            pool.size_of_database("my data"),
            pool.size_of_database("else")
        ],
        [0, 10]
    );
    assert!(split.reads && !split.primary_reads);
    assert_eq!(split.consistency, Consistency::Global);
    assert_eq!(
        [split.wait_ms, split.stale_ms, failover.wait_ms],
        [17, 18, 19]
    );
    assert_eq!([failover.queue_length, failover.resume_at_once], [20, 21]);
}

#[test]
fn a_key_of_another_protocol_is_told_what_to_do_instead() {
    let check_tcp = |lines: &str, expected: &str| {
        check(
            &service(lines),
            expected,
            "set `protocol = \"postgres\"` or `\"mysql\"`, or remove",
        );
    };
    check_tcp("query_timeout_ms = 1", "E_PROTOCOL_KEY 5:1");
    check_tcp("login_timeout_ms = 1", "E_PROTOCOL_KEY 5:1");
    check_tcp("[service.split]\nreads = true", "E_PROTOCOL_KEY 5:10");
    check_tcp("[service.failover]", "E_PROTOCOL_KEY 5:10");
    check_tcp("[service.auth]", "E_PROTOCOL_KEY 5:10");
    for table in ["[service.pool]", "[service.tls]"] {
        let help = "set `protocol = \"postgres\"`, `\"mysql\"` or `\"http\"`, or remove";
        check(&service(table), "E_PROTOCOL_KEY 5:10", help);
    }
    check(
        &service("[service.times]"),
        "E_PROTOCOL_KEY 5:10",
        "set `protocol = \"http\"`, or",
    );
    let http = |lines: &str| service(&format!("protocol = 'http'\n{lines}"));
    check(
        &http("send_proxy = 'v2'"),
        "E_PROTOCOL_KEY 6:1",
        "`X-Forwarded-For`",
    );
    check(&http("all_down = 'wait'"), "E_PROTOCOL_KEY 6:1", "503");
    check_postgres(
        "role = 'primary'",
        "E_PROTOCOL_KEY 6:1",
        "one service handles both",
    );
    check_postgres(
        "on_primary_change = 'cut'",
        "E_PROTOCOL_KEY 6:1",
        "[service.failover]",
    );
    check_postgres(
        "fallback = 'primary'",
        "E_PROTOCOL_KEY 6:1",
        "no replica can serve",
    );
    check_postgres(
        "half_close_timeout_ms = 1",
        "E_PROTOCOL_KEY 6:1",
        "`idle_timeout_ms`",
    );
    check_postgres("send_proxy = 'v2'", "E_PROTOCOL_KEY 6:1", "`allow_from`");
    check_postgres(
        "on_server_down = 'leave'",
        "E_PROTOCOL_KEY 6:1",
        "remove it",
    );
    check_postgres("retries = 3", "E_PROTOCOL_KEY 6:1", "[service.failover]");
    check_postgres(
        "all_down = 'wait'",
        "E_PROTOCOL_KEY 6:1",
        "[service.failover]",
    );
    check_postgres(
        "[service.queue]",
        "E_PROTOCOL_KEY 6:10",
        "[service.pool] `wait_ms`",
    );
}

#[test]
fn with_a_wrong_protocol_no_key_is_blamed_for_it() {
    check(
        &service("protocol = \"postgre\"\n[service.pool]\nsize = 1"),
        "E_UNKNOWN_WORD 5:12",
        "did you mean `postgres`?",
    );
}

#[test]
fn roles_are_asked_by_an_account_in_the_servers_own_protocol() {
    let bare = |servers: &str, lines: &str| {
        format!(
            "[[service]]\nname='a'\nprotocol='postgres'\nlisten='*:1'\nservers=[{servers}]\n{lines}"
        )
    };
    let two = "'e:1', 'f:1'";
    check(&bare(two, ""), "E_NO_MONITOR 5:1", "[service.monitor]");
    let auth = "[service.auth]\nuser='u'";
    check(
        &bare(two, auth),
        "E_NO_MONITOR 5:1",
        "which server is the primary",
    );
    check(
        &bare("'e:1'", ""),
        "E_NO_ACCOUNT 1:1",
        "`source = \"file\"`",
    );
    let own = of(&bare(
        "'e:1'",
        "[service.auth]\nuser='u'\npassword='p'\ndatabase='d'",
    ));
    assert_eq!(own.health.probe, Probe::named("tcp"));
    let account = own
        .database()
        .expect("a database")
        .auth
        .account
        .clone()
        .expect("an account");
    assert_eq!(
        (account.user.as_str(), account.database.as_deref()),
        ("u", Some("d"))
    );
    check(
        &bare("'e:1'", "[service.monitor]"),
        "E_MISSING_KEY 6:10",
        "no `user`",
    );
    check_postgres(
        "[service.health]\nprobe='tcp'",
        "E_ROLE_PROBE 7:7",
        "requires a database probe",
    );
    check_postgres(
        "[service.health]\nprobe='http'",
        "E_ROLE_PROBE 7:7",
        "does not support",
    );
    check_postgres(
        "[service.health]\nprobe='mysql'",
        "E_ROLE_PROBE 7:7",
        "or remove `probe`",
    );
    plan(&postgres("[service.health]\nrise=1"));
}

#[test]
fn pools_are_checked() {
    check_postgres(
        "[service.pool]\nsize = 5\nmin_idle = 6",
        "E_ORDER 8:12",
        "use 5 or less",
    );
    check_postgres("[service.pool]\nsize = 0", "E_RANGE 7:8", "1 to 100000");
    check_postgres(
        "[service.pool]\nmode = 'statement'",
        "E_UNKNOWN_WORD 7:8",
        "`session`",
    );
    check_postgres(
        "[service.pool]\nmod = 'session'",
        "E_UNKNOWN_KEY 7:1",
        "did you mean `mode`?",
    );
    check_postgres(
        "[service.pool]\nusers = 3",
        "E_TYPE 7:9",
        "[service.pool.users.NAME]",
    );
    check_postgres(
        "[service.pool.users]\napp = 3",
        "E_TYPE 7:7",
        "must be a table",
    );
    check_postgres(
        "[service.pool.users.app]",
        "E_MISSING_KEY 6:21",
        "has no `size`",
    );
    check_postgres(
        "[service.pool.users.app]\nsizes = 3",
        "E_UNKNOWN_KEY 7:1",
        "`size`",
    );
    check_postgres(
        "[service.pool.users.'']\nsize = 3",
        "E_NAME 6:21",
        "is empty",
    );
    let long = format!("[service.pool.databases.{}]\nsize = 3", "d".repeat(64));
    check_postgres(&long, "E_NAME 6:25", "64 bytes");
}

#[test]
fn who_keeps_a_connection_does_not_read_elsewhere() {
    let kept = "[service.pool]\nmode = 'session'\n";
    let service = of(&postgres(kept));
    let database = service.database().expect("a database");
    assert_eq!(database.pool.mode, PoolMode::Session);
    check_postgres(
        &format!("{kept}[service.split]\nreads = true"),
        "W_NO_EFFECT 9:1",
        "`mode = \"transaction\"`",
    );
}

#[test]
fn a_setting_of_reads_that_are_not_split_is_told() {
    check_postgres(
        "[service.split]\nwait_ms = 1",
        "W_NO_EFFECT 7:1",
        "`reads = true`",
    );
    check_postgres("lag_ms_max = 1", "W_NO_EFFECT 6:1", "[service.split]");
    let typo = "[service.split]\nreads = true\nconsistency = 'read-your-own-writes'";
    check_postgres(
        typo,
        "E_UNKNOWN_WORD 8:15",
        "did you mean `read-your-writes`?",
    );
}

#[test]
fn the_account_that_asks_is_the_monitors_or_its_own() {
    check_postgres(
        "[service.auth]\npassword = 'x'",
        "E_MISSING_KEY 7:1",
        "without `user`",
    );
    let query = "SELECT rolname, rolpassword, valid_until FROM f($1)";
    let auth = database(&format!(
        "[service.auth]\ndatabase = 'd'\nquery = '{query}'"
    ))
    .auth;
    assert_eq!(auth.query.as_deref(), Some(query));
    let account = auth.account.expect("an account");
    assert_eq!(
        (account.user.as_str(), account.database.as_deref()),
        ("m", Some("d"))
    );
    check_postgres(
        "[service.auth]\nquery = 'SELECT 1'",
        "E_VALUE 7:9",
        "no `$1`",
    );
    check_postgres(
        "[service.auth]\nsource = 'file'",
        "E_MISSING_KEY 7:10",
        "users_file = \"users.toml\"",
    );
}

#[test]
fn users_may_come_from_their_networks_only() {
    let lines = "[service.auth]\nallow_from = { app = ['10.0.0.0/8', '::1'], shut = [], \
                 one = '10.1.1.1', '*' = ['127.0.0.1'] }";
    let auth = database(lines).auth;
    let may = |user: &str, from: &str| {
        auth.may_come_from(user, Some(from.parse::<IpAddr>().expect("an address")))
    };
    assert!(may("app", "10.9.9.9") && may("app", "::1") && may("app", "::ffff:10.9.9.9"));
    assert!(!may("app", "127.0.0.1") && !may("app", "11.0.0.0"));
    assert!(may("one", "10.1.1.1") && !may("one", "10.1.1.2"));
    assert!(!may("shut", "127.0.0.1"));
    assert!(may("somebody", "127.0.0.1") && !may("somebody", "10.0.0.1"));
    assert!(auth.may_come_from("shut", None));
    let open = database("[service.auth]\nallow_from = { app = ['10.0.0.0/8'] }").auth;
    assert!(open.may_come_from("somebody", Some(IpAddr::from([1, 1, 1, 1]))));
    check_postgres(
        "[service.auth]\nallow_from = ['10.0.0.0/8']",
        "E_TYPE 7:14",
        "\"*\" = ",
    );
    check_postgres(
        "[service.auth]\nallow_from = { a = ['x'] }",
        "E_ADDRESS 7:21",
        "`x`",
    );
    check_postgres(
        "[service.auth]\nallow_from = { a = [1] }",
        "E_TYPE 7:21",
        "`allow_from`",
    );
}

#[test]
fn a_certificate_comes_with_its_own_key() {
    let pair = Pair::new("db.example.org");
    let lines = format!(
        "[service.tls]\n{}\nclient_ca = 'certificate.pem'",
        pair.lines()
    );
    let lines = lines.replace(
        "'certificate.pem'",
        &format!("'{}'", pair.path("certificate.pem").display()),
    );
    let tls = database(&format!("{lines}\nrequired = true"))
        .tls
        .expect("TLS");
    assert!(tls.required && tls.client_ca.is_some());
    assert_eq!(tls.key.path, pair.path("key.pem"));
    assert!(tls.key.text.expose().contains("PRIVATE KEY"));
    assert!(!format!("{tls:?}").contains("PRIVATE KEY"));
    let broken = |name: &str, text: &str, expected: &str, words: &str| {
        let before = fs::read_to_string(pair.path(name)).expect("the file");
        pair.write(name, text);
        check_postgres(&lines, expected, words);
        pair.write(name, &before);
    };
    let other = Pair::new("db.example.org");
    let stranger = fs::read_to_string(other.path("key.pem")).expect("a key");
    broken(
        "key.pem",
        &stranger,
        "E_FILE 8:7",
        "does not belong to the certificate",
    );
    broken("key.pem", "x", "E_FILE 8:7", "holds no PEM private key");
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----";
    broken("key.pem", locked, "E_FILE 8:7", "is encrypted");
    pair.set_mode("key.pem", 0o644);
    check_postgres(&lines, "E_SECRET_READABLE 8:7", "chmod 600");
}

#[test]
fn files_of_tls_must_be_there() {
    let missing = "[service.tls]\ncertificate = 'none.pem'\nkey = 'none.key'";
    let (_, problems) = load(&postgres(missing));
    let codes: Vec<&str> = problems.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["E_FILE", "E_FILE"]);
    let pair = Pair::new("a");
    pair.write("certificate.pem", "no certificate\n");
    let lines = format!("[service.tls]\n{}", pair.lines());
    check_postgres(&lines, "E_FILE 7:15", "holds no PEM certificate");
    fs::write(pair.path("certificate.pem"), b"\x30\x82\xff").expect("write");
    check_postgres(&lines, "E_FILE 7:15", "not DER");
    pair.write("certificate.pem", "no certificate\n");
    let keyless = lines.lines().take(2).collect::<Vec<_>>().join("\n");
    check_postgres(&keyless, "E_MISSING_KEY 6:10", "has no `key`");
}

fn with_peers(lines: &str) -> String {
    format!("{}[peers]\n{lines}\n", postgres(""))
}

#[test]
fn one_list_of_peers_serves_all_of_them() {
    let lines = "instance = 2\naddresses = { 1 = '10.0.0.1:1', 2 = '10.0.0.2:1', 9 = 'c:1' }";
    let Plan { peers, .. } = plan(&with_peers(lines));
    let found: Vec<(u16, String)> = peers
        .addresses
        .iter()
        .map(|(number, address)| (*number, Address::to_string(address)))
        .collect();
    let expected = [(1, "10.0.0.1:1".to_owned()), (9, "c:1".to_owned())];
    assert_eq!((peers.instance, found), (2, expected.to_vec()));
    assert_eq!(plan(&postgres("")).peers.instance, 1);
}

#[test]
fn wrong_peers_are_told() {
    let check = |lines: &str, expected: &str, words: &str| {
        check(&with_peers(lines), expected, words);
    };
    check("instance = 1024", "E_RANGE 10:12", "1 to 1023");
    check("addresses = { 0 = 'a:1' }", "E_RANGE 10:15", "1 to 1023");
    check("addresses = { two = 'a:1' }", "E_RANGE 10:15", "`two`");
    check("addresses = { 2 = 'a' }", "E_ADDRESS 10:19", "no port");
    check("addresses = { 2 = 2 }", "E_TYPE 10:19", "\"10.0.0.2:5432\"");
    check("addresses = ['a:1']", "E_TYPE 10:13", "\"10.0.0.2:5432\"");
    check(
        "addresses = { 2 = 'a:1', 3 = 'a:1' }",
        "E_DUPLICATE_SERVER 10:30",
        "have the same address",
    );
    check(
        "addresses = { 2 = '127.0.0.1:3306' }",
        "E_LOOP 9:2",
        "this process itself",
    );
    super::wrong::check(
        &service("[peers]\ninstance = 2"),
        "W_NO_EFFECT 5:2",
        "`protocol = \"postgres\"`",
    );
}

#[test]
fn our_certificate_for_servers_needs_its_key() {
    let pair = Pair::new("app.example.org");
    let lines = format!("[service.server_tls]\nmode = 'encrypt'\n{}", pair.lines());
    let own = of(&postgres(&lines)).server_tls.own.expect("a certificate");
    assert!(own.key.text.expose().contains("PRIVATE KEY"));
    let keyless = lines.lines().take(3).collect::<Vec<_>>().join("\n");
    let words = "[service.server_tls] has no `key`";
    check_postgres(&keyless, "E_MISSING_KEY 6:10", words);
    let off = lines.replace("encrypt", "off");
    check_postgres(&off, "W_NO_EFFECT 8:1", "disables TLS");
}

#[test]
fn logins_with_the_client_s_password_need_a_channel_that_nobody_reads() {
    let pair = Pair::new("login");
    let tls = format!("[service.tls]\n{}", pair.lines());
    let auth = database(&format!("[service.auth]\nsource = 'login'\n{tls}")).auth;
    assert_eq!((auth.source, auth.account), (AuthSource::Login, None));
    check_postgres(
        "[service.auth]\nsource = 'login'",
        "E_LOGIN_TLS 6:10",
        "[service.tls]",
    );
    let keys = format!("[service.auth]\nsource = 'login'\nuser = 'x'\n{tls}");
    check_postgres(&keys, "E_SOURCE_KEY 8:1", "not for `login`");
}
