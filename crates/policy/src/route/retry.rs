//! What may still be done for a statement that a server refused or did not answer: run it again
//! elsewhere, or tell the client.

/// How far a statement had come. Whoever cannot tell says the worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// It was sent to a replica.
    pub on_replica: bool,
    /// It is known to read and nothing else: [`super::Decision::is_read`].
    pub is_read: bool,
    /// It ran inside an explicit transaction, or on a connection that the session is bound to.
    pub is_held: bool,
    /// At least one of its bytes was written to a server's socket.
    pub reached_server: bool,
    /// At least one byte of its answer was sent to the client.
    pub reached_client: bool,
    /// All of its bytes are still here to be sent again.
    pub is_kept: bool,
}

/// What happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The server is read-only: 25006 of PostgreSQL, 1290, 1792 and 1836 of MySQL.
    ReadOnly,
    /// Replay needed what the read looked at, and cancelled it: 40001 or 40P01 of a standby.
    RecoveryConflict,
    /// The replica waited for a position, and it did not come in time.
    NotFresh,
    /// The server starts, stops, has no more connections or no cluster: 57P01, 57P02, 57P03, 53300,
    /// 1040, 1047 of Galera. The statement was not run.
    TurnedAway,
    /// The server had ended the connection, which had been idle for too long, before it read the
    /// statement: 4031 of MySQL. It is well, and another connection will do.
    NotRead,
    /// The connection broke, or was ended: 1053 of MySQL. Whether the statement was run, or a part
    /// of it, is not known.
    Broken,
    /// Any other error: it is the client's answer.
    Error,
}

/// Says whether a statement may be run again. A write that may have been run never is.
#[must_use]
pub fn may_run_again(mishap: FailureKind, attempt: &Attempt) -> bool {
    if attempt.is_held || attempt.reached_client || !attempt.is_kept {
        return false;
    }
    match mishap {
        // It refused: nothing was run, whatever it is. From a primary that has just become a
        // replica too: there it goes to whoever is the primary then.
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

    const MISHAPS: [FailureKind; 7] = [
        FailureKind::ReadOnly,
        FailureKind::RecoveryConflict,
        FailureKind::NotFresh,
        FailureKind::TurnedAway,
        FailureKind::NotRead,
        FailureKind::Broken,
        FailureKind::Error,
    ];

    /// Every attempt that there can be.
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
        for mishap in [ReadOnly, RecoveryConflict, NotFresh] {
            assert!(may_run_again(mishap, &SENT), "{mishap:?}");
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
            for mishap in MISHAPS {
                assert!(!may_run_again(mishap, &attempt), "{mishap:?} {attempt:?}");
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
