//! Settings of clients and server connections: immutable sets, shared and compared by pointer.

mod accepted;
mod connection;
mod diff;
pub mod held_state;
mod interner;
mod parse_settings;
mod reported;
mod session;
mod startup;
#[cfg(test)]
mod tests;
mod transaction;
pub mod values;

use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;

pub use accepted::AcceptedSettings;
pub use connection::{ExportedState, ServerSessionState};
pub use diff::difference;
pub use interner::{ExportedSettings, Interner};
pub use parse_settings::{LiteralSettings, ParseSettings};
pub(crate) use parse_settings::{is_of_literals, is_of_names, is_of_texts};
pub use reported::{ReportedParameters, is_of_server, spelling};
pub use session::SessionState;
pub use startup::{StartupError, from_startup};

use super::mysql::SettingFacts;

/// A name or a value, shared by the sets that contain it.
type Text = Rc<[u8]>;

/// Settings and their values, sorted by name. Names are in lower case, values in the form that
/// `set_config` takes.
///
/// Sets of one [`Interner`] are equal if and only if they are the same allocation.
#[derive(Clone)]
pub struct SettingSet(Rc<Set>);

struct Set {
    pairs: Box<[(Text, Text)]>,
    facts: OnceCell<SettingFacts>,
}

impl SettingSet {
    /// Returns the value of a setting, or `None` if the set does not contain it.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let index = self
            .0
            .pairs
            .binary_search_by(|(own, _)| own.as_ref().cmp(name));
        let pair = self.0.pairs.get(index.ok()?)?;
        Some(&pair.1)
    }

    /// Returns the facts that MySQL statements depend on; computed at the first call.
    pub(in crate::session_state) fn facts(&self) -> SettingFacts {
        *self.0.facts.get_or_init(|| SettingFacts::of(self))
    }

    /// Returns the names and values, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let pairs = self.0.pairs.iter();
        pairs.map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.pairs.is_empty()
    }

    fn pairs(&self) -> &[(Text, Text)] {
        &self.0.pairs
    }
}

/// Compares by pointer.
impl PartialEq for SettingSet {
    fn eq(&self, other: &SettingSet) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SettingSet {}

impl fmt::Debug for SettingSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (text(name), text(value))))
            .finish()
    }
}
