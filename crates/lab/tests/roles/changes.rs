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
        let Some(stage) = TestBed::set(kind) else {
            continue;
        };
        let writer = stage.writer();
        stage.wait_writes(&writer);
        let (_, succession) = change(&stage, How::Frozen);
        let took = succession.writable_at.elapsed().unwrap();
        assert!(took < SUCCESSION_LIMIT, "{kind:?}: {took:?}");
        stage.wait_writes(&writer);
    }
}

fn changes(kind: ClusterKind) {
    let Some(stage) = TestBed::set(kind) else {
        return;
    };
    let (writer, reader) = (stage.writer(), stage.reader());
    stage.wait_writes(&writer);
    let (planned, _) = change(&stage, How::Planned);
    stage.wait_writes(&writer);
    stage.scene.bring_back(&planned).unwrap();
    stage.wait_whole();
    let before_death = SystemTime::now();
    let (dead, succession) = change(&stage, How::Killed);
    stage.wait_writes(&writer);
    let last = stage
        .scene
        .named(&stage.primary().unwrap())
        .unwrap()
        .clone();
    assert_told(&stage, &dead, &last);
    stage.scene.bring_back(&dead).unwrap();
    stage.wait_whole();
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
    assert!(seen.is_faultless(), "{seen:?}\n{}", stage.balancer.log());
    assert!(seen.writers.len() >= 3, "{seen:?}");
    assert_all_read(reader);
}

/// Waits until another server is the primary; returns the old one, and the timestamps.
fn change(stage: &TestBed, how: How) -> (Server, Change) {
    let old = stage
        .scene
        .named(&stage.primary().unwrap())
        .unwrap()
        .clone();
    let change = stage.scene.change(&old, how).unwrap();
    stage.wait("another primary", || {
        stage.primary().is_some_and(|name| name != old.name)
    });
    (old, change)
}

fn assert_told(stage: &TestBed, dead: &Server, new: &Server) {
    let story = stage.story();
    let at = |what: &str| story.iter().rposition(|told| told.starts_with(what));
    let death = at(&format!("{} is down", dead.name));
    let succession = at(&format!("{} is the primary", new.name));
    assert!(death.is_some() && succession.is_some(), "{story:#?}");
}
