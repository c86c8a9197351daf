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
        let mut received = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run(
                "create or replace table bulk (id int primary key, v varchar(20) default 'd')",
            );
            received.extend(client.prepare("in", "insert into bulk values (?, ?)"));
            let types = [Number(0), Text("")];
            let rows: [&[Value<'_>]; 3] = [
                &[Number(1), Text("one")],
                &[Number(2), Null],
                &[Number(3), Standard],
            ];
            received.extend(client.execute_rows("in", &types, &rows));
            other.prepare("theirs", "select ?");
            received.extend(other.execute("theirs", &[Text("theirs")]));
            received.extend(client.execute_rows("in", &types, &[&[Number(1), Text("again")]]));
            received.extend(client.execute_rows("in", &types, &[&[Number(4), Text("four")]]));
            received.extend(client.prepare("up", "update bulk set v = ? where id = ?"));
            let rows: [&[Value<'_>]; 2] = [&[Text("new"), Number(1)], &[Text("none"), Number(9)]];
            received.extend(client.execute_rows("up", &[Text(""), Number(0)], &rows));
            received.extend(client.prepare("out", "delete from bulk where id = ?"));
            received.extend(client.execute_rows(
                "out",
                &[Number(0)],
                &[&[Number(2)], &[Number(3)]],
            ));
            received.extend(client.execute("in", &[Number(5), Text("alone")]));
            received.extend(other.query("select * from bulk order by id"));
        }
        received
    });
}

/// The types are sent with the first rows only: they must still be known on another server
/// connection.
#[test]
fn rows_without_types_have_those_that_were_told_before() {
    same_as_direct(TWO, |address| {
        let mut received = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run("create or replace table typed (id int, v varchar(20))");
            client.prepare("in", "insert into typed values (?, ?)");
            let types = [Number(0), Text("")];
            received.extend(client.execute_rows("in", &types, &[&[Number(1), Text("one")]]));
            other.prepare("in", "insert into typed values (?, ?)");
            let turned = [Text(""), Text("")];
            received.extend(other.execute_rows("in", &turned, &[&[Text("2"), Text("two")]]));
            received.extend(client.execute_rows("in", &[], &[&[Number(3), Text("three")]]));
            received.extend(other.query("select * from typed order by id"));
        }
        received
    });
}

/// A server may refuse an execution before it has read the types in it.
#[test]
fn types_of_a_refused_execution_are_not_those_that_the_server_has() {
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for (mut client, mut other) in pairs(address) {
            for one in [&mut client, &mut other] {
                one.prepare("s", "select ?");
            }
            received.extend(client.execute("s", &[Number(5)]));
            received.extend(other.execute("s", &[Text("five")]));
            received.extend(other.execute_rows("s", &[Number(0)], &[&[Number(6)]]));
            received.extend(client.execute_again("s", &[Number(7)]));
        }
        received
    });
}

#[test]
fn many_rows_in_a_transaction_are_rolled_back_with_it() {
    same_as_direct(TWO, |address| {
        let mut received = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run("create or replace table undone (id int)");
            client.prepare("in", "insert into undone values (?)");
            received.extend(client.query("begin"));
            received.extend(client.execute_rows("in", &[Number(0)], &[&[Number(1)], &[Number(2)]]));
            received.extend(other.query("select count(*) from undone"));
            received.extend(client.query("rollback"));
            received.extend(client.query("select count(*) from undone"));
        }
        received
    });
}

#[test]
fn a_statement_is_executed_before_its_number_is_known() {
    same_as_direct(TWO, |address| {
        let mut received = Vec::new();
        for (mut client, mut other) in pairs(address) {
            received.extend(client.prepare_and_execute("select 'mine', 1"));
            received.extend(other.prepare_and_execute("select 'theirs'"));
            received.extend(client.execute_id(u32::MAX));
            received.extend(client.prepare_and_execute("select nothing of this"));
            received.extend(client.execute_id(u32::MAX));
            received.extend(client.prepare_and_execute("select 'mine', 2"));
            client.close("last");
            received.extend(client.execute_id(u32::MAX));
        }
        received
    });
}

#[test]
fn columns_tell_what_they_tell_at_the_server() {
    same_as_direct(TWO, |address| {
        let mut received = Vec::new();
        for (mut client, mut other) in pairs(address) {
            client.run(
                "create or replace table told (a inet6, b uuid, c json, d point, e polygon, f int)",
            );
            received.extend(client.query("select * from told"));
            received.extend(client.prepare("all", "select * from told where f > ?"));
            received.extend(client.execute("all", &[Number(1)]));
            received.extend(other.field_list("told"));
            received.extend(other.query("select connection_id() > 0"));
        }
        received
    });
}
