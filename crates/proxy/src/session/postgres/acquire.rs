//! Handles the acquisition of a server connection, and sets up the connection before it takes a
//! request.

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::route::retry::SetupFailure;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::client_scanner::Step;
use evenkeel_wire::postgres::conversation::RequestToken;
use evenkeel_wire::postgres::server_scanner::Event;
use evenkeel_wire::postgres::{TransactionStatus, build};

use super::active_request::BatchTail;
use super::dispatch::RequestDisposition;
use super::error_reply::ErrorReply;
use super::server::ServerConnection;
use super::{ActiveRequest, ExitReason, Preparation, Session, Stage};
use crate::error_catalog;
use crate::service::ServiceSnapshot;
use crate::service::activity::SessionActivity;
use crate::session::acquirer::{AcquireError, AcquireOutcome};
use crate::session::core::WaitEnd;
use crate::session::handle::SessionEvent;
use crate::session::placement::PlacementTarget;

impl Session<'_> {
    /// Keeps the error reply to a statement that Evenkeel sent itself.
    pub(super) fn keep_own_error(&mut self, event: &Event<'_>) {
        if let Event::Error(report) = event {
            let text = String::from_utf8_lossy(report.text()).into_owned();
            self.refused_setting = (report.sqlstate().0, text);
        }
    }

    /// Requests a connection for the next request, whose bytes the caller has. Returns true if they
    /// can be sent, false if they must be held.
    pub(super) fn acquire(
        &mut self,
        wanted: &PlacementTarget,
        view: &ServiceSnapshot,
    ) -> Result<bool, ExitReason> {
        match self.core.acquirer.acquire(wanted, view) {
            AcquireOutcome::Server(server) => Ok(self.accept_server(server)),
            AcquireOutcome::Denied(error) => {
                self.refusal = Some(ErrorReply::from_acquire_error(&error));
                self.core.handle.notify(SessionEvent::Recheck);
                Ok(false)
            }
            outcome => {
                self.follow(outcome)?;
                Ok(false)
            }
        }
    }

    /// Continues with the next request, whose bytes are held, after an acquisition.
    pub(super) fn follow(
        &mut self,
        outcome: AcquireOutcome<ServerConnection>,
    ) -> Result<(), ExitReason> {
        self.stage = Stage::Ready;
        match outcome {
            AcquireOutcome::Server(server) => match self.accept_server(server) {
                true => self.go_on(),
                false => Ok(()),
            },
            AcquireOutcome::Pending => {
                // Cached analysis may be out of date when the connection arrives.
                self.effects.read_ahead = None;
                self.stage = Stage::Waiting;
                Ok(())
            }
            AcquireOutcome::Reroute => self.go_on(),
            AcquireOutcome::Failed(failure, error) => self.retry_or_deny(failure, &error),
            AcquireOutcome::Denied(error) => self.denied(&error),
        }
    }

    fn denied(&mut self, error: &AcquireError) -> Result<(), ExitReason> {
        let error_reply = ErrorReply::from_acquire_error(error);
        match (error, &error_reply.code.0) {
            // The session's credentials are no longer valid.
            (AcquireError::ConnectFailed(_), b"28P01" | b"28000") => {
                Err(ExitReason::Fatal(error_reply))
            }
            _ => self.refuse(&error_reply),
        }
    }

    /// Acquires another connection for work of which nothing was sent, or denies it.
    pub(super) fn retry_or_deny(
        &mut self,
        failure: SetupFailure,
        error: &AcquireError,
    ) -> Result<(), ExitReason> {
        match self.retry_after_setup(failure) {
            Some(result) => result,
            None => self.denied(error),
        }
    }

    /// Takes an acquired connection. Returns true if it is ready; otherwise the session's settings
    /// are being set on it first.
    fn accept_server(&mut self, mut server: Box<ServerConnection>) -> bool {
        self.active.since_us = self.core.begins_work(&server);
        self.stage = Stage::Ready;
        self.sequences.used_nextval = false;
        let session = self.core.handle.session_id();
        self.sequences.inherits_others = server
            .sequence_state
            .has_others(session, self.sequences.uses);
        let interner = self.core.worker.interner();
        let mut sql = Vec::new();
        let wanted = server.settings.prepare(&self.state, interner, &mut sql);
        let Some(wanted) = wanted else {
            self.catch_up(&server);
            self.core.server = Some(server);
            return true;
        };
        let mut out = self.core.worker.take_spare();
        server.query(&sql, RequestToken::default(), &mut out);
        // If this fails, the next receive reports it.
        let _ = server.core.stream.send_own(self.core.worker, out);
        self.core.server = Some(server);
        self.stage = Stage::Preparing(Preparation::Acquired {
            wanted,
            is_cancelled: false,
        });
        self.refused_setting = ([0; 5], String::new());
        false
    }

    /// Restores startup settings that a RESET has changed, on a connection that the session keeps.
    pub(super) fn restore(&mut self) -> Result<(), ExitReason> {
        self.must_restore_startup = false;
        self.refused_setting = ([0; 5], String::new());
        let interner = self.core.worker.interner();
        let Some(server) = &mut self.core.server else {
            return Ok(());
        };
        let mut sql = Vec::new();
        let wanted = match server.conversation.is_idle() {
            true => server.settings.prepare(&self.state, interner, &mut sql),
            false => {
                self.state.restore(&server.settings, &mut sql);
                None
            }
        };
        let mut out = self.core.worker.take_spare();
        if sql.is_empty() || !server.query(&sql, RequestToken::default(), &mut out) {
            return Ok(());
        }
        // If this fails, the next receive reports it.
        let _ = server.core.stream.send_own(self.core.worker, out);
        self.stage = Stage::Preparing(Preparation::Restored(wanted));
        Ok(())
    }

    /// Sends the client the parameter values in which its new server differs from the previous one.
    fn catch_up(&mut self, server: &ServerConnection) {
        let mut out = std::mem::take(&mut self.core.answers);
        let settings = self.state.settings().clone();
        let interner = self.core.worker.interner();
        let reported = &mut self.state.reported;
        reported.catch_up(&server.settings, &settings, interner, |name, value| {
            build::parameter_status(&mut out, name, value);
        });
        self.core.answers = out;
    }

    /// Returns whether the connection is being set up and the client has received nothing from it.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.stage, Stage::Preparing(Preparation::Acquired { .. }))
    }

    /// Handles the end of Evenkeel's SETs.
    pub(super) fn settings_placed(&mut self, went_well: bool) -> Result<(), ExitReason> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ready);
        let (Stage::Preparing(preparation), Some(mut server)) = (stage, self.core.server.take())
        else {
            return Ok(());
        };
        let wanted = match preparation {
            Preparation::Acquired { wanted, .. } if went_well => Some(wanted),
            Preparation::Acquired { is_cancelled, .. } => {
                self.core.acquirer.release(server, Condition::Unclean);
                return self.handle_own_rejection(is_cancelled);
            }
            Preparation::Restored(wanted) if went_well => wanted,
            Preparation::Restored(_) => {
                self.core.server = Some(server);
                let text = std::mem::take(&mut self.refused_setting);
                let reply = ErrorReply::with(&error_catalog::STARTUP_SETTINGS_LOST, &[&text.1]);
                return Err(ExitReason::Fatal(reply.coded(SqlState(text.0))));
            }
        };
        if let Some(wanted) = wanted {
            server
                .settings
                .restored(wanted, self.core.worker.interner());
        }
        self.catch_up(&server);
        self.core.server = Some(server);
        self.go_on()?;
        self.offer_connection();
        Ok(())
    }

    /// Handles the rejection of Evenkeel's SETs: retries the request, or refuses it.
    /// `is_cancelled`: the session was cancelled since they began.
    fn handle_own_rejection(&mut self, is_cancelled: bool) -> Result<(), ExitReason> {
        let failure = match &self.refused_setting.0 {
            [b'5', b'7', b'P', b'0', _] => SetupFailure::Lost,
            // The SETs run with the settings of the previous client, such as `statement_timeout`.
            b"57014" if !is_cancelled => SetupFailure::Canceled,
            _ => SetupFailure::Rejected,
        };
        if let Some(result) = self.retry_after_setup(failure) {
            return result;
        }
        let text = std::mem::take(&mut self.refused_setting);
        let error_reply = ErrorReply::with(&error_catalog::SETTING_REJECTED, &[&text.1]);
        let error_reply = error_reply.coded(SqlState(text.0));
        // For data exceptions, syntax and access errors the named object no longer exists. Every
        // later request of the session would fail likewise.
        let is_for_good = text.0.starts_with(b"22") || text.0.starts_with(b"42");
        match is_for_good {
            true => Err(ExitReason::Fatal(error_reply)),
            false => self.refuse(&error_reply),
        }
    }

    /// Refuses the held request: sends the error to the client, and continues with the next
    /// request.
    pub(super) fn refuse(&mut self, error_reply: &ErrorReply) -> Result<(), ExitReason> {
        self.stage = Stage::Ready;
        self.core.acquirer.at = None;
        self.core.acquirer.release_failover_slot();
        let is_over = self.drop_unit()?;
        self.active = ActiveRequest::new();
        self.core.set_activity(SessionActivity::Idle);
        let out = self.core.answers();
        error_reply.write_error(out);
        if is_over {
            build::ready_for_query(out, TransactionStatus::Idle);
        } else {
            self.active.tail = BatchTail::Discarded;
        }
        // Later requests are processed in a separate step.
        self.core.handle.notify(SessionEvent::Recheck);
        Ok(())
    }

    /// Discards the held bytes of the next request. Returns whether it was complete.
    fn drop_unit(&mut self) -> Result<bool, ExitReason> {
        use evenkeel_wire::postgres::conversation::Request;
        self.effects.read_ahead = None;
        let held = std::mem::take(&mut self.pending_input);
        let mut at = 0;
        let is_over = loop {
            match self.scanner.next(held.get(at..).unwrap_or_default()) {
                Step::Message {
                    passed,
                    request,
                    length,
                    ..
                } => {
                    at += passed + length;
                    if matches!(
                        request,
                        Request::Query | Request::FunctionCall | Request::Sync
                    ) {
                        break true;
                    }
                    if request == Request::Terminate {
                        return Err(ExitReason::ClientLeft);
                    }
                }
                Step::Wait { passed, .. } => {
                    at += passed;
                    break false;
                }
                Step::Invalid(fault) => return Err(ExitReason::Fatal(ErrorReply::protocol(fault))),
            }
        };
        self.hold(&held[at..]);
        Ok(is_over)
    }

    /// Handles an event from outside. After any of them the wait of the session is checked.
    pub(super) fn handle_event(&mut self, event: SessionEvent) -> Result<(), ExitReason> {
        if let Some(why) = self.core.loss_by(event)? {
            return self.server_lost(&why);
        }
        if let Stage::Preparing(Preparation::Acquired { is_cancelled, .. }) = &mut self.stage {
            *is_cancelled |= event == SessionEvent::Cancelled;
        }
        if let Some(error_reply) = self.refusal.take() {
            self.core.acquirer.leave_queues();
            return self.refuse(&error_reply);
        }
        match self.core.wait_end(event) {
            Some(WaitEnd::Cancelled) => {
                self.refuse(&ErrorReply::new(&error_catalog::QUERY_CANCELED))
            }
            Some(WaitEnd::TimedOut) => self.refuse(&ErrorReply::new(&error_catalog::POOL_TIMEOUT)),
            Some(WaitEnd::Reroute) => self.try_reroute(),
            None if matches!(self.stage, Stage::Ready) && self.core.server.is_none() => {
                self.go_on()
            }
            None => Ok(()),
        }
    }

    /// Reroutes the queued request if another server can serve it sooner.
    fn try_reroute(&mut self) -> Result<(), ExitReason> {
        let held = std::mem::take(&mut self.pending_input);
        let disposition = self.dispatch(&held);
        self.pending_input = held;
        let RequestDisposition::Unit(wanted, view) = disposition? else {
            return Ok(());
        };
        match self.core.acquirer.reroute_to(wanted, &view) {
            true => self.follow(AcquireOutcome::Reroute),
            false => Ok(()),
        }
    }
}
