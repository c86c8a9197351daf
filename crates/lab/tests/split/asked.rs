//! What a server is asked beside its clients' statements: little, as it is its work too.

use std::thread;
use std::time::{Duration, Instant};

use crate::stage::Stage;

/// Roles, life, catalogs and positions together; who wants positions asks hundreds of times.
const ASKED_A_SECOND_MAX: u64 = 40;

/// So long counts a read that wanted positions.
const FORGOTTEN: Duration = Duration::from_millis(1_500);

/// Transactions in the database of the monitor's, which backends count about once a second.
fn asked(stage: &Stage) -> u64 {
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'";
    stage.sql(sql).trim().parse().unwrap()
}

/// TO SEE THIS RED: want positions for whatever is decided, not for reads alone.
#[test]
fn a_primary_that_is_only_written_to_is_seldom_asked_where_it_is() {
    let stage = Stage::set("auto", "primary_reads = false");
    stage.direct().run("CREATE TABLE things (id int)");
    let client = stage.client();
    let write_for = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            client.run("BEGIN");
            client.run("INSERT INTO things VALUES (1)");
            client.run("COMMIT");
            client.run("INSERT INTO things VALUES (2)");
            thread::sleep(Duration::from_millis(1));
        }
    };
    write_for(FORGOTTEN);
    let before = asked(&stage);
    write_for(Duration::from_secs(3));
    let asked = asked(&stage) - before;
    assert!(asked < 3 * ASKED_A_SECOND_MAX, "{asked} in three seconds");
}
