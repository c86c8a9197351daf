//! Tests of logins: accepted and refused ones, and their errors.

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{KIND, Setup, TestBed, admin, shared, start_own};
use crate::harness::DRIVERS;
use crate::harness::certificates::write_private;
use crate::harness::pool::config;
use crate::harness::proxy_protocol_peer::{introduced, is_left_without_a_word};

fn login<'a>(user: &'a str, password: &'a str, database: &'a str) -> Login<'a> {
    Login {
        user,
        password,
        database,
        ..Login::default()
    }
}

/// Returns the SQLSTATE of the refusal, or `in`.
fn refusal(bed: &TestBed, login: &Login<'_>) -> String {
    match Client::log_in(bed.address, login) {
        Ok(_) => "in".to_owned(),
        Err(answer) => answer.chars().take(5).collect(),
    }
}

#[test]
fn who_must_not_come_in_is_told_what_a_server_would_tell() {
    let mut admin = admin();
    for text in [
        "create role expired login password 'expired' valid until '2020-01-01'",
        "create role lasting login password 'lasting' valid until '2100-01-01'",
        "create role barred nologin password 'barred'",
        "create role bare login",
        "set password_encryption to md5; create role old login password 'old'",
    ] {
        let _ = admin.query(text);
    }
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        for (user, password, database, expected) in [
            ("sbtest", "sbtest", "sbtest", "in"),
            ("sbtest", "wrong", "sbtest", "28P01"),
            ("sbtest", "", "sbtest", "28P01"),
            ("nobody_here", "sbtest", "sbtest", "28P01"),
            ("expired", "expired", "sbtest", "28P01"),
            ("expired", "wrong", "sbtest", "28P01"),
            ("lasting", "lasting", "sbtest", "in"),
            ("barred", "barred", "sbtest", "28000"),
            ("barred", "wrong", "sbtest", "28P01"),
            ("bare", "", "sbtest", "28P01"),
            ("bare", "x", "sbtest", "28P01"),
            ("sbtest", "sbtest", "no_such_database", "3D000"),
            // Without a database, the one with the user's name is used.
            ("sbtest", "sbtest", "", "in"),
            ("lasting", "lasting", "", "3D000"),
        ] {
            let answer = refusal(&bed, &login(user, password, database));
            assert_eq!(answer, expected, "{io}: {user} {password} {database}");
        }
        // The lab's pg_hba.conf refuses md5; here it suffices that the client has proved the
        // password.
        let old = refusal(&bed, &login("old", "wrong", "sbtest"));
        assert_eq!(old, "28P01", "{io}");
        let mut client = bed.client();
        assert_eq!(client.value("select current_user"), "sbtest");
    }
}

#[test]
fn who_has_an_md5_verifier_comes_in_and_through_to_the_server() {
    let (_lab, server) = start_own();
    for text in [
        "set password_encryption to md5; create role old login password 'old'",
        "copy (select 1) to program 'sed -i \"1i host all old all md5\" pg_hba.conf'",
        "select pg_reload_conf()",
    ] {
        server.sql(text).unwrap();
    }
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, Setup::default());
        let entered = Client::log_in(bed.address, &login("old", "old", "sbtest"));
        let mut client = entered.unwrap_or_else(|answer| panic!("{io}: {answer}"));
        assert_eq!(client.value("select current_user"), "old", "{io}");
        let wrong = refusal(&bed, &login("old", "wrong", "sbtest"));
        assert_eq!(wrong, "28P01", "{io}");
    }
}

#[test]
fn no_user_and_no_name_that_is_not_text_come_in() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        assert_eq!(refusal(&bed, &login("", "x", "sbtest")), "28000", "{io}");
        let mut client = Client::reach(bed.address);
        client.send_script(&Script(
            b"\0\0\0\x1c\0\x03\0\0user\0sb\xff\xfe\0options\0\0\0".to_vec(),
        ));
        let reply = client.reply();
        assert_eq!(
            reply.last().map(String::as_str),
            Some("end"),
            "{io}: {reply:?}"
        );
    }
}

#[test]
fn a_password_that_was_changed_counts_from_the_next_login_on() {
    let mut admin = admin();
    let _ = admin.query("create role changes login password 'first'");
    for io in DRIVERS {
        admin.run("alter role changes password 'first'");
        let bed = TestBed::set_up(
            io,
            Setup {
                pool: "size = 3",
                ..Setup::default()
            },
        );
        let log_in = |password| Client::log_in(bed.address, &login("changes", password, "sbtest"));
        let mut before = log_in("first").unwrap_or_else(|answer| panic!("{answer}"));
        before.run("select 1");
        admin.run("alter role changes password 'second'");
        assert!(log_in("first").is_err(), "{io}");
        let mut after = log_in("second").unwrap_or_else(|answer| panic!("{answer}"));
        assert_eq!(after.value("select current_user"), "changes");
        // A connected client stays while there is a connection for it.
        assert_eq!(before.value("select 'still in'"), "still in");
        admin.run("alter role changes nologin");
        assert!(log_in("second").is_err());
        admin.run("alter role changes login");
        assert!(log_in("second").is_ok());
    }
}

