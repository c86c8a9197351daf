//! Tracks the changes of settings that are not yet final because a transaction is open.

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};

use super::SettingSet;
use super::interner::SettingSetBuilder;

/// Memory of a setting besides its name and value, in bytes.
pub(super) const CHANGE_LENGTH: usize = 64;

pub(super) const ROLE: &[u8] = b"role";
const SESSION_AUTHORIZATION: &[u8] = b"session_authorization";

/// Changes that the open transaction has made so far.
#[derive(Debug, Default)]
pub(super) struct TransactionChanges {
    /// Changes of transactions that have ended in the middle of a text.
    pub(super) committed: Vec<SettingChange>,
    pub(super) changes: Vec<SettingChange>,
    /// The unpin events of the transaction; `None` if a later pin of that kind must survive it.
    unpin_events: Vec<Option<UnpinEvent>>,
    savepoints: Vec<Savepoint>,
    /// The number of `changes` that were already checked against the startup message.
    pub(super) restored: usize,
    /// The number of `changes` that may be committed whatever the text's result.
    pub(super) in_doubt: usize,
}

#[derive(Debug)]
struct Savepoint {
    name: Box<[u8]>,
    changes: usize,
    unpin_events: usize,
}

#[derive(Debug, Clone)]
pub(super) enum SettingChange {
    Set(Box<[u8]>, Box<[u8]>),
    Reset(Box<[u8]>),
    /// Sets it to a value that no text shows.
    Unknown(Box<[u8]>),
    /// RESET ALL: resets all settings but the role and the session user.
    ResetAll,
    /// DISCARD ALL.
    Everything,
}

impl TransactionChanges {
    pub(super) fn add_savepoint(&mut self, name: &[u8]) {
        self.savepoints.push(Savepoint {
            name: name.into(),
            changes: self.changes.len(),
            unpin_events: self.unpin_events.len(),
        });
    }

    /// Records that a procedure was executed, which may have committed or rolled back all earlier
    /// changes.
    pub(super) fn doubt(&mut self) {
        self.in_doubt = self.changes.len();
        self.unpin_events.fill(None);
    }

    /// Records an event that ends pins when the transaction is committed.
    pub(super) fn record_unpin(&mut self, release: UnpinEvent) {
        self.unpin_events.push(Some(release));
    }

    /// Records a pin that no earlier event may end. Events keep their positions, because savepoints
    /// count them.
    pub(super) fn keep_pin(&mut self, pin: Pin) {
        for release in &mut self.unpin_events {
            let mut left = Pins::of(&[pin]);
            if let Some(release) = release {
                left.release(*release);
            }
            if left.is_empty() {
                *release = None;
            }
        }
    }

    /// Removes and returns the unpin events of the transaction, at its commit.
    pub(super) fn take_unpin_events(&mut self) -> impl Iterator<Item = UnpinEvent> {
        self.unpin_events.drain(..).flatten()
    }

    /// Returns the pins for changes that may or may not be in effect. `is_rollback` is true if the
    /// transaction is rolled back; some servers commit its DISCARD ALL nevertheless.
    pub(super) fn doubtful_pins(&self, is_rollback: bool) -> Pins {
        let discards = |change: &SettingChange| matches!(change, SettingChange::Everything);
        if is_rollback && self.changes.iter().any(discards) {
            return Pins::of(&[Pin::Settings, Pin::Role]);
        }
        let in_doubt = self.changes.get(..self.in_doubt).unwrap_or_default();
        let is_of_role =
            |change: &SettingChange| change.touches(ROLE) || change.touches(SESSION_AUTHORIZATION);
        match in_doubt {
            [] => Pins::NONE,
            _ if in_doubt.iter().any(is_of_role) => Pins::of(&[Pin::Settings, Pin::Role]),
            _ => Pins::of(&[Pin::Settings]),
        }
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        let mut savepoints = self.savepoints.iter();
        savepoints.rposition(|savepoint| *savepoint.name == *name)
    }

    pub(super) fn release(&mut self, name: &[u8]) {
        if let Some(position) = self.position(name) {
            self.savepoints.truncate(position);
        }
    }

    pub(super) fn roll_back_to(&mut self, name: &[u8]) {
        let Some(position) = self.position(name) else {
            return;
        };
        self.savepoints.truncate(position.saturating_add(1));
        if let Some(savepoint) = self.savepoints.last() {
            self.changes.truncate(savepoint.changes);
            self.unpin_events.truncate(savepoint.unpin_events);
            self.restored = self.restored.min(savepoint.changes);
            self.in_doubt = self.in_doubt.min(savepoint.changes);
        }
    }

    pub(super) fn clear(&mut self) {
        self.changes.clear();
        (self.restored, self.in_doubt) = (0, 0);
        self.unpin_events.clear();
        self.savepoints.clear();
    }
}

impl SettingChange {
    pub(super) fn length(&self) -> usize {
        let own = match self {
            SettingChange::Set(name, value) => name.len().saturating_add(value.len()),
            SettingChange::Reset(name) | SettingChange::Unknown(name) => name.len(),
            SettingChange::ResetAll | SettingChange::Everything => 0,
        };
        CHANGE_LENGTH.saturating_add(own)
    }

    pub(super) fn touches(&self, name: &[u8]) -> bool {
        match self {
            SettingChange::Set(own, _)
            | SettingChange::Reset(own)
            | SettingChange::Unknown(own) => **own == *name,
            SettingChange::ResetAll => name != ROLE && name != SESSION_AUTHORIZATION,
            SettingChange::Everything => true,
        }
    }

    /// Returns whether the setting has its default after this change.
    pub(super) fn is_reset(&self) -> bool {
        !matches!(self, SettingChange::Set(..) | SettingChange::Unknown(_))
    }

    /// Applies the change to a set that began as `startup`.
    pub(super) fn apply_to(&self, set: &mut SettingSetBuilder, startup: &SettingSet) {
        match self {
            SettingChange::Set(name, value) => {
                set.set(name, value);
                if **name == *SESSION_AUTHORIZATION {
                    // "SET SESSION AUTHORIZATION … implies SET ROLE NONE".
                    set.remove(ROLE);
                }
            }
            SettingChange::Reset(name) => {
                set.copy_from(startup, name);
                if **name == *SESSION_AUTHORIZATION {
                    set.copy_from(startup, ROLE);
                }
            }
            SettingChange::Unknown(name) => set.remove(name),
            SettingChange::ResetAll => set.copy_except(startup, &[ROLE, SESSION_AUTHORIZATION]),
            SettingChange::Everything => set.copy_except(startup, &[]),
        }
    }
}
