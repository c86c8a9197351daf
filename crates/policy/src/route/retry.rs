//! Decides whether a request may be sent a second time, and where.
//!
//! [`after_failure`] decides after a server refused a request or did not answer it.
//! [`after_setup_failure`] decides after a connection could not be opened or set up for a request.
//! Sessions of both protocols collect the facts, and execute the decision as it is.

#[cfg(test)]
mod tests;

/// Maximum number of counted retries of a request. A request that fails more often has another
/// cause.
pub const RETRIES_MAX: u32 = 3;

/// Facts about a request and its server. If a value is uncertain, the caller must assume the worse
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Server that the request was placed on.
    pub server: FailedServer,
    /// True if that server has failed the request before.
    pub was_tried: bool,
    /// Servers that the request may be placed on.
    pub destination: Destination,
    /// Effects that the request may have.
    pub effect: RequestEffect,
    /// Part of the request that may have been executed although it was rejected.
    pub atomicity: Atomicity,
    /// True if a part of it has completed: one of several statements.
    pub has_done: bool,
    /// True if the connection has state that another connection lacks: an explicit transaction, or
    /// what the session is pinned for.
    pub is_held: bool,
    /// True if all bytes of the request are still buffered and can be sent again.
    pub is_kept: bool,
    /// Progress of the request and its reply.
    pub progress: Progress,
    /// Number of counted retries so far.
    pub retries: u32,
}

/// Server of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedServer {
    /// Replica. Only requests that are known or assumed to read are placed there.
    Replica,
    /// Primary.
    Primary,
    /// Primary that has reported that it rejects all writes. PostgreSQL's 25006 does not report
    /// that: a session that requested read-only transactions receives it as well.
    ReadOnlyPrimary,
}

/// Servers that a request may be placed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Destination {
    /// Any server that serves requests of its kind.
    #[default]
    Any,
    /// The primary, because no replica was fit for it. The request only reads.
    PrimaryForRead,
    /// The primary, because a replica refused it. The request may write.
    Primary,
}

/// Part of a rejected request that may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Atomicity {
    /// None: the request contains no COMMIT and has no effects outside of its transaction.
    #[default]
    Whole,
    /// None, unless the connection ends first: the request may commit parts before its end, as
    /// PostgreSQL's VACUUM does.
    CommitsParts,
    /// Any part.
    Partial,
}

/// Progress of a request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Progress {
    /// No byte of the request was written to a server's socket.
    #[default]
    Unsent,
    /// A part of the request, or all of it, was written to a server's socket.
    Sent,
    /// A part of the reply, or all of it, was sent to the client.
    Answered,
}

impl Progress {
    /// Records that the request has come so far, unless it is further already.
    pub fn reach(&mut self, progress: Progress) {
        *self = (*self).max(progress);
    }
}

/// Effects that a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEffect {
    /// May write.
    Writes,
    /// Only begins a transaction, which ends with the connection.
    Begins,
    /// Only prepares a statement, and executes nothing.
    Prepares,
    /// Only reads, for certain: [`super::Decision::is_read`].
    Reads,
}

/// Kind of failure of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The server or the transaction is read-only: PostgreSQL's 25006; MySQL's 1290 and 1836.
    ReadOnly,
    /// A replica cannot run the next part of the request, which was therefore not sent.
    Misrouted,
    /// Replay conflicted with the read and canceled it (40001 or 40P01 of a standby), or standbys
    /// do not support the statement (0A000).
    RecoveryConflict,
    /// The replica does not have something that the request names, or the right to use it. It may
    /// not have replicated it yet.
    NotThereYet,
    /// The replica waited for a position and did not reach it in time. Nothing but reads is sent
    /// before the wait has succeeded.
    NotFresh,
    /// The server takes no statements, and did not execute this one: MySQL's 1040, and 1047 of
    /// Galera.
    TurnedAway,
    /// The server ended the connection, and rolled back what it executed: FATAL 57P01, 57P02, 57P03
    /// and 53300. If an operator ended it, the same server accepts another connection.
    Terminated,
    /// The connection lacks a prepared statement of the request, which it should have. The
    /// statement was not executed, and its transaction was rolled back.
    Unprepared,
    /// The server closed the connection after too long an idle time, before it read the request:
    /// FATAL 57P05; MySQL's 4031. The server is healthy, and another connection works.
    NotRead,
    /// The connection broke or was terminated: MySQL's 1053. It is unknown whether the request was
    /// executed, completely or in part.
    Broken,
    /// Any other error, which is returned to the client.
    Error,
}

