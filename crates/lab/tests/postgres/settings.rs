//! Tests that settings follow their client and affect no other client.

use std::thread;
use std::time::Duration;

use super::client::Client;
use super::script::Script;
use super::stage::{ONE, Setup, TestBed, admin, admin_of, same_as_direct, start_own};
use crate::harness::DRIVERS;

/// Evenkeel sets nothing for itself on a server connection.
///
/// TO SEE THIS RED: start each server connection with `jit = off`.
#[test]
fn a_new_client_reads_of_every_setting_what_it_reads_at_the_server() {
    same_as_direct(ONE, |address| {
        let all = "select name, setting, source, reset_val from pg_settings order by name";
        Client::connect(address).query(all)
    });
}

/// Each of the clients that share one server connection has different settings.
#[test]
fn clients_of_one_server_connection_never_see_each_other_s_settings() {
    let settings: [(&str, [&str; 3]); 8] = [
        (
            "search_path",
            ["public", "pg_catalog, public", "\"$user\", public"],
        ),
        ("statement_timeout", ["1min", "2min", "0"]),
        ("datestyle", ["German, DMY", "ISO, YMD", "ISO, MDY"]),
        ("application_name", ["it's me", "other\\one", ""]),
        ("client_encoding", ["LATIN1", "UTF8", "SQL_ASCII"]),
        ("timezone", ["Europe/Berlin", "Asia/Tokyo", "UTC"]),
        ("work_mem", ["1MB", "2MB", "4MB"]),
        ("my.own", ["a", "b", "c"]),
    ];
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut clients: Vec<Client> = (0..3).map(|_| bed.client()).collect();
        for (name, values) in settings {
            for (client, value) in clients.iter_mut().zip(values) {
                let quoted = value.replace('\'', "''");
                match name {
                    "search_path" => client.run(&format!("set {name} to {value}")),
                    _ => client.run(&format!("set {name} to '{quoted}'")),
                }
            }
            for (client, value) in clients.iter_mut().zip(values) {
                assert_eq!(client.value(&format!("show {name}")), value, "{io} {name}");
            }
        }
        for (index, client) in clients.iter_mut().enumerate() {
            for (name, values) in settings {
                let shown = client.value(&format!("show {name}"));
                assert_eq!(shown, values[index], "{io} {name}");
            }
        }
        // The next client gets none of these settings.
        let mut stranger = bed.client();
        let mut direct = Client::connect(super::stage::shared().address);
        for (name, _) in &settings[..7] {
            let show = format!("show {name}");
            assert_eq!(stranger.value(&show), direct.value(&show), "{io} {name}");
        }
        let own = "select current_setting('my.own', true) is null \
                   or current_setting('my.own', true) = ''";
        assert_eq!(stranger.value(own), "t");
    }
}

#[test]
fn transactions_savepoints_and_resets_do_to_settings_what_they_do_at_the_server() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut other = Client::connect(address);
        let mut received = Vec::new();
        let steps = [
            "set work_mem to '1MB'",
            "begin; set work_mem to '2MB'; rollback",
            "begin; set work_mem to '3MB'; commit",
            "begin; set local work_mem to '9MB'; show work_mem; commit",
            "begin; set work_mem to '5MB'; savepoint a; set work_mem to '6MB'; rollback to a; \
             commit",
            "begin; savepoint a; set work_mem to '7MB'; release a; commit",
            "begin; set work_mem to '8MB'; select 1/0; commit",
            "rollback",
            "set work_mem to '10MB'; select 1/0",
            "set work_mem to 'nonsense'",
            "select set_config('work_mem', '11MB', false)",
            "select set_config('work_mem', '12MB', true)",
            "begin; select set_config('work_mem', '13MB', false); rollback",
            "reset work_mem",
            "set session characteristics as transaction isolation level serializable",
            "set default_transaction_isolation to default",
            "set time zone 'Asia/Tokyo'",
            "set names 'LATIN1'",
            "set datestyle to german",
            "set intervalstyle to iso_8601",
            "set application_name to 'mine'",
            "set search_path to pg_catalog",
            "reset all",
            "set work_mem to '14MB'",
            "discard all",
        ];
        let shown = [
            "show work_mem",
            "show default_transaction_isolation",
            "show timezone",
            "show client_encoding",
            "show datestyle",
            "show intervalstyle",
            "show application_name",
            "show search_path",
        ];
        for step in steps {
            received.push(step.to_owned());
            received.extend(client.query(step));
            if step.contains("1/0; commit") {
                continue;
            }
            other.run("set work_mem to '99MB'");
            other.run("set time zone 'America/Lima'");
            received.extend(shown.map(|show| client.value(show)));
        }
        received
    });
}

