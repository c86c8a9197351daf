//! What an open transaction has changed of its client's settings.

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};

use super::SettingSet;
use super::interner::SettingSetBuilder;

/// What a setting takes beside its name and value.
pub(super) const CHANGE_LENGTH: usize = 64;

pub(super) const ROLE: &[u8] = b"role";
const SESSION_AUTHORIZATION: &[u8] = b"session_authorization";

/// What the open transaction has changed so far.
#[derive(Debug, Default)]
pub(super) struct TransactionChanges {
    /// By transactions that have ended in the middle of a text.
    pub(super) committed: Vec<SettingChange>,
    pub(super) changes: Vec<SettingChange>,
    /// `None`: what is bound since was to be ended by it.
    releases: Vec<Option<UnpinEvent>>,
    savepoints: Vec<Savepoint>,
    /// So many of the changes have been looked at for what they owe to the startup message.
    pub(super) restored: usize,
    /// So many of the changes may be committed, whatever becomes of the text.
    pub(super) in_doubt: usize,
}

#[derive(Debug)]
struct Savepoint {
    name: Box<[u8]>,
    changes: usize,
    releases: usize,
}

#[derive(Debug, Clone)]
pub(super) enum SettingChange {
    Set(Box<[u8]>, Box<[u8]>),
    Reset(Box<[u8]>),
    /// RESET ALL: all but who one is.
    ResetAll,
    /// DISCARD ALL.
    Everything,
}

impl TransactionChanges {
    pub(super) fn mark(&mut self, name: &[u8]) {
        self.savepoints.push(Savepoint {
            name: name.into(),
            changes: self.changes.len(),
            releases: self.releases.len(),
        });
    }

    /// A procedure has run, which may have committed what was changed before it, or taken it back.
    pub(super) fn doubt(&mut self) {
        self.in_doubt = self.changes.len();
        self.releases.fill(None);
    }

    /// Ends pins once it is committed.
    pub(super) fn ends(&mut self, release: UnpinEvent) {
        self.releases.push(Some(release));
    }

    /// This binds, and nothing of before ends it. Savepoints count releases: each keeps its place.
    pub(super) fn bound(&mut self, pin: Pin) {
        for release in &mut self.releases {
            let mut left = Pins::of(&[pin]);
            if let Some(release) = release {
                left.release(*release);
            }
            if left.is_empty() {
                *release = None;
            }
        }
    }

    /// What is committed with it.
    pub(super) fn take_releases(&mut self) -> impl Iterator<Item = UnpinEvent> {
        self.releases.drain(..).flatten()
    }

    /// What binds its client: what is in doubt is so or not. `takes_back`: it is rolled back, but
    /// for DISCARD ALL, which some servers commit by itself.
    pub(super) fn doubts(&self, takes_back: bool) -> Pins {
        let discards = |change: &SettingChange| matches!(change, SettingChange::Everything);
        if takes_back && self.changes.iter().any(discards) {
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

    fn place(&self, name: &[u8]) -> Option<usize> {
        let mut savepoints = self.savepoints.iter();
        savepoints.rposition(|savepoint| *savepoint.name == *name)
    }

    pub(super) fn release(&mut self, name: &[u8]) {
        if let Some(place) = self.place(name) {
            self.savepoints.truncate(place);
        }
    }

    pub(super) fn roll_back_to(&mut self, name: &[u8]) {
        let Some(place) = self.place(name) else {
            return;
        };
        self.savepoints.truncate(place.saturating_add(1));
        if let Some(savepoint) = self.savepoints.last() {
            self.changes.truncate(savepoint.changes);
            self.releases.truncate(savepoint.releases);
            self.restored = self.restored.min(savepoint.changes);
            self.in_doubt = self.in_doubt.min(savepoint.changes);
        }
    }

    pub(super) fn forget(&mut self) {
        self.changes.clear();
        (self.restored, self.in_doubt) = (0, 0);
        self.releases.clear();
        self.savepoints.clear();
    }
}

impl SettingChange {
    pub(super) fn length(&self) -> usize {
        let own = match self {
            SettingChange::Set(name, value) => name.len() + value.len(),
            SettingChange::Reset(name) => name.len(),
            SettingChange::ResetAll | SettingChange::Everything => 0,
        };
        CHANGE_LENGTH + own
    }

    pub(super) fn touches(&self, name: &[u8]) -> bool {
        match self {
            SettingChange::Set(own, _) | SettingChange::Reset(own) => **own == *name,
            SettingChange::ResetAll => name != ROLE && name != SESSION_AUTHORIZATION,
            SettingChange::Everything => true,
        }
    }

    /// Makes it in a set that began as `startup`.
    pub(super) fn make(&self, set: &mut SettingSetBuilder, startup: &SettingSet) {
        match self {
            SettingChange::Set(name, value) => {
                set.set(name, value);
                if **name == *SESSION_AUTHORIZATION {
                    // "SET SESSION AUTHORIZATION … implies SET ROLE NONE".
                    set.remove(ROLE);
                }
            }
            SettingChange::Reset(name) => {
                set.take_from(startup, name);
                if **name == *SESSION_AUTHORIZATION {
                    set.take_from(startup, ROLE);
                }
            }
            SettingChange::ResetAll => set.become_all_but(startup, &[ROLE, SESSION_AUTHORIZATION]),
            SettingChange::Everything => set.become_all_but(startup, &[]),
        }
    }
}
