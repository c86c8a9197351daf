//! Tests which replicas may serve a read that must see the writes of its session.

mod simulation;

use super::*;
use crate::cluster::Gtids;

const SETTINGS: CausalitySettings = CausalitySettings {
    wait_ms: 50,
    stale_ms: 1_000,
    galera_wait: true,
};

fn lsn(at: u64) -> Position {
    Position::Lsn(Lsn { timeline: 1, at })
}

fn gtid(sequence: u64) -> Position {
    Position::Gtids(Gtids::mariadb([(0, 1, sequence)]))
}

fn sample(epoch: u64, queried_us: u64, at: u64) -> Sample {
    Sample {
        epoch,
        queried_us,
        position: lsn(at),
    }
}

fn replica(applied: &Position) -> Replica<'_> {
    Replica {
        applied: Some(applied),
        queried_us: 0,
        lag_ms: Some(20),
        wait: WaitSupport::Nothing,
    }
}

fn position(token: &CausalityToken, epoch: u64) -> Option<Position> {
    match token.requires(epoch) {
        RequiredPosition::Position(position) => Some(position.clone()),
        RequiredPosition::Nothing | RequiredPosition::Everything(_) => None,
    }
}

fn requires_everything(token: &CausalityToken, epoch: u64) -> bool {
    matches!(token.requires(epoch), RequiredPosition::Everything(_))
}

#[test]
fn insert_positions_after_a_page_header_mean_the_start_of_the_page() {
    let page = 8192;
    let segment = WAL_SEGMENT_BYTES;
    for (at, expected) in [
        (page + 24, page),
        (page + 23, page + 23),
        (page + 32, page + 32),
        // A record may end at this position: no segment begins with this page.
        (page + 40, page + 40),
        (segment + 40, segment),
        (segment + 24, segment),
        (segment, segment),
        ((1 << 20) + 40, (1 << 20) + 40),
    ] {
        assert_eq!(Lsn::of_insert(1, at, segment).at, expected, "{at}");
    }
    let small = Lsn::of_insert(1, (1 << 20) + 40, 1 << 20);
    assert_eq!(small.at, 1 << 20, "segments of 1 MiB");
}

#[test]
fn a_position_on_another_timeline_or_of_another_database_system_does_not_count() {
    let ahead = Position::Lsn(Lsn {
        timeline: 2,
        at: 99,
    });
    assert!(lsn(5).is_reached_by(&lsn(5)));
    assert!(!lsn(5).is_reached_by(&lsn(4)));
    assert!(!lsn(5).is_reached_by(&ahead));
    assert!(!lsn(5).is_reached_by(&gtid(9)));
    assert!(gtid(5).is_reached_by(&gtid(6)));
}

#[test]
fn a_session_that_wrote_nothing_reads_anywhere() {
    let mut token = CausalityToken::new();
    token.apply_sample(&sample(1, 10, 100));
    assert_eq!(token.requires(1), RequiredPosition::Nothing);
}

#[test]
fn a_write_requires_a_sample_queried_after_its_reply() {
    let mut token = CausalityToken::new();
    token.wrote(10, 1);
    for queried_us in [9, 10] {
        token.apply_sample(&sample(1, queried_us, 100));
        assert!(
            requires_everything(&token, 1),
            "sample queried at {queried_us}"
        );
    }
    token.apply_sample(&sample(1, 11, 200));
    assert_eq!(position(&token, 1), Some(lsn(200)));
    token.apply_sample(&sample(1, 12, 300));
    assert_eq!(
        position(&token, 1),
        Some(lsn(200)),
        "a later sample must not raise the position"
    );
    token.wrote(20, 1);
    assert!(requires_everything(&token, 1));
}

