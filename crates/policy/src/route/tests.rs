//! Tests of decisions: a table of statements and targets, and laws over all combinations of
//! properties.

use super::*;

const SPLIT: SplitSettings = SplitSettings {
    reads: true,
    primary_reads: true,
};

const VIEW: ServerAvailability = ServerAvailability {
    primary: Some(0),
    replicas: 2,
    replicas_fresh: 1,
};

const READ: RoutedStatement = RoutedStatement {
    kind: StatementClass::Read,
    traits: RoutingTraits::NONE,
    calls: Volatility::None,
};

const KINDS: [StatementClass; 14] = [
    StatementClass::Empty,
    StatementClass::Read,
    StatementClass::Write,
    StatementClass::Ddl,
    StatementClass::Begin(READ_WRITE),
    StatementClass::Begin(READ_ONLY),
    StatementClass::EndTransaction,
    StatementClass::Setting,
    StatementClass::Session,
    StatementClass::Lock,
    StatementClass::Asks,
    StatementClass::Server,
    StatementClass::Routine,
    StatementClass::Unknown,
];

const CALLS: [Volatility; 5] = [
    Volatility::None,
    Volatility::Immutable,
    Volatility::Stable,
    Volatility::Volatile,
    Volatility::Unknown,
];

const HINTS: [Option<ResolvedHint>; 5] = [
    None,
    Some(ResolvedHint::Primary),
    Some(ResolvedHint::Replica),
    Some(ResolvedHint::Server(Some(1))),
    Some(ResolvedHint::Server(None)),
];

const READ_WRITE: TransactionModes = TransactionModes {
    read_only: None,
    isolation: None,
};

const READ_ONLY: TransactionModes = TransactionModes {
    read_only: Some(true),
    isolation: None,
};

const SERIALIZABLE: TransactionModes = TransactionModes {
    read_only: Some(true),
    isolation: Some(Isolation::Serializable),
};

const READERS: RouteTarget = RouteTarget::Readers { and_primary: true };
const REPLICAS: RouteTarget = RouteTarget::Readers { and_primary: false };

fn of(kind: StatementClass) -> RoutedStatement {
    RoutedStatement { kind, ..READ }
}

fn with(traits: RoutingTraits) -> RoutedStatement {
    RoutedStatement { traits, ..READ }
}

fn calling(calls: Volatility) -> RoutedStatement {
    RoutedStatement { calls, ..READ }
}

fn unit(statements: &[RoutedStatement]) -> RoutingUnit<'_> {
    RoutingUnit {
        statements,
        hint: None,
        rule: None,
    }
}

fn target(statements: &[RoutedStatement], session: &SessionContext) -> RouteTarget {
    decide(&unit(statements), session, &SPLIT, &VIEW).target
}

fn plain(statements: &[RoutedStatement]) -> RouteTarget {
    target(statements, &SessionContext::default())
}

#[test]
fn reads_go_to_the_readers_and_all_else_to_the_primary() {
    let readers = [
        StatementClass::Empty,
        StatementClass::Read,
        StatementClass::Setting,
        StatementClass::EndTransaction,
        StatementClass::Begin(READ_ONLY),
    ];
    for kind in KINDS {
        let expected = match readers.contains(&kind) {
            true => READERS,
            false => RouteTarget::Primary,
        };
        assert_eq!(plain(&[of(kind)]), expected, "{kind:?}");
    }
}

#[test]
fn every_trait_but_the_catalogs_keeps_a_read_at_the_primary() {
    for (traits, obstacle) in TRAITS {
        let decision = decide(
            &unit(&[with(*traits)]),
            &SessionContext::default(),
            &SPLIT,
            &VIEW,
        );
        assert_eq!(decision.target, RouteTarget::Primary, "{traits:?}");
        assert_eq!(Some(decision.why), obstacle.map(|one| one.why));
    }
    assert_eq!(plain(&[with(RoutingTraits::CATALOG)]), READERS);
}

#[test]
fn volatile_and_unknown_functions_go_to_the_primary() {
    let targets = CALLS.map(|calls| plain(&[calling(calls)]));
    let expected = [
        READERS,
        READERS,
        READERS,
        RouteTarget::Primary,
        RouteTarget::Primary,
    ];
    assert_eq!(targets, expected);
    use Volatility::{Stable, Volatile};
    assert_eq!(Volatility::worst([Volatile, Stable]), Volatile);
    assert_eq!(Volatility::worst([]), Volatility::None);
}

