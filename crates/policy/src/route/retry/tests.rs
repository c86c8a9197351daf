//! Tests of the decision whether a request may be sent a second time.

use super::*;

const SENT: Attempt = Attempt {
    server: FailedServer::Replica,
    was_tried: false,
    destination: Destination::Any,
    effect: RequestEffect::Reads,
    atomicity: Atomicity::Whole,
    has_done: false,
    is_held: false,
    is_kept: true,
    progress: Progress::Sent,
    retries: 0,
};

const READ: Attempt = Attempt {
    server: FailedServer::ReadOnlyPrimary,
    ..SENT
};

const WRITE: Attempt = Attempt {
    effect: RequestEffect::Writes,
    ..READ
};

const FAILURES: [FailureKind; 11] = [
    FailureKind::ReadOnly,
    FailureKind::Misrouted,
    FailureKind::RecoveryConflict,
    FailureKind::NotFresh,
    FailureKind::NotThereYet,
    FailureKind::TurnedAway,
    FailureKind::Terminated,
    FailureKind::Unprepared,
    FailureKind::NotRead,
    FailureKind::Broken,
    FailureKind::Error,
];

const SETUP_FAILURES: [SetupFailure; 5] = [
    SetupFailure::Lost,
    SetupFailure::Ended,
    SetupFailure::Rejected,
    SetupFailure::Replaced,
    SetupFailure::Canceled,
];

const EFFECTS: [RequestEffect; 4] = [
    RequestEffect::Writes,
    RequestEffect::Begins,
    RequestEffect::Prepares,
    RequestEffect::Reads,
];

const SERVERS: [FailedServer; 3] = [
    FailedServer::Replica,
    FailedServer::Primary,
    FailedServer::ReadOnlyPrimary,
];

const DESTINATIONS: [Destination; 3] = [
    Destination::Any,
    Destination::PrimaryForRead,
    Destination::Primary,
];

const ATOMICITIES: [Atomicity; 3] = [
    Atomicity::Whole,
    Atomicity::CommitsParts,
    Atomicity::Partial,
];

const PROGRESSES: [Progress; 3] = [Progress::Unsent, Progress::Sent, Progress::Answered];

/// Returns every possible attempt, with up to one retry more than permitted.
fn attempts() -> impl Iterator<Item = Attempt> {
    let of_rest = |retries| EFFECTS.map(|effect| (effect, retries));
    let rest = (0..=RETRIES_MAX + 1).flat_map(of_rest);
    rest.flat_map(|(effect, retries)| {
        (0..(3 * 3 * 3 * 3) << 4).map(move |choice: usize| {
            let bit = |index: u32| choice & 1 << index != 0;
            let (of_server, rest) = (choice >> 4, (choice >> 4) / 3);
            Attempt {
                server: SERVERS[of_server % 3],
                was_tried: bit(0),
                destination: DESTINATIONS[rest % 3],
                effect,
                atomicity: ATOMICITIES[rest / 3 % 3],
                has_done: bit(1),
                is_held: bit(2),
                is_kept: bit(3),
                progress: PROGRESSES[rest / 9 % 3],
                retries,
            }
        })
    })
}

fn may_run_again(failure: FailureKind, attempt: &Attempt) -> bool {
    after_failure(failure, attempt) != Retry::No
}

/// Returns whether the connection of the attempt cannot be changed.
fn is_unmovable(attempt: &Attempt) -> bool {
    attempt.is_held || attempt.progress == Progress::Answered || !attempt.is_kept
}

fn may_write(attempt: &Attempt) -> bool {
    matches!(
        attempt.effect,
        RequestEffect::Writes | RequestEffect::Begins
    )
}

#[test]
fn a_read_that_a_replica_refused_runs_on_the_primary() {
    use FailureKind::{NotFresh, ReadOnly, RecoveryConflict};
    for failure in [ReadOnly, RecoveryConflict, NotFresh] {
        assert!(may_run_again(failure, &SENT), "{failure:?}");
    }
}

#[test]
fn a_conflict_on_the_primary_is_the_clients_own() {
    let on_primary = Attempt {
        server: FailedServer::ReadOnlyPrimary,
        ..SENT
    };
    assert!(!may_run_again(FailureKind::RecoveryConflict, &on_primary));
}

#[test]
fn a_read_whose_server_died_runs_elsewhere_and_a_write_only_if_none_of_it_was_sent() {
    let write = Attempt {
        effect: RequestEffect::Writes,
        server: FailedServer::ReadOnlyPrimary,
        ..SENT
    };
    let unsent = Attempt {
        progress: Progress::Unsent,
        ..write
    };
    let of = |attempt| may_run_again(FailureKind::Broken, &attempt);
    assert_eq!((of(SENT), of(write), of(unsent)), (true, false, true));
}