#[test]
fn a_write_with_a_reported_position_requires_no_sample() {
    let mut token = CausalityToken::new();
    token.wrote_at(&gtid(7), 10, 1);
    token.wrote_at(&gtid(9), 11, 1);
    assert_eq!(position(&token, 1), Some(gtid(9)));
    token.drop_if_reached(&gtid(8));
    assert_eq!(position(&token, 1), Some(gtid(9)));
    token.drop_if_reached(&gtid(9));
    assert_eq!(token.requires(1), RequiredPosition::Nothing);
}

#[test]
fn a_session_may_have_written_before_writes_were_recorded() {
    let mut token = CausalityToken::new();
    token.assume_writes_before(10, 1);
    assert!(requires_everything(&token, 1));
    token.apply_sample(&sample(1, 11, 200));
    assert_eq!(position(&token, 1), Some(lsn(200)));
    token.drop_if_reached(&lsn(200));
    token.assume_writes_before(10, 1);
    assert_eq!(
        token.requires(1),
        RequiredPosition::Nothing,
        "the session must not assume earlier writes twice"
    );
    token.assume_writes_before(20, 1);
    token.wrote_at(&lsn(300), 25, 1);
    assert!(
        requires_everything(&token, 1),
        "the reported position does not cover earlier writes"
    );
}

#[test]
fn after_a_primary_change_the_token_requires_a_sample_of_the_new_primary() {
    let mut token = CausalityToken::new();
    token.wrote_at(&gtid(7), 10, 1);
    assert!(requires_everything(&token, 2));
    assert!(token.wrote_before_epoch(2) && !token.wrote_before_epoch(1));
    assert!(
        !CausalityToken::new().wrote_before_epoch(2),
        "the session wrote nothing"
    );
    token.apply_sample(&sample(2, 10, 90));
    assert!(
        requires_everything(&token, 2),
        "the sample was queried before the reply to the write"
    );
    token.apply_sample(&sample(2, 11, 100));
    assert!(!token.wrote_before_epoch(2));
    assert_eq!(position(&token, 2), Some(lsn(100)));
    token.apply_sample(&sample(1, 50, 900));
    assert_eq!(
        position(&token, 2),
        Some(lsn(100)),
        "samples of the old primary must be ignored"
    );
}

#[test]
fn writes_on_both_primaries_require_a_sample_of_the_new_primary() {
    let mut token = CausalityToken::new();
    token.wrote_at(&gtid(7), 10, 1);
    token.wrote_at(&gtid(8), 20, 2);
    assert!(requires_everything(&token, 2), "write 7 may be lost");
    token.apply_sample(&sample(2, 21, 100));
    assert_eq!(position(&token, 2), Some(lsn(100)));
    token.wrote(30, 1);
    assert!(
        requires_everything(&token, 2),
        "the reply is from the old primary"
    );
}

#[test]
fn under_global_consistency_the_last_write_of_any_session_counts() {
    let writes = Writes::new(2, 5);
    assert!(
        requires_everything(&writes.token(1, 6), 1),
        "the previous process may have written"
    );
    writes.wrote(0, 20);
    writes.wrote(1, 10);
    let mut token = writes.token(1, 30);
    token.apply_sample(&sample(1, 15, 100));
    assert!(requires_everything(&token, 1));
    token.apply_sample(&sample(1, 21, 200));
    assert_eq!(position(&token, 1), Some(lsn(200)));
}

#[test]
fn while_another_process_writes_only_samples_queried_now_are_accepted() {
    let writes = Writes::new(1, 5);
    writes.set_shared(true, 10);
    let covers = |queried_us: u64, now_us: u64| {
        let mut token = writes.token(1, now_us);
        token.apply_sample(&sample(1, queried_us, 100));
        position(&token, 1).is_some()
    };
    assert!(!covers(29, 30) && covers(31, 30));
    writes.set_shared(false, 40);
    assert!(!covers(39, 90) && covers(41, 90));
    writes.set_shared(false, 80);
    assert!(covers(41, 90));
}

