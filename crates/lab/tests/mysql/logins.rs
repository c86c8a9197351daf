//! Tests of logins: the servers' users with the servers' passwords, and the same refusals as at the
//! server.

use std::net::SocketAddr;

use evenkeel_lab::{Balancer, Server, eventually};
use socket2::{Domain, Socket, Type};

use super::client::{Client, Login};
use super::stage::{ONE, Setup, TestBed, config, same_as_direct, shared, sql};
use crate::harness::certificates::{file_of_sbtest, write_private};
use crate::harness::proxy_protocol_peer::{introduced, is_left_without_a_word};
use crate::harness::{DRIVERS, LIMIT, loopback, plain};

fn as_user<'a>(user: &'a str, password: &'a str) -> Login<'a> {
    Login {
        user,
        password,
        ..Login::default()
    }
}

/// Normalizes an error: MariaDB judges an unknown user by a randomly chosen account, with its
/// message.
fn stranger(reply: String) -> String {
    reply
        .replace("error 1698 ", "error 1045 ")
        .chars()
        .take(60)
        .collect()
}

#[test]
fn a_login_that_the_server_refuses_is_refused_alike() {
    sql("drop user if exists locked@'127.0.0.1', empty@'127.0.0.1', poor@'127.0.0.1'");
    sql("create user locked@'127.0.0.1' identified by 'x' account lock");
    sql("create user empty@'127.0.0.1'; create user poor@'127.0.0.1' identified by 'x'");
    sql("grant all on * to empty@'127.0.0.1'");
    same_as_direct(ONE, |address| {
        let try_in = |login: Login<'_>| match Client::log_in(address, &login) {
            Ok(mut client) => client.value("select user(), current_user(), database()"),
            Err(reply) => reply,
        };
        vec![
            try_in(Login::default()),
            try_in(as_user("sbtest", "wrong")),
            try_in(as_user("sbtest", "")),
            stranger(try_in(as_user("nobody", "x"))),
            stranger(try_in(as_user("nobody", ""))),
            try_in(as_user("locked", "x")),
            try_in(as_user("locked", "wrong")),
            try_in(as_user("empty", "")),
            try_in(as_user("empty", "x")),
            try_in(as_user("poor", "x")),
            try_in(Login {
                schema: None,
                ..as_user("poor", "x")
            }),
            try_in(Login {
                schema: Some("there_is_none"),
                ..Login::default()
            }),
            try_in(Login {
                schema: Some("mysql"),
                ..Login::default()
            }),
        ]
    });
}

/// TO SEE THIS RED: leave the warnings of a login's query on the connection for its next client.
#[test]
fn a_login_into_a_schema_that_is_not_there_is_nobody_else_s_warning() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.all(&["select 1"]);
        let stray = Login {
            schema: Some("there_is_none"),
            ..Login::default()
        };
        received.extend(Client::log_in(address, &stray).err());
        received.extend(client.all(&["show warnings", "select 1", "show warnings"]));
        received
    });
}

#[test]
fn what_changes_at_the_server_counts_from_the_next_login_on() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        sql("drop user if exists changing@'127.0.0.1'");
        let log_in =
            |password: &str| Client::log_in(bed.address, &as_user("changing", password)).is_ok();
        assert!(!log_in("first"), "{io}");
        sql("create user changing@'127.0.0.1' identified by 'first'");
        sql("grant all on * to changing@'127.0.0.1'");
        assert!(log_in("first"), "{io}: {}", bed.balancer.log());
        sql("alter user changing@'127.0.0.1' identified by 'second'");
        assert!(!log_in("first") && log_in("second"), "{io}");
        let mut inside = Client::with(bed.address, &as_user("changing", "second"));
        inside.run("select 1");
        sql("drop user changing@'127.0.0.1'");
        assert!(!log_in("second"), "{io}");
    }
}

/// Servers assign global privileges and default roles to a connection when it is opened.
#[test]
fn what_a_user_may_do_holds_from_the_next_login_on() {
    sql("drop user if exists rising@'127.0.0.1'");
    sql("drop role if exists risen");
    sql("create user rising@'127.0.0.1' identified by 'rising'");
    sql("grant insert on * to rising@'127.0.0.1'");
    sql("create role risen");
    let bed = TestBed::set_up("auto", ONE);
    let log_in = || Client::with(bed.address, &as_user("rising", "rising"));
    let seen = "select concat(count(*) > 0, ' ', coalesce(current_role(), 'none')) from mysql.db";
    assert_eq!(
        log_in().value("select coalesce(current_role(), 'none')"),
        "none"
    );
    assert!(log_in().query(seen)[0].starts_with("error 1142"));
    sql("grant select on *.* to rising@'127.0.0.1'");
    assert_eq!(log_in().value(seen), "1 none");
    sql("grant risen to rising@'127.0.0.1'");
    sql("set default role risen for rising@'127.0.0.1'");
    assert_eq!(log_in().value(seen), "1 risen");
    sql("set default role none for rising@'127.0.0.1'");
    sql("revoke select on *.* from rising@'127.0.0.1'");
    assert!(log_in().query(seen)[0].starts_with("error 1142"));
    sql("drop role risen");
    sql("drop user rising@'127.0.0.1'");
}

