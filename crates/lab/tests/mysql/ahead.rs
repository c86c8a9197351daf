//! A replica that has come further than the primary, with what another server counted.

use super::client::Client;
use super::split::TestBed;

/// Each of them is logged once its client is cut off.
const CLIENTS: usize = 30;
/// Fewer than that are counted by the new primary.
const WRITES: usize = 20;

/// Replays a change of primary by hand: the old one logs the ends of temporary tables when its
/// successor has stopped to follow it, and a replica has not.
///
/// TO SEE THIS RED: take `MASTER_GTID_WAIT` at its word in `session::mysql::waits`.
#[test]
fn a_replica_that_still_follows_a_former_primary_has_not_what_its_successor_wrote() {
    let stage = TestBed::of_mariadb("auto", "wait_ms = 500");
    let old = stage.primary();
    let [new, follower] = &stage.replicas()[..] else {
        panic!("a primary has two replicas");
    };
    old.sql("SET GLOBAL binlog_format = 'STATEMENT'").unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(old.address);
            client.run("create temporary table own (id int)");
            client
        })
        .collect();
    stage.scene.wait_caught_up().unwrap();
    new.sql("STOP SLAVE").unwrap();
    old.sql("SET GLOBAL read_only = 1").unwrap();
    let last = |of: &evenkeel_lab::Server| {
        let position = of.sql("SELECT @@gtid_slave_pos").unwrap();
        position
            .rsplit('-')
            .next()
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    let common = last(new);
    drop(clients);
    stage.wait("the ends of temporary tables", || {
        last(follower) >= common + CLIENTS
    });
    new.sql("RESET SLAVE ALL; SET GLOBAL read_only = 0")
        .unwrap();
    stage.wait_primary(new);
    let mut client = stage.client();
    for round in 1..=WRITES {
        client.run(&format!("update counters set v = {round} where id = 1"));
        let row = client.value("select v, here() from counters where id = 1");
        let (seen, port) = row.split_once('|').unwrap();
        assert_eq!(seen, round.to_string(), "at {port}");
    }
    assert!(
        last(follower) >= common + WRITES,
        "it was ahead all the time"
    );
}