impl FailureKind {
    /// Returns whether the failure may mean that the server changed its role or is down, so that
    /// its role must be checked.
    #[must_use]
    pub fn requires_role_check(self) -> bool {
        matches!(
            self,
            FailureKind::ReadOnly
                | FailureKind::TurnedAway
                | FailureKind::Terminated
                | FailureKind::Broken
        )
    }
}

/// Kind of failure before the request itself was answered: of the connection attempt, or of
/// Evenkeel's own commands that set the connection up for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupFailure {
    /// The connection could not be opened, or was lost.
    Lost,
    /// The server replied to a command with an error, and ended the connection.
    Ended,
    /// The server rejected a command. A replica may not have the object that it names yet.
    Rejected,
    /// The server rejected a setting, and the session has replaced it by one that it accepts.
    Replaced,
    /// A time limit of the connection's previous client canceled a command. Other connections have
    /// other limits.
    Canceled,
}

/// Decision about a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The request is not sent again.
    No,
    /// The request is sent again.
    On(Resend),
}

/// Way in which a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resend {
    /// Server that it is sent to.
    pub target: RetryTarget,
    /// True if the retry counts towards [`RETRIES_MAX`].
    pub is_counted: bool,
}

/// Server that a request is sent to again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryTarget {
    /// Primary. The request may write, since a replica refused it.
    Primary,
    /// Primary. The request only reads.
    PrimaryForRead,
    /// Another primary than the failed server, after a wait for one. The request may write.
    AnotherPrimary,
    /// Server that routing chooses. Reads avoid the failed one.
    AnotherServer,
    /// Server that routing chooses, after a wait for another primary.
    AnotherServerAfterWait,
    /// Server that routing chooses, which may be the same one, on another connection.
    AnotherConnection,
}

impl RetryTarget {
    /// Returns whether the session waits for another primary first.
    #[must_use]
    pub fn waits_for_primary(self) -> bool {
        matches!(
            self,
            RetryTarget::AnotherPrimary | RetryTarget::AnotherServerAfterWait
        )
    }

    /// Returns where the request may be placed from now on.
    #[must_use]
    pub fn destination(self) -> Destination {
        match self {
            RetryTarget::Primary | RetryTarget::AnotherPrimary => Destination::Primary,
            RetryTarget::PrimaryForRead => Destination::PrimaryForRead,
            RetryTarget::AnotherServer
            | RetryTarget::AnotherServerAfterWait
            | RetryTarget::AnotherConnection => Destination::Any,
        }
    }

    /// Returns whether reads of this request avoid the failed server from now on.
    #[must_use]
    pub fn avoids_failed_server(self) -> bool {
        !matches!(
            self,
            RetryTarget::AnotherServerAfterWait | RetryTarget::AnotherConnection
        )
    }
}

/// Decides whether a failed request is sent again. A request that may have been executed, even in
/// part, is sent again only if it is a read.
#[must_use]
pub fn after_failure(failure: FailureKind, attempt: &Attempt) -> Retry {
    let is_safe = attempt.is_repeatable() || attempt.has_run_nothing(failure);
    let is_worthwhile = attempt.may_succeed_elsewhere(failure);
    if !attempt.can_move() || attempt.retries >= RETRIES_MAX || !is_safe || !is_worthwhile {
        return Retry::No;
    }
    counted(match failure {
        FailureKind::ReadOnly if !attempt.is_on_replica() => RetryTarget::AnotherPrimary,
        FailureKind::ReadOnly | FailureKind::Misrouted | FailureKind::RecoveryConflict => {
            RetryTarget::Primary
        }
        FailureKind::NotThereYet if attempt.effect != RequestEffect::Reads => RetryTarget::Primary,
        FailureKind::NotFresh | FailureKind::NotThereYet => RetryTarget::PrimaryForRead,
        FailureKind::TurnedAway if attempt.effect != RequestEffect::Reads => {
            match attempt.is_on_replica() {
                true => RetryTarget::Primary,
                false => RetryTarget::AnotherPrimary,
            }
        }
        FailureKind::NotRead | FailureKind::Unprepared => RetryTarget::AnotherConnection,
        FailureKind::TurnedAway
        | FailureKind::Terminated
        | FailureKind::Broken
        | FailureKind::Error => RetryTarget::AnotherServer,
    })
}

