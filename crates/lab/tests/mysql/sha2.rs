//! `caching_sha2_password` towards clients: the whole password once, encrypted with our key or under
//! TLS, and a proof from then on. The user is of the file, so that any server will do.

use std::os::unix::fs::PermissionsExt;

use evenkeel_lab::{Lab, MysqlOptions, eventually, rootfs};
use tempfile::TempDir;

use super::client::{Client, Login};
use super::stage::{ONE, Setup, Stage};
use crate::rig::{DRIVERS, LIMIT};

/// Of `pa ss`, as MySQL 9 stores it, in hex.
const STORED: &str = "0x24412430304124775D583F3D715C3E082A7C234B4F01301B28713E\
    77357476692E7072705673694D452E574B5858536C6443414C5A5A31734E6D437544577567354178743737";

fn users() -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("users.toml");
    let own = "server_user = \"sbtest\"\nserver_password = \"sbtest\"\n";
    let users = format!(
        "[users.app]\nverifier = \"{STORED}\"\n{own}\n[users.known]\npassword = \"k\"\n{own}"
    );
    std::fs::write(&path, users).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let path = path.display().to_string();
    let tables = format!("[service.auth]\nusers_file = {path:?}");
    (directory, tables)
}

#[test]
fn a_password_comes_whole_once_and_is_proved_from_then_on() {
    let (_directory, tables) = users();
    for io in DRIVERS {
        let stage = Stage::set(
            io,
            Setup {
                tables: &tables,
                ..ONE
            },
        );
        let enter = |user, password| {
            let login = Login {
                user,
                password,
                ..Login::default()
            };
            Client::enter(stage.address, &login)
        };
        let refused = |user, password| {
            let told = enter(user, password).map(|_| ()).unwrap_err();
            assert!(told.starts_with("error 1045 28000 "), "{io}: {told}");
        };
        refused("app", "wrong");
        for _ in 0..2 {
            let mut client = enter("app", "pa ss").unwrap();
            assert_eq!(client.value("select current_user()"), "sbtest@127.0.0.1");
            refused("app", "wrong");
            refused("app", "");
        }
        assert!(enter("known", "k").is_ok(), "{io}");
        refused("known", "x");
        refused("nobody", "x");
    }
}

/// Who asks for roles and accounts, and a user of its own.
const ACCOUNTS: &str = "\
    CREATE USER evenkeel@'127.0.0.1' IDENTIFIED BY 'evenkeel';\
    GRANT REPLICATION CLIENT ON *.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON mysql.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON performance_schema.* TO evenkeel@'127.0.0.1';\
    CREATE USER app@'127.0.0.1' IDENTIFIED BY 'first';\
    GRANT ALL ON sbtest.* TO app@'127.0.0.1';";

#[test]
fn users_of_mysql_log_in_by_their_own_accounts_even_when_the_server_has_forgotten_them() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let lab = Lab::new("mysql-logins").unwrap();
    let cluster = lab.mysql(MysqlOptions::default()).unwrap();
    let server = &cluster.primary;
    server.sql(ACCOUNTS).unwrap();
    let stage = Stage::before(server, "auto", ONE);
    let enter = |password: &str| {
        let login = Login {
            user: "app",
            password,
            ..Login::default()
        };
        Client::enter(stage.address, &login)
    };
    let refused = |password: &str, number: &str| {
        let told = enter(password).map(|_| ()).unwrap_err();
        assert!(told.starts_with(&format!("error {number} ")), "{told}");
    };
    refused("wrong", "1045");
    let mut client = enter("first").unwrap();
    assert_eq!(client.value("select current_user()"), "app@127.0.0.1");
    refused("wrong", "1045");
    // What the server knew of passwords is gone; the client proves its own as before.
    server.stop().unwrap();
    server.start().unwrap();
    let again = || Ok(enter("first").ok());
    let mut client = eventually(LIMIT, "a session of a forgotten user", again).unwrap();
    assert_eq!(client.value("select current_user()"), "app@127.0.0.1");
    server
        .sql("alter user app@'127.0.0.1' identified by 'second'")
        .unwrap();
    refused("first", "1045");
    assert!(enter("second").is_ok(), "{}", stage.balancer.log());
    server
        .sql("alter user app@'127.0.0.1' account lock")
        .unwrap();
    refused("second", "3118");
    refused("first", "1045");
    server
        .sql("alter user app@'127.0.0.1' account unlock password expire")
        .unwrap();
    refused("second", "1862");
    server.sql("drop user app@'127.0.0.1'").unwrap();
    refused("second", "1045");
}
