//! Tests the polling loops against simulated servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use evenkeel_policy::causality::{Lsn, WaitSupport};

use super::*;

const PRIMARY: u64 = 1;
const REPLICA: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(10);

/// Log shared by both servers, and the number of queries to each.
#[derive(Default)]
struct World {
    written: AtomicU64,
    replayed: AtomicU64,
    /// True if the replica replays all writes.
    keeps_up: AtomicBool,
    is_away: AtomicBool,
    /// True if the primary has not yet applied what another one acknowledged.
    is_behind: AtomicBool,
    samples: AtomicU64,
    looks: AtomicU64,
}

struct Fake {
    world: Arc<World>,
    in_recovery: bool,
}

impl PositionSource for Fake {
    async fn query(&mut self) -> Result<ServerPosition, WatchError> {
        let world = &self.world;
        let counter = match self.in_recovery {
            true => &world.looks,
            false => &world.samples,
        };
        counter.fetch_add(1, SeqCst);
        if world.is_away.load(SeqCst) {
            return Err(WatchError::Away("gone".to_owned()));
        }
        let queried_us = now_us();
        if world.keeps_up.load(SeqCst) {
            world.replayed.store(world.written.load(SeqCst), SeqCst);
        }
        let at = match self.in_recovery {
            true => world.replayed.load(SeqCst),
            false => world.written.load(SeqCst),
        };
        let position = Position::Lsn(Lsn { timeline: 1, at });
        Ok(ServerPosition {
            written: (!self.in_recovery).then(|| position.clone()),
            applied: self.in_recovery.then_some(position),
            queried_us,
            wait: WaitSupport::Nothing,
        })
    }

    async fn catch_up(&mut self) -> Result<(), WatchError> {
        match self.world.is_behind.load(SeqCst) {
            true => Err(WatchError::Away("it still applies".to_owned())),
            false => Ok(()),
        }
    }
}

struct Rig {
    world: Arc<World>,
    server_info: Arc<ServerInfo>,
    membership: watch::Sender<Membership>,
}

impl Rig {
    fn start() -> Rig {
        let rig = Rig {
            world: Arc::default(),
            server_info: ServerInfo::new(1, 0),
            membership: watch::Sender::default(),
        };
        rig.world.keeps_up.store(true, SeqCst);
        rig.server_info.track().list(&[(REPLICA, Some(0))]);
        let samples = watch::Sender::new(0);
        for server_id in [PRIMARY, REPLICA] {
            let follower = PositionFollower {
                server_id,
                source: Fake {
                    world: Arc::clone(&rig.world),
                    in_recovery: server_id == REPLICA,
                },
                server_info: Arc::clone(&rig.server_info),
                membership: rig.membership.subscribe(),
                samples: samples.clone(),
            };
            tokio::spawn(follower.run());
        }
        rig.promote(1);
        rig
    }

    fn promote(&self, epoch: u64) {
        self.server_info.track().set_primary(Some(PRIMARY), true);
        self.membership.send_replace(Membership {
            epoch,
            primary: Some(PRIMARY),
            replicas: vec![REPLICA],
            up: vec![PRIMARY, REPLICA],
            tracks: true,
            fault: None,
        });
    }

    /// Simulates a read that finds no replica with the required position.
    fn read(&self) {
        self.server_info.track().request_positions(now_us());
    }

    fn write(&self) -> u64 {
        self.world.written.fetch_add(100, SeqCst);
        let now_us = now_us();
        self.server_info.record_write(0, now_us);
        now_us
    }

    /// Returns whether a sample covers a write and the replica has applied it.
    fn is_settled(&self, wrote_us: u64) -> bool {
        let positions = self.server_info.positions();
        let sample = positions.sample.as_ref();
        let is_known = sample
            .is_some_and(|sample| sample.epoch == positions.epoch && sample.queried_us > wrote_us);
        is_known && positions.has_last_sample(REPLICA)
    }

