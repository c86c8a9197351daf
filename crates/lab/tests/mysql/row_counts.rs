//! Tests of ROW_COUNT() after another client has used the server connection.

use super::client::Client;
use super::stage::{Setup, same_as_direct};

const TEXTS: [&str; 22] = [
    "insert into counted (a) values (1), (2), (3)",
    "update counted set a = 5",
    "update counted set a = a",
    "replace into counted (id, a) values (1, 2)",
    "delete from counted where id > 2",
    "select 1",
    "select 1; delete from counted limit 1",
    "delete from counted limit 1; select 1",
    "select 1; selekt",
    "selekt",
    "",
    "select there_is_none",
    "use there_is_none",
    "use sbtest",
    "set @a = 5",
    "begin; commit",
    "commit",
    "select 1 into @a",
    "show warnings",
    "select connection_id() > 0",
    "insert into counted values (1, 1), (1, 1)",
    "truncate counted",
];

/// The first count that any client reads is right: the connection is kept for no reader.
///
/// TO SEE THIS RED: leave the function in the text.
#[test]
fn a_row_count_is_that_of_the_client_s_last_command() {
    let few = Setup {
        pool: "size = 2\nstatements_max = 1",
        ..Setup::default()
    };
    same_as_direct(few, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        other.run("create table if not exists sbtest.counted (id serial primary key, a int)");
        other.run("truncate sbtest.counted");
        client.run("use sbtest");
        let mut received = Vec::new();
        let mut counts = |client: &mut Client| {
            other.run("set @other = 1");
            received.extend(client.query("select row_count(), 1 as one"));
            received.extend(client.query("select ROW_COUNT() as n"));
        };
        for text in TEXTS {
            client.query(text);
            counts(&mut client);
        }
        client.prepare("inserts", "insert into counted (a) values (1), (2)");
        client.prepare("reads", "select 1 union select 2");
        for step in 0..9 {
            client.run("insert into counted (a) values (7), (8), (9)");
            match step {
                0 => client.ping(),
                1 => client.init_db("sbtest"),
                2 => client.init_db("there_is_none"),
                3 => client.prepare("more", "select 2"),
                4 => client.prepare("wrong", "selekt"),
                5 => client.execute("inserts", &[]),
                6 => client.execute("reads", &[]),
                7 => client.reset_statement("reads"),
                _ => client.statistics(),
            };
            counts(&mut client);
        }
        other.run("drop table sbtest.counted");
        received
    });
}
