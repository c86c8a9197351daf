//! Interns sets of settings per worker, so that equal sets are the same allocation.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::{Rc, Weak};

use super::{Set, SettingSet, Text};

/// Minimum number of hashes before a sweep for dead entries. A sweep also waits until there are
/// twice as many hashes as after the previous one.
const SWEEP_MIN: usize = 64;

/// Interner of [`SettingSet`]s. Sets of different interners are never equal.
#[derive(Debug)]
pub struct Interner {
    sets: RefCell<Sets>,
    empty: SettingSet,
}

#[derive(Default)]
struct Sets {
    by_hash: HashMap<u64, Vec<Weak<Set>>>,
    sweep_at: usize,
}

impl std::fmt::Debug for Sets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sets")
            .field("hashes", &self.by_hash.len())
            .finish_non_exhaustive()
    }
}

/// Set that is being moved to another worker's interner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportedSettings(Vec<Pair>);

type Pair = (Box<[u8]>, Box<[u8]>);

impl Default for Interner {
    fn default() -> Interner {
        Interner::new()
    }
}

impl Interner {
    /// Creates an interner that contains only the empty set.
    #[must_use]
    pub fn new() -> Interner {
        let empty = SettingSet(Rc::new(Set {
            pairs: Box::default(),
            facts: OnceCell::new(),
        }));
        Interner {
            sets: RefCell::default(),
            empty,
        }
    }

    /// Returns the empty set.
    #[must_use]
    pub fn empty(&self) -> SettingSet {
        self.empty.clone()
    }

    /// Returns the set of these pairs; the last value of a repeated name counts.
    #[must_use]
    pub fn of<'a>(&self, pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> SettingSet {
        let mut builder = SettingSetBuilder::default();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        self.intern(builder)
    }

    /// Returns a copy of a set with one setting changed.
    #[must_use]
    pub fn with(&self, set: &SettingSet, name: &[u8], value: &[u8]) -> SettingSet {
        if set.get(name) == Some(value) {
            return set.clone();
        }
        let mut builder = SettingSetBuilder::of(set);
        builder.set(name, value);
        self.intern(builder)
    }

    /// Converts a set that another interner has exported, on this or another thread.
    #[must_use]
    pub fn import(&self, moved: &ExportedSettings) -> SettingSet {
        self.of(moved.0.iter().map(|(name, value)| (&**name, &**value)))
    }

    pub(super) fn intern(&self, builder: SettingSetBuilder) -> SettingSet {
        if builder.pairs.is_empty() {
            return self.empty();
        }
        let mut sets = self.sets.borrow_mut();
        let hash = sets.by_hash.hasher().hash_one(&builder.pairs);
        let known = sets.by_hash.entry(hash).or_default();
        let same = |set: &Rc<Set>| *set.pairs == *builder.pairs;
        if let Some(set) = known.iter().filter_map(Weak::upgrade).find(same) {
            return SettingSet(set);
        }
        let set = Rc::new(Set {
            pairs: builder.pairs.into_boxed_slice(),
            facts: OnceCell::new(),
        });
        // A client that connects for one query only has the same set made repeatedly.
        known.retain(|set| set.strong_count() > 0);
        known.push(Rc::downgrade(&set));
        sets.sweep();
        SettingSet(set)
    }
}

impl Sets {
    fn sweep(&mut self) {
        if self.by_hash.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.by_hash.retain(|_, sets| {
            sets.retain(|set| set.strong_count() > 0);
            !sets.is_empty()
        });
        self.sweep_at = self.by_hash.len().saturating_mul(2);
    }
}

impl SettingSet {
    /// Converts the set for transfer to another worker's interner.
    #[must_use]
    pub fn export(&self) -> ExportedSettings {
        let pairs = self.iter();
        ExportedSettings(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// Set under construction.
#[derive(Debug, Clone, Default)]
pub(super) struct SettingSetBuilder {
    pairs: Vec<(Text, Text)>,
}

impl SettingSetBuilder {
    pub(super) fn of(set: &SettingSet) -> SettingSetBuilder {
        SettingSetBuilder {
            pairs: set.pairs().to_vec(),
        }
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.pairs
            .binary_search_by(|(own, _)| own.as_ref().cmp(name))
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let pair = self.pairs.get(self.position(name).ok()?)?;
        Some(&pair.1)
    }

    pub(super) fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.position(name) {
            Ok(position) => {
                if let Some(pair) = self.pairs.get_mut(position) {
                    pair.1 = value.into();
                }
            }
            Err(position) => self.pairs.insert(position, (name.into(), value.into())),
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Ok(position) = self.position(name) {
            self.pairs.remove(position);
        }
    }

    /// Takes the value of another set, or removes the setting if that set does not contain it.
    pub(super) fn copy_from(&mut self, other: &SettingSet, name: &[u8]) {
        match other.get(name) {
            Some(value) => self.set(name, value),
            None => self.remove(name),
        }
    }

    /// Takes all values of another set except those of the names in `kept`.
    pub(super) fn copy_except(&mut self, other: &SettingSet, kept: &[&[u8]]) {
        let is_kept = |name: &[u8]| kept.contains(&name);
        let mut pairs: Vec<(Text, Text)> = self.pairs.clone();
        pairs.retain(|(name, _)| is_kept(name));
        let others = other.pairs().iter().filter(|(name, _)| !is_kept(name));
        pairs.extend(others.cloned());
        pairs.sort_by(|one, two| one.0.cmp(&two.0));
        self.pairs = pairs;
    }
}

#[cfg(test)]
mod tests {
    use super::{Interner, SWEEP_MIN};

    impl Interner {
        fn entries(&self) -> usize {
            let sets = self.sets.borrow();
            sets.by_hash.values().map(Vec::len).sum()
        }
    }

    #[test]
    fn what_nobody_holds_any_more_takes_no_room() {
        let (again, another) = (Interner::new(), Interner::new());
        for number in 0..10_000_u32 {
            let _ = again.of([(&b"a"[..], &b"b"[..])]);
            let _ = another.of([(&b"a"[..], &number.to_be_bytes()[..])]);
        }
        assert!(again.entries() <= SWEEP_MIN, "{}", again.entries());
        assert!(another.entries() <= SWEEP_MIN, "{}", another.entries());
    }
}