    fn asked(&self) -> (u64, u64) {
        let world = &self.world;
        (world.samples.load(SeqCst), world.looks.load(SeqCst))
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_write_is_sampled_and_followed_and_then_nobody_is_asked_any_more() {
    let rig = Rig::start();
    for _ in 0..5 {
        let wrote_us = rig.write();
        until("the write is everywhere", || rig.is_settled(wrote_us)).await;
    }
    let asked = rig.asked();
    // Long enough for both to be queried many times.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.asked(), asked, "at rest");
    assert!(
        asked.0 >= 5 && asked.1 >= 5 && asked.0 + asked.1 < 40,
        "{asked:?}"
    );
}

#[tokio::test]
async fn many_writes_share_the_questions() {
    let rig = Rig::start();
    let (began, mut last_us) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(200) {
        for _ in 0..50 {
            last_us = rig.write();
        }
        rig.read();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    until("the last write is everywhere", || rig.is_settled(last_us)).await;
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap();
    let (samples, looks) = rig.asked();
    assert!(
        samples <= ms / 2 + 3 && looks <= ms / 5 + 5,
        "{samples} {looks} in {ms} ms"
    );
    assert!(samples > 10, "{samples}");
}

#[tokio::test]
async fn writes_that_nobody_reads_cost_few_questions() {
    let rig = Rig::start();
    let (began, mut last_us) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(300) {
        last_us = rig.write();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (samples, looks) = rig.asked();
    assert!(
        (1..=5).contains(&samples) && looks <= 10,
        "{samples} {looks}"
    );
    rig.read();
    until("the last write is everywhere", || rig.is_settled(last_us)).await;
}

#[tokio::test]
async fn a_replica_that_stands_still_is_asked_less_and_is_found_when_it_moves() {
    let rig = Rig::start();
    rig.world.keeps_up.store(false, SeqCst);
    let wrote_us = rig.write();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let (_, looks) = rig.asked();
    assert!((8..25).contains(&looks), "{looks}");
    assert!(!rig.is_settled(wrote_us));
    rig.world.keeps_up.store(true, SeqCst);
    until("it has caught up", || rig.is_settled(wrote_us)).await;
}

#[tokio::test]
async fn a_new_primarys_time_begins_with_a_sample_of_its_own() {
    let rig = Rig::start();
    let wrote_us = rig.write();
    until("the first is settled", || rig.is_settled(wrote_us)).await;
    rig.promote(2);
    until("the second time is sampled", || {
        let positions = rig.server_info.positions();
        positions
            .sample
            .as_ref()
            .is_some_and(|sample| sample.epoch == 2)
    })
    .await;
}

#[tokio::test]
async fn a_primary_that_still_applies_what_others_acknowledged_is_not_sampled() {
    let rig = Rig::start();
    rig.world.is_behind.store(true, SeqCst);
    rig.promote(2);
    let wrote_us = rig.write();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.asked().0, 0);
    rig.world.is_behind.store(false, SeqCst);
    until("it is sampled", || rig.is_settled(wrote_us)).await;
}

#[tokio::test]
async fn a_server_that_is_away_is_doubted_and_asked_in_measure() {
    let rig = Rig::start();
    rig.world.is_away.store(true, SeqCst);
    let wrote_us = rig.write();
    let doubts = tokio::time::timeout(PATIENCE, rig.server_info.next_role_checks()).await;
    assert!(doubts.unwrap().contains(&PRIMARY));
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(rig.asked().0 <= 4, "{:?}", rig.asked());
    rig.world.is_away.store(false, SeqCst);
    until("it is asked again", || rig.is_settled(wrote_us)).await;
}

#[tokio::test]
async fn nobody_is_asked_where_there_is_no_reason() {
    let rig = Rig::start();
    rig.membership
        .send_modify(|membership| membership.tracks = false);
    rig.write();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.asked(), (0, 0));
}
