//! Gives clients one process id: the one of their key for cancel requests is also the one that
//! `pg_backend_pid()` returns, and that `pg_cancel_backend` and `pg_terminate_backend` accept.

use evenkeel_sql::postgres::{BackendCall, BackendFunction, ProcessArgument, backend_call};
use evenkeel_sql::session_state::settings::values::quoted;
use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::conversation::{LocalReply, Request, RequestToken, Sending};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::frontend::BindValues;
use evenkeel_wire::postgres::names::names;
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use crate::session::cancel::{SignalOutcome, signal};

/// Maximum length of a Bind whose values are awaited.
const BIND_LENGTH_MAX: usize = 1024;

/// Signal that the Execute of a portal sends to another session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signal {
    process: u32,
    only_query: bool,
    /// True if the client receives the result in binary form.
    is_binary: bool,
}

impl Session<'_> {
    /// Returns the text to send in place of one that asks for the session's process id, or signals
    /// another session, which this does. `None`: the text is any other.
    pub(super) fn text_of_processes(&self, text: &[u8]) -> Option<Vec<u8>> {
        let call = backend_call(text, false)?;
        let value = match call.function {
            BackendFunction::ProcessId => self.process_id()?.to_string(),
            BackendFunction::Cancel(ProcessArgument::Literal(process)) => {
                self.signals(process, true)?
            }
            BackendFunction::Terminate(ProcessArgument::Literal(process)) => {
                self.signals(process, false)?
            }
            _ => return None,
        };
        Some(select(&value, &call.column))
    }

    /// Returns the text of a statement that asks for the session's process id. Statements that
    /// signal other sessions do so when they are executed.
    pub(super) fn prepared_text_of_processes(&self, text: &[u8]) -> Option<Vec<u8>> {
        let call = backend_call(text, false)?;
        let is_id = call.function == BackendFunction::ProcessId;
        let process = self.process_id().filter(|_| is_id)?;
        Some(select(&process.to_string(), &call.column))
    }

    /// Returns whether the values of a Bind must be awaited, because its statement signals the
    /// session that they name.
    pub(super) fn lacks_values(&self, header: Header, request: Request, bytes: &[u8]) -> bool {
        let length = header.frame_length();
        request == Request::Bind
            && bytes.len() < length
            && length <= BIND_LENGTH_MAX
            && self.call_of(header, bytes).is_some()
    }

    /// Records the signal that the portal of a Bind sends when it is executed, if any. `bytes`
    /// begin with the message.
    pub(super) fn note_signal(&mut self, header: Header, request: Request, bytes: &[u8]) {
        if request != Request::Bind {
            return;
        }
        let signal = self.call_of(header, bytes).and_then(|call| {
            let (argument, only_query) = match call.function {
                BackendFunction::Cancel(argument) => (argument, true),
                BackendFunction::Terminate(argument) => (argument, false),
                BackendFunction::ProcessId | BackendFunction::LastValue => return None,
            };
            let values = BindValues::read(bytes.get(..header.frame_length())?)?;
            Some(Signal {
                process: match argument {
                    ProcessArgument::Literal(process) => process,
                    ProcessArgument::Parameter => values.first_number()?,
                },
                only_query,
                is_binary: values.is_first_result_binary(),
            })
        });
        if let Parsed::Frame(found, _) = names(header, bytes) {
            let portal = found.portal.map_or(&b""[..], |portal| portal.of(bytes));
            self.portals.set_signal(portal, signal);
        }
    }

    /// Returns the call in the statement of a Bind.
    fn call_of(&self, header: Header, bytes: &[u8]) -> Option<BackendCall> {
        let Parsed::Frame(found, _) = names(header, bytes) else {
            return None;
        };
        let name = found.statement?.of(bytes);
        match name.is_empty() {
            true => backend_call(self.unnamed.text()?, false),
            false => backend_call(&self.statements.get(name)?.text, false),
        }
    }

    /// Answers the Execute of a portal that signals a session. `None`: the number is not the one of
    /// a session that the user may signal, and the server answers.
    pub(super) fn execute_signal(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        Signal {
            process,
            only_query,
            is_binary,
        }: Signal,
        length: usize,
    ) -> Option<Sending> {
        let server = self.core.server.as_mut()?;
        let (service, user) = (self.core.permit.service().id, &self.account.pool_user.user);
        if signal(self.core.worker, (service, user), process, only_query) == SignalOutcome::Nobody {
            return None;
        }
        let answer = LocalReply::True { is_binary };
        let token = RequestToken(self.effects.next());
        // After an error, the message is skipped like any other.
        let _ = server.conversation.add_local_reply(answer, token);
        flight.drop(length);
        Some(Sending::Drop)
    }

    fn process_id(&self) -> Option<u32> {
        let keyring = self.core.worker.shared.keyring.get()?;
        self.core.handle.with_key(|key| keyring.process_of(key))
    }

    /// Signals a session; returns the result of the function, or `None` for the server's.
    fn signals(&self, process: u32, only_query: bool) -> Option<String> {
        let (service, user) = (self.core.permit.service().id, &self.account.pool_user.user);
        let outcome = signal(self.core.worker, (service, user), process, only_query);
        (outcome == SignalOutcome::Sent).then(|| "true".to_owned())
    }
}

/// Returns a text that selects a value under a name.
pub(super) fn select(value: &str, column: &[u8]) -> Vec<u8> {
    let mut text = [b"SELECT ", value.as_bytes(), b" AS "].concat();
    quoted(&mut text, column, b'"');
    text
}