#[test]
fn several_statements_go_as_one() {
    let (read, write) = (READ, of(StatementClass::Write));
    assert_eq!(plain(&[read, read]), READERS);
    assert_eq!(plain(&[read, write, read]), RouteTarget::Primary);
    let begin = |modes| of(StatementClass::Begin(modes));
    let end = of(StatementClass::EndTransaction);
    assert_eq!(plain(&[begin(READ_ONLY), read, end]), READERS);
    assert_eq!(plain(&[begin(READ_WRITE), read, end]), RouteTarget::Primary);
    assert_eq!(
        plain(&[of(StatementClass::Setting), write]),
        RouteTarget::Primary
    );
}

#[test]
fn transactions_go_to_a_replica_only_if_read_only_and_not_serializable() {
    let plain = TransactionModes::default();
    for (modes, defaults, expected) in [
        (READ_WRITE, plain, RouteTarget::Primary),
        (READ_ONLY, plain, READERS),
        (SERIALIZABLE, plain, RouteTarget::Primary),
        (READ_WRITE, READ_ONLY, READERS),
        (READ_ONLY, SERIALIZABLE, RouteTarget::Primary),
    ] {
        let session = SessionContext {
            defaults,
            ..SessionContext::default()
        };
        assert_eq!(
            target(&[of(StatementClass::Begin(modes))], &session),
            expected
        );
    }
}

#[test]
fn sessions_that_begin_transactions_unasked_stay_at_the_primary() {
    let manual = SessionContext {
        autocommit: false,
        ..SessionContext::default()
    };
    assert_eq!(target(&[READ], &manual), RouteTarget::Primary);
    let read_only = SessionContext {
        defaults: READ_ONLY,
        ..manual
    };
    assert_eq!(target(&[READ], &read_only), READERS);
    let serializable = SessionContext {
        defaults: SERIALIZABLE,
        ..SessionContext::default()
    };
    assert_eq!(target(&[READ], &serializable), RouteTarget::Primary);
}

#[test]
fn after_ddl_the_catalog_and_functions_are_looked_up_at_the_primary() {
    let session = SessionContext {
        changed_catalog: true,
        ..SessionContext::default()
    };
    let of_catalog = with(RoutingTraits::CATALOG);
    assert_eq!(target(&[of_catalog], &session), RouteTarget::Primary);
    let stable = calling(Volatility::Stable);
    assert_eq!(target(&[stable], &session), RouteTarget::Primary);
    assert_eq!(target(&[READ], &session), READERS);
}

#[test]
fn hints_choose_but_never_send_a_write_to_a_replica() {
    let hinted = |statement: RoutedStatement, hint| {
        let unit = RoutingUnit {
            statements: &[statement],
            hint,
            rule: None,
        };
        decide(&unit, &SessionContext::default(), &SPLIT, &VIEW).target
    };
    let server = RouteTarget::Server(1);
    let of_reads = [
        READERS,
        RouteTarget::Primary,
        REPLICAS,
        server,
        RouteTarget::Primary,
    ];
    assert_eq!(HINTS.map(|hint| hinted(READ, hint)), of_reads);
    let volatile = calling(Volatility::Volatile);
    assert_eq!(hinted(volatile, Some(ResolvedHint::Replica)), REPLICAS);
    for hint in HINTS {
        assert_eq!(
            hinted(of(StatementClass::Write), hint),
            RouteTarget::Primary,
            "{hint:?}"
        );
        let locking = with(RoutingTraits::LOCKS_ROWS);
        assert_eq!(hinted(locking, hint), RouteTarget::Primary, "{hint:?}");
    }
}

#[test]
fn a_read_that_no_replica_may_answer_goes_to_the_primary() {
    let decide = |statement, view| {
        let decision = decide(
            &unit(&[statement]),
            &SessionContext::default(),
            &SPLIT,
            &view,
        );
        (decision.target, decision.is_read)
    };
    let stale = ServerAvailability {
        replicas_fresh: 0,
        ..VIEW
    };
    let none = ServerAvailability {
        replicas: 0,
        replicas_fresh: 0,
        ..VIEW
    };
    assert_eq!(decide(READ, stale), (RouteTarget::Primary, true));
    assert_eq!(decide(READ, none), (RouteTarget::Primary, true));
    assert_eq!(decide(of(StatementClass::Setting), stale), (READERS, true));
}

#[test]
fn without_primary_reads_only_replicas_are_chosen_from() {
    let settings = SplitSettings {
        primary_reads: false,
        ..SPLIT
    };
    let decision = decide(&unit(&[READ]), &SessionContext::default(), &settings, &VIEW);
    assert_eq!(decision.target, REPLICAS);
}