/// TO SEE THIS RED: leave `settings` out of the generation of a login.
#[test]
fn what_alter_role_sets_holds_from_the_next_login_on_and_not_for_who_is_there() {
    let mut admin = admin();
    let _ = admin.query("drop role if exists settled");
    admin.run("create role settled login password 'settled'");
    let bed = TestBed::set_up("auto", Setup::default());
    let log_in = || Client::log_in(bed.address, &login("settled", "settled", "sbtest")).unwrap();
    let seen = "select concat_ws(' ', current_setting('lock_timeout'), \
        current_setting('datestyle'), current_setting('app.of', true))";
    let mut there = log_in();
    assert_eq!(there.value(seen), "0 ISO, MDY");
    admin.run("alter role settled set lock_timeout = '7s'");
    assert_eq!(log_in().value(seen), "7s ISO, MDY");
    admin.run("alter role settled in database sbtest set datestyle = 'German'");
    admin.run("alter role settled set app.of = 'role'");
    assert_eq!(log_in().value(seen), "7s German, DMY role");
    assert_eq!(there.value(seen), "0 ISO, MDY");
    admin.run("alter role settled reset lock_timeout");
    assert_eq!(log_in().value(seen), "0 German, DMY role");
    drop(there);
    admin.run("drop role settled");
}

#[test]
fn many_logins_at_once_all_come_in() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let (address, login) = (bed.address, &Login::default());
        let enter = || Client::log_in(address, login).map(|mut client| client.value("select 'in'"));
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..40).map(|_| scope.spawn(enter)).collect();
            for client in clients {
                assert_eq!(client.join().unwrap().unwrap(), "in", "{io}");
            }
        });
    }
}

/// Others of that user are connected, so no new server connection is needed. TO SEE THIS RED: do
/// not query these databases.
#[test]
fn who_may_no_more_connect_to_a_database_does_not_come_in_while_others_are() {
    let (_lab, server) = start_own();
    let sql = |text: &str| server.sql(text).unwrap();
    sql("create role late login password 'late'");
    sql("create database closing");
    let who = login("late", "late", "closing");
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, Setup::default());
        let mut within =
            Client::log_in(bed.address, &who).unwrap_or_else(|answer| panic!("{answer}"));
        assert_eq!(refusal(&bed, &who), "in", "{io}");
        for (closes, answer, opens) in [
            (
                "revoke connect on database closing from public",
                "42501",
                "grant connect on database closing to public",
            ),
            (
                "alter database closing allow_connections false",
                "55000",
                "alter database closing allow_connections true",
            ),
        ] {
            sql(closes);
            assert_eq!(refusal(&bed, &who), answer, "{io}: {closes}");
            assert_eq!(within.value("select 1"), "1", "{io}");
            sql(opens);
            assert_eq!(refusal(&bed, &who), "in", "{io}: {opens}");
        }
    }
}

/// TO SEE THIS RED: leave the role's OID out of the pool's key.
#[test]
fn a_role_that_is_made_again_by_the_same_name_and_password_is_another_one() {
    let (_lab, server) = start_own();
    let sql = |text: &str| server.sql(text).unwrap();
    sql("create role again login password 'again'");
    let verifier = sql("select rolpassword from pg_authid where rolname = 'again'");
    let make = format!("create role again login password '{verifier}'");
    sql("drop role again");
    let who = login("again", "again", "postgres");
    for io in DRIVERS {
        sql("create table given (v int)");
        sql(&make);
        let bed = TestBed::before(&server, io, Setup::default());
        let mut before =
            Client::log_in(bed.address, &who).unwrap_or_else(|answer| panic!("{answer}"));
        assert_eq!(before.value("select 1"), "1");
        sql("drop role again");
        sql(&make);
        sql("grant select on given to again");
        let mut again =
            Client::log_in(bed.address, &who).unwrap_or_else(|answer| panic!("{answer}"));
        assert_eq!(again.value("select count(*) from given"), "0", "{io}");
        sql("drop table given; drop role again");
    }
}

