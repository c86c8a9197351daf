//! Ensures that `currval` and `lastval` never return another session's value. As long as no client
//! uses them, `nextval()` pins no session.

use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_sql::postgres::{BackendFunction, backend_call};
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::conversation::{Request, RequestToken};
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::process_ids::select;
use super::server::ServerConnection;
use evenkeel_sql::session_state::analysis::{SequenceReads, TextAnalysis};

/// Message for a use of `currval` or `lastval` that cannot be separated from other sessions'
/// values.
pub(super) const REFUSAL: &str = "cannot evaluate currval() or lastval(): this server connection \
                                  holds sequence values of other sessions; start over and send the \
                                  statement in a batch of its own";

/// Sequence values that a server connection may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceState {
    /// No value.
    None,
    /// Values of this session only, which has used sequences as often as `uses` on all of its
    /// connections: with more uses, it has newer values elsewhere.
    Of { session: u64, uses: u64 },
    /// Values of several sessions.
    Mixed,
}

impl SequenceState {
    /// Adds values of a session that has used sequences that often before.
    fn add(&mut self, session: u64, uses: u64) {
        let has_others = self.has_others(session, uses);
        let uses = uses + 1;
        *self = match has_others {
            true => SequenceState::Mixed,
            false => SequenceState::Of { session, uses },
        };
    }

    /// Returns whether there may be values of other sessions, or older ones of this session.
    pub(super) fn has_others(self, session: u64, uses: u64) -> bool {
        !matches!(self, SequenceState::None) && self != SequenceState::Of { session, uses }
    }
}

/// A session's use of sequences.
#[derive(Default)]
pub(super) struct Sequences {
    /// True if the session may have called `nextval()` on its current connection.
    pub(super) used_nextval: bool,
    /// True if that connection may hold values of other sessions, or older ones of this session.
    pub(super) inherits_others: bool,
    /// Number of requests that may have used sequences, on any connection.
    pub(super) uses: u64,
    /// Value of `lastval()` on earlier connections.
    pub(super) last_value: LastValue,
}

/// Value of `lastval()` that the session had on a connection that it has released.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum LastValue {
    /// None, or it may be outdated.
    #[default]
    Unknown,
    /// This value.
    Known(Box<[u8]>),
    /// This value, which the request in flight reads.
    Read(Box<[u8]>),
}

/// Way in which a client reads sequence values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceRead {
    /// `SELECT lastval()` as a simple query, which can be answered with a value that is known.
    LastValue,
    /// Any other way: only the server connection has the value.
    Other,
}

impl SequenceRead {
    /// Returns how a simple query with this text reads sequence values, if it does.
    pub(super) fn of(analysis: &TextAnalysis, text: &[u8]) -> SequenceRead {
        let reads = analysis.sequences.reads == SequenceReads::Some;
        let call = reads.then(|| backend_call(text, false));
        match call.flatten() {
            Some(call) if call.function == BackendFunction::LastValue => SequenceRead::LastValue,
            _ => SequenceRead::Other,
        }
    }
}

impl Session<'_> {
    /// Returns the text that selects the known value of `lastval()` in place of a text that reads
    /// nothing else.
    pub(super) fn known_last_value(
        &mut self,
        analysis: &TextAnalysis,
        text: &[u8],
    ) -> Option<Vec<u8>> {
        if analysis.sequences.reads != SequenceReads::Some || self.sequences.used_nextval {
            return None;
        }
        let call = backend_call(text, false)?;
        if call.function != BackendFunction::LastValue {
            return None;
        }
        let (LastValue::Known(value) | LastValue::Read(value)) =
            std::mem::take(&mut self.sequences.last_value)
        else {
            return None;
        };
        let text = format!("'{}'::pg_catalog.int8", String::from_utf8_lossy(&value));
        self.sequences.last_value = LastValue::Read(value);
        Some(select(&text, &call.column))
    }

    /// Records the use of sequences by a request that has ended.
    pub(super) fn note_sequences(&mut self, server: &mut ServerConnection) {
        if self.active.may_write() {
            let session = self.core.handle.session_id();
            server.sequence_state.add(session, self.sequences.uses);
            self.sequences.uses += 1;
        }
        self.sequences.last_value = match std::mem::take(&mut self.sequences.last_value) {
            LastValue::Read(value) => LastValue::Known(value),
            // The request may have called `nextval()`.
            _ if self.active.may_write() => LastValue::Unknown,
            last_value => last_value,
        };
        if self.sequences.used_nextval && self.account.pins_sequences() {
            self.state.pins.add(Pin::Sequence);
        }
    }

    /// Discards the sequence state of earlier sessions before any other work, once clients of this
    /// user have used `currval` or `lastval`.
    pub(super) fn begin_without_sequences(&mut self, flight: &mut StreamEditor<'_, '_>) {
        if self.account.asks_sequences() {
            self.forget_sequences(flight);
        }
    }

    /// Discards the sequence state of earlier sessions before the session first uses `currval` or
    /// `lastval`. Returns true if the use must be rejected: the statement is within a batch, or the
    /// session itself may have called `nextval()`.
    pub(super) fn guard_sequences(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        meaning: &TextAnalysis,
        read: SequenceRead,
    ) -> bool {
        match meaning.sequences.reads {
            SequenceReads::None => return false,
            SequenceReads::Unknown => {
                self.forget_sequences(flight);
                return false;
            }
            SequenceReads::Some => {}
        }
        self.account.asked_sequences(read);
        let Some(server) = &self.core.server else {
            return false;
        };
        // A failed transaction executes no statement.
        let has_failed = server.conversation.status() == TransactionStatus::Failed;
        if !self.sequences.inherits_others || has_failed {
            return false;
        }
        // After the refusal the session's own values are discarded with the others.
        let drew = std::mem::take(&mut self.sequences.used_nextval);
        if drew || !server.conversation.is_between_batches() {
            return true;
        }
        self.discard_sequences(flight);
        false
    }

    /// Applies the check to a Bind of the unnamed statement, whose Parse was checked, too.
    pub(super) fn guard_unnamed(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        request: Request,
    ) -> bool {
        let meaning = self.unnamed.meaning().filter(|_| request == Request::Bind);
        let meaning = meaning.map(Arc::clone);
        meaning.is_some_and(|meaning| self.guard_sequences(flight, &meaning, SequenceRead::Other))
    }

    /// Discards the sequence state of earlier sessions, because unanalyzed work may use `currval`
    /// or `lastval`.
    pub(super) fn forget_sequences(&mut self, flight: &mut StreamEditor<'_, '_>) {
        let is_idle = |server: &ServerConnection| server.conversation.is_idle();
        let begins =
            !self.sequences.used_nextval && self.core.server.as_deref().is_some_and(is_idle);
        if self.sequences.inherits_others && begins {
            self.discard_sequences(flight);
        }
    }

    fn discard_sequences(&mut self, flight: &mut StreamEditor<'_, '_>) {
        let Some(server) = &mut self.core.server else {
            return;
        };
        if server.query(b"DISCARD SEQUENCES", RequestToken(0), flight.writer()) {
            server.sequence_state = SequenceState::None;
            self.sequences.inherits_others = false;
        }
    }
}
