//! Forwards the stream between a replication client and its server connection, which it keeps from
//! its login to its end.
//!
//! Texts are not analyzed, since many are not SQL, and settings are left to the server. Only the
//! state of the conversation is tracked, to detect when it is idle.

use evenkeel_wire::postgres::client_scanner::Step;
use evenkeel_wire::postgres::conversation::{
    Delivery, Origin, ReplyOutcome, Request, RequestToken,
};
use evenkeel_wire::postgres::server_scanner::Event;

use super::active_request::ends_a_unit;
use super::error_reply::ErrorReply;
use super::scan_result::ScanResult;
use super::server::ServerConnection;
use super::{ExitReason, Session};
use crate::service::activity::SessionActivity;
use crate::session::handle::SessionEvent;
use crate::session::input::Input;

impl Session<'_> {
    pub(super) fn replicates(&self) -> bool {
        self.account.pool_user.replication.is_some()
    }

    /// Abandons the server if the primary has changed during the login, when the session could not
    /// be notified.
    pub(super) fn check_primary(&self) {
        if self
            .core
            .acquirer
            .is_at_former_primary(&self.core.permit.service().snapshot())
        {
            self.core.handle.notify(SessionEvent::ServerAbandoned);
        }
    }

    /// Forwards input of the client, except for an incomplete beginning of a message.
    pub(super) fn forward_replication(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        let bytes = input.bytes();
        let taken = self.follow_requests(bytes)?;
        if taken == bytes.len() {
            self.send_input(input)?;
            self.release_if_ended();
            return Ok(());
        }
        self.hold(&bytes[taken..]);
        if taken == 0 {
            return Ok(());
        }
        let mut out = self.core.worker.take_spare();
        out.extend_from_slice(&bytes[..taken]);
        drop(input);
        self.send_to_server(out)
    }

    /// Returns how many bytes may be sent now.
    fn follow_requests(&mut self, bytes: &[u8]) -> Result<usize, ExitReason> {
        let mut at = 0;
        while self.takes_more() && !self.is_terminating {
            match self.scanner.next(bytes.get(at..).unwrap_or_default()) {
                Step::Message {
                    passed,
                    request,
                    length,
                    ..
                } => {
                    at += passed;
                    self.is_terminating = request == Request::Terminate;
                    if !self.is_terminating {
                        self.is_asked(request);
                        at += length;
                    }
                }
                Step::Wait { passed, .. } => return Ok(at + passed),
                Step::Invalid(fault) => return Err(ExitReason::Fatal(ErrorReply::protocol(fault))),
            }
        }
        Ok(at)
    }

    fn is_asked(&mut self, request: Request) {
        let Some(server) = &mut self.core.server else {
            return;
        };
        // A message that need not be sent does no harm: the server skips it.
        let _ = server
            .conversation
            .sent(request, Origin::Client, RequestToken::default());
        if ends_a_unit(request) {
            self.core.set_activity(SessionActivity::Active);
        }
    }

    /// Processes a reply of the server.
    pub(super) fn hear_replication(
        &mut self,
        server: &mut ServerConnection,
        event: &Event<'_>,
        scan: &mut ScanResult,
    ) -> Delivery {
        match server.conversation.reply(event).map(|reply| reply.outcome) {
            Ok(ReplyOutcome::Ready) => scan.is_ready = true,
            Ok(ReplyOutcome::Fatal(_)) => {
                self.active.fatal_was_sent = true;
                scan.broken = Some("closed the connection".to_owned());
            }
            Ok(_) => {}
            Err(out_of_sync) => {
                scan.broken = Some(out_of_sync.to_string());
                return Delivery::Discard;
            }
        }
        Delivery::Forward
    }
}