#[test]
fn a_setting_in_a_transaction_holds_there_at_once_and_behind_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut other = Client::connect(address);
        let mut received = Vec::new();
        for text in [
            "begin",
            "set datestyle to german",
            "show datestyle",
            "savepoint s",
            "set datestyle to sql",
            "select 1/0",
            "rollback to s",
            "show datestyle",
            "set local timezone to 'Asia/Tokyo'",
            "show timezone",
            "commit",
        ] {
            received.extend(client.query(text));
        }
        received.push(client.reported["DateStyle"].clone());
        received.push(client.reported["TimeZone"].clone());
        received.extend(other.query("show datestyle"));
        received.push(other.reported["DateStyle"].clone());
        received.extend(client.query("show datestyle"));
        received.extend(client.query("show timezone"));
        received
    });
}

#[test]
fn what_the_startup_packet_sets_is_what_reset_goes_back_to() {
    same_as_direct(ONE, |address| {
        let mut other = Client::connect(address);
        let settings = [
            (
                "options",
                "-c work_mem=5MB -c search_path=pg_catalog --geqo=off",
            ),
            ("application_name", "starter"),
            ("DateStyle", "German"),
            ("extra_float_digits", "2"),
            ("client_encoding", "LATIN1"),
            ("statement_timeout", "77s"),
        ];
        let mut client = Client::with(address, &settings);
        let names = [
            "work_mem",
            "search_path",
            "geqo",
            "application_name",
            "datestyle",
            "extra_float_digits",
            "client_encoding",
            "statement_timeout",
        ];
        let mut received = Vec::new();
        for step in [
            "",
            "set work_mem to '1MB'",
            "set search_path to public",
            "set datestyle to iso",
            "reset work_mem",
            "reset all",
            "set geqo to on",
            "discard all",
        ] {
            if !step.is_empty() {
                received.extend(client.query(step));
            }
            other.run("set geqo to default");
            received.extend(names.map(|name| client.value(&format!("show {name}"))));
            received.extend(
                names[1..]
                    .iter()
                    .map(|name| other.value(&format!("show {name}"))),
            );
        }
        let reported = ["application_name", "DateStyle", "client_encoding"];
        received.extend(reported.map(|name| client.reported[name].clone()));
        received
    });
}

#[test]
fn a_login_with_settings_that_the_server_refuses_is_refused() {
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for settings in [
            [("work_mem", "nonsense")],
            [("no_such_setting", "1")],
            [("options", "-c work_mem=nonsense")],
            [("options", "nonsense")],
            [("client_encoding", "nonsense")],
            [("shared_buffers", "1GB")],
            [("wal_level", "minimal")],
            [("log_statement", "all")],
        ] {
            let login = super::client::Login {
                settings: &settings,
                ..super::client::Login::default()
            };
            let entered = Client::log_in(address, &login);
            let reply = entered.err().unwrap_or_else(|| "in".to_owned());
            received.push(reply[..5.min(reply.len())].to_owned());
        }
        let mut client = Client::connect(address);
        received.extend(client.query("select 'goes on'"));
        received
    });
}

