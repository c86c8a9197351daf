//! Laws for all algorithms. They run over `Algorithm::ALL`, so a new algorithm is tested
//! automatically.

use std::collections::BinaryHeap;
use std::sync::Arc;

use super::Algorithm;
use crate::ramp::WEIGHT_SCALE;
use crate::{Load, Member, MemberSet, Pick, PickRequest, RotationCursor, ServerSet};

/// Pseudorandom numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let high = self.0 ^ (self.0 >> 29);
        high.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.roll() >> 16) % limit
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

fn member(id: u64, weight: u32) -> Member {
    Member {
        id,
        weight: weight * WEIGHT_SCALE,
        backup: false,
        accepting: true,
        load: Arc::new(Load::new(None)),
    }
}

/// Returns a random pool: down, draining, weightless, backup, full, half full, measured or not.
fn any_members(dice: &mut Dice) -> Vec<Member> {
    let count = dice.below(9);
    let any_member = |id| {
        let weight = [0, 1, 1, 3, 10, 997][dice.below(6) as usize];
        let load = Load::new([None, Some(0), Some(2), Some(5)][dice.below(4) as usize]);
        for _ in 0..dice.below(6) {
            load.try_reserve();
        }
        if dice.one_in(2) {
            load.observe_latency(1, dice.below(50_000));
        }
        Member {
            id,
            weight,
            backup: dice.one_in(3),
            accepting: !dice.one_in(3),
            load: Arc::new(load),
        }
    };
    (0..count).map(any_member).collect()
}

fn any_tried(dice: &mut Dice, count: usize) -> MemberSet {
    let mut tried = MemberSet::none();
    for index in 0..count {
        if dice.one_in(4) {
            tried.insert(index);
        }
    }
    tried
}

/// Returns the servers that may be picked, and the result if there is none: a plain implementation
/// of the rules.
fn rules(members: &[Member], tried: &MemberSet) -> (Vec<usize>, Pick) {
    let taking = |index: &usize| members[*index].accepting && members[*index].weight > 0;
    let all: Vec<usize> = (0..members.len()).filter(taking).collect();
    let no_primary = all.iter().all(|&index| members[index].backup);
    let tier = all
        .iter()
        .copied()
        .filter(|&index| no_primary || !members[index].backup);
    let untried: Vec<usize> = tier.filter(|&index| !tried.contains(index)).collect();
    let refusal = if untried.is_empty() {
        Pick::NoneUp
    } else {
        Pick::AllFull
    };
    let open = untried
        .into_iter()
        .filter(|&index| !members[index].load.is_full());
    (open.collect(), refusal)
}

#[test]
fn only_a_server_that_takes_this_client_is_picked_and_none_only_if_there_is_none() {
    for &algorithm in Algorithm::ALL {
        for seed in 0..3_000 {
            let mut dice = Dice(seed);
            let members = any_members(&mut dice);
            let pool = ServerSet::new(
                algorithm,
                members.clone(),
                Arc::new(RotationCursor::default()),
            );
            for round in 0..6 {
                let tried = any_tried(&mut dice, members.len());
                let (open, refusal) = rules(&members, &tried);
                let active: u32 = members.iter().map(|member| member.load.active()).sum();
                let request = PickRequest {
                    key: dice.roll(),
                    tried: &tried,
                    random: dice.roll(),
                    now_us: 1_000 + round,
                };
                let pick = pool.pick(&request);
                let now_active: u32 = members.iter().map(|member| member.load.active()).sum();
                let context =
                    format!("{algorithm}, seed {seed}, round {round}: {members:?} {tried:?}");
                match pick {
                    Pick::Server(index) => {
                        assert!(open.contains(&index), "{index} is closed; {context}");
                        assert_eq!(now_active, active + 1, "one reservation; {context}");
                    }
                    none => {
                        assert!(
                            open.is_empty(),
                            "{none:?} though {open:?} are open; {context}"
                        );
                        assert_eq!(none, refusal, "{context}");
                        assert_eq!(now_active, active, "no reservation; {context}");
                    }
                }
            }
        }
    }
}

/// Simulates clients that arrive one by one and stay for a random time, `together` of them on
/// average. All servers are equally fast. Returns each server's share of the clients.
fn shares(algorithm: Algorithm, members: &[Member], together: u64) -> Vec<f64> {
    const CLIENTS: u64 = 40_000;
    let mut dice = Dice(7);
    let pool = ServerSet::new(
        algorithm,
        members.to_vec(),
        Arc::new(RotationCursor::default()),
    );
    let mut leaving = BinaryHeap::new();
    let mut counts = vec![0_u64; members.len()];
    for now in 0..CLIENTS {
        while let Some(&(std::cmp::Reverse(at), index)) = leaving.peek()
            && at <= now
        {
            leaving.pop();
            let _: &usize = &index;
            members[index].load.release();
        }
        let request = PickRequest {
            key: dice.roll(),
            tried: &MemberSet::none(),
            random: dice.roll(),
            now_us: now * 1_000,
        };
        let Pick::Server(index) = pool.pick(&request) else {
            panic!("{algorithm}: no server for client {now}");
        };
        counts[index] += 1;
        members[index].load.observe_latency(now * 1_000, 1_000);
        leaving.push((std::cmp::Reverse(now + 1 + dice.below(together * 2)), index));
    }
    counts
        .iter()
        .map(|&count| count as f64 / CLIENTS as f64)
        .collect()
}