#[test]
fn nothing_runs_again_in_a_transaction_or_after_the_client_saw_some_of_it() {
    for attempt in attempts().filter(is_unmovable) {
        for failure in FAILURES {
            assert!(!may_run_again(failure, &attempt), "{failure:?} {attempt:?}");
        }
        for failure in SETUP_FAILURES {
            let retry = after_setup_failure(failure, &attempt);
            assert_eq!(retry, Retry::No, "{failure:?} {attempt:?}");
        }
    }
}

#[test]
fn what_may_have_been_run_runs_again_only_if_it_is_a_read() {
    for attempt in attempts().filter(|one| one.progress > Progress::Unsent && may_write(one)) {
        assert!(!may_run_again(FailureKind::Broken, &attempt), "{attempt:?}");
    }
}

#[test]
fn what_no_server_has_read_runs_on_another_connection_unless_it_is_held() {
    let write = Attempt {
        effect: RequestEffect::Writes,
        server: FailedServer::ReadOnlyPrimary,
        ..SENT
    };
    let held = Attempt {
        is_held: true,
        ..write
    };
    assert!(may_run_again(FailureKind::NotRead, &write));
    assert!(!may_run_again(FailureKind::NotRead, &held));
}

#[test]
fn other_errors_are_the_clients() {
    assert!(attempts().all(|attempt| !may_run_again(FailureKind::Error, &attempt)));
}

/// The safety law. TO SEE THIS RED: omit `is_safe` from a decision, or any condition of
/// `has_run_nothing`.
#[test]
fn what_may_have_run_in_part_runs_again_only_if_it_is_a_read() {
    use FailureKind::{
        Misrouted, NotRead, NotThereYet, ReadOnly, RecoveryConflict, Terminated, Unprepared,
    };
    for attempt in attempts().filter(|one| one.progress > Progress::Unsent && may_write(one)) {
        for failure in FAILURES
            .into_iter()
            .filter(|one| may_run_again(*one, &attempt))
        {
            let is_unknown = matches!(failure, FailureKind::Broken | FailureKind::NotFresh);
            assert!(!is_unknown, "{failure:?} {attempt:?}");
            let is_refusal = matches!(
                failure,
                ReadOnly | Misrouted | RecoveryConflict | NotThereYet
            );
            if is_refusal && attempt.server == FailedServer::Replica {
                // Writes fail there, and only what is assumed to read is sent there.
                continue;
            }
            let is_whole = attempt.atomicity < Atomicity::Partial || failure == NotRead;
            assert!(is_whole, "{failure:?} {attempt:?}");
            let commits = attempt.atomicity == Atomicity::CommitsParts;
            let was_undone = failure == Unprepared && !commits;
            assert!(!attempt.has_done || was_undone, "{failure:?} {attempt:?}");
            let has_committed = failure == Terminated && commits;
            assert!(!has_committed, "{failure:?} {attempt:?}");
        }
        for failure in SETUP_FAILURES {
            let is_retried = after_setup_failure(failure, &attempt) != Retry::No;
            let may_be = attempt.effect == RequestEffect::Begins;
            assert!(!is_retried || may_be, "{failure:?} {attempt:?}");
        }
    }
}

/// TO SEE THIS RED: require `Atomicity::Whole` of what never reached a server.
#[test]
fn what_reached_no_server_runs_again_whatever_it_does() {
    let is_unsent = |one: &Attempt| one.progress == Progress::Unsent;
    for attempt in attempts().filter(|one| is_unsent(one) && one.retries < RETRIES_MAX) {
        let can_move = !is_unmovable(&attempt);
        let is_retried = may_run_again(FailureKind::Broken, &attempt);
        assert_eq!(is_retried, can_move, "{attempt:?}");
        let lost = after_setup_failure(SetupFailure::Lost, &attempt);
        assert_eq!(lost != Retry::No, can_move, "{attempt:?}");
    }
}

#[test]
fn the_number_of_counted_retries_is_limited() {
    for attempt in attempts().filter(|one| one.retries >= RETRIES_MAX) {
        for failure in FAILURES {
            assert!(!may_run_again(failure, &attempt), "{failure:?} {attempt:?}");
        }
        for failure in SETUP_FAILURES {
            let retry = after_setup_failure(failure, &attempt);
            let is_counted = matches!(retry, Retry::On(resend) if resend.is_counted);
            assert!(!is_counted, "{failure:?} {attempt:?}");
        }
    }
}

