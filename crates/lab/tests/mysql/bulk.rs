//! Tests of MariaDB's own clients: many rows in one execution, a statement executed before its
//! number is known, and columns with extended metadata.

use std::net::SocketAddr;

use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login, USUAL, Value};
use super::stage::{ONE, Setup, same_as_direct};
use Value::{Default as Standard, Null, Number, Text};

/// LONG_PASSWORD distinguishes other clients from MariaDB's.
pub(crate) const MARIADB: Capabilities = USUAL
    .without(Capabilities::LONG_PASSWORD)
    .with(Capabilities::BULK)
    .with(Capabilities::EXTENDED_METADATA);

const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    ..ONE
};

/// Returns pairs of MariaDB clients, with and without EOF packets after the columns.
fn pairs(address: SocketAddr) -> impl Iterator<Item = (Client, Client)> {
    let capabilities = [MARIADB, MARIADB.without(Capabilities::DEPRECATE_EOF)];
    capabilities.into_iter().map(move |capabilities| {
        let login = Login {
            capabilities,
            ..Login::default()
        };
        let client = || {
            let client = Client::with(address, &login);
            let agreed = client.agreed;
            assert!(agreed.has(Capabilities::BULK.with(Capabilities::EXTENDED_METADATA)));
            client
        };
        (client(), client())
    })
}

#[test]
fn many_rows_of_one_execution_are_what_they_are_at_the_server() {
    same_as_direct(TWO, |address| {
        let mut heard = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run(
                "create or replace table bulk (id int primary key, v varchar(20) default 'd')",
            );
            heard.extend(client.prepare("in", "insert into bulk values (?, ?)"));
            let types = [Number(0), Text("")];
            let rows: [&[Value<'_>]; 3] = [
                &[Number(1), Text("one")],
                &[Number(2), Null],
                &[Number(3), Standard],
            ];
            heard.extend(client.execute_rows("in", &types, &rows));
            other.prepare("theirs", "select ?");
            heard.extend(other.execute("theirs", &[Text("theirs")]));
            heard.extend(client.execute_rows("in", &types, &[&[Number(1), Text("again")]]));
            heard.extend(client.execute_rows("in", &types, &[&[Number(4), Text("four")]]));
            heard.extend(client.prepare("up", "update bulk set v = ? where id = ?"));
            let rows: [&[Value<'_>]; 2] = [&[Text("new"), Number(1)], &[Text("none"), Number(9)]];
            heard.extend(client.execute_rows("up", &[Text(""), Number(0)], &rows));
            heard.extend(client.prepare("out", "delete from bulk where id = ?"));
            heard.extend(client.execute_rows("out", &[Number(0)], &[&[Number(2)], &[Number(3)]]));
            heard.extend(client.execute("in", &[Number(5), Text("alone")]));
            heard.extend(other.query("select * from bulk order by id"));
        }
        heard
    });
}

/// The types are sent with the first rows only: they must still be known on another server
/// connection.
#[test]
fn rows_without_types_have_those_that_were_told_before() {
    same_as_direct(TWO, |address| {
        let mut heard = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run("create or replace table typed (id int, v varchar(20))");
            client.prepare("in", "insert into typed values (?, ?)");
            let types = [Number(0), Text("")];
            heard.extend(client.execute_rows("in", &types, &[&[Number(1), Text("one")]]));
            other.prepare("in", "insert into typed values (?, ?)");
            let turned = [Text(""), Text("")];
            heard.extend(other.execute_rows("in", &turned, &[&[Text("2"), Text("two")]]));
            heard.extend(client.execute_rows("in", &[], &[&[Number(3), Text("three")]]));
            heard.extend(other.query("select * from typed order by id"));
        }
        heard
    });
}

/// A server may refuse an execution before it has read the types in it.
#[test]
fn types_of_a_refused_execution_are_not_those_that_the_server_has() {
    same_as_direct(ONE, |address| {
        let mut heard = Vec::new();
        for (mut client, mut other) in pairs(address) {
            for one in [&mut client, &mut other] {
                one.prepare("s", "select ?");
            }
            heard.extend(client.execute("s", &[Number(5)]));
            heard.extend(other.execute("s", &[Text("five")]));
            heard.extend(other.execute_rows("s", &[Number(0)], &[&[Number(6)]]));
            heard.extend(client.execute_again("s", &[Number(7)]));
        }
        heard
    });
}

#[test]
fn many_rows_in_a_transaction_are_rolled_back_with_it() {
    same_as_direct(TWO, |address| {
        let mut heard = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run("create or replace table undone (id int)");
            client.prepare("in", "insert into undone values (?)");
            heard.extend(client.query("begin"));
            heard.extend(client.execute_rows("in", &[Number(0)], &[&[Number(1)], &[Number(2)]]));
            heard.extend(other.query("select count(*) from undone"));
            heard.extend(client.query("rollback"));
            heard.extend(client.query("select count(*) from undone"));
        }
        heard
    });
}

#[test]
fn a_statement_is_executed_before_its_number_is_known() {
    same_as_direct(TWO, |address| {
        let mut heard = Vec::new();
        for (mut client, mut other) in pairs(address) {
            heard.extend(client.prepare_and_execute("select 'mine', 1"));
            heard.extend(other.prepare_and_execute("select 'theirs'"));
            heard.extend(client.execute_id(u32::MAX));
            heard.extend(client.prepare_and_execute("select nothing of this"));
            heard.extend(client.execute_id(u32::MAX));
            heard.extend(client.prepare_and_execute("select 'mine', 2"));
            client.close("last");
            heard.extend(client.execute_id(u32::MAX));
        }
        heard
    });
}

#[test]
fn columns_tell_what_they_tell_at_the_server() {
    same_as_direct(TWO, |address| {
        let mut heard = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run(
                "create or replace table told (a inet6, b uuid, c json, d point, e polygon, f int)",
            );
            heard.extend(client.query("select * from told"));
            heard.extend(client.prepare("all", "select * from told where f > ?"));
            heard.extend(client.execute("all", &[Number(1)]));
            heard.extend(other.field_list("told"));
            heard.extend(other.query("select connection_id() > 0"));
        }
        heard
    });
}
