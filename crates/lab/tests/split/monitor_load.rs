//! Tests that Evenkeel's own queries put little load on a server.

use std::thread;
use std::time::{Duration, Instant};

use crate::stage::{Client, TestBed};

/// Time for which a read that needed positions counts.
const FORGOTTEN: Duration = Duration::from_millis(1_500);

/// Counts the queries for the primary's position, during two seconds or a little more.
const COUNT: &str = "CREATE FUNCTION asked() RETURNS int LANGUAGE plpgsql AS $$ \
    DECLARE count int := 0; last timestamptz; begun timestamptz; \
    BEGIN FOR look IN 1..200 LOOP \
        PERFORM pg_stat_clear_snapshot(); \
        SELECT max(query_start) INTO begun FROM pg_stat_activity \
            WHERE application_name = 'evenkeel-position'; \
        IF begun IS DISTINCT FROM last THEN count := count + 1; last := begun; END IF; \
        PERFORM pg_sleep(0.01); \
    END LOOP; RETURN count; END $$";

fn write_for(client: &Client, time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        client.run("BEGIN");
        client.run("INSERT INTO things VALUES (1)");
        client.run("COMMIT");
        client.run("INSERT INTO things VALUES (2)");
        thread::sleep(Duration::from_millis(1));
    }
}

/// TO SEE THIS RED: query positions for every decision, not for reads alone.
#[test]
fn a_primary_that_is_only_written_to_is_seldom_asked_where_it_is() {
    let bed = TestBed::set_up("auto", "primary_reads = false");
    bed.direct().run("CREATE TABLE things (id int)");
    let client = bed.client();
    write_for(&client, FORGOTTEN);
    bed.sql(COUNT);
    let asked = thread::scope(|scope| {
        scope.spawn(|| write_for(&client, Duration::from_secs(4)));
        bed.sql("SELECT asked()")
    });
    let asked: u32 = asked.trim().parse().unwrap();
    // The position is still queried a few times a second.
    assert!(asked < 40, "{asked} times");
}