#[test]
fn each_failure_has_its_decision() {
    use RetryTarget::{AnotherConnection, AnotherPrimary, AnotherServer, Primary, PrimaryForRead};
    let on_replica = Attempt {
        server: FailedServer::Replica,
        ..WRITE
    };
    // At the primary: a read and an atomic write. At a replica: a read, and what was assumed to
    // read.
    let places = [READ, WRITE, SENT, on_replica];
    let of = |failure: FailureKind| match failure {
        FailureKind::ReadOnly => [
            Some(AnotherPrimary),
            Some(AnotherPrimary),
            Some(Primary),
            Some(Primary),
        ],
        FailureKind::Misrouted | FailureKind::RecoveryConflict => {
            [None, None, Some(Primary), Some(Primary)]
        }
        FailureKind::NotFresh => [None, None, Some(PrimaryForRead), None],
        FailureKind::NotThereYet => [None, None, Some(PrimaryForRead), Some(Primary)],
        FailureKind::TurnedAway => [
            Some(AnotherServer),
            Some(AnotherPrimary),
            Some(AnotherServer),
            Some(Primary),
        ],
        FailureKind::Terminated => [Some(AnotherServer); 4],
        FailureKind::Unprepared | FailureKind::NotRead => [Some(AnotherConnection); 4],
        FailureKind::Broken => [Some(AnotherServer), None, Some(AnotherServer), None],
        FailureKind::Error => [None; 4],
    };
    for failure in FAILURES {
        for (attempt, target) in places.iter().zip(of(failure)) {
            let wanted = target.map_or(Retry::No, counted);
            let retry = after_failure(failure, attempt);
            assert_eq!(retry, wanted, "{failure:?} {attempt:?}");
        }
    }
}

/// TO SEE THIS RED: retry every rejection for a read-only server.
#[test]
fn a_rejection_by_a_primary_that_takes_writes_is_for_the_sessions_own_read_only_mode() {
    let own = Attempt {
        server: FailedServer::Primary,
        ..WRITE
    };
    assert_eq!(after_failure(FailureKind::ReadOnly, &own), Retry::No);
}

#[test]
fn a_preparation_is_repeated_and_waits_for_a_primary_that_takes_it() {
    let prepares = Attempt {
        effect: RequestEffect::Prepares,
        atomicity: Atomicity::Partial,
        ..WRITE
    };
    let of = |failure| after_failure(failure, &prepares);
    let elsewhere = counted(RetryTarget::AnotherServer);
    assert_eq!(of(FailureKind::Broken), elsewhere);
    let waits = counted(RetryTarget::AnotherPrimary);
    assert_eq!(of(FailureKind::TurnedAway), waits);
    assert_eq!(of(FailureKind::ReadOnly), waits);
}

#[test]
fn each_setup_failure_has_its_decision() {
    let unsent = Attempt {
        progress: Progress::Unsent,
        ..WRITE
    };
    let at_replica = Attempt {
        server: FailedServer::Replica,
        ..unsent
    };
    for failure in SETUP_FAILURES {
        let of_replica = match failure {
            SetupFailure::Lost => lost(RetryTarget::AnotherServer),
            SetupFailure::Rejected | SetupFailure::Canceled => counted(RetryTarget::PrimaryForRead),
            _ => counted(RetryTarget::AnotherConnection),
        };
        let of_primary = match failure {
            SetupFailure::Lost => lost(RetryTarget::AnotherServerAfterWait),
            SetupFailure::Rejected => Retry::No,
            _ => counted(RetryTarget::AnotherConnection),
        };
        assert_eq!(after_setup_failure(failure, &at_replica), of_replica);
        assert_eq!(after_setup_failure(failure, &unsent), of_primary);
    }
}

#[test]
fn a_read_leaves_a_lost_primary_once_unless_it_is_bound_to_the_primary() {
    let read = Attempt {
        progress: Progress::Unsent,
        ..READ
    };
    let again = Attempt {
        was_tried: true,
        ..read
    };
    let bound = Attempt {
        destination: Destination::Primary,
        ..read
    };
    let of = |attempt| after_setup_failure(SetupFailure::Lost, &attempt);
    assert_eq!(of(read), lost(RetryTarget::AnotherServer));
    assert_eq!(of(again), lost(RetryTarget::AnotherServerAfterWait));
    assert_eq!(of(bound), lost(RetryTarget::AnotherServerAfterWait));
}

fn lost(target: RetryTarget) -> Retry {
    Retry::On(Resend {
        target,
        is_counted: false,
    })
}