#[test]
fn roles_follow_their_client() {
    let mut admin = admin();
    let _ = admin.query("create role wearer nologin");
    admin.run("grant wearer to sbtest");
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut other = Client::connect(address);
        let who = "select current_user, session_user";
        let mut received = Vec::new();
        for text in [
            "set role wearer",
            "reset role",
            "set role wearer",
            "set role none",
            "set role nobody_at_all",
            "begin; set role wearer; rollback",
            "begin; set local role wearer; select current_user; commit",
            "set session authorization sbtest",
            "set session authorization postgres",
            "set role wearer",
            "discard all",
        ] {
            received.extend(client.query(text));
            received.extend(client.query(who));
            received.extend(other.query(who));
        }
        received
    });
}

#[test]
fn settings_of_functions_and_of_texts_that_are_computed_stay_with_their_client() {
    same_as_direct(Setup::default(), |address| {
        let mut client = Client::connect(address);
        let mut received = client.query(
            "create or replace function sets_lc() returns void language plpgsql as \
             $$ begin perform set_config('my.hidden', 'hidden', false); end $$",
        );
        received.extend(client.query("select sets_lc()"));
        received.extend(client.query("select current_setting('my.hidden', true)"));
        received.extend(client.query("do $$ begin set work_mem to '3MB'; end $$"));
        received.extend(client.query("show work_mem"));
        received
            .extend(client.query("select set_config('work_mem', (1 + 1)::text || 'MB', false)"));
        received.extend(client.query("show work_mem"));
        let by_bind = Script::new()
            .parse("", "select set_config($1, $2, false)")
            .bind("", &["work_mem", "7MB"])
            .execute()
            .sync();
        received.extend(client.exchange(&by_bind, 1));
        let mut other = Client::connect(address);
        received.extend(other.query("show work_mem"));
        received.extend(other.query("select current_setting('my.hidden', true)"));
        received.extend(client.query("show work_mem"));
        received.extend(client.query("select current_setting('my.hidden', true)"));
        received
    });
}

#[test]
fn settings_by_the_extended_protocol_and_in_pipelines_follow_too() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut other = Client::connect(address);
        let one = |text: &str| Script::new().parse("", text).bind("", &[]).execute().sync();
        let mut received = client.exchange(&one("set work_mem to '1MB'"), 1);
        received.extend(other.query("show work_mem"));
        received.extend(client.query("show work_mem"));
        let script = Script::new()
            .parse("s", "set work_mem to '2MB'")
            .parse("b", "selekt")
            .sync()
            .parse("s", "set work_mem to '3MB'")
            .bind("s", &[])
            .execute()
            .parse("", "select 1/0")
            .bind("", &[])
            .execute()
            .sync()
            .bind("s", &[])
            .execute()
            .sync()
            .parse("s", "set work_mem to '4MB'")
            .bind("s", &[])
            .execute()
            .sync()
            .query("set work_mem to '5MB'")
            .query("set work_mem to 'x'");
        received.extend(client.exchange(&script, 6));
        received.extend(other.query("show work_mem"));
        received.extend(client.query("show work_mem"));
        received
            .extend(client.exchange(&Script::new().parse("t", "set work_mem to '6MB'").sync(), 1));
        received.extend(other.query("show work_mem"));
        received.extend(client.exchange(&Script::new().bind("t", &[]).execute().sync(), 1));
        received.extend(other.query("show work_mem"));
        received.extend(client.query("show work_mem"));
        received
    });
}

/// The client's own setting cannot be restored while the catalog of tablespaces is locked. That
/// takes longer than the `statement_timeout` of the other client.
#[test]
fn a_time_limit_of_the_client_before_does_not_end_what_makes_a_connection_fit() {
    // The catalog belongs to the whole server.
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let (mut mine, mut other) = (bed.client(), bed.client());
        mine.run("set default_tablespace to 'pg_default'");
        other.run("set statement_timeout to '20ms'");
        let mut locker = admin_of(&server);
        locker.run("begin");
        locker.run("lock table pg_tablespace in access exclusive mode");
        let received = thread::scope(|scope| {
            let asking = scope.spawn(|| mine.query("select 'fit'"));
            // Longer than that timeout.
            thread::sleep(Duration::from_millis(300));
            locker.run("commit");
            asking.join().unwrap()
        });
        let row = received.get(1).map(String::as_str);
        assert_eq!(row, Some("D fit"), "{io}: {received:?}");
    }
}

