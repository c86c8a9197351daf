//! Tests of what a replica does not have yet: tables, columns, roles, passwords and rights that
//! others have made at the primary a moment ago.

use evenkeel_lab::eventually;

use super::stage::{Client, TestBed, WHERE};
use crate::harness::LIMIT;

/// Starts with replicas that replay nothing from now on.
fn start_bed() -> (TestBed, Client) {
    let bed = TestBed::set_up("auto", "consistency = \"eventual\"");
    let client = bed.client();
    bed.wait_split(&client);
    bed.scenario.wait_caught_up().unwrap();
    (bed, client)
}

fn stop_replay(bed: &TestBed) {
    for replica in bed.replicas() {
        replica.sql("SELECT pg_wal_replay_pause()").unwrap();
        eventually(LIMIT, "replay paused", || {
            let state = replica.sql("SELECT pg_get_wal_replay_pause_state()")?;
            Ok((state.trim() == "paused").then_some(()))
        })
        .unwrap();
    }
}

/// TO SEE THIS RED: let no error that reports something missing begin a retry.
#[test]
fn a_read_of_what_the_replica_lacks_yet_runs_on_the_primary() {
    let (bed, client) = start_bed();
    bed.direct().run("CREATE TABLE old (id int)");
    bed.scenario.wait_caught_up().unwrap();
    stop_replay(&bed);
    bed.direct().run(
        "CREATE TABLE fresh (id int); ALTER TABLE old ADD added int; \
         CREATE SCHEMA newer CREATE TABLE within (id int); \
         CREATE TYPE colour AS ENUM ('red')",
    );
    let primary = bed.port_of_primary();
    for text in [
        "SELECT count(*) FROM fresh",
        "SELECT count(added) FROM old",
        "SELECT count(*) FROM newer.within",
        "SELECT count(NULL::colour)",
    ] {
        // The hint sends reads of tables that Evenkeel does not know yet to a replica.
        assert_ne!(client.port(&at_replica(WHERE)), primary);
        let read = client.text(&at_replica(text));
        assert_eq!(
            read.unwrap_or_else(|error| panic!("{text}: {error:?}")),
            ["0"]
        );
        assert_ne!(client.port_prepared(&at_replica(WHERE)), primary);
        let prepared = client.value::<i64>(&at_replica(text), &[]);
        assert_eq!(
            prepared.unwrap_or_else(|error| panic!("{text}: {error:?}")),
            0
        );
    }
    // What no server has is an error.
    let failed = client.text(&at_replica("SELECT count(*) FROM missing"));
    assert_eq!(failed.unwrap_err().state, "42P01");
}

fn at_replica(text: &str) -> String {
    format!("/* evenkeel: replica */ {text}")
}

/// TO SEE THIS RED: return the error of the replica's login.
#[test]
fn a_client_whose_role_the_replica_lacks_yet_is_served_by_the_primary() {
    let (bed, _client) = start_bed();
    stop_replay(&bed);
    bed.sql("CREATE ROLE fresh LOGIN PASSWORD 'fresh'");
    let client = Client::try_connect_as(bed.listen, "fresh").unwrap();
    for _ in 0..5 {
        assert_eq!(client.text("SELECT current_user").unwrap(), ["fresh"]);
    }
}
