//! Limits that change while there are pools.

use super::*;

fn quotas(pool: u32, user: u32) -> PoolLimits {
    PoolLimits {
        pool,
        user,
        database: UNLIMITED,
    }
}

#[test]
fn a_raised_limit_of_a_pool_holds_for_those_who_wait_already() {
    let mut scene = Scene::new(9, settings());
    let (pool, other) = (scene.pool(1), scene.pool(2));
    scene
        .shared_pools
        .set_pool_limits(&pool, &quotas(1, UNLIMITED));
    let _kept = scene.client(0, &pool, 0);
    scene.wait(0, &pool, 0);
    assert_eq!(scene.tasks(), []);
    scene.shared_pools.set_pool_limits(&other, &quotas(9, 9));
    scene.shared_pools.serve(1, &mut scene.tasks);
    assert_eq!(scene.tasks(), []);
    scene
        .shared_pools
        .set_pool_limits(&pool, &quotas(2, UNLIMITED));
    scene.shared_pools.serve(1, &mut scene.tasks);
    assert_eq!(scene.tasks(), [(0, TaskKind::Connect)]);
}

#[test]
fn what_is_over_a_lowered_limit_of_a_user_closes_as_it_comes_back() {
    let mut scene = Scene::new(9, settings());
    let pool = scene.pool(1);
    let [first, second] = [0, 0].map(|worker| scene.client(worker, &pool, 0));
    scene
        .shared_pools
        .set_pool_limits(&pool, &quotas(UNLIMITED, 1));
    scene.shared_pools.serve(1, &mut scene.tasks);
    let returned = scene.release(0, first, 2);
    assert_eq!(closed_for(&returned), CloseReason::OverLimit);
    if let ReleaseDecision::Close(closing) = returned {
        scene.idle_pools[0].closed(closing, 2, &mut scene.tasks);
    }
    assert_eq!(scene.release(0, second, 3), ReleaseDecision::Idle);
}
