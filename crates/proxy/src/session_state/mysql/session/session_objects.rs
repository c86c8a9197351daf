//! What a session has by name on its own connection: it binds until all of it is gone.

use evenkeel_policy::pins::Pins;

use super::super::analysis::SessionObject;

/// More are not told apart any more.
const COUNT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct SessionObjects {
    known: Vec<Known>,
    /// Kinds of which there are some whose names are not known.
    unknown: Vec<SessionObject>,
}

#[derive(Debug)]
struct Known {
    thing: SessionObject,
    name: Box<[u8]>,
    /// How often it was taken.
    count: u32,
    /// What executing it leaves behind.
    binds: Pins,
}

impl SessionObjects {
    /// One is there, or a lock was taken once more.
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

    /// One is gone, or a lock was given back once.
    pub(super) fn unmake(&mut self, thing: SessionObject, name: &[u8]) {
        if let Some(known) = self.find(thing, name) {
            known.count = known.count.saturating_sub(1);
            self.known.retain(|known| known.count > 0);
        }
    }

    /// There may be others.
    pub(super) fn unknown(&mut self, thing: SessionObject) {
        if !self.unknown.contains(&thing) {
            self.unknown.push(thing);
        }
    }

    /// All of a kind are gone.
    pub(super) fn clear(&mut self, thing: SessionObject) {
        self.known.retain(|known| known.thing != thing);
        self.unknown.retain(|unknown| *unknown != thing);
    }

    /// Names of those that have these pins.
    pub(super) fn names(&self, pins: Pins) -> impl Iterator<Item = &[u8]> {
        let known = self.known.iter();
        let known = known.filter(move |known| pins.has(known.thing.pin()));
        known.map(|known| &*known.name)
    }

    pub(super) fn has(&self, thing: SessionObject) -> bool {
        let mut known = self.known.iter();
        self.unknown.contains(&thing) || known.any(|known| known.thing == thing)
    }

    /// What executing a prepared statement of that name leaves behind; `None`: it is not known.
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