#[test]
fn the_number_of_a_connection_is_the_same_in_the_greeting_and_in_sql() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        assert_ne!(client.connection, other.connection);
        for one in [&mut client, &mut other] {
            let reply = one.connection.to_string();
            assert_eq!(one.value("select connection_id()"), reply, "{io}");
        }
        let direct = Client::connect(shared().address);
        assert_eq!(client.version, direct.version, "{io}");
    }
}

#[test]
fn kill_reaches_whom_it_means_by_our_own_numbers() {
    for io in DRIVERS {
        let bed = TestBed::set_up(
            io,
            Setup {
                pool: "size = 2",
                ..ONE
            },
        );
        let (mut victim, mut killer) = (bed.client(), bed.client());
        let number = victim.connection;
        victim.query_later("select sleep(20)");
        let running = || {
            let query = "select count(*) from information_schema.processlist \
                         where info = 'select sleep(20)' and db = database()";
            Ok((sql(query) == "1").then_some(()))
        };
        eventually(LIMIT, "a query that sleeps", running).unwrap();
        killer.run(&format!("kill query {number}"));
        let reply = victim.reply();
        let is_over = |line: &String| line == "row 1" || line.starts_with("error 1317 ");
        assert!(reply.iter().any(is_over), "{io}: {reply:?}");
        assert_eq!(victim.value("select 'alive'"), "alive");
        killer.run(&format!("kill {number}"));
        assert_eq!(
            victim.ping().last().map(String::as_str),
            Some("end"),
            "{io}"
        );
        assert!(killer.refusal("kill 4000000000").starts_with("1094 "));
    }
}

#[test]
fn a_client_becomes_another_user_on_its_connection() {
    sql("drop user if exists second@'127.0.0.1'");
    sql("create user second@'127.0.0.1' identified by 'second'");
    sql("grant all on * to second@'127.0.0.1'");
    same_as_direct(
        Setup {
            pool: "size = 2",
            ..ONE
        },
        |address| {
            let who = "select current_user(), database(), @a, @@time_zone";
            let mut client = Client::connect(address);
            let mut received = client.all(&["set @a = 1, time_zone = '+01:00'", who]);
            let outcome = client.change_user(&as_user("second", "second"));
            received.push(format!("{outcome:?}"));
            received.extend(client.all(&[who, "set @a = 2"]));
            let mut other = Client::connect(address);
            received.extend(other.all(&[who]));
            let outcome = client.change_user(&Login {
                schema: Some("other"),
                ..Login::default()
            });
            received.push(format!("{outcome:?}"));
            received.extend(client.all(&[who]));
            let outcome = client.change_user(&as_user("second", "wrong"));
            received.push(format!("{outcome:?}"));
            received
        },
    );
}

#[test]
fn users_may_come_from_their_networks_only() {
    let setup = Setup {
        tables: "[service.auth]\n\
                 allow_from = { sbtest = [\"10.0.0.0/8\"], \"*\" = [\"127.0.0.1\"] }",
        ..ONE
    };
    for io in DRIVERS {
        let login = Login {
            schema: None,
            ..as_user("evenkeel", "evenkeel")
        };
        let bed = TestBed::before_as(shared(), io, setup, &login);
        let reply = Client::log_in(bed.address, &Login::default()).map(|_| ());
        let reply = reply.unwrap_err();
        assert!(reply.starts_with("error 1045 "), "{io}: {reply}");
    }
}

/// TO SEE THIS RED: use the socket's address as the client's.
#[test]
fn behind_another_balancer_the_client_s_own_address_counts() {
    let setup = Setup {
        service: "accept_proxy_from = [\"127.0.0.1\"]",
        tables: "[service.auth]\nallow_from = { sbtest = [\"192.0.2.0/24\"] }",
        ..ONE
    };
    for io in DRIVERS {
        let from = |address, header| Client::log_in(introduced(address, header), &Login::default());
        let near = "PROXY TCP4 192.0.2.7 192.0.2.8 4711 3306\r\n";
        let bed = TestBed::start(
            |listen| config(shared(), listen, io, setup),
            |bed| from(bed.address, near).map(|_| ()),
        );
        let mut client = from(bed.address, near).unwrap();
        assert_eq!(client.value("select 1"), "1");
        let clients = bed
            .balancer
            .command(&["clients", "pool", "--json"])
            .unwrap();
        let clients = String::from_utf8_lossy(&clients.stdout).into_owned();
        assert!(clients.contains("192.0.2.7:4711"), "{io}: {clients}");
        let far = "PROXY TCP4 10.9.8.7 192.0.2.8 4711 3306\r\n";
        let reply = from(bed.address, far).map(|_| ()).unwrap_err();
        assert!(reply.starts_with("error 1045 "), "{io}: {reply}");
        assert!(is_left_without_a_word(bed.address), "{io}");
    }
}

