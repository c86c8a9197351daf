//! Payloads of more than one packet where they are not plain text.

use super::client::{Client, Value};
use super::stage::{ONE, Setup, Stage, same_as_direct};
use crate::rig::DRIVERS;

const LENGTH: usize = 17 * 1024 * 1024;

#[test]
fn parameters_of_more_than_sixteen_megabytes_arrive_in_an_execution_and_in_advance() {
    let big = "x".repeat(LENGTH);
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut heard = Vec::new();
        for one in [&mut client, &mut other] {
            heard.extend(one.prepare("long", "select length(?), ?"));
        }
        let short = [Value::Number(1), Value::Text("y")];
        heard.extend(other.execute("long", &short));
        heard.extend(client.execute("long", &[Value::Text(&big), Value::Text("z")]));
        heard.extend(other.execute("long", &short));
        client.send_long_data("long", 0, big.as_bytes());
        heard.extend(client.execute("long", &[Value::Sent, Value::Text("z")]));
        heard.extend(other.execute("long", &short));
        heard
    });
}

/// TO SEE THIS RED: look for room for the types when the command is under way.
#[test]
fn a_large_execution_without_types_is_refused_where_nobody_knows_them_and_its_client_goes_on() {
    let big = "x".repeat(LENGTH);
    let long = [Value::Text(&big)];
    let setup = Setup {
        pool: "size = 2",
        ..ONE
    };
    for io in DRIVERS {
        let stage = Stage::set(io, setup);
        let (mut client, mut other) = (stage.client(), stage.client());
        let run = |client: &mut Client| client.execute("long", &[Value::Text("y")])[1].clone();
        client.prepare("long", "select length(?)");
        assert_eq!(run(&mut client), "row 1", "{io}");
        let here = client.execute_again("long", &long);
        assert_eq!(here[1], format!("row {LENGTH}"), "{io}");
        // Whoever has the connection keeps it: the next one has not got the statement.
        other.run("begin");
        let told = client.execute_again("long", &long);
        assert!(told[0].starts_with("error 1615 "), "{io}: {told:?}");
        assert_eq!(run(&mut client), "row 1", "{io}");
        let there = client.execute_again("long", &long);
        assert_eq!(there[1], format!("row {LENGTH}"), "{io}");
        other.run("rollback");
    }
}