#[test]
fn samples_are_queried_after_writes_one_at_a_time_and_not_too_often() {
    let intervals = SampleIntervals {
        with_reads_us: 1_000,
        without_reads_us: 50_000,
    };
    let mut sampler = Sampler::new(intervals);
    assert_eq!(sampler.due_us(1, 0, 1), None);
    assert_eq!(sampler.due_us(1, 5_000, 1), Some(5_001));
    sampler.sent(5_001);
    assert_eq!(sampler.due_us(1, 5_500, 1), None);
    sampler.answered(Some(&sample(1, 5_001, 100)));
    assert_eq!(sampler.due_us(1, 5_000, 1), None);
    assert_eq!(sampler.due_us(1, 5_001, 1), Some(6_001));
    assert_eq!(sampler.due_us(2, 5_000, 1), Some(6_001), "another primary");
    sampler.sent(6_001);
    sampler.answered(None);
    assert_eq!(sampler.due_us(1, 5_001, 1), Some(7_001));
}

#[test]
fn primary_is_sampled_less_often_while_no_read_needs_a_sample() {
    let intervals = SampleIntervals {
        with_reads_us: 1_000,
        without_reads_us: 50_000,
    };
    let mut sampler = Sampler::new(intervals);
    assert_eq!(
        sampler.due_us(1, 5_000, 0),
        Some(50_000),
        "the first sample"
    );
    sampler.sent(50_000);
    sampler.answered(Some(&sample(1, 50_000, 100)));
    assert_eq!(sampler.due_us(1, 60_000, 0), Some(100_000));
    assert_eq!(
        sampler.due_us(1, 60_000, 60_500),
        Some(60_001),
        "a read needs a sample"
    );
    assert_eq!(sampler.due_us(1, 1_060_500, 60_500), Some(1_060_501));
    assert_eq!(
        sampler.due_us(1, 1_060_501, 60_500),
        Some(1_060_502),
        "a sample after a single write is queried immediately"
    );
    sampler.sent(1_060_502);
    sampler.answered(Some(&sample(1, 1_060_502, 200)));
    assert_eq!(
        sampler.due_us(1, 1_060_510, 60_500),
        Some(1_110_502),
        "the last read that needed a sample is too long ago"
    );
}

#[test]
fn a_replica_is_assessed_by_its_position_and_wait_support() {
    let (not_reached, reached, target) = (lsn(9), lsn(10), lsn(10));
    let required = RequiredPosition::Position(&target);
    let unknown = RequiredPosition::Everything("unknown");
    let waiting = |wait, lag_ms| Replica {
        wait,
        lag_ms,
        ..replica(&not_reached)
    };
    for (requires, replica, expected) in [
        (
            RequiredPosition::Nothing,
            replica(&not_reached),
            Freshness::Fresh,
        ),
        (required, replica(&reached), Freshness::Fresh),
        (required, replica(&not_reached), Freshness::Behind),
        (unknown, replica(&reached), Freshness::Behind),
        (
            required,
            waiting(WaitSupport::Position, Some(50)),
            Freshness::AfterPosition,
        ),
        (
            required,
            waiting(WaitSupport::Position, Some(51)),
            Freshness::Behind,
        ),
        (
            required,
            waiting(WaitSupport::Position, None),
            Freshness::Behind,
        ),
        (
            unknown,
            waiting(WaitSupport::Position, Some(1)),
            Freshness::Behind,
        ),
        (
            unknown,
            waiting(WaitSupport::Everything, None),
            Freshness::AfterSync,
        ),
        (
            required,
            waiting(WaitSupport::Everything, None),
            Freshness::AfterSync,
        ),
        (
            required,
            Replica {
                wait: WaitSupport::Everything,
                ..replica(&reached)
            },
            Freshness::Fresh,
        ),
        (
            RequiredPosition::Nothing,
            waiting(WaitSupport::Everything, None),
            Freshness::Fresh,
        ),
    ] {
        let judged = assess(requires, &replica, 0, &SETTINGS);
        assert_eq!(judged, expected, "{requires:?} {replica:?}");
    }
}

