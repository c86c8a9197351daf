//! Tracks the named objects of a session on its server connection, which pin until all are removed.

use evenkeel_policy::pins::{Pin, Pins};

use super::super::analysis::{IN_SCHEMA, SessionObject};
use super::SessionState;

/// Maximum number of objects tracked by name.
const COUNT_MAX: usize = 64;

impl SessionState {
    /// Returns the names of settings, tables, locks and statements with these pins, for display.
    #[must_use]
    pub fn names_of(&self, pins: Pins) -> String {
        let pinning = self.pinning.iter().filter(|(_, pin)| pins.has(*pin));
        let mut names: Vec<_> = pinning.map(|(name, _)| &**name).collect();
        if pins.has(Pin::Settings) && names.is_empty() && !self.untracked_setting.is_empty() {
            names.push(&self.untracked_setting);
        }
        names.extend(self.objects.names(pins));
        if pins.has(Pin::Variables) {
            names.extend(self.unknown.users.iter().map(|name| &**name));
        }
        let name = |name: &&[u8]| String::from_utf8_lossy(name).replace(char::from(IN_SCHEMA), ".");
        let names: Vec<_> = names.iter().map(name).collect();
        names.join(", ")
    }
}

#[derive(Debug, Default)]
pub(super) struct SessionObjects {
    known: Vec<NamedObject>,
    /// Kinds of which further objects with unknown names may exist.
    unknown: Vec<SessionObject>,
    /// Number of locks with unknown names, at most.
    unnamed_locks: u32,
}

#[derive(Debug)]
struct NamedObject {
    kind: SessionObject,
    name: Box<[u8]>,
    /// Number of times that the lock was acquired; 1 for other objects.
    count: u32,
    /// Pins that executing the prepared statement causes.
    pins: Pins,
}

impl SessionObjects {
    /// Records that an object was created, or that a lock was acquired again.
    pub(super) fn create(&mut self, object: SessionObject, name: &[u8], pins: Pins) {
        if let Some(known) = self.find(object, name) {
            if object == SessionObject::NamedLock {
                known.count = known.count.saturating_add(1);
            }
            known.pins = pins;
            return;
        }
        if self.known.len() >= COUNT_MAX {
            return self.add_unknown(object);
        }
        self.known.push(NamedObject {
            kind: object,
            name: name.into(),
            count: 1,
            pins,
        });
    }

    /// Records that an object was removed, or that a lock was released one time.
    pub(super) fn remove(&mut self, object: SessionObject, name: &[u8]) {
        if let Some(known) = self.find(object, name) {
            known.count = known.count.saturating_sub(1);
            self.known.retain(|known| known.count > 0);
        }
    }

    /// Records that a lock was taken, as the server has reported. `None`: of an unknown name.
    pub(super) fn lock_taken(&mut self, name: Option<&[u8]>) {
        match name {
            Some(name) => self.create(SessionObject::NamedLock, name, Pins::NONE),
            None => self.unnamed_locks = self.unnamed_locks.saturating_add(1),
        }
    }

    /// Records that a lock was released one time, as the server has reported.
    pub(super) fn lock_released(&mut self, name: Option<&[u8]>) {
        let known = name.filter(|name| self.find(SessionObject::NamedLock, name).is_some());
        if let Some(name) = known {
            return self.remove(SessionObject::NamedLock, name);
        }
        if name.is_none() {
            // It may have been any of them.
            let locks = self.known.iter();
            let locks = locks.filter(|known| known.kind == SessionObject::NamedLock);
            let count: u32 = locks.map(|lock| lock.count).sum();
            self.known
                .retain(|known| known.kind != SessionObject::NamedLock);
            self.unnamed_locks = self.unnamed_locks.saturating_add(count);
        }
        self.unnamed_locks = self.unnamed_locks.saturating_sub(1);
    }

    /// Records that there may be objects of this kind with unknown names.
    pub(super) fn add_unknown(&mut self, object: SessionObject) {
        if !self.unknown.contains(&object) {
            self.unknown.push(object);
        }
    }

    /// Removes all objects of a kind.
    pub(super) fn clear(&mut self, object: SessionObject) {
        self.known.retain(|known| known.kind != object);
        self.unknown.retain(|unknown| *unknown != object);
        if object == SessionObject::NamedLock {
            self.unnamed_locks = 0;
        }
    }

    /// Returns the names of objects that cause one of these pins.
    pub(super) fn names(&self, pins: Pins) -> impl Iterator<Item = &[u8]> {
        let known = self.known.iter();
        let known = known.filter(move |known| pins.has(known.kind.pin()));
        known.map(|known| &*known.name)
    }

    pub(super) fn has(&self, object: SessionObject) -> bool {
        let mut known = self.known.iter();
        self.unknown.contains(&object)
            || known.any(|known| known.kind == object)
            || object == SessionObject::NamedLock && self.unnamed_locks > 0
    }

    /// Returns the pins that executing the named prepared statement causes. `None`: unknown
    /// statement.
    pub(super) fn prepared_pins(&self, name: &[u8]) -> Option<Pins> {
        let mut known = self.known.iter();
        let found =
            known.find(|known| known.kind == SessionObject::Prepared && *known.name == *name);
        found.map(|known| known.pins)
    }

    fn find(&mut self, object: SessionObject, name: &[u8]) -> Option<&mut NamedObject> {
        let mut known = self.known.iter_mut();
        known.find(|known| known.kind == object && *known.name == *name)
    }
}