/// Some drivers always fetch one row when they need one value: the portal may have more, as far as
/// its reply shows.
#[test]
fn what_a_portal_has_set_that_has_more_rows_to_give_follows_its_client_alone() {
    for io in DRIVERS {
        for text in [
            "select set_config('app.tenant', '42', false)",
            "select set_config('app.tenant', a::text, false) from generate_series(42, 50) a",
        ] {
            let bed = TestBed::set_up(io, ONE);
            let mut client = bed.client();
            let script = Script::new()
                .parse("", text)
                .bind("", &[])
                .execute_of("", 1)
                .sync();
            let received = client.exchange(&script, 1);
            assert_eq!(received, ["1", "2", "D 42", "s", "Z Idle"], "{io}: {text}");
            assert_eq!(client.value("show app.tenant"), "42", "{io}: {text}");
            client.abort(false);
            let tenant = "select coalesce(current_setting('app.tenant', true), '')";
            assert_eq!(bed.client().value(tenant), "", "{io}: {text}");
        }
    }
}

#[test]
fn what_is_sent_behind_a_reset_runs_with_what_the_startup_packet_has_set() {
    same_as_direct(ONE, |address| {
        let settings = [("options", "-c work_mem=5MB -c search_path=pg_catalog")];
        let mut client = Client::with(address, &settings);
        let show = Script::new().parse("s", "show work_mem").sync();
        let mut received = client.exchange(&show, 1);
        for reset in ["reset work_mem", "reset all", "discard all"] {
            for sets in ["set work_mem to '6MB'", "begin; set work_mem to '6MB'"] {
                received.extend(client.query(sets));
                let texts = Script::new().query(reset).query("show work_mem");
                received.extend(client.exchange(&texts, 2));
                received.extend(client.query("rollback"));
            }
            received.extend(client.exchange(
                &Script::new().close("s").parse("s", "show work_mem").sync(),
                1,
            ));
            let prepared = Script::new()
                .parse("", reset)
                .bind("", &[])
                .execute()
                .sync()
                .parse("", "show search_path")
                .bind("", &[])
                .execute()
                .bind("s", &[])
                .execute()
                .sync();
            received.extend(client.exchange(&prepared, 2));
        }
        received
    });
}

#[test]
fn who_makes_temporary_tables_by_the_search_path_alone_is_bound() {
    let two = Setup {
        pool: "size = 2",
        ..ONE
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, two);
        let mut client = Client::with(bed.address, &[("search_path", "pg_temp, public")]);
        let mut other = bed.client();
        for (before, table) in [("select 1", "own_one"), ("discard temp", "own_two")] {
            client.run(before);
            client.run(&format!("create table {table} (a int)"));
            for _ in 0..3 {
                let seen = other.refusal(&format!("select * from pg_temp.{table}"));
                assert_eq!(seen, "42P01", "{io}: {table}");
            }
            client.run(&format!("select * from {table}"));
        }
    }
}

#[test]
fn what_is_set_behind_a_text_that_is_hard_to_read_stays_with_its_client() {
    for io in DRIVERS {
        for label in ["as case", "case", "as \"end\""] {
            let two = Setup {
                pool: "size = 2",
                ..ONE
            };
            let bed = TestBed::set_up(io, two);
            let (mut client, mut other) = (bed.client(), bed.client());
            client.run(&format!(
                "drop function if exists labelled; create function labelled() returns int \
                 language sql begin atomic select 1 {label}; end; set work_mem to '7MB'"
            ));
            for _ in 0..3 {
                assert_eq!(other.value("show work_mem"), "4MB", "{io}: {label}");
            }
            assert_eq!(client.value("show work_mem"), "7MB", "{io}: {label}");
        }
    }
}
