//! Tests that session state left by routines, views and triggers affects no other client, wherever
//! a text names them.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use evenkeel_lab::{Server, rootfs};
use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login, USUAL};
use super::stage::{Setup, same_as_at, start_mysql, start_own};

/// Objects that a service has read before its first client connects.
const MADE: [&str; 20] = [
    "create table one (a int)",
    "insert into one values (1)",
    "create table watched (a int)",
    "create trigger on_update before update on watched for each row select 77 into @left",
    "create function f_into() returns int begin select 77 into @left; return 1; end",
    "create function to_date() returns int begin select 77 into @left; return 1; end",
    "create function f_second() returns int \
     begin declare x int; set x = (select max(a) from one), @left = 77; return 1; end",
    "create function f_diagnostics() returns int \
     begin get diagnostics @left = row_count; return 1; end",
    "create function f_refused() returns int \
     begin select 77 into @left; signal sqlstate '42000' set mysql_errno = 1064; return 1; end",
    "create function f_modes() returns int \
     begin set sql_mode = 'NO_BACKSLASH_ESCAPES'; return 1; end",
    "create function f_role() returns int begin set role left_behind; return 1; end",
    "create procedure p_role() set role left_behind",
    "create procedure p_dynamic() \
     begin set @text = 'set role left_behind'; prepare p from @text; execute p; end",
    "create procedure p_calls() call p_role",
    "create procedure p_blinds() \
     begin set session session_track_system_variables = ''; set lc_time_names = 'de_DE'; end",
    "create view v_into as select f_into() as a",
    "create view v_id as select last_insert_id(7) as a",
    "create view v_found as select found_rows() > 2 as a",
    "create view v_watched as select a from watched",
    "create function f_found() returns int return found_rows() > 2",
];

/// A client's statement, with `!` if it then disconnects, and the query after it.
const LEAVES: [(&str, &str); 29] = [
    ("select f_into()", LEFT),
    ("select to_date()", LEFT),
    ("select f_second()", LEFT),
    ("select f_diagnostics()", LEFT),
    ("select f_refused()", LEFT),
    ("do f_refused()", LEFT),
    ("select * from {oj v_into left outer join one on 1}", LEFT),
    (
        "select 1 from one a, one b, one c, one d, one e, one f, one g, one h, v_into",
        LEFT,
    ),
    ("update (watched, one) set watched.a = 9", LEFT),
    ("update v_watched set a = 9", LEFT),
    ("update one join (watched) on 1 set watched.a = 8", LEFT),
    ("explain select * from (select f_into() as a) b", LEFT),
    ("explain select * from (select @left := 77 as a) b", LEFT),
    (
        "set default role none, @left = 70 + 7, lc_time_names = 'de_DE'",
        LEFT,
    ),
    ("select f_modes(); select '\\', @left := 77 -- '", LEFT),
    ("select f_role()", ROLE),
    ("call p_role()", ROLE),
    ("call p_calls()", ROLE),
    ("call p_calls()!", ROLE),
    ("call p_dynamic()!", ROLE),
    (
        "set @text = 'set role left_behind'; prepare p from @text; execute p!",
        ROLE,
    ),
    ("call p_blinds()", "select @@lc_time_names"),
    ("call p_blinds()!", "select @@lc_time_names"),
    ("select a from v_id", "select last_insert_id()"),
    (ROWS, "select found_rows() > 2"),
    (ROWS, "select a from v_found"),
    (ROWS, "select f_found()"),
    (
        "do get_lock('none', 0); set sql_select_limit = 0; select release_lock('none')",
        "do sleep(0); select get_lock('none', 0)",
    ),
    (
        "select get_lock('x', 0); select get_lock('X', 0); \
         select release_lock('x'); select release_lock('x')",
        "select get_lock('X', 0)",
    ),
];

const LEFT: &str = "select @left";
const ROLE: &str = "select current_role()";
const ROWS: &str = "select 1 union select 2 union select 3";

/// Longer than a connection is kept for the warnings of an error.
const PAUSE: Duration = Duration::from_millis(130);

fn converse(address: SocketAddr) -> Vec<String> {
    // Results that end in an EOF, which does not report session state.
    let login = Login {
        capabilities: USUAL.without(Capabilities::DEPRECATE_EOF),
        ..Login::default()
    };
    let mut received = Vec::new();
    for (texts, asked) in LEAVES {
        let (mut client, mut other) =
            (Client::with(address, &login), Client::with(address, &login));
        // The first text of a MySQL session affects rows that its login has found.
        other.query("select 1");
        let leaves = texts.ends_with('!');
        client.query(texts.trim_end_matches('!'));
        if leaves {
            client.quit();
        }
        thread::sleep(PAUSE);
        received.push(format!("> {texts}"));
        received.extend(other.all(&[asked]));
    }
    received
}

fn nobody_meets_it(server: &Server) {
    for text in [
        "set global log_bin_trust_function_creators = 1",
        "create role left_behind",
        "grant left_behind to sbtest@'127.0.0.1'",
        "grant select on sbtest.* to evenkeel@'127.0.0.1'",
    ] {
        server.sql(text).unwrap();
    }
    let mut direct = Client::connect(server.address);
    MADE.iter().for_each(|text| direct.run(text));
    direct.run("insert into watched values (1)");
    let setup = Setup {
        pool: "size = 2",
        ..Setup::default()
    };
    same_as_at(server, setup, converse);
}

/// TO SEE THIS RED: search for tables by the grammar alone; ignore roles in bodies; treat an error
/// of a routine as one of the text.
#[test]
fn what_a_routine_leaves_stays_with_its_client_however_it_is_reached() {
    let (_lab, server) = start_own();
    nobody_meets_it(&server);
}

#[test]
fn so_it_does_at_mysql() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-left");
    nobody_meets_it(&server);
}
