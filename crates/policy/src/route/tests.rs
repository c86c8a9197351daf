//! Tests of decisions: a table of what goes where, and laws over all that can be said of a text.

use super::*;

const SPLIT: Settings = Settings {
    reads: true,
    primary_reads: true,
};

const VIEW: View = View {
    primary: Some(0),
    replicas: 2,
    replicas_fresh: 1,
};

const READ: Statement = Statement {
    kind: Kind::Read,
    traits: Traits::NONE,
    calls: Volatility::None,
};

const KINDS: [Kind; 14] = [
    Kind::Empty,
    Kind::Read,
    Kind::Write,
    Kind::Ddl,
    Kind::Begin(READ_WRITE),
    Kind::Begin(READ_ONLY),
    Kind::EndTransaction,
    Kind::Setting,
    Kind::Session,
    Kind::Lock,
    Kind::Asks,
    Kind::Server,
    Kind::Routine,
    Kind::Unknown,
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

const READERS: Target = Target::Readers { and_primary: true };
const REPLICAS: Target = Target::Readers { and_primary: false };

fn of(kind: Kind) -> Statement {
    Statement { kind, ..READ }
}

fn with(traits: Traits) -> Statement {
    Statement { traits, ..READ }
}

fn calling(calls: Volatility) -> Statement {
    Statement { calls, ..READ }
}

fn unit(statements: &[Statement]) -> Unit<'_> {
    Unit {
        statements,
        hint: None,
        rule: None,
    }
}

fn target(statements: &[Statement], session: &Session) -> Target {
    decide(&unit(statements), session, &SPLIT, &VIEW).target
}

fn plain(statements: &[Statement]) -> Target {
    target(statements, &Session::default())
}

#[test]
fn reads_go_to_the_readers_and_all_else_to_the_primary() {
    let readers = [
        Kind::Empty,
        Kind::Read,
        Kind::Setting,
        Kind::EndTransaction,
        Kind::Begin(READ_ONLY),
    ];
    for kind in KINDS {
        let expected = match readers.contains(&kind) {
            true => READERS,
            false => Target::Primary,
        };
        assert_eq!(plain(&[of(kind)]), expected, "{kind:?}");
    }
}

#[test]
fn every_trait_but_the_catalogs_keeps_a_read_at_the_primary() {
    for (traits, obstacle) in TRAITS {
        let decision = decide(&unit(&[with(*traits)]), &Session::default(), &SPLIT, &VIEW);
        assert_eq!(decision.target, Target::Primary, "{traits:?}");
        assert_eq!(Some(decision.why), obstacle.map(|one| one.why));
    }
    assert_eq!(plain(&[with(Traits::CATALOG)]), READERS);
}

#[test]
fn volatile_and_unknown_functions_go_to_the_primary() {
    let targets = CALLS.map(|calls| plain(&[calling(calls)]));
    let expected = [READERS, READERS, READERS, Target::Primary, Target::Primary];
    assert_eq!(targets, expected);
    use Volatility::{Stable, Volatile};
    assert_eq!(Volatility::worst([Volatile, Stable]), Volatile);
    assert_eq!(Volatility::worst([]), Volatility::None);
}

#[test]
fn several_statements_go_as_one() {
    let (read, write) = (READ, of(Kind::Write));
    assert_eq!(plain(&[read, read]), READERS);
    assert_eq!(plain(&[read, write, read]), Target::Primary);
    let begin = |modes| of(Kind::Begin(modes));
    let end = of(Kind::EndTransaction);
    assert_eq!(plain(&[begin(READ_ONLY), read, end]), READERS);
    assert_eq!(plain(&[begin(READ_WRITE), read, end]), Target::Primary);
    assert_eq!(plain(&[of(Kind::Setting), write]), Target::Primary);
}

#[test]
fn transactions_go_to_a_replica_only_if_read_only_and_not_serializable() {
    let plain = TransactionModes::default();
    for (modes, defaults, expected) in [
        (READ_WRITE, plain, Target::Primary),
        (READ_ONLY, plain, READERS),
        (SERIALIZABLE, plain, Target::Primary),
        (READ_WRITE, READ_ONLY, READERS),
        (READ_ONLY, SERIALIZABLE, Target::Primary),
    ] {
        let session = Session {
            defaults,
            ..Session::default()
        };
        assert_eq!(target(&[of(Kind::Begin(modes))], &session), expected);
    }
}

#[test]
fn sessions_that_begin_transactions_unasked_stay_at_the_primary() {
    let manual = Session {
        autocommit: false,
        ..Session::default()
    };
    assert_eq!(target(&[READ], &manual), Target::Primary);
    let read_only = Session {
        defaults: READ_ONLY,
        ..manual
    };
    assert_eq!(target(&[READ], &read_only), READERS);
    let serializable = Session {
        defaults: SERIALIZABLE,
        ..Session::default()
    };
    assert_eq!(target(&[READ], &serializable), Target::Primary);
}

