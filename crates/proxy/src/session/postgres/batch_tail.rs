//! What comes behind the part of a batch that was looked through: its client wanted an answer
//! before its Sync (Flush), or it was too long.
//!
//! What was decided of the part holds for the rest only as far as that does not write, and the
//! rules are asked anew. What a replica cannot run moves its batch while that can be done, and is
//! refused there where it cannot.

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::route::retry::FailureKind;
use evenkeel_policy::route::{RouteTarget, ServerAvailability};
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::conversation::Request;
use evenkeel_wire::postgres::frame::Header;

use super::active_request::Draft;
use super::from_server::ScanResult;
use super::{ExitReason, Session};

/// With which words a server refuses what came too late to go elsewhere.
pub(super) const TOO_LATE: &str = "cannot execute statement: this pipeline started on a \
                                   read-only replica; send Sync before statements that may write";

/// A statement that cannot run where its batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum MisroutedStatement {
    /// There is none.
    #[default]
    None,
    /// It waits, and what becomes of the batch is to be decided.
    Found,
    /// The batch stays: the statement is refused.
    Refused,
}

impl Session<'_> {
    /// Looks at the next message of a batch that was not looked through to its end. True: it cannot
    /// run where the batch is.
    pub(super) fn check_batch_tail(
        &mut self,
        header: Header,
        request: Request,
        message: &[u8],
        is_whole: bool,
    ) -> bool {
        if !self.unit.is_open || self.unit.looked_at > 0 {
            return false;
        }
        self.unit.is_ruled = false;
        let is_at_replica = self.borrower.is_at_replica();
        let matters = adds_a_statement(request) && (self.unit.is_read || is_at_replica);
        let server = self.server.as_deref();
        if !matters || server.is_none_or(|server| server.conversation.awaits_sync()) {
            return false;
        }
        let view = self.permit.service().view_owned();
        let Some(own) = view.database.as_ref().filter(|own| own.splits_reads()) else {
            return false;
        };
        let mut draft = Draft::default();
        self.add_message(&mut draft, header, request, message, is_whole);
        // Where the batch is, reads are served.
        let seen = ServerAvailability {
            primary: own.primary,
            replicas: 1,
            replicas_fresh: 1,
        };
        let decision = self.decision(own, &draft, draft.ruling.as_ref(), seen);
        self.unit.is_read &= decision.is_read;
        self.unit.may_write |= draft.may_write;
        let is_of_readers = matches!(
            decision.target,
            RouteTarget::Readers { .. } | RouteTarget::Server(_)
        );
        is_at_replica && !is_of_readers
    }

    /// A statement was found that its batch cannot run where it is. True: the batch goes on
    /// elsewhere.
    pub(super) fn reroute_batch(&mut self) -> Result<bool, ExitReason> {
        if self.may_retry(FailureKind::ReadOnly) {
            let walked = ScanResult {
                broken: Some(String::new()),
                ..ScanResult::default()
            };
            // The server is what it was taken for: it is not doubted.
            self.take_back(FailureKind::ReadOnly, &walked)?;
            return Ok(true);
        }
        if self.has_only_prepared() {
            // What was prepared is prepared again wherever it is run.
            self.names.lost();
            self.unnamed.lost();
            self.effects.settled();
            self.let_go(Condition::Unclean)?;
            return Ok(true);
        }
        self.unit.stray = MisroutedStatement::Refused;
        self.can_continue = true;
        Ok(false)
    }

    /// Whether nothing of the batch is on its server that another one could not have as well.
    fn has_only_prepared(&self) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        let is_answered = server.conversation.owed() == 0 && server.boundaries.is_at_border();
        let is_outside = server.conversation.status() == TransactionStatus::Idle;
        is_answered && is_outside && !self.unit.binds && self.may_go_on_elsewhere()
    }
}

fn adds_a_statement(request: Request) -> bool {
    matches!(
        request,
        Request::Query | Request::Parse | Request::Bind | Request::FunctionCall
    )
}