/// Returns the algorithms that respect weights: all except `first`, which has no shares.
fn weighing() -> impl Iterator<Item = Algorithm> {
    let all = Algorithm::ALL.iter().copied();
    all.filter(|&algorithm| algorithm != Algorithm::First)
}

#[track_caller]
fn check_shares(algorithm: Algorithm, members: &[Member], together: u64) {
    let taking = |member: &Member| !member.load.is_full();
    let weight = |member: &Member| f64::from(member.weight) * f64::from(u8::from(taking(member)));
    let expect: Vec<f64> = members.iter().map(weight).collect();
    let total: f64 = expect.iter().sum();
    let shares = shares(algorithm, members, together);
    for (share, weight) in shares.iter().zip(&expect) {
        let due = weight / total;
        // Tolerance: 5 % of the due share, plus 0.5 % of the clients for chance.
        let tolerance = due * 0.05 + 0.005;
        let off = (share - due).abs();
        assert!(
            off <= tolerance,
            "{algorithm}: due {due:.4}, has {share:.4} of {shares:.4?}"
        );
    }
}

#[test]
fn equal_servers_get_equal_shares_however_few_clients_there_are() {
    for algorithm in weighing() {
        for together in [1, 3, 200] {
            let members: Vec<Member> = (0..5).map(|id| member(id, 1)).collect();
            check_shares(algorithm, &members, together);
        }
    }
}

#[test]
fn shares_follow_the_weights() {
    for algorithm in weighing() {
        let weights = [1, 2, 3, 4].into_iter().enumerate();
        let members: Vec<Member> = weights
            .map(|(id, weight)| member(id as u64, weight))
            .collect();
        check_shares(algorithm, &members, 200);
    }
}

#[test]
fn a_full_servers_share_is_inherited_in_proportion() {
    for algorithm in weighing() {
        let weights = [2, 3, 1, 4].into_iter().enumerate();
        let members: Vec<Member> = weights
            .map(|(id, weight)| member(id as u64, weight))
            .collect();
        members[1].load.set_max_connections(Some(0));
        check_shares(algorithm, &members, 200);
    }
}

#[test]
fn backups_serve_only_while_no_primary_takes_clients() {
    for &algorithm in Algorithm::ALL {
        let mut members: Vec<Member> = (0..4).map(|id| member(id, 1)).collect();
        members[2].backup = true;
        members[3].backup = true;
        members[1].accepting = false;
        let pick = |members: &[Member]| {
            let pool = ServerSet::new(
                algorithm,
                members.to_vec(),
                Arc::new(RotationCursor::default()),
            );
            pool.pick(&PickRequest {
                key: 5,
                tried: &MemberSet::none(),
                random: 5,
                now_us: 5,
            })
        };
        assert_eq!(pick(&members), Pick::Server(0), "{algorithm}");
        members[0].load.set_max_connections(Some(1));
        assert_eq!(
            pick(&members),
            Pick::AllFull,
            "{algorithm}: full is not down"
        );
        members[0].weight = 0;
        assert!(matches!(pick(&members), Pick::Server(2 | 3)), "{algorithm}");
    }
}

#[test]
fn workers_picking_at_once_never_exceed_a_limit_and_lose_no_place() {
    for &algorithm in Algorithm::ALL {
        let members: Vec<Member> = (0..4).map(|id| member(id, 1 + id as u32)).collect();
        for server in &members {
            server.load.set_max_connections(Some(50));
        }
        let pool = ServerSet::new(algorithm, members, Arc::new(RotationCursor::default()));
        let picked = std::thread::scope(|scope| {
            let worker = |seed| {
                let pool = &pool;
                scope.spawn(move || {
                    let mut dice = Dice(seed);
                    let count = |_: &u64| {
                        let (key, random) = (dice.roll(), dice.roll());
                        let tried = &MemberSet::none();
                        pool.pick(&PickRequest {
                            key,
                            tried,
                            random,
                            now_us: 1,
                        }) != Pick::AllFull
                    };
                    (0..100).filter(count).count()
                })
            };
            let workers: Vec<_> = (0..8).map(worker).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("no panic"))
                .sum::<usize>()
        });
        assert_eq!(picked, 200, "{algorithm}: 800 clients, 200 places");
        assert!(
            pool.members()
                .iter()
                .all(|member| member.load.active() == 50),
            "{algorithm}"
        );
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    for &algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
    }
    let error = "leastconn".parse::<Algorithm>().expect_err("no such name");
    assert!(error.to_string().contains("least-connections"), "{error}");
}
