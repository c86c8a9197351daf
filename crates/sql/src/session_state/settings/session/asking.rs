//! Asks a server which state a client has on its connection, and takes over the answer.

use evenkeel_policy::pins::{Pin, Pins};

use super::super::super::analysis::sets_anything;
use super::super::held_state::{HeldState, Question, ReportedSetting};
use super::super::interner::SettingSetBuilder;
use super::super::parse_settings::is_parsed_by;
use super::super::transaction::{SettingChange, TransactionChanges};
use super::super::{Interner, ParseSettings, ServerSessionState, SettingSet, values};
use super::{CHANGE_LENGTH, LENGTH_MAX, ROLE, SessionState};

/// Maximum number of names of settings whose values are asked for.
const NAMES_MAX: usize = 100;

const SEARCH_PATH: &[u8] = b"search_path";

/// Reasons whose state the server can list.
const LISTED: Pins = Pins::of(&[
    Pin::TemporaryTable,
    Pin::NamedLock,
    Pin::Listen,
    Pin::HeldCursor,
    Pin::Prepared,
    Pin::NamedSettings,
    Pin::Settings,
    Pin::Role,
]);

/// Reasons whose state is settings.
pub(super) const SETTINGS: Pins = Pins::of(&[Pin::NamedSettings, Pin::Settings, Pin::Role]);

/// Reasons that stand for any listed state, and for more that goes with the connection.
const ANYTHING: Pins = Pins::of(&[Pin::Code, Pin::Unknown]);

impl SessionState {
    /// Returns whether an answer of the server can show that the client needs its connection no
    /// longer.
    #[must_use]
    pub fn can_be_asked(&self) -> bool {
        !self.pins.is_empty() && self.pins.except(LISTED).except(ANYTHING).is_empty()
    }