fn rule(group: ServerGroup, assume_read: bool) -> Destination {
    Destination { group, assume_read }
}

#[test]
fn rules_choose_among_those_that_may_read_and_hints_come_before_them() {
    let ruled = |statement: RoutedStatement, hint, group: ServerGroup, assume_read| {
        let rule = rule(group, assume_read);
        let unit = RoutingUnit {
            statements: &[statement],
            hint,
            rule: Some(&rule),
        };
        decide(&unit, &SessionContext::default(), &SPLIT, &VIEW).target
    };
    let servers = |places: &[usize]| ServerGroup::Servers(places.into());
    let primary = RouteTarget::Primary;
    for (group, target) in [
        (ServerGroup::Primary, primary),
        (ServerGroup::Replicas, REPLICAS),
        (ServerGroup::Any, READERS),
        (servers(&[1, 2]), REPLICAS),
        (servers(&[0, 2]), READERS),
    ] {
        assert_eq!(ruled(READ, None, group.clone(), false), target, "{group:?}");
        let hint = Some(ResolvedHint::Server(Some(1)));
        let hinted = ruled(READ, hint, group.clone(), false);
        assert_eq!(hinted, RouteTarget::Server(1), "{group:?}");
        for unknown in [calling(Volatility::Unknown), of(StatementClass::Routine)] {
            assert_eq!(ruled(unknown, None, group.clone(), false), primary);
            assert_eq!(ruled(unknown, None, group.clone(), true), target);
        }
        for never in [
            of(StatementClass::Write),
            of(StatementClass::Unknown),
            of(StatementClass::Session),
            of(StatementClass::Begin(READ_WRITE)),
            with(RoutingTraits::LOCKS_ROWS),
            with(RoutingTraits::ASSIGNS),
        ] {
            assert_eq!(
                ruled(never, None, group.clone(), true),
                primary,
                "{never:?}"
            );
        }
    }
}

#[test]
fn a_rule_vouches_for_functions_and_not_for_the_session() {
    let rule = rule(ServerGroup::Replicas, true);
    let statements = &[calling(Volatility::Volatile)];
    let unit = RoutingUnit {
        rule: Some(&rule),
        ..unit(statements)
    };
    let target = |session: &SessionContext| decide(&unit, session, &SPLIT, &VIEW).target;
    assert_eq!(target(&SessionContext::default()), REPLICAS);
    let manual = SessionContext {
        autocommit: false,
        ..SessionContext::default()
    };
    assert_eq!(target(&manual), RouteTarget::Primary);
    let decision = decide(&unit, &SessionContext::default(), &SPLIT, &VIEW);
    assert!(!decision.is_read, "it is not run again elsewhere");
}

#[test]
fn what_only_asks_the_server_goes_to_the_primary_and_may_be_asked_again() {
    let of = |statements: &[RoutedStatement]| {
        let decision = decide(&unit(statements), &SessionContext::default(), &SPLIT, &VIEW);
        (decision.target, decision.is_read)
    };
    let asks = RoutedStatement {
        kind: StatementClass::Asks,
        ..READ
    };
    let locks = RoutedStatement {
        traits: RoutingTraits::NAMED_LOCK,
        ..asks
    };
    assert_eq!(of(&[asks]), (RouteTarget::Primary, true));
    assert_eq!(of(&[READ, asks]), (RouteTarget::Primary, true));
    assert_eq!(of(&[locks]), (RouteTarget::Primary, false));
    assert_eq!(
        of(&[asks, calling(Volatility::Volatile)]),
        (RouteTarget::Primary, false)
    );
}

