//! What a server is asked beside its clients' statements: little, as it is its work too.

use std::thread;
use std::time::{Duration, Instant};

use crate::stage::{Client, TestBed};

/// So long counts a read that wanted positions.
const FORGOTTEN: Duration = Duration::from_millis(1_500);

/// How often the primary is asked where it is, in two seconds or a little more.
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
    let begun = Instant::now();
    while begun.elapsed() < time {
        client.run("BEGIN");
        client.run("INSERT INTO things VALUES (1)");
        client.run("COMMIT");
        client.run("INSERT INTO things VALUES (2)");
        thread::sleep(Duration::from_millis(1));
    }
}

/// TO SEE THIS RED: want positions for whatever is decided, not for reads alone.
#[test]
fn a_primary_that_is_only_written_to_is_seldom_asked_where_it_is() {
    let stage = TestBed::set("auto", "primary_reads = false");
    stage.direct().run("CREATE TABLE things (id int)");
    let client = stage.client();
    write_for(&client, FORGOTTEN);
    stage.sql(COUNT);
    let asked = thread::scope(|scope| {
        scope.spawn(|| write_for(&client, Duration::from_secs(4)));
        stage.sql("SELECT asked()")
    });
    let asked: u32 = asked.trim().parse().unwrap();
    // Now and then it is asked anyway, some times a second.
    assert!(asked < 40, "{asked} times");
}
