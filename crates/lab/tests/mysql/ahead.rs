//! Tests a replica with a position ahead of the primary's, in another server's count.

use super::client::Client;
use super::split::TestBed;

/// Number of clients; the server logs each after it is disconnected.
const CLIENTS: usize = 30;
/// Fewer than the transactions that the new primary counts.
const WRITES: usize = 20;

/// Replays a change of primary by hand. The old one logs the ends of temporary tables after its
/// successor has stopped following it, while a replica still follows.
///
/// TO SEE THIS RED: trust the result of `MASTER_GTID_WAIT` in `session::mysql::catch_up`.
#[test]
fn a_replica_that_still_follows_a_former_primary_has_not_what_its_successor_wrote() {
    let bed = TestBed::of_mariadb("auto", "wait_ms = 500");
    let old = bed.primary();
    let [new, follower] = &bed.replicas()[..] else {
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
    bed.scenario.wait_caught_up().unwrap();
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
    bed.wait("the ends of temporary tables", || {
        last(follower) >= common + CLIENTS
    });
    new.sql("RESET SLAVE ALL; SET GLOBAL read_only = 0")
        .unwrap();
    bed.wait_primary(new);
    let mut client = bed.client();
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