/// Checks all statements, hints and rules that can be distinguished here.
fn for_all(mut check: impl FnMut(&RoutingUnit<'_>, &SessionContext)) {
    let rules = [
        None,
        Some(rule(ServerGroup::Primary, true)),
        Some(rule(ServerGroup::Replicas, false)),
        Some(rule(ServerGroup::Replicas, true)),
        Some(rule(ServerGroup::Any, true)),
    ];
    let traits = TRAITS.iter().map(|(traits, _)| *traits);
    let traits: Vec<RoutingTraits> = traits
        .chain([RoutingTraits::NONE, RoutingTraits::CATALOG])
        .collect();
    for kind in KINDS {
        for &traits in &traits {
            for calls in CALLS {
                for hint in HINTS {
                    let statement = RoutedStatement {
                        kind,
                        traits,
                        calls,
                    };
                    let statements = &[READ, statement];
                    for rule in &rules {
                        let rule = rule.as_ref();
                        let unit = RoutingUnit {
                            statements,
                            hint,
                            rule,
                        };
                        check(&unit, &SessionContext::default());
                    }
                }
            }
        }
    }
}

fn is_known_read(kind: StatementClass) -> bool {
    let reads = [
        StatementClass::Empty,
        StatementClass::Read,
        StatementClass::Setting,
        StatementClass::EndTransaction,
    ];
    reads.contains(&kind) || kind == StatementClass::Begin(READ_ONLY)
}

#[test]
fn nothing_that_may_write_reaches_a_replica_unless_a_hint_or_rule_vouches_for_it() {
    for_all(|unit, session| {
        let decision = decide(unit, session, &SPLIT, &VIEW);
        let may_reach_replica = matches!(
            decision.target,
            RouteTarget::Readers { .. } | RouteTarget::Server(_)
        );
        let writes = unit.statements.iter().any(|one| {
            matches!(
                one.kind,
                StatementClass::Write | StatementClass::Ddl | StatementClass::Lock
            ) || one
                .traits
                .any(RoutingTraits::WRITES.and(RoutingTraits::LOCKS_ROWS))
        });
        assert!(!(may_reach_replica && writes), "{unit:?} {decision:?}");
        let harmless = |one: &RoutedStatement| {
            (one.traits == RoutingTraits::NONE || one.traits == RoutingTraits::CATALOG)
                && one.calls <= Volatility::Stable
        };
        let is_read = |one: &RoutedStatement| is_known_read(one.kind) && harmless(one);
        let asks = |one: &RoutedStatement| one.kind == StatementClass::Asks && harmless(one);
        let may_run_again = unit.statements.iter().all(|one| is_read(one) || asks(one));
        let is_read = unit.statements.iter().all(is_read);
        let is_trusted = unit.hint.is_some()
            || unit.rule.is_some_and(|rule| {
                let called = unit.statements.iter().all(|one| {
                    let harmless =
                        [RoutingTraits::NONE, RoutingTraits::CATALOG].contains(&one.traits);
                    harmless && (is_known_read(one.kind) || one.kind == StatementClass::Routine)
                });
                rule.assume_read && called
            });
        assert!(!may_reach_replica || is_read || is_trusted, "{unit:?}");
        assert!(!decision.is_read || may_run_again, "{unit:?}");
    });
}

#[test]
fn without_a_split_all_goes_to_the_primary() {
    let off = SplitSettings {
        reads: false,
        ..SPLIT
    };
    for_all(|unit, session| {
        let target = decide(unit, session, &off, &VIEW).target;
        assert_eq!(target, RouteTarget::Primary);
    });
}

#[test]
fn who_is_bound_to_a_replica_goes_on_there_with_all_but_what_it_would_refuse() {
    let begins = |read_only| {
        StatementClass::Begin(TransactionModes {
            read_only,
            ..TransactionModes::default()
        })
    };
    let statement = |kind, traits| RoutedStatement {
        kind,
        traits,
        calls: Volatility::Unknown,
    };
    for (kind, traits, expect) in [
        (StatementClass::Read, RoutingTraits::NONE, false),
        (StatementClass::Read, RoutingTraits::NAMED_LOCK, false),
        (StatementClass::Session, RoutingTraits::NONE, false),
        (StatementClass::Setting, RoutingTraits::NONE, false),
        (StatementClass::EndTransaction, RoutingTraits::NONE, false),
        (begins(Some(true)), RoutingTraits::NONE, false),
        (begins(None), RoutingTraits::NONE, true),
        (StatementClass::Read, RoutingTraits::WRITES, true),
        (StatementClass::Read, RoutingTraits::LOCKS_ROWS, true),
        (StatementClass::Write, RoutingTraits::NONE, true),
        (StatementClass::Ddl, RoutingTraits::NONE, true),
        (StatementClass::Routine, RoutingTraits::NONE, true),
    ] {
        let unit = RoutingUnit {
            statements: &[
                statement(StatementClass::Empty, RoutingTraits::NONE),
                statement(kind, traits),
            ],
            hint: None,
            rule: None,
        };
        let session = SessionContext::default();
        assert_eq!(is_beyond_replica(&unit, &session), expect, "{kind:?}");
        let reader = SessionContext {
            defaults: TransactionModes {
                read_only: Some(true),
                ..TransactionModes::default()
            },
            ..session
        };
        assert!(!is_beyond_replica(&unit, &reader), "its own wish: {kind:?}");
    }
}
