//! Tracks the settings of one client through transactions and savepoints.

mod asking;

use std::collections::BTreeSet;

use crate::postgres::Discard;
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::StatementClass;
use evenkeel_policy::route::{Isolation, TransactionModes};
use evenkeel_wire::postgres::TransactionStatus;

use super::super::analysis::{Effect, EffectKind, TextAnalysis};
use super::interner::SettingSetBuilder;
use super::transaction::{CHANGE_LENGTH, ROLE, SettingChange, TransactionChanges};
use super::{
    Interner, ParseSettings, ReportedParameters, ServerSessionState, SettingSet, diff, reported,
    values,
};

/// Settings of a client, and those it would have if its transaction committed.
///
/// The caller reports each text by [`SessionState::sent`], then [`SessionState::succeeded`] for
/// each CommandComplete or [`SessionState::failed`] for an ErrorResponse, and
/// [`SessionState::ready`] for the ReadyForQuery.
#[derive(Debug)]
pub struct SessionState {
    /// Reasons why the client is pinned to its server connection. The session adds and ends the
    /// pins that no text causes.
    pub pins: Pins,
    /// Parameters that the client has received.
    pub reported: ReportedParameters,
    /// Pins of statements that SQL PREPARE has created; they apply at each execution.
    prepared: Pins,
    /// Pins of statements that can still be executed later, by FETCH from a cursor or portal or by
    /// a deferred trigger. No earlier unpin event ends them.
    deferred: Pins,
    /// Settings that may have values that no text shows.
    unknown_values: BTreeSet<Box<[u8]>>,
    startup: SettingSet,
    settings: SettingSet,
    /// Fingerprint of the settings in `settings` that texts are parsed by.
    parse_settings: ParseSettings,
    defaults: SettingSet,
    pending: Option<Box<TransactionChanges>>,
    has_failed: bool,
    /// True if a transaction was open when the server was last ready.
    is_in_block: bool,
}

/// Maximum length of a client's settings, in bytes; longer ones are not tracked. Each further
/// server connection would have to receive them all.
const LENGTH_MAX: usize = 64 * 1024;

impl SessionState {
    /// Creates the state of a client that begins with the settings of its startup message.
    /// `parameters` are those it was greeted with, taken from the server connection `greeter`.
    #[must_use]
    pub fn new(
        startup: SettingSet,
        parameters: SettingSet,
        greeter: &ServerSessionState,
    ) -> SessionState {
        SessionState {
            pins: values::pins_of(&startup),
            prepared: Pins::NONE,
            deferred: Pins::NONE,
            unknown_values: BTreeSet::new(),
            reported: ReportedParameters::new(parameters),
            parse_settings: ParseSettings::of(&startup),
            settings: startup.clone(),
            startup,
            defaults: greeter.defaults.clone(),
            pending: None,
            has_failed: false,
            is_in_block: false,
        }
    }

