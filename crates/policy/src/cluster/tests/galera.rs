//! Galera: one writer at a time, the first that is able to, without failback.

use super::*;

fn trio() -> Bench {
    let mut bench = Bench::new(3);
    let roles = bench.report_all_twice(&[(3, node()), (2, node()), (1, node())]);
    assert_eq!(
        roles.primary,
        Some(1),
        "the order of the configuration, not of the answers"
    );
    bench
}

#[test]
fn the_first_synced_node_writes_and_the_others_read() {
    let mut bench = trio();
    let roles = bench.report(2, node());
    assert_replica(&roles, 2, Some(0));
    assert_replica(&roles, 3, Some(0));
    assert_eq!(roles.problems, vec![]);
}

#[test]
fn the_writer_stays_when_an_earlier_node_comes_back() {
    let mut bench = trio();
    assert_eq!(bench.server_down(1).primary, Some(2));
    bench.report(1, node());
    let roles = bench.report_on_new_connection(1, node());
    assert_eq!(roles.primary, Some(2));
    assert_replica(&roles, 1, Some(0));
    assert_eq!(
        bench.override_primary(1).primary,
        Some(1),
        "an operator may move it"
    );
}

#[test]
fn a_node_that_cannot_serve_is_unfit() {
    type Hurt = fn(&mut Galera);
    let table: [(Hurt, &str); 5] = [
        (|node| node.in_primary_component = false, "no quorum"),
        (
            |node| node.state = GaleraState::Joining,
            "state transfer not complete",
        ),
        (|node| node.ready = false, "wsrep_ready"),
        (|node| node.set_aside = true, "taken out of service"),
        (
            |node| node.cluster_uuid = "other".to_owned(),
            "another cluster: it reports Galera cluster other",
        ),
    ];
    for (hurt, because) in table {
        let mut bench = trio();
        let mut hurt_node = node();
        hurt(&mut hurt_node);
        let roles = bench.report(1, hurt_node);
        assert_unfit(&roles, 1, because);
        assert_eq!(roles.primary, Some(2), "{because}");
    }
}

#[test]
fn a_node_that_is_behind_the_others_serves_only_for_want_of_them() {
    for (state, because) in [
        (GaleraState::Donor, "donor for a joining node"),
        (GaleraState::Joined, "still catching up"),
    ] {
        let behind = Galera { state, ..node() };
        let mut bench = trio();
        let roles = bench.report(1, behind.clone());
        assert_eq!(roles.primary, Some(2), "{because}");
        match role(&roles, 1) {
            Role::Spare(why) => assert!(why.contains(because), "{why}"),
            other => panic!("{other:?}"),
        }
        bench.server_down(3);
        assert_eq!(bench.server_down(2).primary, Some(1), "{because}");

        let mut bench = trio();
        bench.server_down(2);
        bench.server_down(3);
        let roles = bench.report(1, behind);
        assert_eq!(roles.primary, Some(1), "the only one goes on: {because}");
    }
}

#[test]
fn a_node_that_closed_the_connection_and_is_silent_gives_way_until_it_answers() {
    let mut bench = trio();
    bench.cluster.server_unresponsive(1);
    let roles = bench.cluster.roles();
    assert_eq!(roles.primary, Some(2));
    assert_unfit(&roles, 1, "does not respond");
    let roles = bench.report(1, node());
    assert_eq!(roles.primary, Some(2), "no failback");
    assert_replica(&roles, 1, Some(0));
}

#[test]
fn the_others_serve_reads_while_the_next_writer_is_asked_again() {
    let mut bench = Bench::new(3);
    for id in [1, 2, 3] {
        bench.report(id, node());
    }
    bench.report_on_new_connection(1, node());
    let roles = bench.server_down(1);
    assert_eq!((roles.primary, roles.verify), (None, vec![2]));
    let roles = bench.cluster.roles();
    assert_replica(&roles, 2, Some(0));
    assert_replica(&roles, 3, Some(0));
}

#[test]
fn a_read_only_node_reads_and_never_writes() {
    let mut bench = trio();
    let reader = Galera {
        read_only: true,
        ..node()
    };
    let roles = bench.report(1, reader);
    assert_eq!(roles.primary, Some(2));
    assert_replica(&roles, 1, Some(0));
}

#[test]
fn a_joiner_without_a_state_is_not_a_stranger() {
    let mut bench = trio();
    let joiner = Galera {
        cluster_uuid: "00000000-0000-0000-0000-000000000000".to_owned(),
        state: GaleraState::Joining,
        in_primary_component: false,
        ..node()
    };
    let roles = bench.report(3, joiner);
    assert_unfit(&roles, 3, "no quorum");
    assert_eq!(roles.problems, vec![]);
}

#[test]
fn what_is_under_way_at_a_node_may_end_as_long_as_the_node_goes_on() {
    type Change = fn(&mut Galera);
    let table: [(Change, bool); 6] = [
        (|node| node.state = GaleraState::Donor, true),
        (|node| node.set_aside = true, true),
        (|node| node.read_only = true, true),
        (|node| node.in_primary_component = false, false),
        (|node| node.ready = false, false),
        (|node| node.state = GaleraState::Joining, false),
    ];
    for (change, may_finish) in table {
        let mut bench = trio();
        let mut changed = node();
        change(&mut changed);
        bench.report(1, changed.clone());
        assert_eq!(bench.cluster.may_finish(1), may_finish, "{changed:?}");
        bench.cluster.server_unresponsive(1);
        assert!(!bench.cluster.may_finish(1), "silent");
    }
    let mut bench = trio();
    assert!(bench.cluster.may_finish(1));
    bench.server_down(1);
    assert!(!bench.cluster.may_finish(1), "down");
}
