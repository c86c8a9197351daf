//! Forwards the client's messages to its server: replaces statement names by Evenkeel's own, and
//! records the effects of statements.

use evenkeel_policy::pins::Pin;
use evenkeel_policy::route::retry::Progress;
use evenkeel_wire::postgres::client_scanner::Step;
use evenkeel_wire::postgres::conversation::{DueAction, Origin, Request, RequestToken, Sending};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::stream_editor::{EditOutcome, StreamEditor};

use super::active_request::{BatchTail, ends_a_unit};
use super::dispatch::RequestDisposition;
use super::error_reply::ErrorReply;
use super::held::HeldUntil;
use super::server::ServerConnection;
use super::{ExitReason, KEPT_LENGTH_MAX, Session, Stage};
use crate::service::activity::SessionActivity;
use crate::session::input::Input;

/// Maximum number of requests sent to a server whose replies are outstanding.
const OWED_MAX: usize = 10_000;

impl Session<'_> {
    /// Processes input of a client without a server connection.
    pub(super) fn begin(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        let mut at = 0;
        loop {
            let rest = input.bytes().get(at..).unwrap_or_default();
            if rest.is_empty() {
                input.used_up(self.core.worker);
                return Ok(());
            }
            if let Some(length) = self.prepare_locally(rest) {
                at += length;
                continue;
            }
            match self.dispatch(rest)? {
                RequestDisposition::Local(length) => at += length,
                RequestDisposition::Leave => return Err(ExitReason::ClientLeft),
                RequestDisposition::More => {
                    self.hold_rest(input, at);
                    return Ok(());
                }
                RequestDisposition::Unit(wanted, view) => {
                    let is_there = self.acquire(&wanted, &view)?;
                    if is_there && at == 0 {
                        return self.forward(input);
                    }
                    self.hold(&input.bytes()[at..]);
                    drop(input);
                    return if is_there { self.go_on() } else { Ok(()) };
                }
            }
        }
    }

    /// Processes input of a client with a server connection.
    pub(super) fn forward(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        if !self.dispatch_at_replica(input.bytes())? {
            self.hold(input.bytes());
            return Ok(());
        }
        self.keep_connection();
        if matches!(
            self.core.handle.activity(),
            Some((SessionActivity::InTransaction | SessionActivity::Bound, _))
        ) {
            self.clear_rules();
            self.active.since_us = self.core.acquirer.begins_work();
        }
        let mut out = self.core.worker.take_spare();
        let (is_whole, taken) = {
            let bytes = input.bytes();
            let mut flight = StreamEditor::new(bytes, &mut out);
            self.messages(&mut flight)?;
            let taken = flight.at();
            self.keep_for_retry(&bytes[..taken]);
            let is_whole = match flight.finish() {
                EditOutcome::Whole(whole) => {
                    if whole.len() < bytes.len() {
                        out.extend_from_slice(&bytes[..taken]);
                    }
                    taken == bytes.len()
                }
                EditOutcome::Edited => false,
            };
            (is_whole, taken)
        };
        let input = match taken == input.bytes().len() {
            true => Some(input),
            false => {
                self.hold_rest(input, taken);
                None
            }
        };
        if self.active.tail == BatchTail::Misrouted && self.reroute_batch()? {
            self.core.worker.keep_spare(out);
            return Ok(());
        }
        self.give_answers();
        if let Some(input) = input.filter(|_| is_whole && out.is_empty()) {
            self.core.worker.keep_spare(out);
            self.send_input(input)?;
            self.release_if_ended();
            return Ok(());
        }
        if taken == 0 && out.is_empty() {
            // The beginning of a message, or more than may be sent now: processing continues later.
            self.core.worker.keep_spare(out);
            return Ok(());
        }
        self.send_to_server(out)
    }

    pub(super) fn send_input(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        let worker = self.core.worker;
        let Some(server) = &mut self.core.server else {
            return Ok(());
        };
        self.active.progress.reach(Progress::Sent);
        match input.send(worker, &mut server.core.stream) {
            Ok(()) => Ok(()),
            Err(error) => self.server_lost(&error.to_string()),
        }
    }

    pub(super) fn send_to_server(&mut self, out: Vec<u8>) -> Result<(), ExitReason> {
        if self.core.server.is_none() {
            return Ok(());
        }
        if out.is_empty() {
            self.core.worker.keep_spare(out);
            // Evenkeel has answered all of it: no reply will come that could release the
            // connection.
            return self.release_if_idle();
        }
        self.active.progress.reach(Progress::Sent);
        match self.core.send_to_server(out) {
            Ok(()) => {
                self.release_if_ended();
                Ok(())
            }
            Err(why) => self.server_lost(&why),
        }
    }

    /// Marks the connection for release if no reply is due, as after the rest of a failed COPY.
    pub(super) fn release_if_ended(&mut self) {
        let is_idle = |server: &ServerConnection| server.conversation.is_idle();
        self.release_after_send |= self.core.server.as_deref().is_some_and(is_idle);
    }

    /// Keeps the bytes of an unanswered request so that it can be retried on another server.
    pub(super) fn keep_for_retry(&mut self, bytes: &[u8]) {
        let active = &mut self.active;
        let fits = |kept: &Vec<u8>| kept.len() + bytes.len() <= KEPT_LENGTH_MAX;
        match &mut active.kept {
            Some(kept) if active.progress < Progress::Answered && fits(kept) => {
                kept.extend_from_slice(bytes);
            }
            kept => *kept = None,
        }
    }

    /// Processes messages while the server can take more.
    pub(super) fn messages(&mut self, flight: &mut StreamEditor<'_, '_>) -> Result<(), ExitReason> {
        while self.takes_more() && !self.waits_for_replies() {
            let mut scanner = self.scanner;
            let step = scanner.next(flight.rest());
            let (passed, header, request, length, is_whole) = match step {
                Step::Message {
                    passed,
                    header,
                    request,
                    length,
                    is_whole,
                } => (passed, header, request, length, is_whole),
                Step::Wait { passed, .. } => {
                    self.scanner = scanner;
                    self.pass(flight, passed);
                    return Ok(());
                }
                Step::Invalid(fault) => return Err(ExitReason::Fatal(ErrorReply::protocol(fault))),
            };
            let message = flight.rest().get(passed..passed + length);
            let message = message.unwrap_or_default();
            let bytes = &flight.rest()[passed..];
            if self.lacks_values(header, request, bytes)
                || self.waits(header, request, message, is_whole)
                || self.waits_to_listen(header, request, bytes)
            {
                // Up to the message boundary before it.
                let _ = self.scanner.next(&flight.rest()[..passed]);
                self.pass(flight, passed);
                return Ok(());
            }
            self.scanner = scanner;
            self.pass(flight, passed);
            if request == Request::Terminate {
                if flight.at() == 0 {
                    return Err(ExitReason::ClientLeft);
                }
                flight.drop(length);
                self.is_terminating = true;
                return Ok(());
            }
            if self.active.is_sent {
                // Sent before the previous reply: the two cannot be retried together.
                self.active.cannot_run_again();
                self.active.has_applied_rules = false;
            }
            self.begin_without_sequences(flight);
            let sending = self.message(flight, header, request, message, is_whole)?;
            // The message's own disposition applies up to here; its rest follows it.
            self.passing = sending;
            self.active.has_sent(request);
            if !ends_a_unit(request) {
                self.pending.begins(request);
            }
        }
        Ok(())
    }

    /// Returns whether a message must wait, together with those after it.
    fn waits(&mut self, header: Header, request: Request, message: &[u8], is_whole: bool) -> bool {
        if self.is_next_unit_of_replica() {
            return true;
        }
        let must_wait = self.waits_for_the_end(header, request, message)
            || is_whole && self.waits_for_a_name(request, message);
        if must_wait {
            self.held_until = HeldUntil::Replies;
            return true;
        }
        let is_misrouted = self.check_batch_tail(header, request, message, is_whole);
        if is_misrouted && self.active.tail != BatchTail::Refused {
            self.active.tail = BatchTail::Misrouted;
        }
        self.active.tail == BatchTail::Misrouted
    }

    /// Returns whether a message must wait for the end of earlier requests.
    fn waits_for_the_end(&self, header: Header, request: Request, message: &[u8]) -> bool {
        let is_behind = self.core.server.as_deref().is_some_and(will_end);
        let is_cleared = self.effects.discards_statements() || self.is_unreadable_yet(request);
        is_behind && is_cleared || self.is_undecided(header, request, message)
    }

    fn waits_for_a_name(&self, request: Request, message: &[u8]) -> bool {
        self.core.server.as_deref().is_some_and(will_end) && self.runs_by_name(request, message)
    }

    /// Returns whether a replica's request has been sent completely and later ones must wait. They
    /// do not if Evenkeel has answered instead of the replica, or if no reply comes before a Sync.
    pub(super) fn is_next_unit_of_replica(&self) -> bool {
        let is_ready_pending = |server: &ServerConnection| server.conversation.is_ready_pending();
        let is_sent = self.core.acquirer.is_at_replica() && self.active.is_sent;
        is_sent && self.core.server.as_deref().is_some_and(is_ready_pending)
    }

    /// Returns whether the server can take more. A replica gets one request at a time, because the
    /// next one may need another server.
    pub(super) fn takes_more(&self) -> bool {
        let Some(server) = &self.core.server else {
            return false;
        };
        let is_ready = matches!(self.stage, Stage::Ready) && !self.is_paused();
        is_ready && server.conversation.pending_count() < OWED_MAX
    }

    /// Forwards or drops the rest of a message like its beginning.
    pub(super) fn pass(&self, flight: &mut StreamEditor<'_, '_>, length: usize) {
        match self.passing {
            Sending::Forward => flight.keep(length),
            Sending::Drop => flight.drop(length),
        }
    }

    pub(super) fn message(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        request: Request,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, ExitReason> {
        let awaits_sync = |server: &ServerConnection| server.conversation.awaits_sync();
        let is_nothing =
            request != Request::Sync && self.core.server.as_deref().is_some_and(awaits_sync);
        if is_nothing {
            // The server ignores it, so nothing of it is recorded.
            self.listening
                .iter_mut()
                .for_each(|one| one.undo_unanswered());
            return Ok(self.send(flight, request, RequestToken(0), message.len()));
        }
        match request {
            Request::Query => self.query(flight, message, is_whole),
            Request::Parse => self.parse(flight, header, message, is_whole),
            Request::Bind | Request::DescribeStatement | Request::Close => {
                self.note_signal(header, request, flight.rest());
                self.named(flight, header, request, message)
            }
            Request::Execute => Ok(self.execute(flight, header, message)),
            Request::Sync => {
                self.active.is_sent = true;
                self.segment += 1;
                self.portals.batch_ended();
                Ok(self.send(flight, request, RequestToken(0), message.len()))
            }
            Request::FunctionCall => {
                // The function that it calls is not analyzed.
                self.forget_sequences(flight);
                self.pin_for(Pin::Unknown, "a FunctionCall message");
                self.pending.runs(0);
                self.active.is_sent = true;
                self.active.writes();
                Ok(self.send(flight, request, RequestToken(0), message.len()))
            }
            _ => Ok(self.send(flight, request, RequestToken(0), message.len())),
        }
    }

    /// Sends a message unchanged.
    pub(super) fn send(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        request: Request,
        token: RequestToken,
        length: usize,
    ) -> Sending {
        let sending = self.record_sent(request, token);
        match sending {
            Sending::Forward => flight.keep(length),
            Sending::Drop => flight.drop(length),
        }
        if let Some(server) = &mut self.core.server
            && request == Request::Sync
            && server.conversation.needs_fence()
        {
            server.conversation.fence(flight.writer());
        }
        sending
    }

    /// Sends another message of the same kind in place of one, unless it is to be skipped.
    pub(super) fn replace(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        (request, token): (Request, RequestToken),
        length: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Sending {
        let sending = self.record_sent(request, token);
        flight.drop(length);
        if sending == Sending::Forward {
            write(flight.writer());
        }
        sending
    }

    /// Records that a message of the client is about to be sent, and returns whether it may be.
    fn record_sent(&mut self, request: Request, token: RequestToken) -> Sending {
        let Some(server) = &mut self.core.server else {
            return Sending::Drop;
        };
        let sending = server.conversation.sent(request, Origin::Client, token);
        if request == Request::Query {
            server.unnamed = 0;
        }
        if sending == Sending::Forward && ends_a_unit(request) {
            self.pending.is_sent();
            // Statements prepared after it must not be confused with those that it discards.
            if self.effects.discards_statements() {
                self.held_until = HeldUntil::Replies;
            }
        }
        sending
    }

    /// Writes the due replies that Evenkeel generates.
    pub(super) fn give_answers(&mut self) {
        let Some(mut server) = self.core.server.take() else {
            return;
        };
        // They are sent with the next reply if one is due, and never inside one.
        if !server.conversation.is_reply_pending() && server.boundaries.is_at_border() {
            let mut out = std::mem::take(&mut self.core.answers);
            while let Some(due) = server.conversation.due() {
                match due {
                    DueAction::Answer(answer, token) => {
                        self.answer_given(token);
                        // Other replies generated here belong to earlier requests and remain valid.
                        self.active.progress.reach(Progress::Answered);
                        answer.write(&mut out, server.conversation.status());
                    }
                    due => self.passed_over(due, &mut server),
                }
            }
            self.core.answers = out;
            if server.conversation.is_quiet() {
                self.statements.settled();
                server.prepared.settled();
            }
        }
        self.core.server = Some(server);
    }
}

/// Returns whether the server will finish by itself, which it does not while it waits for COPY
/// data.
pub(super) fn will_end(server: &ServerConnection) -> bool {
    server.conversation.is_ready_pending() && !server.conversation.is_copying_in()
}
