//! Executes KILL of another session.

use std::sync::Arc;

use super::commands::RequestDisposition;
use super::error_reply::ErrorReply;
use super::{Session, Stage};
use crate::error_catalog;
use crate::session::cancel::{KillOutcome, KillRequest, forward_kill, kill};

impl<'a> Session<'a> {
    /// Handles KILL of a connection id assigned by Evenkeel.
    pub(super) fn kill(&mut self, id: u64, only_query: bool) -> RequestDisposition {
        let user = Arc::clone(&self.account.pool_user.user);
        let wanted = KillRequest {
            id,
            user,
            only_query,
        };
        if forward_kill(self.core.worker, self.core.permit.service(), &wanted) {
            self.killed(id, KillOutcome::Done);
            return RequestDisposition::Done;
        }
        let worker: &'a crate::worker::Worker = self.core.worker;
        let killing = Box::pin(kill(worker, self.core.permit.service().id, wanted));
        self.stage = Stage::Killing(killing, id);
        RequestDisposition::Done
    }

    pub(super) fn killed(&mut self, id: u64, killed: KillOutcome) {
        self.stage = Stage::Command;
        match killed {
            KillOutcome::Done => self.answer_ok(),
            KillOutcome::NotYours => {
                self.reply_error(ErrorReply::with(&error_catalog::KILL_NOT_OWNER, &[&id]));
            }
            KillOutcome::Nobody => {
                self.reply_error(ErrorReply::with(&error_catalog::KILL_OF_UNKNOWN_ID, &[&id]));
            }
        }
    }
}
