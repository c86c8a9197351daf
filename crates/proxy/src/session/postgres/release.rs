//! Decides whether the server connection is released after a reply, and resets what depended on it.

use evenkeel_policy::connection_pool::Condition;

use super::held::HeldUntil;
use super::held_state::Knowledge;
use super::server::ServerConnection;
use super::{ExitReason, Session, Stage};
use crate::service::activity::SessionActivity;

impl Session<'_> {
    /// Releases the connection if the session has no state on it.
    pub(super) fn release_if_idle(&mut self) -> Result<(), ExitReason> {
        let Some(server) = &self.core.server else {
            return Ok(());
        };
        if matches!(self.stage, Stage::Listening) {
            // The held LISTEN is answered on this connection.
            return Ok(());
        }
        if server.is_idle_but_sending() {
            // The next client's bytes must not precede or interleave with unsent ones.
            self.release_after_send = true;
            return Ok(());
        }
        if !server.is_idle() || !self.scanner.is_at_border() {
            if server.conversation.is_quiet() {
                self.core.set_activity(SessionActivity::InTransaction);
            }
            self.active.cannot_run_again();
            return self.go_on_with_same();
        }
        if !self.state.pins.is_empty() || self.core.keeps_connection() {
            self.core.set_activity(SessionActivity::Bound);
            self.active.renew();
            self.go_on_with_same()?;
            self.offer_connection();
            return Ok(());
        }
        if self.ask_for_last_value() {
            return Ok(());
        }
        self.release_server(Condition::Clean)
    }

    /// Returns whether the session has no state on its connection between two requests.
    pub(super) fn may_go_on_elsewhere(&self) -> bool {
        let is_free = self.state.pins.is_empty() && !self.core.keeps_connection();
        is_free && self.scanner.is_at_border() && matches!(self.stage, Stage::Ready)
    }

    pub(super) fn release_server(&mut self, condition: Condition) -> Result<(), ExitReason> {
        if let Some(server) = self.detach_server() {
            self.core.acquirer.release(server, condition);
        }
        self.released();
        Ok(())
    }

    /// Takes the connection away from the session.
    pub(super) fn detach_server(&mut self) -> Option<Box<ServerConnection>> {
        self.release_after_send = false;
        let server = self.core.server.take()?;
        self.core.acquirer.at = None;
        // The next connection is set up anyway.
        self.must_restore_startup = false;
        self.forget_connection();
        Some(server)
    }

    /// Continues without a connection.
    pub(super) fn released(&mut self) {
        self.core.acquirer.release_failover_slot();
        self.core.set_activity(SessionActivity::Idle);
        self.active.renew();
        self.stage = Stage::Ready;
        // In a separate step: the held input may contain any number of requests.
        self.held_until = match self.pending_input.is_empty() {
            true => HeldUntil::Event,
            false => HeldUntil::NextStep,
        };
    }

    /// Resets state that applied only to the released connection.
    pub(super) fn forget_connection(&mut self) {
        self.pending.forget();
        self.database_change = None;
        self.portals.clear();
        self.listening.iter_mut().for_each(|one| one.undo());
        self.knowledge = Knowledge::Uncertain;
        self.settings_settled();
        self.end_wait_for_replies();
        self.effects.discards_ended();
    }

    pub(super) fn go_on_with_same(&mut self) -> Result<(), ExitReason> {
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        if self.must_restore_startup && self.core.server.as_deref().is_some_and(is_quiet) {
            self.restore()?;
        }
        if !self.waits_for_replies() {
            let is_due = matches!(self.stage, Stage::Ready) && !self.pending_input.is_empty();
            self.held_until = match is_due {
                true => HeldUntil::NextStep,
                false => HeldUntil::Event,
            };
        }
        Ok(())
    }
}
