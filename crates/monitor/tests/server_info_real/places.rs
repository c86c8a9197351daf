//! Tests the positions of a real primary and its replica.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use evenkeel_monitor::probe::Tls;
use evenkeel_monitor::{PositionQuery, ServerPosition, WatchError};
use evenkeel_policy::causality::{Lsn, Position, WaitSupport};
use evenkeel_wire::SqlProtocol;

use crate::rig::PATIENCE;
use crate::server::{Postgres, account, block_on};

fn asker() -> PositionQuery {
    let account = account("postgres", None);
    PositionQuery::new(SqlProtocol::Postgres, account, &Tls::Off, now_us).unwrap()
}

/// Returns the microseconds since the first call.
fn now_us() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_micros() as u64
}

fn lsn(position: Option<&Position>) -> Option<Lsn> {
    match position {
        Some(Position::Lsn(lsn)) => Some(*lsn),
        Some(Position::Gtids(gtids)) => panic!("{gtids}"),
        None => None,
    }
}

/// Returns the position of a primary.
fn written(place: &ServerPosition) -> Lsn {
    assert_eq!(place.applied, None);
    lsn(place.written.as_ref()).unwrap()
}

/// Returns the position of a replica.
fn replayed(place: &ServerPosition) -> Lsn {
    assert_eq!(place.written, None);
    lsn(place.applied.as_ref()).unwrap()
}

async fn ask(server: &Postgres, asker: &mut PositionQuery) -> ServerPosition {
    asker.ask(&server.target(), PATIENCE).await.unwrap()
}

/// Queries the replica until it has the primary's position, or fails.
async fn catch_up(primary: &ServerPosition, replica: &Postgres, asker: &mut PositionQuery) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let place = ask(replica, asker).await;
        if Position::Lsn(written(primary)).is_reached_by(&Position::Lsn(replayed(&place))) {
            return;
        }
        assert!(Instant::now() < deadline, "{primary:?} {place:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_replica_reaches_what_the_primary_tells_and_a_promoted_one_is_on_a_timeline_of_its_own() {
    let primary = Postgres::start(&[]);
    let replica = primary.replica();
    block_on(async {
        let (mut of_primary, mut of_replica) = (asker(), asker());
        primary.sql("postgres", "CREATE TABLE t (a int)");
        let before_us = now_us();
        let place = ask(&primary, &mut of_primary).await;
        assert!(place.queried_us >= before_us);
        assert_eq!(
            (written(&place).timeline, place.wait),
            (1, WaitSupport::Nothing)
        );
        catch_up(&place, &replica, &mut of_replica).await;
        // With replay paused a write does not arrive, and the reply shows that.
        replica.sql("postgres", "SELECT pg_wal_replay_pause()");
        primary.sql("postgres", "INSERT INTO t VALUES (1)");
        let ahead = ask(&primary, &mut of_primary).await;
        let behind = ask(&replica, &mut of_replica).await;
        assert!(replayed(&behind).at < written(&ahead).at);
        replica.sql("postgres", "SELECT pg_wal_replay_resume()");
        catch_up(&ahead, &replica, &mut of_replica).await;
        replica.sql("postgres", "SELECT pg_promote()");
        let promoted = ask(&replica, &mut of_replica).await;
        assert_eq!(written(&promoted).timeline, 2);
    });
}

/// Size of a page of the log, and of the header of each page except a segment's first.
const PAGE_BYTES: u64 = 8_192;
const HEADER_BYTES: u64 = 24;

/// Returns the server's position for the next record.
fn insert_position(server: &Postgres) -> u64 {
    let asked = "SELECT pg_current_wal_insert_lsn() - '0/0'";
    server.sql("postgres", asked).parse().unwrap()
}

/// Writes a record of `bytes` bytes plus the overhead of every record.
fn write_record(server: &Postgres, bytes: u64) {
    let emit = format!("SELECT pg_logical_emit_message(false, 'a', repeat('x', {bytes}))");
    server.sql("postgres", &emit);
}

/// Writes records until one ends with its page.
fn fill_page(server: &Postgres) {
    let start = insert_position(server);
    write_record(server, 400);
    let extra = (insert_position(server) - start) % PAGE_BYTES - 400;
    for _ in 0..100 {
        let room = PAGE_BYTES - insert_position(server) % PAGE_BYTES;
        write_record(server, room.saturating_sub(extra).max(200));
        if insert_position(server) % PAGE_BYTES == HEADER_BYTES {
            return;
        }
    }
    panic!("no record ends with its page");
}

#[test]
fn a_replica_reaches_a_record_that_ends_with_its_page_without_more_being_written() {
    let primary = Postgres::start(&[]);
    let replica = primary.replica();
    block_on(async {
        let (mut of_primary, mut of_replica) = (asker(), asker());
        fill_page(&primary);
        let end = insert_position(&primary);
        let place = ask(&primary, &mut of_primary).await;
        assert_eq!(written(&place).at, end - HEADER_BYTES);
        catch_up(&place, &replica, &mut of_replica).await;
        assert_eq!(insert_position(&primary), end, "nothing was written");
    });
}

#[test]
fn a_frozen_server_is_given_up_in_time_and_asked_over_a_new_connection() {
    let server = Postgres::start(&[]);
    block_on(async {
        let mut asker = asker();
        ask(&server, &mut asker).await;
        let pid = "SELECT pid FROM pg_stat_activity WHERE application_name = 'evenkeel-position'";
        let first = server.sql("postgres", pid);
        let pids = first.parse::<i32>().unwrap();
        stop(pids, libc::SIGSTOP);
        let limit = Duration::from_millis(200);
        let reported = asker.ask(&server.target(), limit).await;
        let expect = "timed out after 200 ms while querying its WAL position";
        assert_eq!(reported, Err(WatchError::Away(expect.to_owned())));
        stop(pids, libc::SIGCONT);
        ask(&server, &mut asker).await;
        let again = server.sql("postgres", pid);
        assert!(!again.lines().all(|pid| pid == first), "{again}");
    });
}

fn stop(pid: i32, signal: i32) {
    #[expect(unsafe_code, reason = "std can only kill; this freezes")]
    // SAFETY: the process is a child of the server that this test holds.
    unsafe {
        libc::kill(pid, signal);
    }
}
