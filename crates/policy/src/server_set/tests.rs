//! Tests of the snapshot: refusals, the tier in use, and the set of tried servers.

use super::*;

fn members(count: u64) -> Vec<Member> {
    let member = |id| Member {
        id,
        weight: 10,
        backup: false,
        accepting: true,
        load: Arc::new(Load::new(Some(1))),
    };
    (0..count).map(member).collect()
}

fn pick(members: &[Member], tried: &[usize]) -> Pick {
    let mut set = MemberSet::none();
    tried.iter().for_each(|&index| set.insert(index));
    let pool = ServerSet::new(Algorithm::First, members.to_vec(), Arc::default());
    pool.pick(&PickRequest {
        key: 0,
        tried: &set,
        random: 0,
        now_us: 0,
    })
}

#[test]
fn a_pool_without_servers_has_none_up() {
    assert_eq!(pick(&[], &[]), Pick::NoneUp);
}

#[test]
fn a_client_that_tried_all_has_none_left_unless_an_untried_one_is_full() {
    let members = members(2);
    assert_eq!(pick(&members, &[0, 1]), Pick::NoneUp);
    assert_eq!(pick(&members, &[0]), Pick::Server(1));
    assert_eq!(pick(&members, &[0]), Pick::AllFull);
}

#[test]
fn servers_clients_are_sent_to_are_counted_full_or_not() {
    let mut members = members(4);
    members[3].backup = true;
    members[0].accepting = false;
    assert!(members[1].load.try_reserve());
    let count = |members: &[Member]| {
        ServerSet::new(Algorithm::Source, members.to_vec(), Arc::default()).eligible_count()
    };
    assert_eq!(count(&members), 2);
    members[1].weight = 0;
    members[2].accepting = false;
    assert_eq!(count(&members), 1, "the backup");
}

#[test]
fn turns_go_on_where_the_last_snapshot_stopped() {
    let members = members(3);
    members
        .iter()
        .for_each(|member| member.load.set_max_connections(None));
    let cursor = Arc::new(RotationCursor::default());
    let picks: Vec<Pick> = (0..6)
        .map(|_| {
            let pool = ServerSet::new(Algorithm::RoundRobin, members.clone(), cursor.clone());
            pool.pick(&PickRequest {
                key: 0,
                tried: &MemberSet::none(),
                random: 0,
                now_us: 0,
            })
        })
        .collect();
    assert_eq!(picks, [0, 1, 2, 0, 1, 2].map(Pick::Server));
}

#[test]
fn tried_holds_any_index() {
    let mut tried = MemberSet::none();
    for index in [0, 63, 64, 5_000] {
        assert!(!tried.contains(index));
        tried.insert(index);
        tried.insert(index);
        assert!(tried.contains(index));
    }
    assert!(!tried.contains(1) && !tried.contains(65));
}
