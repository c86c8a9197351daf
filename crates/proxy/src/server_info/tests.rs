//! Tests the server info as sessions use it, without a server.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use evenkeel_policy::causality::{Lsn, Position, Sample, WaitSupport};

use super::*;

/// Counts how often it was woken, coarsely.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

fn poll<F: Future + Unpin>(future: &mut F, bell: &Arc<Bell>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(bell));
    std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker))
}

fn at(lsn: u64) -> Position {
    Position::Lsn(Lsn {
        timeline: 1,
        at: lsn,
    })
}

fn sample(epoch: u64, queried_us: u64, lsn: u64) -> Sample {
    Sample {
        epoch,
        queried_us,
        position: at(lsn),
    }
}

#[test]
fn a_write_wakes_who_waits_for_one_and_nobody_else() {
    let server_info = ServerInfo::new(2, 0);
    let bell = Arc::new(Bell::default());
    let mut waiting = Box::pin(server_info.track().wait_for_write(0));
    assert!(poll(&mut waiting, &bell).is_pending());
    server_info.record_write(1, 7);
    assert!(bell.0.swap(false, Relaxed));
    assert!(poll(&mut waiting, &bell).is_ready());
    server_info.record_write(0, 8);
    assert!(!bell.0.load(Relaxed), "nobody waits");
    let mut next = Box::pin(server_info.track().wait_for_write(7));
    assert!(poll(&mut next, &bell).is_ready(), "it has been already");
    let mut last = Box::pin(server_info.track().wait_for_write(8));
    assert!(poll(&mut last, &bell).is_pending());
}

#[test]
fn a_read_that_wants_to_know_wakes_who_waits_and_is_not_told_again_at_once() {
    let server_info = ServerInfo::new(1, 0);
    let bell = Arc::new(Bell::default());
    let mut waiting = Box::pin(server_info.track().wait_for_request(0));
    assert!(poll(&mut waiting, &bell).is_pending());
    server_info.track().request_positions(7);
    assert!(bell.0.swap(false, Relaxed));
    assert!(poll(&mut waiting, &bell).is_ready());
    let mut next = Box::pin(server_info.track().wait_for_request(7));
    assert!(poll(&mut next, &bell).is_pending());
    server_info.track().request_positions(8);
    assert!(!bell.0.load(Relaxed) && server_info.track().wanted_us() == 7);
    server_info.track().request_positions(200_000);
    assert!(poll(&mut next, &bell).is_ready());
}

