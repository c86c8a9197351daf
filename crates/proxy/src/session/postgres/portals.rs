//! Tracks portals and the effects of executing them.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::route::retry::Atomicity;
use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::conversation::{Request, RequestToken, Sending};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::names::names;
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::pending_effects::takes_statements_away;
use super::process_ids::Signal;
use super::statements::Statement;
use evenkeel_sql::postgres::{ChannelAction, ChannelCall};
use evenkeel_sql::session_state::analysis::TextAnalysis;

/// Portals that may exist; a name is recorded once one of that name has effects.
#[derive(Default)]
pub(super) struct Portals {
    known: HashMap<Box<[u8]>, Portal>,
    /// True if a Bind of this transaction may have failed.
    has_failed: bool,
    /// Signals to other sessions, by portal of the current batch.
    signals: Vec<(Box<[u8]>, Signal)>,
    /// Channels that statements stop to listen on, or begin to in the current batch, by portal.
    channels: Vec<(Box<[u8]>, ChannelCall)>,
}

struct Portal {
    meaning: Arc<TextAnalysis>,
    /// Batch of the Bind.
    segment: u64,
    /// True if it is bound to Evenkeel's DEALLOCATE in place of the client's.
    is_deallocation: bool,
    /// True if the portal had another statement before, which it keeps if the Bind fails.
    is_replaced: bool,
}

impl Portals {
    fn bind(&mut self, portal: &[u8], meaning: &Arc<TextAnalysis>, segment: u64) {
        if let Some(known) = self.known.get_mut(portal) {
            known.is_replaced |= known.meaning != *meaning;
            known.meaning.clone_from(meaning);
            known.segment = segment;
            known.is_deallocation = false;
        } else if meaning.has_effects() {
            let bound = Portal {
                meaning: Arc::clone(meaning),
                segment,
                is_deallocation: false,
                is_replaced: false,
            };
            self.known.insert(portal.into(), bound);
        }
    }

    /// Returns the effects of an Execute in this batch, if its outcome matters. A Bind of the same
    /// batch has not failed: else the Execute is skipped.
    fn meaning(&self, portal: &[u8], segment: u64) -> Option<Arc<TextAnalysis>> {
        let known = self.known.get(portal)?;
        let is_doubtful = self.has_failed && known.is_replaced && known.segment != segment;
        Some(match is_doubtful {
            true => Arc::new(TextAnalysis::unreadable()),
            false => Arc::clone(&known.meaning),
        })
    }

    /// Records that the portal is bound to Evenkeel's DEALLOCATE.
    pub(super) fn becomes_deallocation(&mut self, portal: &[u8]) {
        if let Some(known) = self.known.get_mut(portal) {
            known.is_deallocation = true;
        }
    }

    /// Returns the DEALLOCATE in whose place the portal executes Evenkeel's.
    fn deallocation(&self, portal: &[u8]) -> Option<&Arc<TextAnalysis>> {
        let known = self.known.get(portal);
        let known = known.filter(|known| known.is_deallocation);
        known.map(|known| &known.meaning)
    }

    /// Records a Close of a portal, which the server may skip. Only the server knows whether a
    /// later Execute finds the portal.
    pub(super) fn close(&mut self, portal: &[u8]) {
        self.signals.retain(|(known, _)| **known != *portal);
        let lasts = |call: &ChannelCall| call.action == ChannelAction::Unlisten;
        self.channels
            .retain(|(known, call)| **known != *portal || lasts(call));
    }

    /// Records the end of a batch, with which its portals end unless a transaction is open.
    pub(super) fn batch_ended(&mut self) {
        self.signals.clear();
        self.channels
            .retain(|(_, call)| call.action == ChannelAction::Unlisten);
    }

    /// Records the signal that the Execute of a portal sends, and forgets an earlier one.
    pub(super) fn set_signal(&mut self, portal: &[u8], signal: Option<Signal>) {
        if !self.signals.is_empty() {
            self.signals.retain(|(known, _)| **known != *portal);
        }
        self.signals
            .extend(signal.map(|signal| (portal.into(), signal)));
    }

    fn signal(&self, portal: &[u8]) -> Option<Signal> {
        let signals = self.signals.iter();
        let mut of_portal = signals.filter(|(known, _)| **known == *portal);
        of_portal.next().map(|(_, signal)| *signal)
    }

    /// Records the channels of the statement of a portal, and forgets earlier ones.
    pub(super) fn set_channels(&mut self, portal: &[u8], call: Option<ChannelCall>) {
        if !self.channels.is_empty() {
            self.channels.retain(|(known, _)| **known != *portal);
        }
        self.channels.extend(call.map(|call| (portal.into(), call)));
    }

