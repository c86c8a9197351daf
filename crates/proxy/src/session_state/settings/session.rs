//! Tracks the settings of one client through transactions and savepoints.

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{Isolation, TransactionModes};

use super::super::analysis::{Effect, EffectKind, TextAnalysis};
use super::interner::SettingSetBuilder;
use super::transaction::{CHANGE_LENGTH, ROLE, SettingChange, TransactionChanges};
use super::{
    Interner, ParseSettings, ReportedParameters, ServerSessionState, SettingSet, diff, reported,
    values,
};
use evenkeel_policy::route::StatementClass;
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::sql::facts::Discard;

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
    late: Pins,
    startup: SettingSet,
    now: SettingSet,
    /// Fingerprint of the settings in `now` that texts are parsed by.
    reading: ParseSettings,
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
    /// Creates the state of a client that begins with the settings of its startup message. `told`
    /// are the parameters it was greeted with, taken from the server connection `greeter`.
    #[must_use]
    pub fn new(
        startup: SettingSet,
        told: SettingSet,
        greeter: &ServerSessionState,
    ) -> SessionState {
        SessionState {
            pins: values::bound_by(&startup),
            prepared: Pins::NONE,
            late: Pins::NONE,
            reported: ReportedParameters::new(told),
            reading: ParseSettings::of(&startup),
            now: startup.clone(),
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
        &self.now
    }

    /// Returns the fingerprint of the settings that texts are parsed by, outside the open
    /// transaction.
    #[must_use]
    pub fn read_by(&self) -> ParseSettings {
        self.reading.told(self.reported.reading())
    }

    pub(super) fn defaults(&self) -> &SettingSet {
        &self.defaults
    }

    /// Returns the modes of a transaction that does not specify its own.
    #[must_use]
    pub fn transaction_defaults(&self) -> TransactionModes {
        let read_only = self.now.get(b"default_transaction_read_only");
        let isolation = self.now.get(b"default_transaction_isolation");
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
    pub fn sent(&mut self, meaning: &TextAnalysis) {
        for effect in &meaning.effects {
            match effect.kind {
                EffectKind::Pin(pin) if meaning.may_run_later => self.takes(pin),
                EffectKind::Pin(pin) => self.pins.add(pin),
                _ => {}
            }
        }
    }

    /// Adds a pin that no unpin event ends while the statement can still be executed.
    pub fn takes(&mut self, pin: Pin) {
        self.pins.add(pin);
        self.late.add(pin);
    }

    /// Records a text that may be executed at any time, without a report of its completion.
    pub fn may_run(&mut self, meaning: &TextAnalysis) {
        let mut pins = Pins::NONE;
        for effect in &meaning.effects {
            match &effect.kind {
                EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => pins.add(*pin),
                EffectKind::Set { .. } | EffectKind::Reset(_) | EffectKind::ResetAll => {
                    pins = pins.and(Pins::of(&[Pin::Settings, Pin::Role]));
                }
                _ => {}
            }
        }
        self.pins = self.pins.and(pins);
        self.late = self.late.and(pins);
    }

    /// Records that no request is in progress and no transaction is open: earlier cursors and
    /// portals can no longer be executed.
    pub fn settled(&mut self) {
        self.late = Pins::NONE;
    }

    /// Records that a statement of the text is complete.
    pub fn succeeded(&mut self, meaning: &TextAnalysis, statement: usize) {
        let effects = meaning.effects_of(statement);
        if effects
            .iter()
            .any(|effect| matches!(effect.kind, EffectKind::Prepare(_)))
        {
            self.prepares(effects);
        }
        for effect in effects {
            self.apply(&effect.kind);
            // All other effects of a statement happen once.
            if let EffectKind::PinOnSuccess(pin @ (Pin::Settings | Pin::Role)) = effect.kind
                && meaning.may_run_later
            {
                self.late.add(pin);
            }
        }
        let kind = meaning.statements.get(statement).map(|one| one.kind);
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
    pub fn prepares(&mut self, effects: &[Effect]) {
        for effect in effects {
            match &effect.kind {
                EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => self.prepared.add(*pin),
                EffectKind::Set { .. } | EffectKind::Reset(_) | EffectKind::ResetAll => {
                    self.prepared = self.prepared.and(Pins::of(&[Pin::Settings, Pin::Role]));
                }
                _ => {}
            }
        }
    }

    /// Records an error that ended the text, or the batch up to its Sync.
    pub fn failed(&mut self, meaning: Option<&TextAnalysis>) {
        self.has_failed = true;
        let may_have_committed = meaning.is_some_and(TextAnalysis::runs_procedures);
        if may_have_committed {
            self.doubt();
        }
        // An earlier unpin event may have ended its pins, or may end them at commit.
        for effect in meaning.into_iter().flat_map(|meaning| &meaning.effects) {
            match effect.kind {
                EffectKind::Pin(pin) => self.bind(pin),
                EffectKind::PinOnSuccess(pin) if may_have_committed => self.bind(pin),
                EffectKind::Execute(_) => self.executes(),
                _ => {}
            }
        }
    }

    /// Records that the server is ready for the next request, and updates both this state and `on`.
    ///
    /// Returns whether settings of the client's startup message were reset: the server does not
    /// know that message and uses its own defaults. Before the client receives ReadyForQuery,
    /// [`ServerSessionState::prepare`] sets them again, within a transaction
    /// [`SessionState::restore`].
    pub fn ready(
        &mut self,
        status: TransactionStatus,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) -> bool {
        let owes = match status {
            TransactionStatus::Idle => self.settle(on, interner),
            TransactionStatus::InTransaction => self.owed(on).next().is_some(),
            TransactionStatus::Failed => false,
        };
        self.has_failed = status == TransactionStatus::Failed;
        self.is_in_block = status != TransactionStatus::Idle;
        owes
    }

    /// Applies the committed changes when no transaction is open. Only then do the server's reports
    /// show the session's settings, so committed changes wait until then.
    fn settle(&mut self, on: &mut ServerSessionState, interner: &Interner) -> bool {
        let pending = self.pending.take();
        let has_changed = pending.is_some_and(|mut pending| {
            self.pins = self.pins.and(pending.doubts(self.has_failed));
            if !self.has_failed {
                self.commit(&mut pending);
            }
            self.take_over(&pending.committed, on, interner);
            self.pins = self.pins.and(values::bound_by(&self.now));
            !pending.committed.is_empty()
        });
        if has_changed || on.reports != on.settled {
            self.explain(on, interner);
            self.reading = ParseSettings::of(&self.now);
        }
        has_changed && !self.startup.is_empty() && on.now != self.now
    }

    /// Writes the SQL that, within a transaction, sets the reset settings to the client's startup
    /// values, to be sent immediately. A rollback undoes both.
    pub fn restore(&mut self, on: &ServerSessionState, out: &mut Vec<u8>) {
        let owed: Vec<SettingChange> = self
            .owed(on)
            .map(|(name, value)| SettingChange::Set(name.into(), value.into()))
            .collect();
        for change in owed {
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
    pub fn is_to_restore(&self, does: &EffectKind) -> bool {
        match does {
            EffectKind::Reset(name) => self.startup.get(name).is_some(),
            EffectKind::ResetAll | EffectKind::Discard(Discard::All) => !self.startup.is_empty(),
            _ => false,
        }
    }

    /// Returns the startup settings that were reset since the last check, except those that a
    /// function has set again, as the server's reports show.
    fn owed(&self, on: &ServerSessionState) -> impl Iterator<Item = (&[u8], &[u8])> {
        let pending = self.pending.as_deref();
        let changes = pending.map(|pending| pending.changes.get(pending.restored..));
        let changes = changes.flatten().unwrap_or_default();
        self.startup.iter().filter(move |(name, _)| {
            let last = changes.iter().rfind(|change| change.touches(name));
            let is_reset = last.is_some_and(|change| !matches!(change, SettingChange::Set(..)));
            is_reset && on.reports.get(name) == on.login.get(name)
        })
    }

    /// Records that the server connection is lost, and its open transaction with it.
    pub fn lost(&mut self) {
        self.pending = None;
        self.has_failed = false;
        self.is_in_block = false;
    }

    /// Applies one effect of a complete statement.
    fn apply(&mut self, does: &EffectKind) {
        match does {
            EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => self.bind(*pin),
            EffectKind::Prepare(_) => self.bind(Pin::Prepared),
            EffectKind::Execute(_) => self.executes(),
            EffectKind::DeallocateAll => self.prepared = Pins::NONE,
            EffectKind::Release(release) => self.pending().ends(*release),
            EffectKind::Set { name, value } => self.set(name, value),
            EffectKind::Reset(name) => self.follow(SettingChange::Reset(name.clone())),
            EffectKind::ResetAll => self.change(SettingChange::ResetAll),
            EffectKind::Discard(Discard::All) => {
                self.prepared = Pins::NONE;
                self.change(SettingChange::Everything);
            }
            EffectKind::Commit => self.end(true),
            EffectKind::Rollback => self.end(false),
            EffectKind::Savepoint(name) => self.pending().mark(name),
            EffectKind::ReleaseSavepoint(name) => self.pending().release(name),
            EffectKind::RollbackTo(name) => {
                self.has_failed = false;
                self.pending().roll_back_to(name);
            }
            EffectKind::SetTransaction(_) | EffectKind::Deallocate(_) | EffectKind::Discard(_) => {}
        }
    }

    /// Records an EXECUTE: the executed statement is not tracked, so the pins of all prepared ones
    /// apply.
    fn executes(&mut self) {
        for pin in self.prepared.iter() {
            self.bind(pin);
        }
    }

    /// Adds a pin that no earlier statement of the transaction ends.
    pub fn bind(&mut self, pin: Pin) {
        self.pins.add(pin);
        if let Some(pending) = &mut self.pending {
            pending.bound(pin);
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        let readable = value.is_ascii() || self.reported.is_utf8() && str::from_utf8(value).is_ok();
        // A value in another encoding could be restored only in that encoding. The login user may
        // not set what a role with more privileges may set.
        if !readable || values::is_of_superusers(name) && self.has_role() {
            if values::is_role(name) {
                self.bind(Pin::Role);
            }
            return self.bind(Pin::Settings);
        }
        self.follow(SettingChange::Set(name.into(), value.into()));
    }

    /// Records a change if the settings stay within [`LENGTH_MAX`]; else pins the session.
    fn follow(&mut self, change: SettingChange) {
        let pending = self.pending.as_deref().into_iter();
        let changes = pending.flat_map(|pending| pending.committed.iter().chain(&pending.changes));
        let changed: usize = changes.chain([&change]).map(SettingChange::length).sum();
        let length = |(name, value): (&[u8], &[u8])| CHANGE_LENGTH + name.len() + value.len();
        let now: usize = self.now.iter().map(length).sum();
        if changed + now <= LENGTH_MAX {
            return self.change(change);
        }
        if let SettingChange::Set(name, _) | SettingChange::Reset(name) = &change
            && values::is_role(name)
        {
            self.bind(Pin::Role);
        }
        self.bind(Pin::Settings);
    }

    fn has_role(&self) -> bool {
        let pending = self.pending.as_deref();
        let mut changes = pending.into_iter().flat_map(|pending| &pending.changes);
        self.now.get(ROLE).is_some()
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
            let takes_back = !commits || self.has_failed;
            self.pins = self.pins.and(pending.doubts(takes_back));
            if !takes_back {
                self.commit(&mut pending);
            }
            pending.forget();
            if !pending.committed.is_empty() {
                self.pending = Some(pending);
            }
        }
        self.has_failed = false;
    }

    fn commit(&mut self, pending: &mut TransactionChanges) {
        pending.committed.append(&mut pending.changes);
        (pending.restored, pending.in_doubt) = (0, 0);
        for release in pending.take_releases() {
            if release == UnpinEvent::DiscardAll {
                // DISCARD ALL closes all cursors and cannot run in a transaction.
                self.late = Pins::NONE;
            }
            self.pins.release(release);
            self.pins = self.pins.and(self.late);
        }
    }

    /// Applies committed changes to the settings of the client and of its server connection.
    fn take_over(
        &mut self,
        changes: &[SettingChange],
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        if changes.is_empty() {
            return;
        }
        let mut own = SettingSetBuilder::of(&self.now);
        let mut servers = SettingSetBuilder::of(&on.now);
        for change in changes {
            change.make(&mut own, &self.startup);
            change.make(&mut servers, &interner.empty());
        }
        // Stores the value that the server reports: `DateStyle` may have been set in part.
        for change in changes {
            let SettingChange::Set(name, _) = change else {
                continue;
            };
            let report = on.reports.get(name);
            if let (Some(value), true) = (report, servers.get(name).is_some()) {
                own.set(name, value);
                servers.set(name, value);
            }
        }
        self.now = interner.intern(own);
        on.now = interner.intern(servers);
    }

    /// Records reported changes that no text explains: a function has set something.
    fn explain(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        for (name, value) in on.reports.clone().iter() {
            let is_explained = match on.now.get(name) {
                Some(known) => known == value || on.settled.get(name) == Some(value),
                None => on.login.get(name) == Some(value),
            };
            if reported::is_settable(name) && !is_explained {
                on.now = interner.with(&on.now, name, value);
                self.now = interner.with(&self.now, name, value);
            }
        }
        on.settled = on.reports.clone();
    }
}