#[test]
fn after_ddl_the_catalog_and_functions_are_looked_up_at_the_primary() {
    let session = Session {
        changed_catalog: true,
        ..Session::default()
    };
    let of_catalog = with(Traits::CATALOG);
    assert_eq!(target(&[of_catalog], &session), Target::Primary);
    let stable = calling(Volatility::Stable);
    assert_eq!(target(&[stable], &session), Target::Primary);
    assert_eq!(target(&[READ], &session), READERS);
}

#[test]
fn hints_choose_but_never_send_a_write_to_a_replica() {
    let hinted = |statement: Statement, hint| {
        let unit = Unit {
            statements: &[statement],
            hint,
            rule: None,
        };
        decide(&unit, &Session::default(), &SPLIT, &VIEW).target
    };
    let server = Target::Server(1);
    let of_reads = [READERS, Target::Primary, REPLICAS, server, Target::Primary];
    assert_eq!(HINTS.map(|hint| hinted(READ, hint)), of_reads);
    let volatile = calling(Volatility::Volatile);
    assert_eq!(hinted(volatile, Some(ResolvedHint::Replica)), REPLICAS);
    for hint in HINTS {
        assert_eq!(hinted(of(Kind::Write), hint), Target::Primary, "{hint:?}");
        let locking = with(Traits::LOCKS_ROWS);
        assert_eq!(hinted(locking, hint), Target::Primary, "{hint:?}");
    }
}

#[test]
fn a_read_that_no_replica_may_answer_goes_to_the_primary() {
    let decide = |statement, view| {
        let decision = decide(&unit(&[statement]), &Session::default(), &SPLIT, &view);
        (decision.target, decision.is_read)
    };
    let stale = View {
        replicas_fresh: 0,
        ..VIEW
    };
    let none = View {
        replicas: 0,
        replicas_fresh: 0,
        ..VIEW
    };
    assert_eq!(decide(READ, stale), (Target::Primary, true));
    assert_eq!(decide(READ, none), (Target::Primary, true));
    assert_eq!(decide(of(Kind::Setting), stale), (READERS, true));
}

#[test]
fn without_primary_reads_only_replicas_are_chosen_from() {
    let settings = Settings {
        primary_reads: false,
        ..SPLIT
    };
    let decision = decide(&unit(&[READ]), &Session::default(), &settings, &VIEW);
    assert_eq!(decision.target, REPLICAS);
}

fn rule(group: Group, assume_read: bool) -> Destination {
    Destination { group, assume_read }
}

