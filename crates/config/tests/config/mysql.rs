//! Tests MySQL services: the tables shared with PostgreSQL, and the keys that only PostgreSQL has.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use evenkeel_config::plan::{Credential, DatabasePlan, PoolMode, ServicePlan};
use tempfile::TempDir;

use super::wrong::check;
use super::{load, plan, service};

/// Returns a valid MySQL service; `lines` begin in line 6.
fn mysql(lines: &str) -> String {
    let monitor = "[service.monitor]\nuser = \"m\"\n";
    service(&format!("protocol = \"mysql\"\n{lines}\n{monitor}"))
}

fn of(lines: &str) -> ServicePlan {
    plan(&mysql(lines)).services.remove(0)
}

fn check_mysql(lines: &str, expected: &str, words: &str) {
    check(&mysql(lines), expected, words);
}

#[test]
fn the_defaults_are_those_of_a_pooler() {
    let service = of("");
    assert_eq!(service.protocol_info().name, "mysql");
    assert_eq!(service.balance.name(), "least-connections");
    assert_eq!(service.idle_timeout_ms, 0);
    assert_eq!(service.health.probe_name(), "mysql");
    let database = service.database().expect("a database").clone();
    assert_eq!(
        (database.pool.mode, database.pool.size),
        (PoolMode::Transaction, 20)
    );
    assert!(!database.split.reads);
    assert_eq!(database.auth.account.expect("the monitor's").user, "m");
}

#[test]
fn the_tables_of_a_database_reach_the_plan() {
    let service = of(
        "query_timeout_ms = 1\nlag_ms_max = 5\n[service.pool]\nmode = 'transaction'\nsize = 7\n\
         user_size = 9\nusers = { app = { size = 16 } }\n\
         [service.split]\nreads = true\n[service.failover]\nwait_ms = 19\n\
         [service.auth]\nuser = 'u'\nallow_from = { app = '10.0.0.0/8' }",
    );
    let DatabasePlan {
        times,
        pool,
        split,
        failover,
        auth,
        ..
    } = service.database().expect("a database").clone();
    assert_eq!((times.query_timeout_ms, failover.wait_ms), (1, 19));
    assert_eq!((pool.mode, pool.size), (PoolMode::Transaction, 7));
    assert_eq!(pool.size_of_user("app"), 16);
    assert_eq!((split.reads, split.lag_ms_max), (true, Some(5)));
    assert_eq!(auth.account.as_ref().expect("its own").user, "u");
    assert!(!auth.may_come_from("app", Some([127, 0, 0, 1].into())));
}

#[test]
fn what_only_postgresql_has_is_told_what_to_do_instead() {
    check_mysql(
        "[service.pool]\ndatabase_size = 1",
        "E_PROTOCOL_KEY 7:1",
        "not tied to a schema",
    );
    check_mysql(
        "[service.pool.databases.d]\nsize = 1",
        "E_PROTOCOL_KEY 6:15",
        "`user_size`",
    );
    check_mysql(
        "[service.auth]\nquery = 'SELECT $1'",
        "E_PROTOCOL_KEY 7:1",
        "`mysql.user`",
    );
    check_mysql("role = 'primary'", "E_PROTOCOL_KEY 6:1", "handles both");
    check_mysql("send_proxy = 'v2'", "E_PROTOCOL_KEY 6:1", "`allow_from`");
    check_mysql(
        "[service.health]\nprobe='postgres'",
        "E_ROLE_PROBE 7:7",
        "does not support MySQL",
    );
    check_mysql(
        "[service.health]\nprobe='tcp'",
        "E_ROLE_PROBE 7:7",
        "`probe = \"mysql\"`",
    );
    check(
        &format!("{}[peers]\ninstance = 2", mysql("")),
        "W_NO_EFFECT 9:2",
        "`protocol = \"postgres\"`",
    );
}

#[test]
fn names_are_as_long_as_the_servers_take_them() {
    let sized = |bytes: usize| {
        let name = "u".repeat(bytes);
        mysql(&format!("[service.pool.users.{name}]\nsize = 3"))
    };
    plan(&sized(128));
    check(&sized(129), "E_NAME 6:21", "129 bytes");
}

/// Returns the credential of a user in a users file, or the first problem.
fn user_of(lines: &str) -> Result<Option<Credential>, String> {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("users.toml");
    fs::write(&path, format!("[users.app]\n{lines}\n")).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode");
    let (plan, problems) = load(&mysql(&format!(
        "[service.auth]\nsource = 'file'\nusers_file = '{}'",
        path.display()
    )));
    match plan {
        Some(mut plan) => {
            let database = plan.services.remove(0);
            let database = database.database().expect("a database");
            Ok(database.auth.users["app"].credential.clone())
        }
        None => {
            let errors = problems.iter().filter(|one| one.severity == "error");
            Err(errors.map(|one| one.message.as_str()).collect())
        }
    }
}

#[test]
fn a_user_of_the_file_has_a_password_or_what_the_server_keeps_of_it() {
    let native = format!("*{}", "0A".repeat(20));
    let sha2 = format!("$A$005${}", "x".repeat(63));
    for text in [native, sha2] {
        let user = user_of(&format!("verifier = '{text}'"));
        assert!(
            matches!(&user, Ok(Some(Credential::Mysql(it))) if it.expose() == text),
            "{user:?}"
        );
    }
    let password = user_of("password = 'p'");
    assert!(matches!(password, Ok(Some(Credential::Password(_)))));
    let wrong = |lines: &str, words: &str| {
        let error = user_of(lines).expect_err("a problem");
        assert!(error.contains(words), "{error}");
    };
    wrong("verifier = '*12'", "is not a valid password hash");
    wrong(
        &format!("verifier = 'md5{}'", "0a".repeat(16)),
        "not a valid password hash",
    );
    wrong(
        &format!("md5 = 'md5{}'", "0a".repeat(16)),
        "`protocol = \"postgres\"`",
    );
    wrong("certificate = true", "no credential for the servers");
    wrong("server_user = 'x'", "no credentials");
}