/// Decides whether another connection is used for a request whose connection could not be opened or
/// set up.
#[must_use]
pub fn after_setup_failure(failure: SetupFailure, attempt: &Attempt) -> Retry {
    // The request may have been sent together with the commands.
    let is_safe = attempt.progress == Progress::Unsent
        || attempt.is_repeatable()
        || attempt.effect == RequestEffect::Begins;
    if !attempt.can_move() || !is_safe {
        return Retry::No;
    }
    match failure {
        // Not counted: each server is tried once, and the wait for a primary has its own limit.
        SetupFailure::Lost => Retry::On(Resend {
            target: attempt.other_than_lost(),
            is_counted: false,
        }),
        _ if attempt.retries >= RETRIES_MAX => Retry::No,
        SetupFailure::Rejected | SetupFailure::Canceled if attempt.is_on_replica() => {
            counted(RetryTarget::PrimaryForRead)
        }
        SetupFailure::Rejected => Retry::No,
        SetupFailure::Ended | SetupFailure::Replaced | SetupFailure::Canceled => {
            counted(RetryTarget::AnotherConnection)
        }
    }
}

fn counted(target: RetryTarget) -> Retry {
    Retry::On(Resend {
        target,
        is_counted: true,
    })
}

impl Attempt {
    fn is_on_replica(&self) -> bool {
        self.server == FailedServer::Replica
    }

    /// Returns whether the request can be sent on another connection at all.
    fn can_move(&self) -> bool {
        !self.is_held && self.progress < Progress::Answered && self.is_kept
    }

    /// Returns whether a second execution changes nothing.
    fn is_repeatable(&self) -> bool {
        matches!(self.effect, RequestEffect::Reads | RequestEffect::Prepares)
    }

    /// Returns whether the failure proves that nothing of the request has taken effect.
    fn has_run_nothing(&self, failure: FailureKind) -> bool {
        if self.progress == Progress::Unsent {
            return true;
        }
        let is_atomic = self.atomicity < Atomicity::Partial;
        match failure {
            // Only what is known or assumed to read is sent to a replica, where writes fail.
            FailureKind::ReadOnly
            | FailureKind::Misrouted
            | FailureKind::RecoveryConflict
            | FailureKind::NotThereYet => self.is_on_replica() || is_atomic && !self.has_done,
            FailureKind::TurnedAway => is_atomic && !self.has_done,
            FailureKind::Terminated => self.atomicity == Atomicity::Whole && !self.has_done,
            // What the batch completed before was rolled back, unless it commits by itself.
            FailureKind::Unprepared => match self.atomicity {
                Atomicity::Whole => true,
                Atomicity::CommitsParts => !self.has_done,
                Atomicity::Partial => false,
            },
            FailureKind::NotRead => !self.has_done,
            FailureKind::NotFresh | FailureKind::Broken | FailureKind::Error => false,
        }
    }

    /// Returns whether the server is the cause of the failure.
    fn may_succeed_elsewhere(&self, failure: FailureKind) -> bool {
        match failure {
            // A conflict on a primary is one of transactions, and the client's own.
            FailureKind::RecoveryConflict
            | FailureKind::NotFresh
            | FailureKind::NotThereYet
            | FailureKind::Misrouted => self.is_on_replica(),
            FailureKind::ReadOnly => self.server != FailedServer::Primary,
            FailureKind::TurnedAway
            | FailureKind::Terminated
            | FailureKind::Unprepared
            | FailureKind::NotRead
            | FailureKind::Broken => true,
            FailureKind::Error => false,
        }
    }

    /// Returns where the request goes whose server is lost.
    fn other_than_lost(&self) -> RetryTarget {
        let is_read = self.effect == RequestEffect::Reads && self.destination == Destination::Any;
        match self.is_on_replica() || is_read && !self.was_tried {
            true => RetryTarget::AnotherServer,
            false => RetryTarget::AnotherServerAfterWait,
        }
    }
}
