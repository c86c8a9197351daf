//! Tracks the named objects of a session on its server connection, which pin until all are removed.

use evenkeel_policy::pins::Pins;

use super::super::analysis::SessionObject;

/// Maximum number of objects tracked by name.
const COUNT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct SessionObjects {
    known: Vec<Known>,
    /// Kinds of which further objects with unknown names may exist.
    unknown: Vec<SessionObject>,
}

#[derive(Debug)]
struct Known {
    thing: SessionObject,
    name: Box<[u8]>,
    /// Number of times that the lock was acquired; 1 for other objects.
    count: u32,
    /// Pins that executing the prepared statement causes.
    binds: Pins,
}

impl SessionObjects {
    /// Records that an object was created, or that a lock was acquired again.
    pub(super) fn make(&mut self, thing: SessionObject, name: &[u8], binds: Pins) {
        if let Some(known) = self.find(thing, name) {
            if thing == SessionObject::NamedLock {
                known.count = known.count.saturating_add(1);
            }
            known.binds = binds;
            return;
        }
        if self.known.len() >= COUNT_MAX {
            return self.unknown(thing);
        }
        self.known.push(Known {
            thing,
            name: name.into(),
            count: 1,
            binds,
        });
    }

    /// Records that an object was removed, or that a lock was released one time.
    pub(super) fn unmake(&mut self, thing: SessionObject, name: &[u8]) {
        if let Some(known) = self.find(thing, name) {
            known.count = known.count.saturating_sub(1);
            self.known.retain(|known| known.count > 0);
        }
    }

    /// Records that there may be objects of this kind with unknown names.
    pub(super) fn unknown(&mut self, thing: SessionObject) {
        if !self.unknown.contains(&thing) {
            self.unknown.push(thing);
        }
    }

    /// Removes all objects of a kind.
    pub(super) fn clear(&mut self, thing: SessionObject) {
        self.known.retain(|known| known.thing != thing);
        self.unknown.retain(|unknown| *unknown != thing);
    }

    /// Returns the names of objects that cause one of these pins.
    pub(super) fn names(&self, pins: Pins) -> impl Iterator<Item = &[u8]> {
        let known = self.known.iter();
        let known = known.filter(move |known| pins.has(known.thing.pin()));
        known.map(|known| &*known.name)
    }

    pub(super) fn has(&self, thing: SessionObject) -> bool {
        let mut known = self.known.iter();
        self.unknown.contains(&thing) || known.any(|known| known.thing == thing)
    }

    /// Returns the pins that executing the named prepared statement causes. `None`: unknown
    /// statement.
    pub(super) fn binds(&self, name: &[u8]) -> Option<Pins> {
        let mut known = self.known.iter();
        let found =
            known.find(|known| known.thing == SessionObject::Prepared && *known.name == *name);
        found.map(|known| known.binds)
    }

    fn find(&mut self, thing: SessionObject, name: &[u8]) -> Option<&mut Known> {
        let mut known = self.known.iter_mut();
        known.find(|known| known.thing == thing && *known.name == *name)
    }
}
