//! Group Replication: the group elects, quorum and views decide.

use super::*;

fn trio() -> Bench {
    let mut bench = Bench::new(3);
    let words = [
        (1, group_member(1, true, 5)),
        (2, group_member(2, false, 5)),
        (3, group_member(3, false, 5)),
    ];
    assert_eq!(bench.report_all_twice(&words).primary, Some(1));
    bench
}

#[test]
fn the_elected_member_writes_and_the_others_read() {
    let mut bench = trio();
    let roles = bench.report(2, group_member(2, false, 5));
    assert_replica(&roles, 2, Some(5));
    assert_eq!(roles.problems, vec![]);
}

#[test]
fn a_member_without_quorum_is_unfit_whatever_it_claims() {
    let mut bench = trio();
    for (reachable, members) in [(1, 3), (2, 4), (0, 0)] {
        let cut_off = Group {
            members,
            members_reachable: reachable,
            ..group_member(1, true, 5)
        };
        let roles = bench.report(1, cut_off);
        assert_eq!(roles.primary, None);
        assert_unfit(
            &roles,
            1,
            &format!("no quorum: sees only {reachable} of {members} members"),
        );
    }
}

#[test]
fn states_other_than_online_are_unfit() {
    let table = [
        (MemberState::Recovering, "catching up"),
        (MemberState::Offline, "is not running"),
        (MemberState::Error, "expelled"),
        (MemberState::Unreachable, "suspected"),
    ];
    for (state, because) in table {
        let mut bench = trio();
        let member = Group {
            state,
            ..group_member(1, true, 5)
        };
        let roles = bench.report(1, member);
        assert_eq!(roles.primary, None);
        assert_unfit(&roles, 1, because);
    }
}

#[test]
fn the_only_primary_of_a_later_view_succeeds_one_that_cannot_be_asked() {
    let mut bench = trio();
    let roles = bench.report(2, group_member(2, true, 6));
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![2]));
    let roles = bench.report_on_new_connection(2, group_member(2, true, 6));
    assert_eq!(roles.primary, Some(2));
    assert_unfit(
        &roles,
        1,
        "db2 is the only primary since view 6 of the group",
    );
    assert_eq!(roles.problems, vec![], "it may not have heard yet");
    let roles = bench.report(1, group_member(1, true, 5));
    assert_eq!(roles.primary, Some(2));
    assert_problem(&roles, Some(1), "outdated member");
}

#[test]
fn where_several_may_write_the_later_view_wins_once_the_other_was_asked_again() {
    let of_several = |id, view| Group {
        primaries: 2,
        ..group_member(id, true, view)
    };
    let mut bench = trio();
    bench.report(2, of_several(2, 6));
    let roles = bench.report_on_new_connection(2, of_several(2, 6));
    assert_eq!((roles.primary, roles.verify), (Some(1), vec![1]));
    let roles = bench.report(1, of_several(1, 5));
    assert_eq!(roles.primary, Some(2));
    assert_unfit(
        &roles,
        1,
        "in view 5 of the group, but db2 is primary in view 6",
    );
    assert_problem(&roles, Some(1), "outdated member");
}

#[test]
fn in_a_group_of_several_primaries_the_current_one_stays() {
    let of_several = |id, view| Group {
        primaries: 3,
        ..group_member(id, true, view)
    };
    let mut bench = trio();
    for view in [5, 6, 7] {
        for id in [2, 3, 1] {
            bench.report(id, of_several(id, view));
            let roles = bench.report_on_new_connection(id, of_several(id, view));
            assert_eq!(roles.primary, Some(1), "view {view}, db{id}");
            assert_eq!(roles.problems, vec![]);
        }
    }
    let roles = bench.server_down(1);
    assert_eq!(roles.primary, Some(2));
    assert_replica(&roles, 3, Some(5));
    assert_eq!(bench.override_primary(3).primary, Some(3));
}

#[test]
fn a_group_that_was_bootstrapped_twice_has_no_primary_until_one_is_named() {
    let alone = |id| Group {
        members: 1,
        members_reachable: 1,
        ..group_member(id, true, 1)
    };
    let mut bench = Bench::new(2);
    let roles = bench.report_all_twice(&[(1, alone(1)), (2, alone(2))]);
    assert_eq!(roles.primary, None);
    assert_problem(&roles, None, "bootstrapped twice");
    assert_eq!(bench.override_primary(2).primary, Some(2));
}

#[test]
fn a_group_that_was_bootstrapped_anew_beside_the_old_one_is_a_tie_whatever_its_view() {
    let anew = |view| Group {
        incarnation: "17999999999999999".to_owned(),
        members: 1,
        members_reachable: 1,
        ..group_member(3, true, view)
    };
    for view in [1, 5, 9] {
        let mut bench = trio();
        bench.report(3, anew(view));
        let roles = bench.report_on_new_connection(3, anew(view));
        assert_eq!(
            (roles.primary, roles.verify),
            (Some(1), vec![1]),
            "db1 may have left its group since it was asked"
        );
        let roles = bench.report(1, group_member(1, true, 5));
        assert_eq!(roles.primary, None, "view {view}");
        assert_problem(
            &roles,
            None,
            &format!("(views: 17952095631563150:5, 17999999999999999:{view})"),
        );
        assert_eq!(bench.override_primary(3).primary, Some(3));
    }
}

#[test]
fn a_member_that_is_of_another_incarnation_of_the_group_is_verified_again() {
    let mut bench = trio();
    let anew = Group {
        incarnation: "17999999999999999".to_owned(),
        ..group_member(1, true, 5)
    };
    let roles = bench.report_on_new_connection(1, anew.clone());
    assert_eq!((roles.primary, roles.verify), (None, vec![1]));
    assert_eq!(bench.report_on_new_connection(1, anew).primary, Some(1));
}