/// TO SEE THIS RED: use the socket's address as the client's.
#[test]
fn behind_another_balancer_the_client_s_own_address_counts() {
    let setup = Setup {
        service: "accept_proxy_from = [\"127.0.0.1\"]",
        tables: "[service.auth]\nallow_from = { sbtest = [\"2001:db8::/64\"] }",
        ..Setup::default()
    };
    for io in DRIVERS {
        let from = |address, header| Client::log_in(introduced(address, header), &Login::default());
        let near = "PROXY TCP6 2001:db8::7 2001:db8::8 4711 5432\r\n";
        let bed = TestBed::start(
            |listen| config(KIND, shared(), listen, io, setup),
            |bed| from(bed.address, near).map(|_| ()),
        );
        let mut client = from(bed.address, near).unwrap_or_else(|answer| panic!("{answer}"));
        assert_eq!(client.value("select 1"), "1");
        let clients = bed
            .balancer
            .command(&["clients", "pool", "--json"])
            .unwrap();
        let clients = String::from_utf8_lossy(&clients.stdout).into_owned();
        assert!(clients.contains("[2001:db8::7]:4711"), "{io}: {clients}");
        let far = "PROXY TCP4 10.9.8.7 192.0.2.8 4711 5432\r\n";
        let answer = from(bed.address, far).map(|_| ()).err().unwrap();
        assert!(answer.to_string().contains("28000"), "{io}: {answer}");
        assert!(is_left_without_a_word(bed.address), "{io}");
    }
}

#[test]
fn users_of_the_file_come_in_by_it_and_addresses_count() {
    let work_dir = tempfile::tempdir().unwrap();
    let file = work_dir.path().join("users.toml");
    let verifier = shared()
        .sql("select rolpassword from pg_authid where rolname = 'sbtest'")
        .unwrap();
    let text = format!(
        "[users.known]\npassword = \"of the file\"\nserver_user = \"sbtest\"\n\
         server_password = \"sbtest\"\n\
         [users.sbtest]\nverifier = {verifier:?}\n\
         [users.far]\npassword = \"far\"\nserver_user = \"sbtest\"\nserver_password = \"sbtest\"\n"
    );
    write_private(&file, &text);
    for io in DRIVERS {
        for source in ["file", "server"] {
            let tables = format!(
                "[service.auth]\nsource = {source:?}\nusers_file = {file:?}\n\
                 allow_from = {{ far = [\"10.0.0.0/8\"] }}"
            );
            let bed = match source {
                "server" => TestBed::set_up(
                    io,
                    Setup {
                        tables: &tables,
                        ..Setup::default()
                    },
                ),
                _ => TestBed::set_as(
                    io,
                    Setup {
                        tables: &tables,
                        ..Setup::default()
                    },
                    &login("known", "of the file", "sbtest"),
                ),
            };
            let mut client = Client::log_in(bed.address, &login("known", "of the file", "sbtest"))
                .unwrap_or_else(|answer| panic!("{answer}"));
            assert_eq!(
                client.value("select current_user"),
                "sbtest",
                "{io} {source}"
            );
            assert_eq!(refusal(&bed, &login("known", "sbtest", "sbtest")), "28P01");
            assert_eq!(refusal(&bed, &login("sbtest", "sbtest", "sbtest")), "in");
            assert_eq!(refusal(&bed, &login("far", "far", "sbtest")), "28000");
            let of_server = refusal(&bed, &login("postgres", "postgres", "sbtest"));
            let expected = if source == "file" { "28P01" } else { "in" };
            assert_eq!(of_server, expected, "{io} {source}");
        }
    }
}

#[test]
fn a_reload_of_who_logs_in_to_servers_holds_for_the_next_session_though_others_live() {
    let mut admin = admin();
    let _ = admin.query("create role others_name login password 'rotated'");
    let work_dir = tempfile::tempdir().unwrap();
    let file = work_dir.path().join("users.toml");
    let users = |server_user: &str, server_password: &str| {
        let text = format!(
            "[users.known]\npassword = \"k\"\nserver_user = {server_user:?}\n\
             server_password = {server_password:?}\n"
        );
        write_private(&file, &text);
    };
    let tables = format!("[service.auth]\nsource = \"file\"\nusers_file = {file:?}");
    let setup = Setup {
        tables: &tables,
        ..Setup::default()
    };
    let known = login("known", "k", "sbtest");
    for io in DRIVERS {
        users("sbtest", "sbtest");
        let bed = TestBed::set_as(io, setup, &known);
        let log_in =
            || Client::log_in(bed.address, &known).unwrap_or_else(|answer| panic!("{answer}"));
        let mut before = log_in();
        assert_eq!(before.value("select current_user"), "sbtest", "{io}");
        users("others_name", "rotated");
        let again = config(KIND, shared(), bed.address, io, setup);
        bed.balancer.reload(&again).unwrap();
        let mut after = log_in();
        assert_eq!(after.value("select current_user"), "others_name", "{io}");
        assert_eq!(before.value("select current_user"), "sbtest", "{io}");
    }
}

