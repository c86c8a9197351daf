//! Tests of single decisions.

mod quotas;
pub(crate) mod simulation;

use std::sync::Arc;

use super::*;
use crate::load::Load;
use crate::permits::UNLIMITED;

const NO_QUOTAS: PoolLimits = PoolLimits {
    pool: UNLIMITED,
    user: UNLIMITED,
    database: UNLIMITED,
};

fn settings() -> PoolSettings {
    PoolSettings {
        wait_ms: 1_000,
        queue_length: 3,
        cross_worker_wait_ms: 5,
        local_wait_ms: 2,
        eviction_wait_ms: 50,
        idle_ms: 100,
        lifetime_ms: 1_000,
        min_idle: 0,
        preference: Preference::Moved,
    }
}

fn key(user: u64) -> PoolKey {
    PoolKey {
        server: 1,
        user,
        generation: 0,
        database: 1,
        identity: 0,
    }
}

/// Service with idle pools whose tasks are checked manually.
struct Scene {
    shared_pools: Arc<SharedPools>,
    idle_pools: Vec<IdlePool>,
    server: Arc<Load>,
    tasks: Vec<WorkerTask>,
    connection: u32,
}

impl Scene {
    fn new(size: u32, settings: PoolSettings) -> Scene {
        let shared_pools = Arc::new(SharedPools::new(2, size, settings));
        let idle_pools = (0..2).map(|worker| IdlePool::new(worker, Arc::clone(&shared_pools)));
        Scene {
            idle_pools: idle_pools.collect(),
            shared_pools,
            server: Arc::new(Load::new(None)),
            tasks: Vec::new(),
            connection: 0,
        }
    }

    fn pool(&self, user: u64) -> Arc<Pool> {
        self.shared_pools.pool(key(user), &NO_QUOTAS, &self.server)
    }

    fn borrow(&mut self, worker: usize, pool: &Arc<Pool>, now_ms: u64) -> AcquireDecision {
        self.idle_pools[worker].acquire(pool, now_ms, &mut self.tasks)
    }

    fn wait(&mut self, worker: usize, pool: &Arc<Pool>, now_ms: u64) -> WaitTicket {
        match self.borrow(worker, pool, now_ms) {
            AcquireDecision::Wait { ticket, .. } => ticket,
            other => panic!("should wait: {other:?}"),
        }
    }

    fn open(&mut self, worker: usize, pool: &Arc<Pool>, now_ms: u64) -> ReleaseDecision {
        self.connection += 1;
        self.idle_pools[worker].opened(pool, self.connection, now_ms, 0, &mut self.tasks)
    }

    /// Serves a client at the worker, which has a connection for it.
    fn client(&mut self, worker: usize, pool: &Arc<Pool>, now_ms: u64) -> Checkout {
        let ticket = self.wait(worker, pool, now_ms);
        assert_eq!(self.tasks(), [(worker, TaskKind::Connect)]);
        match self.open(worker, pool, now_ms) {
            ReleaseDecision::Assign(to, checkout) if to == ticket => checkout,
            other => panic!("should be the client's: {other:?}"),
        }
    }

    fn release(&mut self, worker: usize, checkout: Checkout, now_ms: u64) -> ReleaseDecision {
        self.idle_pools[worker].release(checkout, Condition::Clean, now_ms, &mut self.tasks)
    }

    /// Returns the tasks since the last call.
    fn tasks(&mut self) -> Vec<(usize, TaskKind)> {
        let tasks = std::mem::take(&mut self.tasks);
        tasks.iter().map(|one| (one.worker, one.task)).collect()
    }
}

fn handed_to(returned: ReleaseDecision) -> WaitTicket {
    match returned {
        ReleaseDecision::Assign(ticket, _) => ticket,
        other => panic!("should be handed on: {other:?}"),
    }
}

fn closed_for(returned: &ReleaseDecision) -> CloseReason {
    match returned {
        ReleaseDecision::Close(closing) => closing.why,
        other => panic!("should be closed: {other:?}"),
    }
}