#[test]
fn users_of_the_file_log_in_by_it_alone() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("users.toml");
    let users = "[users.sbtest]\npassword = \"sbtest\"\n\
                 [users.known]\npassword = \"k\"\nserver_user = \"sbtest\"\nserver_password = \"sbtest\"\n";
    write_private(&path, users);
    let tables = format!(
        "[service.auth]\nsource = \"file\"\nusers_file = {:?}",
        path.display().to_string()
    );
    for io in DRIVERS {
        let bed = TestBed::set_up(
            io,
            Setup {
                tables: &tables,
                ..ONE
            },
        );
        let log_in = |user, password| Client::log_in(bed.address, &as_user(user, password));
        let mut known = log_in("known", "k").unwrap();
        assert_eq!(known.value("select current_user()"), "sbtest@127.0.0.1");
        for (user, password) in [("known", "x"), ("sbtest", "x"), ("evenkeel", "evenkeel")] {
            let reply = log_in(user, password).map(|_| ()).unwrap_err();
            assert!(reply.starts_with("error 1045 28000 "), "{io}: {reply}");
        }
    }
}

#[test]
fn a_user_of_ed25519_comes_in_by_the_file_of_users_and_is_itself_at_the_server() {
    sql("install plugin if not exists ed25519 soname 'auth_ed25519'");
    sql("drop user if exists edi@'127.0.0.1'");
    sql("create user edi@'127.0.0.1' identified via ed25519 using password('secret')");
    sql("grant all on * to edi@'127.0.0.1'");
    comes_in_by_the_file(shared(), "edi");
}

/// A client's proof cannot be reused: Evenkeel authenticates to the server from the file. The file
/// has the user's password, or only the data that the servers require.
pub(crate) fn comes_in_by_the_file(server: &Server, user: &str) {
    let mut direct = Client::with(server.address, &as_user(user, "secret"));
    let itself = format!("{user}@127.0.0.1");
    assert_eq!(direct.value("select current_user()"), itself);
    let directory = tempfile::TempDir::new().unwrap();
    for key in ["password", "server_password"] {
        let path = directory.path().join(key).display().to_string();
        write_private(&path, &format!("[users.{user}]\n{key} = \"secret\"\n"));
        let tables = format!("[service.auth]\nusers_file = {path:?}");
        for io in DRIVERS {
            let setup = Setup {
                tables: &tables,
                ..ONE
            };
            let bed = TestBed::before(server, io, setup);
            let log_in = |password| Client::log_in(bed.address, &as_user(user, password));
            let mut client = log_in("secret").unwrap();
            assert_eq!(client.value("select current_user()"), itself);
            let reply = log_in("wrong").map(|_| ()).unwrap_err();
            assert!(reply.starts_with("error 1045 "), "{io}, {key}: {reply}");
        }
    }
    // Without the file the login fails, which is reported to a client with the right password.
    let bed = TestBed::before(server, "auto", ONE);
    for (password, number) in [("secret", "1251"), ("wrong", "1045")] {
        let reply = Client::log_in(bed.address, &as_user(user, password)).map(|_| ());
        let reply = reply.unwrap_err();
        assert!(reply.starts_with(&format!("error {number} ")), "{reply}");
    }
}

/// A pool's connections serve many clients; when forwarding bytes, each client has its own.
#[test]
fn the_server_knows_where_clients_come_from_if_bytes_are_carried_with_a_header() {
    sql("set global proxy_protocol_networks = '127.0.0.1'");
    sql("drop user if exists afar@'127.0.0.9'");
    sql("create user afar@'127.0.0.9' identified by 'afar'");
    for version in ["v1", "v2"] {
        let listen = loopback();
        let header = format!("send_proxy = {version:?}");
        let config = plain("front", listen, &[shared().address], &header);
        let _balancer = Balancer::start(&config).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let source = SocketAddr::from(([127, 0, 0, 9], 0));
        socket.bind(&source.into()).unwrap();
        socket.connect(&listen.into()).unwrap();
        let login = Login {
            schema: None,
            ..as_user("afar", "afar")
        };
        let mut client = Client::enter_by(socket.into(), &login).unwrap();
        assert_eq!(client.value("select user()"), "afar@127.0.0.9", "{version}");
    }
}

#[test]
fn one_server_alone_needs_no_monitor() {
    let own = "[service.monitor]\nuser = \"evenkeel\"\npassword = \"evenkeel\"\n";
    let auth = "[service.auth]\nuser = \"evenkeel\"\npassword = \"evenkeel\"\n";
    let path = file_of_sbtest();
    let file = format!("[service.auth]\nsource = \"file\"\nusers_file = {path:?}\n");
    for (what, instead) in [("an account", auth), ("a file", &file)] {
        let bed = TestBed::start(
            |address| {
                let config = super::stage::config(shared(), address, "auto", ONE);
                assert!(config.contains(own), "{config}");
                config.replace(own, instead)
            },
            |bed| Client::log_in(bed.address, &Login::default()).map(|_| ()),
        );
        assert_eq!(bed.client().value("select 'in'"), "in", "{what}");
    }
}