    /// Returns the settings outside the open transaction, which the next server connection must
    /// have.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.settings
    }

    /// Returns the fingerprint of the settings that texts are parsed by, outside the open
    /// transaction.
    #[must_use]
    pub fn parse_settings(&self) -> ParseSettings {
        self.parse_settings
            .with_reported(self.reported.fingerprint())
    }

    pub(super) fn defaults(&self) -> &SettingSet {
        &self.defaults
    }

    /// Returns the modes of a transaction that does not specify its own.
    #[must_use]
    pub fn transaction_defaults(&self) -> TransactionModes {
        let read_only = self.settings.get(b"default_transaction_read_only");
        let isolation = self.settings.get(b"default_transaction_isolation");
        TransactionModes {
            read_only: read_only.and_then(values::boolean),
            isolation: isolation.map(|isolation| {
                match isolation.eq_ignore_ascii_case(b"serializable") {
                    true => Isolation::Serializable,
                    false => Isolation::Weaker,
                }
            }),
        }
    }

    /// Records that a text is being sent to the server.
    pub fn sent(&mut self, analysis: &TextAnalysis) {
        for effect in &analysis.effects {
            match &effect.kind {
                EffectKind::Pin(pin) if analysis.may_run_later => self.pin_deferred(*pin),
                EffectKind::Pin(pin) => self.pins.add(*pin),
                EffectKind::SetUnknown(name) => self.note_unknown_value(name),
                _ => {}
            }
        }
    }

    /// Adds a pin that no unpin event ends while the statement can still be executed.
    pub fn pin_deferred(&mut self, pin: Pin) {
        self.pins.add(pin);
        self.deferred.add(pin);
    }

    /// Records a text that may be executed at any time, without a report of its completion.
    pub fn may_run(&mut self, analysis: &TextAnalysis) {
        let mut pins = Pins::NONE;
        for effect in &analysis.effects {
            match &effect.kind {
                EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => pins.add(*pin),
                EffectKind::Set { name, .. } | EffectKind::Reset(name) => {
                    pins = pins.and(Pins::of(&[Pin::Settings, Pin::Role]));
                    self.note_unknown_value(name);
                }
                EffectKind::SetUnknown(name) => self.note_unknown_value(name),
                EffectKind::ResetAll => pins = pins.and(Pins::of(&[Pin::Settings, Pin::Role])),
                _ => {}
            }
        }
        self.pins = self.pins.and(pins);
        self.deferred = self.deferred.and(pins);
    }

    /// Records that no request is in progress and no transaction is open: earlier cursors and
    /// portals can no longer be executed.
    pub fn end_deferred(&mut self) {
        self.deferred = Pins::NONE;
    }

    /// Records that a statement of the text is complete.
    pub fn succeeded(&mut self, analysis: &TextAnalysis, statement: usize) {
        let effects = analysis.effects_of(statement);
        if effects
            .iter()
            .any(|effect| matches!(effect.kind, EffectKind::Prepare(_)))
        {
            self.record_prepared(effects);
        }
        for effect in effects {
            self.apply(&effect.kind);
            // All other effects of a statement happen once.
            if let EffectKind::PinOnSuccess(pin) = effect.kind
                && asking::SETTINGS.has(pin)
                && analysis.may_run_later
            {
                self.deferred.add(pin);
            }
        }
        let kind = analysis.statements.get(statement).map(|one| one.kind);
        if kind == Some(StatementClass::Routine) {
            self.doubt();
        }
    }

    /// Marks the uncommitted changes as in doubt. CALL and DO may contain COMMIT, which commits
    /// earlier changes of the same batch on some servers only. Within BEGIN they cannot commit.
    fn doubt(&mut self) {
        if let Some(pending) = self.pending.as_mut().filter(|_| !self.is_in_block) {
            pending.doubt();
        }
    }

    /// Records the effects of a statement that SQL EXECUTE can run from now on.
    pub fn record_prepared(&mut self, effects: &[Effect]) {
        for effect in effects {
            match &effect.kind {
                EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => self.prepared.add(*pin),
                EffectKind::Set { name, .. } | EffectKind::Reset(name) => {
                    self.prepared = self.prepared.and(Pins::of(&[Pin::Settings, Pin::Role]));
                    self.note_unknown_value(name);
                }
                EffectKind::SetUnknown(name) => self.note_unknown_value(name),
                EffectKind::ResetAll => {
                    self.prepared = self.prepared.and(Pins::of(&[Pin::Settings, Pin::Role]));
                }
                _ => {}
            }
        }
    }

    /// Records an error that ended the text, or the batch up to its Sync.
    pub fn failed(&mut self, analysis: Option<&TextAnalysis>) {
        self.has_failed = true;
        let may_have_committed = analysis.is_some_and(TextAnalysis::runs_procedures);
        if may_have_committed {
            self.doubt();
        }
        // An earlier unpin event may have ended its pins, or may end them at commit.
        for effect in analysis.into_iter().flat_map(|analysis| &analysis.effects) {
            match effect.kind {
                EffectKind::Pin(pin) => self.pin(pin),
                EffectKind::PinOnSuccess(pin) if may_have_committed => self.pin(pin),
                EffectKind::Execute(_) => self.pin_prepared(),
                _ => {}
            }
        }
    }

    /// Records that the server is ready for the next request, and updates this state and `server`.
    ///
    /// Returns whether settings of the client's startup message were reset: the server does not
    /// know that message and uses its own defaults. Before the client receives ReadyForQuery,
    /// [`ServerSessionState::prepare`] sets them again, within a transaction
    /// [`SessionState::restore`].
    pub fn ready(
        &mut self,
        status: TransactionStatus,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) -> bool {
        let must_restore = match status {
            TransactionStatus::Idle => self.settle(server, interner),
            TransactionStatus::InTransaction => self.unrestored_settings(server).next().is_some(),
            TransactionStatus::Failed => false,
        };
        self.has_failed = status == TransactionStatus::Failed;
        self.is_in_block = status != TransactionStatus::Idle;
        must_restore
    }

    /// Applies the committed changes when no transaction is open. Only then do the server's reports
    /// show the session's settings, so committed changes wait until then.
    fn settle(&mut self, server: &mut ServerSessionState, interner: &Interner) -> bool {
        let pending = self.pending.take();
        let has_changed = pending.is_some_and(|mut pending| {
            self.pin_doubtful(&pending, self.has_failed);
            if !self.has_failed {
                self.commit(&mut pending);
            }
            self.apply_changes(&pending.committed, server, interner);
            self.pins = self.pins.and(values::pins_of(&self.settings));
            !pending.committed.is_empty()
        });
        if has_changed || server.reports != server.settled {
            self.explain(server, interner);
            self.parse_settings = ParseSettings::of(&self.settings);
        }
        has_changed && !self.startup.is_empty() && server.settings != self.settings
    }

    /// Writes the SQL that, within a transaction, sets the reset settings to the client's startup
    /// values, to be sent immediately. A rollback undoes both.
    pub fn restore(&mut self, server: &ServerSessionState, out: &mut Vec<u8>) {
        let unrestored_settings: Vec<SettingChange> = self
            .unrestored_settings(server)
            .map(|(name, value)| SettingChange::Set(name.into(), value.into()))
            .collect();
        for change in unrestored_settings {
            if let SettingChange::Set(name, value) = &change {
                diff::set(name, value, out);
            }
            self.change(change);
        }
        let pending = self.pending();
        pending.restored = pending.changes.len();
    }

    /// Returns whether a statement resets settings of the client's startup message: the server does
    /// not know that message and uses its own defaults.
    #[must_use]
    pub fn is_startup_reset(&self, kind: &EffectKind) -> bool {
        match kind {
            EffectKind::Reset(name) => self.startup.get(name).is_some(),
            EffectKind::ResetAll | EffectKind::Discard(Discard::All) => !self.startup.is_empty(),
            _ => false,
        }
    }

    /// Returns the startup settings that were reset since the last check, except those that a
    /// function has set again, as the server's reports show.
    fn unrestored_settings(
        &self,
        server: &ServerSessionState,
    ) -> impl Iterator<Item = (&[u8], &[u8])> {
        let pending = self.pending.as_deref();
        let changes = pending.map(|pending| pending.changes.get(pending.restored..));
        let changes = changes.flatten().unwrap_or_default();
        self.startup.iter().filter(move |(name, _)| {
            let last = changes.iter().rfind(|change| change.touches(name));
            let is_reset = last.is_some_and(SettingChange::is_reset);
            is_reset && server.reports.get(name) == server.login.get(name)
        })
    }

    /// Records that the server connection is lost, and its open transaction with it.
    pub fn connection_lost(&mut self) {
        self.pending = None;
        self.has_failed = false;
        self.is_in_block = false;
    }

    /// Applies one effect of a complete statement.
    fn apply(&mut self, kind: &EffectKind) {
        match kind {
            EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => self.pin(*pin),
            EffectKind::Prepare(_) => self.pin(Pin::Prepared),
            EffectKind::Execute(_) => self.pin_prepared(),
            EffectKind::DeallocateAll => self.prepared = Pins::NONE,
            EffectKind::Release(release) => self.pending().record_unpin(*release),
            EffectKind::Set { name, value } => self.set(name, value),
            EffectKind::Reset(name) => self.follow(SettingChange::Reset(name.clone())),
            EffectKind::ResetAll => self.change(SettingChange::ResetAll),
            EffectKind::Discard(Discard::All) => {
                self.prepared = Pins::NONE;
                self.change(SettingChange::Everything);
            }
            EffectKind::Commit => self.end(true),
            EffectKind::Rollback => self.end(false),
            EffectKind::Savepoint(name) => self.pending().add_savepoint(name),
            EffectKind::ReleaseSavepoint(name) => self.pending().release(name),
            EffectKind::RollbackTo(name) => {
                self.has_failed = false;
                self.pending().roll_back_to(name);
            }
            EffectKind::SetUnknown(name) => self.change(SettingChange::Unknown(name.clone())),
            EffectKind::SetTransaction(_) | EffectKind::Deallocate(_) | EffectKind::Discard(_) => {}
        }
    }

    /// Records an EXECUTE: the executed statement is not tracked, so the pins of all prepared ones
    /// apply.
    fn pin_prepared(&mut self) {
        for pin in self.prepared.iter() {
            self.pin(pin);
        }
    }

    /// Adds a pin that no earlier statement of the transaction ends.
    pub fn pin(&mut self, pin: Pin) {
        self.pins.add(pin);
        if let Some(pending) = &mut self.pending {
            pending.keep_pin(pin);
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        // A value in another encoding could be restored only in that encoding. The login user may
        // not set what a role with more privileges may set.
        if !self.can_read(value) || values::is_of_superusers(name) && self.has_role() {
            return self.pin_untracked(name);
        }
        self.follow(SettingChange::Set(name.into(), value.into()));
    }

    /// Records a change if the settings stay within [`LENGTH_MAX`]; else pins the session.
    fn follow(&mut self, change: SettingChange) {
        let pending = self.pending.as_deref().into_iter();
        let changes = pending.flat_map(|pending| pending.committed.iter().chain(&pending.changes));
        let changed: usize = changes.chain([&change]).map(SettingChange::length).sum();
        if changed.saturating_add(asking::length(&self.settings)) <= LENGTH_MAX {
            return self.change(change);
        }
        match &change {
            SettingChange::Set(name, _) | SettingChange::Reset(name) => self.pin_untracked(name),
            SettingChange::Unknown(_) | SettingChange::ResetAll | SettingChange::Everything => {
                self.pin(Pin::Settings);
            }
        }
    }

    fn has_role(&self) -> bool {
        let pending = self.pending.as_deref();
        let mut changes = pending.into_iter().flat_map(|pending| &pending.changes);
        self.settings.get(ROLE).is_some()
            || changes
                .any(|change| matches!(change, SettingChange::Set(name, _) if **name == *ROLE))
    }

    fn change(&mut self, change: SettingChange) {
        self.pending().changes.push(change);
    }

    fn pending(&mut self) -> &mut TransactionChanges {
        self.pending.get_or_insert_default()
    }

    /// Records that COMMIT or ROLLBACK is complete; COMMIT of a failed transaction rolls back.
    fn end(&mut self, commits: bool) {
        self.is_in_block = false;
        if let Some(mut pending) = self.pending.take() {
            let is_rollback = !commits || self.has_failed;
            self.pin_doubtful(&pending, is_rollback);
            if !is_rollback {
                self.commit(&mut pending);
            }
            pending.clear();
            if !pending.committed.is_empty() {
                self.pending = Some(pending);
            }
        }
        self.has_failed = false;
    }

    fn commit(&mut self, pending: &mut TransactionChanges) {
        pending.committed.append(&mut pending.changes);
        (pending.restored, pending.in_doubt) = (0, 0);
        for release in pending.take_unpin_events() {
            if release == UnpinEvent::DiscardAll {
                // DISCARD ALL closes all cursors and cannot run in a transaction.
                self.deferred = Pins::NONE;
            }
            self.pins.release(release);
            self.pins = self.pins.and(self.deferred);
        }
    }

    /// Applies committed changes to the settings of the client and of its server connection.
    fn apply_changes(
        &mut self,
        changes: &[SettingChange],
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        if changes.is_empty() {
            return;
        }
        let mut client_set = SettingSetBuilder::of(&self.settings);
        let mut server_set = SettingSetBuilder::of(&server.settings);
        for change in changes {
            change.apply_to(&mut client_set, &self.startup);
            change.apply_to(&mut server_set, &interner.empty());
        }
        // Stores the value that the server reports: `DateStyle` may have been set in part.
        for change in changes {
            let SettingChange::Set(name, _) = change else {
                continue;
            };
            let report = server.reports.get(name);
            if let (Some(value), true) = (report, server_set.get(name).is_some()) {
                client_set.set(name, value);
                server_set.set(name, value);
            }
        }
        self.settings = interner.intern(client_set);
        server.settings = interner.intern(server_set);
    }

    /// Records reported changes that no text explains: a function has set something.
    fn explain(&mut self, server: &mut ServerSessionState, interner: &Interner) {
        for (name, value) in server.reports.clone().iter() {
            let is_explained = match server.settings.get(name) {
                Some(known) => known == value || server.settled.get(name) == Some(value),
                None => server.login.get(name) == Some(value),
            };
            if reported::is_settable(name) && !is_explained {
                server.settings = interner.with(&server.settings, name, value);
                self.settings = interner.with(&self.settings, name, value);
            }
        }
        server.settled = server.reports.clone();
    }
}
