//! Tests results of a statement that outlast later statements: warnings and FOUND_ROWS().

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use evenkeel_lab::{Server, rootfs};

use super::client::Client;
use super::stage::{ONE, Setup, TestBed, same_as_at, same_as_direct, shared, start_mysql};
use crate::harness::DRIVERS;

const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    ..ONE
};

/// Statements with results for the next one.
const SOURCES: [(&str, &str); 4] = [
    ("select cast('x' as signed)", "show warnings"),
    ("selekt", "show errors"),
    (
        "select sql_calc_found_rows 1 union select 2 union select 3 limit 1",
        "select found_rows()",
    ),
    (
        "select 1 union select 2 union select 3",
        "select found_rows()",
    ),
];

/// Statements between. MariaDB keeps warnings at those without a table, MySQL at none; both keep
/// the count at any but those that count.
const BETWEEN: [&[&str]; 16] = [
    &["set @a = 5"],
    &[
        "set time_zone = '+01:00', names latin1",
        "set time_zone = default",
    ],
    &["begin", "commit"],
    &["start transaction read only", "set @a = 5", "rollback"],
    &["savepoint s"],
    &["use other", "use sbtest"],
    &["select 1"],
    &["select @@time_zone"],
    &["do 1"],
    &["set autocommit = 0", "set autocommit = 1"],
    &["show warnings", "show count(*) warnings", "show errors"],
    &["flush status"],
    &["show grants"],
    &["insert into results_kept values (1)"],
    &["select a from results_kept where a < 0"],
    &["create table if not exists results_kept (a int)"],
];

fn converse(address: SocketAddr) -> Vec<String> {
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    client.run("create table if not exists results_kept (a int) engine = memory");
    // From here on such queries are expected, however late they arrive.
    client.all(&["show warnings", "select found_rows()"]);
    let mut received = Vec::new();
    for (source, question) in SOURCES {
        for between in BETWEEN {
            received.push(format!("> {source}; {between:?}"));
            for text in [&[source], between, &[question]].concat() {
                received.extend(client.all(&[text]));
                received.extend(other.all(&["select 'other' union select 'and more'"]));
                received.extend(client.ping());
                if text == "savepoint s" {
                    received.extend(client.init_db("sbtest"));
                }
            }
        }
    }
    received
}

/// TO SEE THIS RED: return false in `Session::stays_for_results`, or clear the results in
/// `SessionState::sent`.
#[test]
fn results_outlast_statements_that_leave_them_in_place() {
    same_as_at(shared(), TWO, converse);
}

/// TO SEE THIS RED: let `Session::stays_for_results` ignore the schema of the connection.
#[test]
fn the_schema_is_the_client_s_after_a_use_that_failed() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        client.run("select 1");
        other.run("use sbtest");
        client.all(&["use there_is_none", "select @a := 7", "select database()"])
    });
}

#[test]
fn results_outlast_as_few_statements_of_mysql_as_at_the_server() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-results");
    same_as_at(&server, TWO, converse);
    nobody_reads_those_of_another(&server);
}

/// Longer than a connection is kept for results that no client has read yet.
const PAUSE: Duration = Duration::from_millis(130);

/// Last statements of a client, and statements of another that leave what they find, with its
/// question.
const OTHERS: [(&str, &[&str], &str); 8] = [
    ("select 1 from dual", &["set @b = 1"], "show warnings"),
    (
        "select sbtest.results_pure()",
        &["set @b = 1"],
        "show warnings",
    ),
    ("set @a = 1", &["begin", "commit"], "show warnings"),
    (COUNTS, &["flush status"], "select found_rows()"),
    (COUNTS, &["show grants"], "select found_rows()"),
    (COUNTS, &["explain select 1"], "select found_rows()"),
    (
        COUNTS,
        &["values row(1)", "set @b = 1"],
        "select found_rows()",
    ),
    (COUNTS, &["show errors"], "select found_rows()"),
];

const COUNTS: &str = "select 1 union select 2 union select 3 union select 4";

fn nobody_reads_those_of_another(server: &Server) {
    let make = "create function if not exists sbtest.results_pure() returns int deterministic \
                no sql return 1; grant reload on *.* to sbtest@'127.0.0.1'";
    server
        .sql(&format!(
            "set global log_bin_trust_function_creators = 1; {make}"
        ))
        .unwrap();
    for io in DRIVERS {
        for (last, texts, question) in OTHERS {
            // Once a client has asked for results, connections are kept for longer.
            let bed = TestBed::before(server, io, ONE);
            let (mut client, mut other) = (bed.client(), bed.client());
            client.query("select cast('x' as signed)");
            client.run(last);
            thread::sleep(PAUSE);
            for text in texts {
                other.query(text);
            }
            let rows = other.query(question);
            let of_another = |row: &&String| row.contains("incorrect") || **row == "row 4";
            let found = rows.iter().find(of_another);
            assert_eq!(found, None, "{io}: {last}; another: {texts:?}, {question}");
        }
    }
}

/// TO SEE THIS RED: let `SessionState::clears` be true for each SELECT, or `counts` for FLUSH.
#[test]
fn no_client_reads_the_results_of_another() {
    nobody_reads_those_of_another(shared());
}
