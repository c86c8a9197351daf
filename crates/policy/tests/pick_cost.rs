//! Measures what one pick and one new snapshot cost with 10,000 servers, by algorithm:
//! `cargo test --release -p evenkeel-policy --test pick_cost -- --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_policy::balance::Algorithm;
use evenkeel_policy::load::Load;
use evenkeel_policy::server_set::{
    Member, MemberSet, Pick, PickRequest, RotationCursor, ServerSet,
};

const SERVERS: u64 = 10_000;
const PICKS: u64 = 100;
const ROUNDS: u64 = 20;

/// Limit for a pick, for builds without optimization on a busy machine too. A look at each server
/// takes a millisecond there.
const PICK_LIMIT: Duration = Duration::from_micros(200);

fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ (value >> 29)
}

fn members() -> Vec<Member> {
    let member = |number: u64| Member {
        id: mixed(number),
        weight: 10,
        backup: false,
        accepting: true,
        load: Arc::new(Load::new(Some(1_000))),
    };
    let members: Vec<_> = (0..SERVERS).map(member).collect();
    for (number, member) in members.iter().enumerate() {
        member.load.observe_latency(1, 1_000 + number as u64 % 97);
        for _ in 0..number % 5 {
            member.load.try_reserve();
        }
    }
    members
}

/// Returns the time of a pick in the fastest of several rounds: others may use the processor.
fn pick_time(set: &ServerSet) -> Duration {
    let round = |round: u64| {
        let began = Instant::now();
        for number in round * PICKS..(round + 1) * PICKS {
            let request = PickRequest {
                key: mixed(number),
                tried: &MemberSet::none(),
                random: mixed(number),
                now_us: 1_000 + number,
            };
            match set.pick(&request) {
                Pick::Server(index) => set.members()[index].load.release(),
                none => panic!("{none:?}"),
            }
        }
        began.elapsed() / PICKS as u32
    };
    (0..ROUNDS).map(round).min().unwrap_or_default()
}

/// TO SEE THIS RED: examine all servers in `least_connections.rs`.
#[test]
fn a_pick_among_ten_thousand_servers_looks_at_few_of_them() {
    for &algorithm in Algorithm::ALL {
        let members = members();
        let began = Instant::now();
        let set = ServerSet::new(algorithm, members, Arc::new(RotationCursor::default()));
        let built = began.elapsed();
        let pick = pick_time(&set);
        println!("{algorithm}: {pick:?} a pick, {built:?} for a snapshot");
        assert!(pick < PICK_LIMIT, "{algorithm}: {pick:?}");
    }
}
