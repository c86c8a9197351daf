//! Tests that session settings which a server fixes when it prepares a statement are those of the
//! preparing client.

use std::net::SocketAddr;

use evenkeel_lab::{Server, rootfs};

use super::client::Client;
use super::stage::{ONE, TestBed, same_as_at, same_as_direct, shared, start_mysql};

/// A SET that one of two sessions has run before both prepare the same text.
const SETTINGS: [(&str, &str); 9] = [
    ("div_precision_increment = 10", "select a / b from baked"),
    (
        "group_concat_max_len = 4",
        "select group_concat(v) from baked",
    ),
    ("default_week_format = 3", "select week(d) from baked"),
    (
        "lc_time_names = 'de_DE'",
        "select dayname(d), date_format(d, '%M') from baked",
    ),
    (
        "time_zone = '+05:00'",
        "select unix_timestamp(d), from_unixtime(a), ts from baked",
    ),
    (
        "time_zone = '+05:00'",
        "select timestamp'2024-01-01 00:00:00+00:00', ts > '2023-12-31 22:00:00+00:00' from baked",
    ),
    (
        "sql_select_limit = 1",
        "select a from baked union all select b from baked",
    ),
    ("sql_safe_updates = 1", "update baked set a = a where b > 0"),
    (
        "names latin1",
        "select 'x', concat(v, 'y'), charset('z'), hex('\u{e9}') from baked",
    ),
];

/// Lets each prepare and execute, with the SET in the first or last one, and both repeat it.
fn two_prepare(address: SocketAddr, set: &str, text: &str, is_first: bool) -> Vec<String> {
    let mut both = [Client::connect(address), Client::connect(address)];
    if !is_first {
        both.reverse();
    }
    let setter = usize::from(!is_first);
    both[setter].run(&format!("set {set}"));
    let mut received = Vec::new();
    for one in &mut both {
        received.extend(one.prepare("baked", text));
        received.extend(one.execute("baked", &[]));
    }
    for one in &mut both {
        received.extend(one.execute("baked", &[]));
    }
    received
}

/// Gives each a variable of another type, with the same text in both.
fn two_name_variables(address: SocketAddr) -> Vec<String> {
    let mut both = [Client::connect(address), Client::connect(address)];
    let mut received = Vec::new();
    for (one, value) in both.iter_mut().zip(["5", "1.5"]) {
        one.run(&format!("set @baked = {value}"));
        received.extend(one.prepare("named", "select 1 + @baked, concat('', @baked)"));
        received.extend(one.execute("named", &[]));
    }
    for one in &mut both {
        received.extend(one.execute("named", &[]));
    }
    received
}

fn bakes_nobody_else_s(server: &Server) {
    let mut direct = Client::connect(server.address);
    direct.run("drop table if exists baked");
    direct.run(
        "create table baked (a int, b int, v varchar(9), d datetime, \
         ts timestamp default '2024-01-01')",
    );
    direct.run("insert into baked (a, b, v, d) values (1, 7, 'abcdef', '2024-03-01')");
    let bed = TestBed::before(server, "auto", ONE);
    let mut other = Vec::new();
    for ((set, text), is_first) in SETTINGS.iter().flat_map(|one| [(one, true), (one, false)]) {
        let expect = two_prepare(server.address, set, text, is_first);
        let received = two_prepare(bed.address, set, text, is_first);
        if received != expect {
            other.push(format!(
                "{set} {is_first}: {received:#?} instead of {expect:#?}"
            ));
        }
    }
    assert!(other.is_empty(), "{}", other.join("\n"));
    let expect = two_name_variables(server.address);
    assert_eq!(two_name_variables(bed.address), expect);
}

/// TO SEE THIS RED: leave one of them out of the statement's key.
#[test]
fn what_a_server_takes_from_the_session_when_it_prepares_is_its_client_s() {
    bakes_nobody_else_s(shared());
}

/// Only MariaDB has this setting.
///
/// TO SEE THIS RED: leave sql_if_exists out of the statement's key.
#[test]
fn a_drop_is_prepared_with_if_exists_for_those_alone_who_have_said_so() {
    for is_first in [true, false] {
        same_as_direct(ONE, |address| {
            let text = "drop table dropped_by_nobody";
            two_prepare(address, "sql_if_exists = 1", text, is_first)
        });
    }
}

/// TO SEE THIS RED: leave old_mode out of the statement's key.
#[test]
fn what_utf8_is_in_a_statement_is_its_client_s_own() {
    for is_first in [true, false] {
        same_as_direct(ONE, |address| {
            let text = "select charset(convert('x' using utf8))";
            two_prepare(address, "old_mode = ''", text, is_first)
        });
    }
}

#[test]
fn so_does_mysql_which_takes_more() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-baked");
    bakes_nobody_else_s(&server);
    for is_first in [true, false] {
        same_as_at(&server, ONE, |address| {
            two_prepare(
                address,
                "explain_format = 'JSON'",
                "explain select 1",
                is_first,
            )
        });
    }
}
