//! Tests of what a replica does not have yet: tables, columns, roles, passwords and rights that
//! others have made at the primary a moment ago.

use std::time::{Duration, Instant};

use evenkeel_lab::eventually;

use super::stage::{Client, TestBed};
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

#[test]
fn a_read_of_what_the_replica_lacks_yet_runs_on_the_primary() {
    let (bed, client) = start_bed();
    bed.direct().run("CREATE TABLE old (id int)");
    bed.scenario.wait_caught_up().unwrap();
    stop_replay(&bed);
    bed.direct().run(
        "CREATE TABLE fresh (id int); ALTER TABLE old ADD added int; \
         CREATE FUNCTION fresh() RETURNS int LANGUAGE sql STABLE AS 'SELECT 7'; \
         CREATE SCHEMA newer CREATE TABLE within (id int)",
    );
    // Reads of unknown tables go to the primary; these are known after a while.
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        for text in [
            "SELECT count(*) FROM fresh",
            "SELECT count(added) FROM old",
            "SELECT fresh()",
            "SELECT count(*) FROM newer.within",
        ] {
            let read = client.text(text);
            assert!(read.is_ok(), "{text}: {read:?}");
            let prepared = client.value::<i64>(&format!("SELECT ({text})::int8"), &[]);
            assert!(prepared.is_ok(), "{text}: {prepared:?}");
        }
    }
    // What no server has is an error.
    let failed = client.text("SELECT count(*) FROM missing").unwrap_err();
    assert_eq!(failed.state, "42P01");
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
