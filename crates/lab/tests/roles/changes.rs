//! Tests of a planned change and a failure of the primary, in every kind of cluster.

use std::time::{Duration, SystemTime};

use evenkeel_lab::scenario::{Change, How};
use evenkeel_lab::{ClusterKind, Server};

use crate::test_bed::{TestBed, assert_all_read};

/// Writes that an asynchronous primary acknowledged within this time before it died may be lost.
const NOT_REPLICATED: Duration = Duration::from_secs(1);

/// Limit for the interruption by a change of primary.
const SUCCESSION_LIMIT: Duration = Duration::from_secs(1);

#[test]
fn the_ports_follow_the_primary_of_mariadb() {
    changes(ClusterKind::Mariadb);
}

#[test]
fn the_ports_follow_the_primary_of_mysql() {
    changes(ClusterKind::Mysql);
}

#[test]
fn the_ports_follow_the_primary_of_postgres() {
    changes(ClusterKind::Postgres);
}

/// Both kinds run concurrently, as both take some seconds to expel a dead member.
#[test]
fn the_ports_follow_the_writers_of_galera_and_of_a_replication_group() {
    std::thread::scope(|scope| {
        for kind in [ClusterKind::Galera, ClusterKind::GroupReplication] {
            scope.spawn(move || changes(kind));
        }
    });
}

/// The frozen server's role counts as unknown only two seconds after its last reply.
#[test]
fn a_promoted_server_takes_the_place_of_a_primary_that_stands_still() {
    for kind in [ClusterKind::Mariadb, ClusterKind::Mysql] {
        let Some(bed) = TestBed::set_up(kind) else {
            continue;
        };
        let writer = bed.writer();
        bed.wait_writes(&writer);
        let (_, succession) = change(&bed, How::Frozen);
        let took = succession.writable_at.elapsed().unwrap();
        assert!(took < SUCCESSION_LIMIT, "{kind:?}: {took:?}");
        bed.wait_writes(&writer);
    }
}

fn changes(kind: ClusterKind) {
    let Some(bed) = TestBed::set_up(kind) else {
        return;
    };
    let (writer, reader) = (bed.writer(), bed.reader());
    bed.wait_writes(&writer);
    let (planned, _) = change(&bed, How::Planned);
    bed.wait_writes(&writer);
    bed.scenario.bring_back(&planned).unwrap();
    bed.wait_whole();
    let before_death = SystemTime::now();
    let (dead, succession) = change(&bed, How::Killed);
    bed.wait_writes(&writer);
    let last = bed.scenario.named(&bed.primary().unwrap()).unwrap().clone();
    assert_told(&bed, &dead, &last);
    bed.scenario.bring_back(&dead).unwrap();
    bed.wait_whole();
    let log = writer.finish();
    let mut seen = log.verify(&last).unwrap();
    let died_with_it = |id: &u64| {
        let attempt = log.attempts.iter().find(|one| one.id == *id).unwrap();
        // Later writes were acknowledged by the new primary, which must have them.
        (before_death - NOT_REPLICATED..succession.writable_at).contains(&attempt.ended)
    };
    if !matches!(kind, ClusterKind::Galera | ClusterKind::GroupReplication) {
        seen.lost.retain(|id| !died_with_it(id));
    }
    assert!(seen.is_faultless(), "{seen:?}\n{}", bed.balancer.log());
    assert!(seen.writers.len() >= 3, "{seen:?}");
    assert_all_read(reader);
}

/// Waits until another server is the primary; returns the old one, and the timestamps.
fn change(bed: &TestBed, how: How) -> (Server, Change) {
    let old = bed.scenario.named(&bed.primary().unwrap()).unwrap().clone();
    let change = bed.scenario.change(&old, how).unwrap();
    bed.wait("another primary", || {
        bed.primary().is_some_and(|name| name != old.name)
    });
    (old, change)
}

fn assert_told(bed: &TestBed, dead: &Server, new: &Server) {
    let story = bed.story();
    let at = |what: &str| story.iter().rposition(|reply| reply.starts_with(what));
    let death = at(&format!("{} is down", dead.name));
    let succession = at(&format!("{} is the primary", new.name));
    assert!(death.is_some() && succession.is_some(), "{story:#?}");
}