#[test]
fn galera_node_is_behind_after_a_write_unless_waits_are_allowed() {
    let reached = lsn(10);
    let node = Replica {
        wait: WaitSupport::Everything,
        ..replica(&reached)
    };
    let settings = CausalitySettings {
        galera_wait: false,
        ..SETTINGS
    };
    let required = RequiredPosition::Position(&reached);
    assert_eq!(assess(required, &node, 0, &settings), Freshness::Behind);
    assert_eq!(assess(required, &node, 0, &SETTINGS), Freshness::Fresh);
    let nothing = RequiredPosition::Nothing;
    assert_eq!(assess(nothing, &node, 0, &settings), Freshness::Fresh);
}

#[test]
fn an_old_report_of_a_replica_does_not_count() {
    let position = lsn(10);
    let assess = |now_us| {
        let requires = RequiredPosition::Position(&position);
        assess(requires, &replica(&position), now_us, &SETTINGS)
    };
    assert_eq!(assess(1_000_000), Freshness::Fresh);
    assert_eq!(assess(1_000_001), Freshness::Behind);
}

#[test]
fn a_read_prefers_fresh_replicas_then_waits_on_the_least_lagging() {
    let (not_reached, reached) = (lsn(9), lsn(10));
    let waiting = |lag_ms| Replica {
        wait: WaitSupport::Position,
        lag_ms: Some(lag_ms),
        ..replica(&not_reached)
    };
    let choose = |replicas: &[Replica<'_>]| {
        let servers = replicas.iter().map(|replica| reader(*replica));
        readers(RequiredPosition::Position(&reached), servers, 0, &SETTINGS)
    };
    let now = choose(&[waiting(1), replica(&reached), replica(&reached)]);
    assert_eq!((now.replicas, now.fresh, now.soonest), (3, 2, None));
    assert!(now.barred.contains(0) && !now.barred.contains(1));
    let later = choose(&[replica(&not_reached), waiting(30), waiting(20)]);
    assert_eq!(
        (later.replicas, later.fresh, later.soonest),
        (3, 0, Some(2))
    );
    assert_eq!(choose(&[replica(&not_reached)]).soonest, None);
    assert_eq!(choose(&[]), ReadChoice::default());
}

#[test]
fn readers_excludes_servers_that_failed_the_read_or_serve_no_reads() {
    let reached = lsn(10);
    let primary = Candidate {
        is_primary: true,
        is_replica: false,
        ..reader(replica(&reached))
    };
    let tried = |server| Candidate {
        is_tried: true,
        ..server
    };
    let other = Candidate {
        is_replica: false,
        ..reader(replica(&reached))
    };
    let replica = reader(replica(&reached));
    let servers = [primary, replica, tried(replica), other, tried(primary)];
    let found = readers(RequiredPosition::Nothing, servers, 0, &SETTINGS);
    assert_eq!((found.replicas, found.fresh), (1, 1));
    let barred = (0..servers.len()).filter(|index| found.barred.contains(*index));
    assert_eq!(barred.collect::<Vec<_>>(), [2, 3, 4]);
}

fn reader(replica: Replica<'_>) -> Candidate<'_> {
    Candidate {
        is_primary: false,
        is_replica: true,
        is_tried: false,
        replica,
    }
}

#[test]
fn a_backup_never_waits_but_serves_reads_without_requirements() {
    let written = gtid(7);
    let node = Replica {
        applied: None,
        wait: WaitSupport::Everything,
        ..replica(&written)
    };
    let requires = RequiredPosition::Position(&written);
    assert_eq!(assess(requires, &node, 0, &SETTINGS), Freshness::AfterSync);
    let backup = node.without_wait_support();
    assert_eq!(assess(requires, &backup, 0, &SETTINGS), Freshness::Behind);
    let fresh = assess(RequiredPosition::Nothing, &backup, 0, &SETTINGS);
    assert_eq!(fresh, Freshness::Fresh);
}
