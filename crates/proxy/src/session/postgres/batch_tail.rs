//! Routes the part of a batch that follows its analyzed beginning. A batch is divided if its client
//! requests replies before its Sync (Flush), or if it is too long.
//!
//! The decision for the beginning holds for the rest only if that does not write, and the rules are
//! applied again. If a replica cannot run a statement, the batch moves to another server if
//! possible; otherwise the statement is refused.

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::route::retry::{FailureKind, Retry};
use evenkeel_policy::route::{RouteTarget, ServerAvailability};
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::conversation::Request;
use evenkeel_wire::postgres::frame::Header;

use super::active_request::{Access, BatchTail};
use super::dispatch::Draft;
use super::scan_result::ScanResult;
use super::{ExitReason, Session};

impl Session<'_> {
    /// Analyzes the next message of a batch that was not analyzed to its end. Returns whether it
    /// cannot run on the batch's server.
    pub(super) fn check_batch_tail(
        &mut self,
        header: Header,
        request: Request,
        message: &[u8],
        is_whole: bool,
    ) -> bool {
        if !self.active.tail.begins() {
            return false;
        }
        self.active.has_applied_rules = false;
        let is_at_replica = self.core.acquirer.is_at_replica();
        let matters =
            adds_a_statement(request) && (self.active.access == Access::Reads || is_at_replica);
        let server = self.core.server.as_deref();
        if !matters || server.is_none_or(|server| server.conversation.awaits_sync()) {
            return false;
        }
        let view = self.core.permit.service().snapshot_owned();
        let Some(database) = view.database().filter(|database| database.splits_reads()) else {
            return false;
        };
        let mut draft = Draft::default();
        self.add_message(&mut draft, header, request, message, is_whole);
        // The batch's server serves reads.
        let availability = ServerAvailability {
            primary: database.primary,
            replicas: 1,
            replicas_fresh: 1,
        };
        let decision = self.decision(database, &draft, draft.rules.as_ref(), availability);
        self.active
            .access
            .add_routed(decision.is_read, draft.may_write);
        let is_of_readers = matches!(
            decision.target,
            RouteTarget::Readers { .. } | RouteTarget::Server(_)
        );
        is_at_replica && !is_of_readers
    }

    /// Handles a statement that the batch's server cannot run. Returns whether the batch continues
    /// on another server.
    pub(super) fn reroute_batch(&mut self) -> Result<bool, ExitReason> {
        if let Retry::On(resend) = self.retry_after(FailureKind::Misrouted) {
            let scan = ScanResult {
                broken: Some(String::new()),
                ..ScanResult::default()
            };
            self.begin_retry(FailureKind::Misrouted, resend, &scan)?;
            return Ok(true);
        }
        if self.has_only_prepared() {
            // Statements prepared here are prepared again on the next server.
            self.statements.undo_unanswered();
            self.unnamed.undo();
            self.effects.settled();
            self.release_server(Condition::Unclean)?;
            return Ok(true);
        }
        self.active.tail = BatchTail::Refused;
        self.continue_soon();
        Ok(false)
    }

    /// Returns whether the batch has left nothing on its server that another one could not have as
    /// well.
    fn has_only_prepared(&self) -> bool {
        let Some(server) = &self.core.server else {
            return false;
        };
        let is_answered =
            server.conversation.pending_count() == 0 && server.boundaries.is_at_border();
        let is_outside = server.conversation.status() == TransactionStatus::Idle;
        is_answered && is_outside && !self.active.binds && self.may_go_on_elsewhere()
    }
}

fn adds_a_statement(request: Request) -> bool {
    matches!(
        request,
        Request::Query | Request::Parse | Request::Bind | Request::FunctionCall
    )
}
