//! Tests of payloads with more than one packet that are not plain text.

use std::time::Instant;

use super::client::{Client, Value};
use super::stage::{ONE, Setup, TestBed, own_schema, same_as_direct, sql};
use crate::harness::{DRIVERS, LIMIT};

const LENGTH: usize = 17 * 1024 * 1024;

#[test]
fn parameters_of_more_than_sixteen_megabytes_arrive_in_an_execution_and_in_advance() {
    let big = "x".repeat(LENGTH);
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = Vec::new();
        for one in [&mut client, &mut other] {
            received.extend(one.prepare("long", "select length(?), ?"));
        }
        let short = [Value::Number(1), Value::Text("y")];
        received.extend(other.execute("long", &short));
        received.extend(client.execute("long", &[Value::Text(&big), Value::Text("z")]));
        received.extend(other.execute("long", &short));
        client.send_long_data("long", 0, big.as_bytes());
        received.extend(client.execute("long", &[Value::Sent, Value::Text("z")]));
        received.extend(other.execute("long", &short));
        received
    });
}

/// The server would wait for the rest, and Evenkeel would not read it from the client, until one of
/// them times out.
///
/// TO SEE THIS RED: wait for the answer of a server that has received only a part of the command.
#[test]
fn a_large_execution_whose_setting_is_refused_ends_at_once_and_its_client_goes_on() {
    let big = "x".repeat(LENGTH);
    let setup = Setup {
        tables: "[service.split]\nreads = true",
        ..ONE
    };
    for io in DRIVERS {
        sql("create or replace database left_soon; grant all on left_soon.* to sbtest@'127.0.0.1'");
        let bed = TestBed::set_up(io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.prepare("long", "select length(?)");
        client.init_db("left_soon");
        let row = client.execute("long", &[Value::Text("y")]);
        assert_eq!(row[1], "row 1", "{io}");
        sql("drop database left_soon");
        assert_eq!(other.value("select database()"), own_schema(), "{io}");
        let started = Instant::now();
        let reply = client.execute("long", &[Value::Text(&big)]);
        assert!(reply[0].starts_with("error 1049 "), "{io}: {reply:?}");
        assert!(
            started.elapsed() < LIMIT / 2,
            "{io}: {:?}",
            started.elapsed()
        );
        client.init_db(own_schema());
        let row = client.execute("long", &[Value::Text(&big)]);
        assert_eq!(row[1], format!("row {LENGTH}"), "{io}");
    }
}

/// TO SEE THIS RED: insert the types after the first part of the command was sent.
#[test]
fn a_large_execution_without_types_is_refused_where_nobody_knows_them_and_its_client_goes_on() {
    let big = "x".repeat(LENGTH);
    let long = [Value::Text(&big)];
    let setup = Setup {
        pool: "size = 2",
        ..ONE
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        let run = |client: &mut Client| client.execute("long", &[Value::Text("y")])[1].clone();
        client.prepare("long", "select length(?)");
        assert_eq!(run(&mut client), "row 1", "{io}");
        let here = client.execute_again("long", &long);
        assert_eq!(here[1], format!("row {LENGTH}"), "{io}");
        // The other client keeps the connection: the next one has not prepared the statement.
        other.run("begin");
        let reply = client.execute_again("long", &long);
        assert!(reply[0].starts_with("error 1615 "), "{io}: {reply:?}");
        assert_eq!(run(&mut client), "row 1", "{io}");
        let there = client.execute_again("long", &long);
        assert_eq!(there[1], format!("row {LENGTH}"), "{io}");
        other.run("rollback");
    }
}