#[test]
fn an_idle_connection_of_the_own_worker_is_taken_at_once() {
    let mut scene = Scene::new(2, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    assert_eq!(scene.release(0, checkout, 1), ReleaseDecision::Idle);
    assert!(matches!(scene.borrow(0, &pool, 2), AcquireDecision::Take(one) if one.connection == 1));
    assert_eq!(scene.tasks(), []);
}

#[test]
fn an_idle_connection_elsewhere_is_asked_for_before_another_is_opened() {
    let mut scene = Scene::new(2, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    scene.release(0, checkout, 1);
    let ticket = scene.wait(1, &pool, 2);
    assert_eq!(scene.tasks(), [(0, TaskKind::HandOverIdle)]);
    let given = scene.idle_pools[0].hand_over_idle(&pool, 3, &mut scene.tasks);
    assert_eq!(given.map(|(to, _)| to), Some(ticket));
}

#[test]
fn another_is_opened_before_an_idle_connection_is_moved_if_so_preferred() {
    let preferred = PoolSettings {
        preference: Preference::New,
        ..settings()
    };
    for (size, second) in [
        (2, (1, TaskKind::Connect)),
        // The limit of the service is reached.
        (1, (0, TaskKind::HandOverIdle)),
    ] {
        let mut scene = Scene::new(size, preferred);
        let pool = scene.pool(1);
        let checkout = scene.client(0, &pool, 0);
        scene.release(0, checkout, 1);
        scene.wait(1, &pool, 2);
        assert_eq!(scene.tasks(), [second]);
    }
}

#[test]
fn a_worker_that_used_up_what_it_was_asked_for_lets_another_be_opened() {
    let mut scene = Scene::new(2, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    scene.release(0, checkout, 1);
    scene.wait(1, &pool, 2);
    assert_eq!(scene.tasks(), [(0, TaskKind::HandOverIdle)]);
    assert!(matches!(
        scene.borrow(0, &pool, 3),
        AcquireDecision::Take(_)
    ));
    let given = scene.idle_pools[0].hand_over_idle(&pool, 3, &mut scene.tasks);
    assert_eq!((given, scene.tasks()), (None, vec![(1, TaskKind::Connect)]));
}

#[test]
fn a_client_of_the_same_worker_comes_first_unless_one_elsewhere_has_waited_longer() {
    for (own_ms, released_ms, winner) in [(14, 15, 0), (15, 15, 1), (24, 44, 0), (25, 44, 1)] {
        let mut scene = Scene::new(1, settings());
        let pool = scene.pool(1);
        let checkout = scene.client(0, &pool, 0);
        let elsewhere = scene.wait(1, &pool, 10);
        let own = scene.wait(0, &pool, own_ms);
        let ReleaseDecision::Assign(first, checkout) = scene.release(0, checkout, released_ms)
        else {
            panic!("two clients wait");
        };
        assert_eq!(first, [own, elsewhere][winner], "own since {own_ms}");
        let second = scene.release(0, checkout, released_ms);
        assert!(matches!(second, ReleaseDecision::Assign(..)));
    }
}

/// Creates a busy worker 0, where a client has just started to wait, and an idle connection at
/// worker 1.
fn busy_beside_idle() -> (Scene, Arc<Pool>, Checkout, WaitTicket) {
    let mut scene = Scene::new(2, settings());
    let pool = scene.pool(1);
    let (own, other) = (scene.client(0, &pool, 0), scene.client(1, &pool, 0));
    scene.release(0, own, 9);
    let AcquireDecision::Take(own) = scene.borrow(0, &pool, 10) else {
        panic!("it is idle here");
    };
    scene.release(1, other, 10);
    let ticket = scene.wait(0, &pool, 10);
    assert_eq!(scene.tasks(), [(0, TaskKind::Recheck { at_ms: 12 })]);
    (scene, pool, own, ticket)
}

#[test]
fn a_client_waits_a_moment_where_connections_come_back_before_one_is_moved() {
    let (mut scene, pool, own, ticket) = busy_beside_idle();
    assert_eq!(handed_to(scene.release(0, own, 11)), ticket);
    scene.idle_pools[0].recheck(&pool, 12, &mut scene.tasks);
    assert_eq!(scene.tasks(), []);
}

#[test]
fn a_client_whose_moment_has_passed_gets_a_connection_from_elsewhere() {
    let (mut scene, pool, _own, ticket) = busy_beside_idle();
    scene.idle_pools[0].recheck(&pool, 12, &mut scene.tasks);
    assert_eq!(scene.tasks(), [(1, TaskKind::HandOverIdle)]);
    let given = scene.idle_pools[1].hand_over_idle(&pool, 12, &mut scene.tasks);
    assert_eq!(given.map(|(to, _)| to), Some(ticket));
}

#[test]
fn a_connection_that_comes_back_elsewhere_is_not_moved_before_the_moment_has_passed() {
    for (released_ms, is_moved) in [(11, false), (12, true)] {
        let (mut scene, pool, _own, ticket) = busy_beside_idle();
        // A client that has just arrived there takes it: no client has waited long.
        let AcquireDecision::Take(other) = scene.borrow(1, &pool, 10) else {
            panic!("it is idle there");
        };
        let moved = match scene.release(1, other, released_ms) {
            ReleaseDecision::Assign(to, _) => Some(to),
            _ => None,
        };
        assert_eq!(moved, is_moved.then_some(ticket), "at {released_ms}");
    }
}

#[test]
fn who_has_just_come_does_not_jump_the_queue_of_those_who_waited_elsewhere() {
    let mut scene = Scene::new(2, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    scene.release(0, checkout, 1);
    let first = scene.wait(1, &pool, 2);
    scene.wait(0, &pool, 7);
    let given = scene.idle_pools[0].hand_over_idle(&pool, 8, &mut scene.tasks);
    assert_eq!(given.map(|(to, _)| to), Some(first));
}

#[test]
fn an_idle_connection_of_another_pool_makes_room_under_a_shared_limit() {
    let mut scene = Scene::new(1, settings());
    let (first, second) = (scene.pool(1), scene.pool(2));
    let checkout = scene.client(0, &first, 0);
    scene.release(0, checkout, 1);
    scene.wait(1, &second, 2);
    let on_behalf = second.id;
    assert_eq!(scene.tasks(), [(0, TaskKind::Evict { on_behalf })]);
    let closing = scene.idle_pools[0].evict(&first, on_behalf, 3, &mut scene.tasks);
    let closing = closing.expect("it has an idle one");
    assert_eq!(
        (closing.why, scene.tasks()),
        (CloseReason::MakeRoom, vec![])
    );
    scene.idle_pools[0].closed(closing, 4, &mut scene.tasks);
    assert_eq!(scene.tasks(), [(1, TaskKind::Connect)]);
}

#[test]
fn a_busy_pool_gives_up_a_place_for_who_has_waited_much_longer_for_another() {
    let mut scene = Scene::new(1, settings());
    let (busy, other) = (scene.pool(1), scene.pool(2));
    let checkout = scene.client(0, &busy, 0);
    scene.wait(0, &other, 10);
    let next = scene.wait(0, &busy, 59);
    let ReleaseDecision::Assign(ticket, checkout) = scene.release(0, checkout, 60) else {
        panic!("49 ms longer is not enough");
    };
    assert_eq!(ticket, next);
    scene.wait(0, &busy, 60);
    let returned = scene.release(0, checkout, 61);
    assert_eq!(closed_for(&returned), CloseReason::MakeRoom);
}

#[test]
fn limits_of_user_database_server_and_pool_hold_each() {
    let narrow = |scope: usize| {
        let mut scene = Scene::new(9, settings());
        let limit = |of: usize| if of == scope { 1 } else { UNLIMITED };
        let limits = PoolLimits {
            pool: limit(0),
            user: limit(1),
            database: limit(2),
        };
        scene.server = Arc::new(Load::new((scope == 3).then_some(1)));
        let pool = scene.shared_pools.pool(key(1), &limits, &scene.server);
        scene.wait(0, &pool, 0);
        scene.wait(1, &pool, 0);
        scene.tasks().len()
    };
    let connects: Vec<usize> = (0..5).map(narrow).collect();
    assert_eq!(connects, [1, 1, 1, 1, 2]);
}

#[test]
fn a_full_queue_and_a_limit_of_zero_refuse_at_once() {
    let mut scene = Scene::new(1, settings());
    let pool = scene.pool(1);
    for _ in 0..3 {
        scene.wait(0, &pool, 0);
    }
    assert_eq!(
        scene.borrow(1, &pool, 0),
        AcquireDecision::Refuse(PoolRefusal::QueueFull)
    );
    let mut scene = Scene::new(0, settings());
    let pool = scene.pool(1);
    assert_eq!(
        scene.borrow(1, &pool, 0),
        AcquireDecision::Refuse(PoolRefusal::LimitIsZero)
    );
}

#[test]
fn what_comes_back_unclean_old_or_outdated_is_closed() {
    let mut scene = Scene::new(9, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    let unclean = scene.idle_pools[0].release(checkout, Condition::Unclean, 1, &mut scene.tasks);
    assert_eq!(closed_for(&unclean), CloseReason::Unclean);
    let checkout = scene.client(0, &pool, 0);
    assert_eq!(
        closed_for(&scene.release(0, checkout, 1_000)),
        CloseReason::TooOld
    );
    let checkout = scene.client(0, &pool, 0);
    assert_eq!(scene.shared_pools.retire(&pool), []);
    assert_eq!(
        closed_for(&scene.release(0, checkout, 1)),
        CloseReason::Outdated
    );
    assert_eq!(
        scene.borrow(0, &pool, 2),
        AcquireDecision::Refuse(PoolRefusal::Outdated)
    );
    assert_ne!(scene.pool(1), pool);
}

#[test]
fn a_lowered_limit_closes_what_is_over_it_and_no_more() {
    let mut scene = Scene::new(2, settings());
    let pool = scene.pool(1);
    let (one, two) = (scene.client(0, &pool, 0), scene.client(0, &pool, 0));
    scene
        .shared_pools
        .set_limit(LimitScope::Service, 1, 1, &mut scene.tasks);
    let ReleaseDecision::Close(closing) = scene.release(0, one, 2) else {
        panic!("over the limit");
    };
    assert_eq!(closing.why, CloseReason::OverLimit);
    scene.idle_pools[0].closed(closing, 2, &mut scene.tasks);
    assert_eq!(scene.release(0, two, 3), ReleaseDecision::Idle);
}

#[test]
fn upkeep_closes_the_idle_but_keeps_some_warm_and_opens_what_is_missing() {
    let warm = PoolSettings {
        min_idle: 2,
        ..settings()
    };
    let mut scene = Scene::new(9, warm);
    let pool = scene.pool(1);
    let checkouts: Vec<Checkout> = (0..3).map(|_| scene.client(0, &pool, 0)).collect();
    for checkout in checkouts {
        assert_eq!(scene.release(0, checkout, 0), ReleaseDecision::Idle);
    }
    let closing = scene.idle_pools[0].maintain(100, &mut scene.tasks);
    let closing: Vec<CloseReason> = closing.iter().map(|one| one.why).collect();
    assert_eq!(
        (closing, scene.tasks()),
        (vec![CloseReason::TooIdle], vec![])
    );
    let closing = scene.idle_pools[0].maintain(1_000, &mut scene.tasks);
    assert_eq!(closing.len(), 2);
    assert_eq!(
        scene.tasks(),
        [(0, TaskKind::Connect), (0, TaskKind::Connect)]
    );
}

#[test]
fn a_failed_connect_is_told_to_the_longest_waiting_and_the_next_one_tries() {
    let mut scene = Scene::new(1, settings());
    let pool = scene.pool(1);
    let (first, second) = (scene.wait(0, &pool, 0), scene.wait(0, &pool, 1));
    scene.tasks();
    let mut fail = |failure, now_ms| {
        let reported = scene.idle_pools[0].connect_failed(&pool, failure, now_ms, &mut scene.tasks);
        (reported, scene.tasks().len())
    };
    assert_eq!(fail(OpenFailure::Failed, 2), (Some(first), 1));
    assert_eq!(fail(OpenFailure::Full { pause_ms: 10 }, 3), (None, 0));
    assert!(
        scene.idle_pools[0]
            .maintain(12, &mut scene.tasks)
            .is_empty()
    );
    assert_eq!(scene.tasks(), []);
    assert!(
        scene.idle_pools[0]
            .maintain(13, &mut scene.tasks)
            .is_empty()
    );
    assert_eq!(scene.tasks(), [(0, TaskKind::Connect)]);
    assert_eq!(scene.shared_pools.cancel(second), CancelOutcome::Left);
}

#[test]
fn a_pool_that_nobody_has_and_no_server_opens_is_forgotten_with_its_limits() {
    let warm = PoolSettings {
        min_idle: 1,
        ..settings()
    };
    let mut scene = Scene::new(9, warm);
    let pool = scene.pool(1);
    scene.idle_pools[0].maintain(0, &mut scene.tasks);
    assert_eq!(scene.tasks(), [(0, TaskKind::Connect)]);
    scene.idle_pools[0].connect_failed(&pool, OpenFailure::Failed, 1, &mut scene.tasks);
    assert!(scene.shared_pools.limit(LimitScope::User(1)).is_some());
    drop(pool);
    scene.idle_pools[0].maintain(1_000, &mut scene.tasks);
    assert_eq!(
        (scene.tasks(), scene.shared_pools.stats()),
        (vec![], vec![])
    );
    assert!(scene.shared_pools.limit(LimitScope::User(1)).is_none());
    assert!(scene.shared_pools.limit(LimitScope::Service).is_some());
}

#[test]
fn a_paused_database_makes_its_clients_wait_until_it_is_resumed() {
    let mut scene = Scene::new(1, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    scene.shared_pools.pause(1);
    assert_eq!(scene.release(0, checkout, 1), ReleaseDecision::Idle);
    let ticket = scene.wait(0, &pool, 2);
    assert_eq!(scene.tasks(), []);
    scene.shared_pools.resume(1, 3, &mut scene.tasks);
    assert_eq!(scene.tasks(), [(0, TaskKind::HandOverIdle)]);
    let given = scene.idle_pools[0].hand_over_idle(&pool, 3, &mut scene.tasks);
    assert_eq!(given.map(|(to, _)| to), Some(ticket));
}

#[test]
fn while_everything_is_paused_all_wait_and_nothing_is_opened_for_later() {
    let warm = PoolSettings {
        min_idle: 2,
        ..settings()
    };
    let mut scene = Scene::new(9, warm);
    let pool = scene.pool(1);
    scene.shared_pools.pause_all();
    let ticket = scene.wait(0, &pool, 0);
    assert!(scene.idle_pools[0].maintain(1, &mut scene.tasks).is_empty());
    assert_eq!(scene.tasks(), []);
    assert_eq!(scene.shared_pools.cancel(ticket), CancelOutcome::Left);
    assert!(scene.idle_pools[0].maintain(2, &mut scene.tasks).is_empty());
    assert_eq!(scene.tasks(), []);
    scene.shared_pools.resume_all(3, &mut scene.tasks);
    assert!(scene.idle_pools[0].maintain(3, &mut scene.tasks).is_empty());
    assert_eq!(
        scene.tasks(),
        [(0, TaskKind::Connect), (0, TaskKind::Connect)]
    );
}

#[test]
fn a_ticket_given_up_too_late_is_answered() {
    let mut scene = Scene::new(1, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    let ticket = scene.wait(0, &pool, 1);
    assert_eq!(handed_to(scene.release(0, checkout, 2)), ticket);
    assert_eq!(scene.shared_pools.cancel(ticket), CancelOutcome::Answered);
}

#[test]
fn another_service_gets_room_at_a_server_that_both_use() {
    let mut scene = Scene::new(9, settings());
    let pool = scene.pool(1);
    assert!(
        !scene
            .shared_pools
            .evict_for_server(&scene.server, &mut scene.tasks)
    );
    let checkout = scene.client(0, &pool, 0);
    scene.release(0, checkout, 1);
    let elsewhere = Arc::new(Load::new(None));
    assert!(
        !scene
            .shared_pools
            .evict_for_server(&elsewhere, &mut scene.tasks)
    );
    assert!(
        scene
            .shared_pools
            .evict_for_server(&scene.server, &mut scene.tasks)
    );
    assert!(
        !scene
            .shared_pools
            .evict_for_server(&scene.server, &mut scene.tasks)
    );
    assert!(matches!(scene.tasks()[..], [(0, TaskKind::Evict { .. })]));
}

#[test]
fn two_limits_in_the_way_are_made_room_under_at_once() {
    let mut scene = Scene::new(9, settings());
    scene.server = Arc::new(Load::new(Some(1)));
    let elsewhere = Arc::new(Load::new(None));
    let limits = PoolLimits {
        user: 1,
        ..NO_QUOTAS
    };
    let of = |scene: &Scene, user: u64, server: u64, load: &Arc<Load>| {
        let key = PoolKey {
            server,
            ..key(user)
        };
        scene.shared_pools.pool(key, &limits, load)
    };
    // One fills the user's limit at another server, one the server's limit for another user.
    let pools = [
        of(&scene, 1, 2, &elsewhere),
        of(&scene, 2, 1, &scene.server),
    ];
    for pool in &pools {
        let checkout = scene.client(0, pool, 0);
        scene.release(0, checkout, 1);
    }
    let wanted = of(&scene, 1, 1, &scene.server);
    scene.wait(1, &wanted, 2);
    let on_behalf = wanted.id;
    assert_eq!(scene.tasks(), [(0, TaskKind::Evict { on_behalf }); 2]);
    for pool in &pools {
        let closing = scene.idle_pools[0].evict(pool, on_behalf, 3, &mut scene.tasks);
        let closing = closing.expect("it has an idle one");
        scene.idle_pools[0].closed(closing, 4, &mut scene.tasks);
    }
    assert_eq!(scene.tasks(), [(1, TaskKind::Connect)]);
}

#[test]
fn no_more_is_closed_than_there_are_clients_who_need_room() {
    let mut scene = Scene::new(3, settings());
    let (first, second) = (scene.pool(1), scene.pool(2));
    let checkouts: Vec<Checkout> = (0..3).map(|_| scene.client(0, &first, 0)).collect();
    for checkout in checkouts {
        scene.release(0, checkout, 1);
    }
    for clients in 1..3 {
        scene.wait(1, &second, 2);
        assert_eq!(scene.tasks().len(), 1, "client {clients}");
    }
}

#[test]
fn an_offer_is_accepted_when_a_client_waits_that_nothing_else_serves() {
    let mut scene = Scene::new(1, settings());
    let pool = scene.pool(1);
    let checkout = scene.client(0, &pool, 0);
    let set = |scene: &mut Scene, count, is_new| {
        scene.idle_pools[0].set_offers(&pool, count, is_new, 1, &mut scene.tasks);
    };
    let on_behalf = pool.id();
    set(&mut scene, 1, true);
    assert_eq!(scene.tasks(), []);
    let first = scene.wait(1, &pool, 2);
    scene.wait(1, &pool, 2);
    assert_eq!(scene.tasks(), [(0, TaskKind::AcceptOffer { on_behalf })]);
    scene.idle_pools[0].accept_offer(&pool);
    set(&mut scene, 0, false);
    // The session must keep the connection, and offers it again after its next statement.
    scene.idle_pools[0].offer_settled(on_behalf, 3, &mut scene.tasks);
    assert_eq!(scene.tasks(), []);
    set(&mut scene, 1, true);
    assert_eq!(scene.tasks(), [(0, TaskKind::AcceptOffer { on_behalf })]);
    scene.idle_pools[0].accept_offer(&pool);
    set(&mut scene, 0, false);
    assert_eq!(handed_to(scene.release(0, checkout, 9)), first);
}

#[test]
fn an_offer_of_another_pool_is_accepted_for_its_permit() {
    let mut scene = Scene::new(1, settings());
    let (own, other) = (scene.pool(1), scene.pool(2));
    let checkout = scene.client(0, &other, 0);
    scene.idle_pools[0].set_offers(&other, 1, true, 1, &mut scene.tasks);
    scene.wait(1, &own, 2);
    let on_behalf = own.id();
    assert_eq!(scene.tasks(), [(0, TaskKind::AcceptOffer { on_behalf })]);
    scene.idle_pools[0].accept_offer(&other);
    scene.idle_pools[0].set_offers(&other, 0, false, 3, &mut scene.tasks);
    let released = scene.release(0, checkout, 60);
    assert_eq!(closed_for(&released), CloseReason::MakeRoom);
}