#[test]
fn the_first_packets_may_be_anything_and_only_one_thing_comes_of_it() {
    let setup = Setup {
        // One of them promises more bytes than come.
        service: "login_timeout_ms = 1000",
        ..Setup::default()
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, setup);
        let receive_replies = |bytes: &[u8]| {
            let mut client = Client::reach(bed.address);
            client.send_script(&Script(bytes.to_vec()));
            client.reply()
        };
        let startup = Script::startup(&Login::default()).0;
        // A second startup message after the first, or instead of a password.
        assert_eq!(
            receive_replies(&[startup.clone(), startup.clone()].concat()),
            ["R", "E 08P01", "end"],
            "{io}"
        );
        // Longer than anything allowed before a login.
        assert_eq!(
            receive_replies(&[0, 0x7f, 0xff, 0xff, 0, 3, 0, 0]),
            ["E 08P01", "end"]
        );
        assert_eq!(
            receive_replies(&[0, 0, 0, 3, 0, 3, 0, 0]),
            ["E 08P01", "end"]
        );
        assert_eq!(
            receive_replies(&[0, 0, 0, 9, 0, 3, 0, 0, b'x']),
            ["E 08P01", "end"]
        );
        // Other versions of the protocol.
        assert_eq!(
            receive_replies(&[0, 0, 0, 9, 0, 2, 0, 0, 0]),
            ["E 0A000", "end"]
        );
        assert_eq!(
            receive_replies(&[0, 0, 0, 9, 0, 4, 0, 0, 0]),
            ["E 0A000", "end"]
        );
        // Another kind of message than the requested password.
        let wrong = [startup.clone(), Script::new().query("select 1").0].concat();
        assert_eq!(receive_replies(&wrong), ["R", "E 08P01", "end"]);
        let long = Script::new().message(b'p', &vec![b'x'; 100_000]).0;
        assert_eq!(
            receive_replies(&[startup.clone(), long].concat()),
            ["R", "E 08P01", "end"]
        );
        let mut web = Client::reach(bed.address);
        web.send_script(&Script(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()));
        assert_eq!(web.reply(), ["E 08P01", "end"]);
        // Requests for encryption that are answered, and data that must not follow them.
        let ssl = [0, 0, 0, 8, 4, 210, 22, 47];
        let gss = [0, 0, 0, 8, 4, 210, 22, 48];
        for request in [ssl, gss] {
            let mut client = Client::reach(bed.address);
            client.send_script(&Script(request.to_vec()));
            let mut answer = [0];
            std::io::Read::read_exact(client.raw(), &mut answer).unwrap();
            assert_eq!(answer, *b"N", "{io}");
            client.send_script(&Script(startup.clone()));
            assert_eq!(client.receive_message(), "R");
            let eager = [request.to_vec(), startup.clone()].concat();
            assert_eq!(receive_replies(&eager), ["E 08P01", "end"]);
        }
        assert_eq!(bed.client().value("select 'unharmed'"), "unharmed");
    }
}

#[test]
fn versions_are_negotiated_once_and_only_where_they_must_be() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let greeting = |minor, settings: &[(&str, &str)]| {
            let login = Login {
                minor,
                settings,
                ..Login::default()
            };
            let client =
                Client::log_in(bed.address, &login).unwrap_or_else(|answer| panic!("{answer}"));
            let key = client.key.unwrap();
            let negotiated = client
                .greeting
                .into_iter()
                .filter(|line| line.starts_with('v'));
            (negotiated.collect::<Vec<String>>(), key.1.len())
        };
        assert_eq!(greeting(0, &[]), (vec![], 4), "{io}");
        assert_eq!(greeting(2, &[]).0, Vec::<String>::new());
        assert!(greeting(2, &[]).1 > 4);
        let grease = ("_pq_.test_protocol_negotiation", "");
        let (negotiated, _) = greeting(9_999, &[grease]);
        assert_eq!(negotiated.len(), 1, "{negotiated:?}");
        assert!(negotiated[0].ends_with(" 1"), "{negotiated:?}");
        let (negotiated, _) = greeting(0, &[grease]);
        assert_eq!(negotiated, ["v 196608 1"]);
        let (negotiated, _) = greeting(3, &[]);
        assert_eq!(negotiated, ["v 196610 0"]);
    }
}
