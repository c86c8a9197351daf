//! Tests the number of queries that a server receives beside its clients' statements.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::Server;

use super::split::TestBed;

/// Maximum of roles, liveness, accounts and positions together; position tracking alone would query
/// hundreds of times.
const SELECTS_A_SECOND_MAX: u64 = 40;

/// Time for which a read keeps position tracking active.
const FORGOTTEN: Duration = Duration::from_millis(1_500);

fn selects(server: &Server) -> u64 {
    let reply = server.sql("show global status like 'Com_select'").unwrap();
    reply.split_whitespace().last().unwrap().parse().unwrap()
}

/// TO SEE THIS RED: request positions for every routing decision instead of reads only.
#[test]
fn a_primary_that_is_only_written_to_is_seldom_asked_where_it_is() {
    let bed = TestBed::of_mariadb("auto", "");
    let mut client = bed.client();
    let mut write_for = |time: Duration| {
        let started = Instant::now();
        while started.elapsed() < time {
            client.run("begin");
            client.run("update counters set v = v + 1 where id = 1");
            client.run("commit");
            client.run("update counters set v = v + 1 where id = 2");
            thread::sleep(Duration::from_millis(1));
        }
    };
    write_for(FORGOTTEN);
    let before = selects(&bed.primary());
    write_for(Duration::from_secs(2));
    let asked = selects(&bed.primary()) - before;
    assert!(asked < 2 * SELECTS_A_SECOND_MAX, "{asked} in two seconds");
}