    pub(super) fn has_channels(&self) -> bool {
        !self.channels.is_empty()
    }

    pub(super) fn channel_call(&self, portal: &[u8]) -> Option<&ChannelCall> {
        let mut channels = self.channels.iter();
        let found = channels.find(|(known, _)| **known == *portal);
        found.map(|(_, call)| call)
    }

    /// Records that the server has returned an error.
    pub(super) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Removes all portals at the end of their transaction.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.signals.clear();
        self.channels.clear();
        self.has_failed = false;
    }
}

/// Returns the portal named in a Bind or Execute.
pub(super) fn portal_of(header: Header, message: &[u8]) -> &[u8] {
    let Parsed::Frame(found, _) = names(header, message) else {
        return b"";
    };
    found.portal.map_or(b"", |portal| portal.of(message))
}

impl Session<'_> {
    pub(super) fn execute(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        header: Header,
        message: &[u8],
    ) -> Sending {
        let portal = portal_of(header, message);
        if let Some(signal) = self.portals.signal(portal)
            && let Some(sending) = self.execute_signal(flight, signal, message.len())
        {
            return sending;
        }
        if self.execute_channels(flight, portal, message.len()) {
            return Sending::Drop;
        }
        self.active.executed_in = Some(self.segment);
        if let Some(meaning) = self.portals.deallocation(portal).map(Arc::clone) {
            return self.execute_deallocate(flight, &meaning, message.len());
        }
        let token = match self.portals.meaning(portal, self.segment) {
            Some(meaning) => {
                self.outdate_for(&meaning);
                self.effects.note(&meaning)
            }
            None => RequestToken(0),
        };
        self.send(flight, Request::Execute, token, message.len())
    }

    /// Outdates prepared statements that the text discards, so that later messages of the batch do
    /// not rely on them.
    fn outdate_for(&mut self, meaning: &TextAnalysis) {
        let discards = self.is_to_be_awaited(meaning);
        self.effects.discard_statements(discards);
        if !meaning.effects.iter().any(takes_statements_away) {
            return;
        }
        self.statements.all_go();
        if let Some(server) = &mut self.core.server {
            server.prepared.outdate();
        }
    }

    /// Records the Bind of a named statement.
    pub(super) fn bind(&mut self, header: Header, message: &[u8], statement: &Statement) {
        self.active.runs(&statement.meaning);
        let digest = statement.meaning.digest;
        let dialect = statement.within.dialect();
        self.core.service.enter(digest, &statement.text, dialect);
        self.pending.runs(digest);
        let portal = portal_of(header, message);
        let channels = self.channels_of(&statement.text);
        self.portals.set_channels(portal, channels);
        self.take_hold(portal, &statement.meaning);
    }

    /// Records the Bind of an unknown statement name. If it exists, its execution pins the session.
    pub(super) fn bind_unknown(&mut self, header: Header, message: &[u8]) {
        let portal = portal_of(header, message);
        let unknown = Arc::new(TextAnalysis::unreadable());
        self.active.atomicity = Atomicity::Partial;
        self.names.note_unknown();
        self.portals.set_channels(portal, None);
        self.portals.bind(portal, &unknown, self.segment);
    }

    /// Records the Bind of the unnamed statement.
    pub(super) fn bind_unnamed(&mut self, header: Header, message: &[u8]) {
        let portal = portal_of(header, message);
        let Some(statement) = self.unnamed.last().map(Rc::clone) else {
            // The server reports that there is none.
            return;
        };
        let Some(parsed) = &statement.parsed else {
            self.portals.set_channels(portal, None);
            self.active.atomicity = Atomicity::Partial;
            self.pending.runs(0);
            return self.take_hold(portal, &Arc::new(TextAnalysis::unreadable()));
        };
        let channels = self.channels_of(&parsed.text);
        self.portals.set_channels(portal, channels);
        let meaning = &parsed.meaning;
        self.active.runs(meaning);
        self.pending.runs(meaning.digest);
        self.take_hold(portal, meaning);
    }

    /// Applies effects that hold from the Bind on, such as pins; others apply at the end of the
    /// Execute.
    fn take_hold(&mut self, portal: &[u8], meaning: &Arc<TextAnalysis>) {
        self.portals.bind(portal, meaning, self.segment);
        self.note_changes(meaning);
        // FETCH in SQL executes it, too, without an Execute message.
        if !meaning.effects.is_empty() && !portal.is_empty() {
            self.state.may_run(meaning);
            self.pins_changed();
        }
    }
}
