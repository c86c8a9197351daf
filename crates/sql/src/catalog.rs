//! What a database's functions and tables do to its data when a query names them.

mod resolve;
mod routine_pins;
mod safe_functions;
mod user_code;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use evenkeel_policy::pins::Pins;
use evenkeel_policy::route::Volatility;

use crate::session_state::analysis::CatalogLookup;
pub use resolve::{Builder, Changes, Function, Relation, RelationKind};
use user_code::UserCode;

/// By name, whatever the schema: which one a session means depends on its search path, so the worst
/// of all that bear the name counts. Names are as the server has them: folded, without quotes.
#[derive(Debug, PartialEq, Eq)]
pub struct Catalog {
    generation: u64,
    functions: HashMap<Box<[u8]>, Volatility>,
    relations: HashMap<Box<[u8]>, Volatility>,
    implied: Volatility,
    implied_code: Option<Pins>,
    event_code: Option<Pins>,
    /// Names of functions that are not the server's own.
    of_users: HashSet<Box<[u8]>>,
    /// Of these, such as `row.name` calls, if that changes anything or leaves anything behind.
    of_rows: HashSet<Box<[u8]>>,
    has_languages: bool,
    code: UserCode,
    custom_settings: Vec<Box<[u8]>>,
    /// Only what leaves anything behind.
    binds: HashMap<Box<[u8]>, Pins>,
    triggers: HashMap<Box<[u8]>, Pins>,
    views: HashMap<Box<[u8]>, Pins>,
}

impl Catalog {
    /// Higher for one that was read later: what was concluded from another may be wrong now.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many functions and relations are known, by name.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        (self.functions.len(), self.relations.len())
    }
}

impl CatalogLookup for Catalog {
    fn function(&self, name: &[u8]) -> Volatility {
        let known = self.functions.get(name).copied();
        known.unwrap_or_else(|| safe_functions::of_syntax(name))
    }

    fn relation(&self, name: &[u8]) -> Volatility {
        let known = self.relations.get(name).copied();
        known.unwrap_or(Volatility::Unknown)
    }

    fn implied(&self) -> Volatility {
        self.implied
    }

    fn implicit_pins(&self) -> Option<Pins> {
        self.implied_code
    }

    fn event_pins(&self) -> Option<Pins> {
        self.event_code
    }

    fn call_pins(&self, name: &[u8]) -> Option<Pins> {
        let is_known = || self.function(name) != Volatility::Unknown;
        let bound = self.binds.get(name).copied();
        bound.or_else(|| is_known().then_some(Pins::NONE))
    }

    fn is_user_function(&self, name: &[u8]) -> bool {
        self.of_users.contains(name)
    }

    fn has_row_functions(&self) -> bool {
        !self.of_rows.is_empty()
    }

    fn has_languages(&self) -> bool {
        self.has_languages
    }

    fn is_row_function(&self, name: &[u8]) -> bool {
        self.of_rows.contains(name)
    }

    fn runs_code(&self, name: &[u8], is_written: bool) -> bool {
        self.code.is_run(name, is_written)
    }

    fn custom_settings(&self) -> &[Box<[u8]>] {
        &self.custom_settings
    }

    fn triggers(&self, name: &[u8]) -> Pins {
        self.triggers.get(name).copied().unwrap_or(Pins::NONE)
    }

    fn views(&self, name: &[u8]) -> Pins {
        self.views.get(name).copied().unwrap_or(Pins::NONE)
    }
}
