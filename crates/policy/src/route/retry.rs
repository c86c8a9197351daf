//! Decides whether a statement that a server refused or did not answer may be retried on another
//! server.

/// Progress of a statement. If a value is uncertain, the caller must assume the worse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// True if the statement was sent to a replica.
    pub on_replica: bool,
    /// True if the statement is known to only read: [`super::Decision::is_read`].
    pub is_read: bool,
    /// True if it ran inside an explicit transaction, or on a connection that the session is pinned
    /// to.
    pub is_held: bool,
    /// True if at least one of its bytes was written to a server's socket.
    pub reached_server: bool,
    /// True if at least one byte of its reply was sent to the client.
    pub reached_client: bool,
    /// True if all of its bytes are still buffered and can be sent again.
    pub is_kept: bool,
}

/// Kind of failure of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The server is read-only: PostgreSQL's 25006; MySQL's 1290, 1792 and 1836.
    ReadOnly,
    /// Replay conflicted with the read and canceled it: 40001 or 40P01 of a standby.
    RecoveryConflict,
    /// The replica waited for a position and did not reach it in time.
    NotFresh,
    /// The server is starting or stopping, has no free connection or no cluster. Codes: 57P01,
    /// 57P02, 57P03, 53300, 1040, and 1047 of Galera. The statement was not executed.
    TurnedAway,
    /// The server closed the connection after too long an idle time, before it read the statement:
    /// MySQL's 4031. The server is healthy, and another connection works.
    NotRead,
    /// The connection broke or was terminated: MySQL's 1053. It is unknown whether the statement
    /// was executed, completely or in part.
    Broken,
    /// Any other error, which is returned to the client.
    Error,
}

/// Returns whether a statement may be retried. A write that may have been executed never is.
#[must_use]
pub fn may_run_again(failure: FailureKind, attempt: &Attempt) -> bool {
    if attempt.is_held || attempt.reached_client || !attempt.is_kept {
        return false;
    }
    match failure {
        // The server refused the statement, so no statement was executed, whatever its kind. That
        // includes a primary that has just become a replica: the retry goes to the new primary.
        FailureKind::ReadOnly | FailureKind::TurnedAway | FailureKind::NotRead => true,
        FailureKind::RecoveryConflict | FailureKind::NotFresh => attempt.on_replica,
        FailureKind::Broken => attempt.is_read || !attempt.reached_server,
        FailureKind::Error => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Attempt = Attempt {
        on_replica: true,
        is_read: true,
        is_held: false,
        reached_server: true,
        reached_client: false,
        is_kept: true,
    };

    const FAILURES: [FailureKind; 7] = [
        FailureKind::ReadOnly,
        FailureKind::RecoveryConflict,
        FailureKind::NotFresh,
        FailureKind::TurnedAway,
        FailureKind::NotRead,
        FailureKind::Broken,
        FailureKind::Error,
    ];

    /// Returns every possible attempt.
    fn attempts() -> impl Iterator<Item = Attempt> {
        (0..64_u32).map(|bits| {
            let bit = |index: u32| bits & 1 << index != 0;
            Attempt {
                on_replica: bit(0),
                is_read: bit(1),
                is_held: bit(2),
                reached_server: bit(3),
                reached_client: bit(4),
                is_kept: bit(5),
            }
        })
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
            on_replica: false,
            ..SENT
        };
        assert!(!may_run_again(FailureKind::RecoveryConflict, &on_primary));
    }

    #[test]
    fn a_read_whose_server_died_runs_elsewhere_and_a_write_only_if_none_of_it_was_sent() {
        let write = Attempt {
            is_read: false,
            on_replica: false,
            ..SENT
        };
        let unsent = Attempt {
            reached_server: false,
            ..write
        };
        let of = |attempt| may_run_again(FailureKind::Broken, &attempt);
        assert_eq!((of(SENT), of(write), of(unsent)), (true, false, true));
    }

    #[test]
    fn nothing_runs_again_in_a_transaction_or_after_the_client_saw_some_of_it() {
        for attempt in attempts().filter(|one| one.is_held || one.reached_client || !one.is_kept) {
            for failure in FAILURES {
                assert!(!may_run_again(failure, &attempt), "{failure:?} {attempt:?}");
            }
        }
    }

    #[test]
    fn what_may_have_been_run_runs_again_only_if_it_is_a_read() {
        for attempt in attempts().filter(|one| one.reached_server && !one.is_read) {
            assert!(!may_run_again(FailureKind::Broken, &attempt), "{attempt:?}");
        }
    }

    #[test]
    fn what_no_server_has_read_runs_on_another_connection_unless_it_is_held() {
        let write = Attempt {
            is_read: false,
            on_replica: false,
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
}