    /// Returns whether the state on the connection is all in [`SessionState::settings`], or is
    /// state of unread code that may be dropped with the connection.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        self.pins.except(ANYTHING).is_empty()
    }

    /// Returns the question about the state that the client may have on its connection.
    #[must_use]
    pub fn question(&self, server: &ServerSessionState) -> Question {
        let mut kinds = self.pins.within(LISTED);
        if !self.pins.within(ANYTHING).is_empty() {
            kinds = LISTED;
        }
        if !self.deferred.is_empty() {
            kinds.add(Pin::HeldCursor);
        }
        if !self.prepared.is_empty() {
            kinds.add(Pin::Prepared);
        }
        let is_of_any = kinds.has(Pin::Settings) || kinds.has(Pin::Role);
        // The login user may not set what a role with more privileges may set.
        let is_of_role = kinds.has(Pin::NamedSettings) && self.settings.get(ROLE).is_some();
        if !is_of_any && !is_of_role {
            return self.question_of_names(kinds);
        }
        kinds = kinds.and(SETTINGS);
        // The search path may have had `pg_temp` for a while.
        kinds.add(Pin::TemporaryTable);
        let known = self.settings.iter().chain(server.settings.iter());
        let known = known.map(|(name, _)| Box::from(name));
        let names = self.unknown_values.iter().cloned().chain(known);
        let names = names.chain([Box::from(ROLE)]);
        Question::new(kinds, names.filter(|name| is_unlisted(name)))
    }

    /// Returns the question about these kinds, and about the values of the settings that texts have
    /// named.
    fn question_of_names(&self, mut kinds: Pins) -> Question {
        if !kinds.has(Pin::NamedSettings) {
            return Question::new(kinds, []);
        }
        if self.unknown_values.contains(SEARCH_PATH) {
            kinds.add(Pin::TemporaryTable);
        }
        Question::new(kinds, self.unknown_values.iter().cloned())
    }

    /// Returns whether settings that texts are parsed by may differ from the tracked ones, because
    /// of a statement since which the server was not asked.
    #[must_use]
    pub fn has_unknown_parse_settings(&self) -> bool {
        let mut names = self.unknown_values.iter();
        sets_anything(self.pins)
            || self.pins.has(Pin::NamedSettings) && names.any(|name| is_parsed_by(name))
    }

    /// Takes over the server's answer: kinds that it did not report are gone, and settings have the
    /// reported values.
    pub fn answered(
        &mut self,
        question: &Question,
        held: &HeldState,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let kinds = question.kinds();
        self.pins = self.pins.except(kinds).and(held.pins);
        if kinds.has(Pin::HeldCursor) && !held.pins.has(Pin::HeldCursor) {
            self.deferred = Pins::NONE;
        }
        if kinds.has(Pin::Prepared) && !held.pins.has(Pin::Prepared) {
            self.prepared = Pins::NONE;
        }
        if !kinds.within(SETTINGS).is_empty() {
            self.take_settings(&held.settings, kinds.has(Pin::Settings), server, interner);
        }
        self.pins = self.pins.and(values::pins_of(&self.settings));
    }

    /// Takes over the reported settings. `are_all`: no others are set.
    fn take_settings(
        &mut self,
        reported: &[ReportedSetting],
        are_all: bool,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let mut own = SettingSetBuilder::of(&self.settings);
        let mut of_server = match are_all {
            true => SettingSetBuilder::of(&interner.empty()),
            false => SettingSetBuilder::of(&server.settings),
        };
        for setting in reported {
            let (name, value) = (&*setting.name, &*setting.value);
            if name == ROLE && value == b"none" {
                continue;
            }
            let known = server.settings.get(name);
            let is_privileged = setting.is_privileged && known.is_none();
            if is_privileged || !self.can_read(value) {
                self.pins.add(Pin::Settings);
                continue;
            }
            of_server.set(name, value);
            // Evenkeel may have set what another server's default is.
            if known != Some(value) || self.settings.get(name).is_some() {
                own.set(name, value);
            }
        }
        // The others were reset: to the value of the startup message, if it has one.
        for (name, _) in self.settings.iter() {
            if are_all && of_server.get(name).is_none() {
                own.copy_from(&self.startup, name);
            }
        }
        server.settings = interner.intern(of_server);
        server.settled = server.reports.clone();
        self.settings = interner.intern(own);
        if length(&self.settings) > LENGTH_MAX {
            self.pins.add(Pin::Settings);
        }
        self.parse_settings = ParseSettings::of(&self.settings);
        // A statement that may still run was noted once. A value that was not taken is asked for
        // again.
        let may_run = !self.prepared.is_empty() || !self.deferred.is_empty();
        if !may_run && !self.pins.has(Pin::Settings) {
            self.unknown_values.clear();
        }
    }

    /// Returns whether a value can be restored in any encoding.
    pub(super) fn can_read(&self, value: &[u8]) -> bool {
        value.is_ascii() || self.reported.is_utf8() && str::from_utf8(value).is_ok()
    }

    /// Pins for a setting that is not tracked.
    pub(super) fn pin_untracked(&mut self, name: &[u8]) {
        self.note_unknown_value(name);
        if values::is_role(name) {
            self.pin(Pin::Role);
        }
        self.pin(Pin::Settings);
    }

    /// Pins for changes that may or may not be in effect.
    pub(super) fn pin_doubtful(&mut self, pending: &TransactionChanges, is_rollback: bool) {
        let pins = pending.doubtful_pins(is_rollback);
        if pins.is_empty() {
            return;
        }
        self.pins = self.pins.and(pins);
        for change in pending.committed.iter().chain(&pending.changes) {
            if let SettingChange::Set(name, _) | SettingChange::Reset(name) = change {
                self.note_unknown_value(name);
            }
        }
    }

    /// Records a setting whose value no text shows.
    pub(super) fn note_unknown_value(&mut self, name: &[u8]) {
        if is_of_transaction(name) || self.unknown_values.contains(name) {
            return;
        }
        match self.unknown_values.len() < NAMES_MAX {
            true => drop(self.unknown_values.insert(name.into())),
            false if is_unlisted(name) => self.pins.add(Pin::UnlistedSettings),
            false => self.pins.add(Pin::Settings),
        }
    }
}

/// Returns whether no catalog lists the setting: it may be a user's own, or is the current role.
fn is_unlisted(name: &[u8]) -> bool {
    name.contains(&b'.') || values::is_role(name)
}

/// Returns whether each transaction resets the setting.
fn is_of_transaction(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 3] = [
        b"transaction_deferrable",
        b"transaction_isolation",
        b"transaction_read_only",
    ];
    NAMES.contains(&name)
}

/// Returns the memory that settings take, in bytes.
pub(super) fn length(settings: &SettingSet) -> usize {
    let lengths = |(name, value): (&[u8], &[u8])| [CHANGE_LENGTH, name.len(), value.len()];
    settings.iter().flat_map(lengths).sum()
}