#[test]
fn no_write_is_slept_through_while_two_workers_write() {
    const LAST_US: u64 = 50_000;
    let server_info = ServerInfo::new(2, 0);
    let write = |worker: usize| {
        let server_info = Arc::clone(&server_info);
        std::thread::spawn(move || {
            for now_us in 1..=LAST_US {
                server_info.record_write(worker, now_us);
                if now_us % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        })
    };
    let workers = [write(0), write(1)];
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().unwrap();
    let track = server_info.track();
    let watching = async {
        let mut seen_us = 0;
        while seen_us < LAST_US {
            track.wait_for_write(seen_us).await;
            seen_us = server_info.writes().last_us();
        }
    };
    let limit = std::time::Duration::from_secs(30);
    let ended = runtime.block_on(async { tokio::time::timeout(limit, watching).await });
    assert!(ended.is_ok(), "asleep, though there are writes");
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
}

#[test]
fn a_sample_counts_while_its_primarys_time_lasts() {
    let server_info = ServerInfo::new(1, 0);
    let track = server_info.track();
    assert!(!track.sampled(&sample(0, 1, 1)), "there is no primary");
    track.set_primary(Some(1), true);
    assert!(track.sampled(&sample(1, 1, 10)));
    track.set_primary(Some(2), true);
    assert!(!track.sampled(&sample(1, 2, 20)));
    assert_eq!(server_info.positions().sample, Some(sample(1, 1, 10)));
    assert_eq!(server_info.epoch(), 2);
}

#[test]
fn a_replicas_word_is_kept_while_it_is_listed_and_the_later_question_counts() {
    let server_info = ServerInfo::new(1, 0);
    let track = server_info.track();
    track.applied(7, at(5), 10, None);
    assert_eq!(server_info.positions().applied(7), None, "it is not listed");
    track.list(&[(7, Some(3)), (8, None)]);
    track.applied(7, at(5), 10, Some(WaitSupport::Position));
    track.applied(7, at(4), 9, None);
    track.list(&[(7, Some(4))]);
    let positions = server_info.positions();
    let expect = ReplicaProgress {
        position: Some(at(5)),
        queried_us: 10,
        lag_ms: Some(4),
        wait: WaitSupport::Position,
    };
    assert_eq!(positions.applied(7), Some(&expect));
    assert_eq!(positions.replica(8).applied, None);
    track.set_primary(Some(1), true);
    track.sampled(&sample(1, 11, 5));
    assert!(server_info.positions().has_last_sample(7));
    track.sampled(&sample(1, 12, 6));
    assert!(!server_info.positions().has_last_sample(7));
    track.forget(7);
    assert_eq!(
        server_info.positions().applied(7),
        Some(&ReplicaProgress::UNKNOWN)
    );
}

#[test]
fn a_node_that_can_wait_for_its_cluster_can_before_it_is_listed_and_until_it_says_otherwise() {
    let server_info = ServerInfo::new(1, 0);
    let track = server_info.track();
    track.set_causal(7, true);
    track.set_causal(7, true);
    assert_eq!(
        server_info.positions().replica(7).wait,
        WaitSupport::Everything
    );
    assert_eq!(
        server_info.positions().replica(8).wait,
        WaitSupport::Nothing
    );
    track.set_causal(7, false);
    assert!(!server_info.positions().is_causal(7));
}

#[test]
fn a_database_is_read_from_when_it_is_wanted_and_read_again_when_it_is_changed_or_used_again() {
    let server_info = ServerInfo::new(1, 0);
    let (databases, bell) = (server_info.databases(), Arc::new(Bell::default()));
    let news = || poll(&mut Box::pin(databases.news()), &bell).is_ready();
    assert!(server_info.catalog("shop").is_none() && databases.all().is_empty() && !news());
    databases.get_or_add("shop");
    assert!(news() && !news());
    let shop = databases.get("shop").unwrap();
    assert!(shop.take_used() && !shop.take_used());
    shop.set_catalog(Some(Arc::new(
        evenkeel_sql::catalog::Builder::default().build(1),
    )));
    assert!(server_info.catalog("shop").is_some() && shop.is_used() && !news());
    server_info.catalog_changed("shop");
    assert!(shop.is_changed() && news());
    shop.begin_reading();
    assert!(!shop.is_changed());
    shop.take_used();
    shop.set_catalog(None);
    assert!(shop.catalog().is_none() && news());
    assert!(shop.catalog().is_none() && !news(), "it is read already");
}

#[test]
fn a_login_is_answered_by_the_control_plane_and_a_session_that_left_is_passed_over() {
    let server_info = ServerInfo::new(1, 0);
    let bell = Arc::new(Bell::default());
    let mut left = Box::pin(server_info.login("left"));
    let mut stays = Box::pin(server_info.login("stays"));
    assert!(poll(&mut left, &bell).is_pending() && poll(&mut stays, &bell).is_pending());
    drop(left);
    let mut next = Box::pin(server_info.next_login());
    let Poll::Ready(request) = poll(&mut next, &bell) else {
        panic!("a request waits");
    };
    assert_eq!(request.user, "stays");
    request
        .reply
        .try_send(Err(LookupError::NoSuchUser))
        .unwrap();
    assert_eq!(
        poll(&mut stays, &bell),
        Poll::Ready(Err(LookupError::NoSuchUser))
    );
}

#[test]
fn each_doubted_server_is_told_once() {
    let server_info = ServerInfo::new(1, 0);
    let bell = Arc::new(Bell::default());
    let mut doubts = Box::pin(server_info.next_role_checks());
    assert!(poll(&mut doubts, &bell).is_pending());
    server_info.request_role_check(3);
    server_info.request_role_check(3);
    server_info.request_role_check(1);
    assert_eq!(
        poll(&mut doubts, &bell),
        Poll::Ready(BTreeSet::from([1, 3]))
    );
    let mut doubts = Box::pin(server_info.next_role_checks());
    assert!(poll(&mut doubts, &bell).is_pending());
}

#[test]
fn whoever_comes_in_waits_for_the_first_reading_of_routines_and_for_no_other() {
    let (server_info, bell) = (ServerInfo::new(1, 0), Arc::new(Bell::default()));
    let mut nobody_reads = Box::pin(server_info.wait_for_routines());
    assert!(poll(&mut nobody_reads, &bell).is_ready());
    server_info.expect_routines();
    let mut waiting = Box::pin(server_info.wait_for_routines());
    assert!(poll(&mut waiting, &bell).is_pending());
    let listed = evenkeel_sql::routines::RoutineListing::default();
    server_info.set_routines(Some(Arc::new(Routines::new(1, &listed))));
    assert!(bell.0.load(Relaxed) && poll(&mut waiting, &bell).is_ready());
    server_info.expect_routines();
    let mut known = Box::pin(server_info.wait_for_routines());
    assert!(poll(&mut known, &bell).is_ready(), "they are known");
}