#[test]
fn rules_choose_among_those_that_may_read_and_hints_come_before_them() {
    let ruled = |statement: Statement, hint, group: Group, assume_read| {
        let rule = rule(group, assume_read);
        let unit = Unit {
            statements: &[statement],
            hint,
            rule: Some(&rule),
        };
        decide(&unit, &Session::default(), &SPLIT, &VIEW).target
    };
    let servers = |places: &[usize]| Group::Servers(places.into());
    let primary = Target::Primary;
    for (group, target) in [
        (Group::Primary, primary),
        (Group::Replicas, REPLICAS),
        (Group::Any, READERS),
        (servers(&[1, 2]), REPLICAS),
        (servers(&[0, 2]), READERS),
    ] {
        assert_eq!(ruled(READ, None, group.clone(), false), target, "{group:?}");
        let hint = Some(ResolvedHint::Server(Some(1)));
        let hinted = ruled(READ, hint, group.clone(), false);
        assert_eq!(hinted, Target::Server(1), "{group:?}");
        for unknown in [calling(Volatility::Unknown), of(Kind::Routine)] {
            assert_eq!(ruled(unknown, None, group.clone(), false), primary);
            assert_eq!(ruled(unknown, None, group.clone(), true), target);
        }
        for never in [
            of(Kind::Write),
            of(Kind::Unknown),
            of(Kind::Session),
            of(Kind::Begin(READ_WRITE)),
            with(Traits::LOCKS_ROWS),
            with(Traits::ASSIGNS),
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
    let rule = rule(Group::Replicas, true);
    let statements = &[calling(Volatility::Volatile)];
    let unit = Unit {
        rule: Some(&rule),
        ..unit(statements)
    };
    let target = |session: &Session| decide(&unit, session, &SPLIT, &VIEW).target;
    assert_eq!(target(&Session::default()), REPLICAS);
    let manual = Session {
        autocommit: false,
        ..Session::default()
    };
    assert_eq!(target(&manual), Target::Primary);
    let decision = decide(&unit, &Session::default(), &SPLIT, &VIEW);
    assert!(!decision.is_read, "it is not run again elsewhere");
}

#[test]
fn what_only_asks_the_server_goes_to_the_primary_and_may_be_asked_again() {
    let of = |statements: &[Statement]| {
        let decision = decide(&unit(statements), &Session::default(), &SPLIT, &VIEW);
        (decision.target, decision.is_read)
    };
    let asks = Statement {
        kind: Kind::Asks,
        ..READ
    };
    let locks = Statement {
        traits: Traits::NAMED_LOCK,
        ..asks
    };
    assert_eq!(of(&[asks]), (Target::Primary, true));
    assert_eq!(of(&[READ, asks]), (Target::Primary, true));
    assert_eq!(of(&[locks]), (Target::Primary, false));
    assert_eq!(
        of(&[asks, calling(Volatility::Volatile)]),
        (Target::Primary, false)
    );
}

/// All statements, hints and rules that can be told apart here.
fn for_all(mut check: impl FnMut(&Unit<'_>, &Session)) {
    let rules = [
        None,
        Some(rule(Group::Primary, true)),
        Some(rule(Group::Replicas, false)),
        Some(rule(Group::Replicas, true)),
        Some(rule(Group::Any, true)),
    ];
    let traits = TRAITS.iter().map(|(traits, _)| *traits);
    let traits: Vec<Traits> = traits.chain([Traits::NONE, Traits::CATALOG]).collect();
    for kind in KINDS {
        for &traits in &traits {
            for calls in CALLS {
                for hint in HINTS {
                    let statement = Statement {
                        kind,
                        traits,
                        calls,
                    };
                    let statements = &[READ, statement];
                    for rule in &rules {
                        let rule = rule.as_ref();
                        let unit = Unit {
                            statements,
                            hint,
                            rule,
                        };
                        check(&unit, &Session::default());
                    }
                }
            }
        }
    }
}

fn is_known_read(kind: Kind) -> bool {
    let reads = [Kind::Empty, Kind::Read, Kind::Setting, Kind::EndTransaction];
    reads.contains(&kind) || kind == Kind::Begin(READ_ONLY)
}

#[test]
fn nothing_that_may_write_reaches_a_replica_unless_a_hint_or_rule_vouches_for_it() {
    for_all(|unit, session| {
        let decision = decide(unit, session, &SPLIT, &VIEW);
        let may_reach_replica =
            matches!(decision.target, Target::Readers { .. } | Target::Server(_));
        let writes = unit.statements.iter().any(|one| {
            matches!(one.kind, Kind::Write | Kind::Ddl | Kind::Lock)
                || one.traits.any(Traits::WRITES.and(Traits::LOCKS_ROWS))
        });
        assert!(!(may_reach_replica && writes), "{unit:?} {decision:?}");
        let harmless = |one: &Statement| {
            (one.traits == Traits::NONE || one.traits == Traits::CATALOG)
                && one.calls <= Volatility::Stable
        };
        let is_read = |one: &Statement| is_known_read(one.kind) && harmless(one);
        let asks = |one: &Statement| one.kind == Kind::Asks && harmless(one);
        let may_run_again = unit.statements.iter().all(|one| is_read(one) || asks(one));
        let is_read = unit.statements.iter().all(is_read);
        let is_vouched_for = unit.hint.is_some()
            || unit.rule.is_some_and(|rule| {
                let called = unit.statements.iter().all(|one| {
                    let harmless = [Traits::NONE, Traits::CATALOG].contains(&one.traits);
                    harmless && (is_known_read(one.kind) || one.kind == Kind::Routine)
                });
                rule.assume_read && called
            });
        assert!(!may_reach_replica || is_read || is_vouched_for, "{unit:?}");
        assert!(!decision.is_read || may_run_again, "{unit:?}");
    });
}

#[test]
fn without_a_split_all_goes_to_the_primary() {
    let off = Settings {
        reads: false,
        ..SPLIT
    };
    for_all(|unit, session| {
        let target = decide(unit, session, &off, &VIEW).target;
        assert_eq!(target, Target::Primary);
    });
}

#[test]
fn who_is_bound_to_a_replica_goes_on_there_with_all_but_what_it_would_refuse() {
    let begins = |read_only| {
        Kind::Begin(TransactionModes {
            read_only,
            ..TransactionModes::default()
        })
    };
    let statement = |kind, traits| Statement {
        kind,
        traits,
        calls: Volatility::Unknown,
    };
    for (kind, traits, expect) in [
        (Kind::Read, Traits::NONE, false),
        (Kind::Read, Traits::NAMED_LOCK, false),
        (Kind::Session, Traits::NONE, false),
        (Kind::Setting, Traits::NONE, false),
        (Kind::EndTransaction, Traits::NONE, false),
        (begins(Some(true)), Traits::NONE, false),
        (begins(None), Traits::NONE, true),
        (Kind::Read, Traits::WRITES, true),
        (Kind::Read, Traits::LOCKS_ROWS, true),
        (Kind::Write, Traits::NONE, true),
        (Kind::Ddl, Traits::NONE, true),
        (Kind::Routine, Traits::NONE, true),
    ] {
        let unit = Unit {
            statements: &[
                statement(Kind::Empty, Traits::NONE),
                statement(kind, traits),
            ],
            hint: None,
            rule: None,
        };
        let session = Session::default();
        assert_eq!(is_beyond_replica(&unit, &session), expect, "{kind:?}");
        let reader = Session {
            defaults: TransactionModes {
                read_only: Some(true),
                ..TransactionModes::default()
            },
            ..session
        };
        assert!(!is_beyond_replica(&unit, &reader), "its own wish: {kind:?}");
    }
}
