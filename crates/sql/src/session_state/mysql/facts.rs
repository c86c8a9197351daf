//! Derives facts from a set of session settings, once for all sessions that have the same settings.

use evenkeel_policy::route::{Isolation, TransactionModes};

use super::{values, variables};
use crate::session_state::settings::SettingSet;

/// Facts about one set.
#[derive(Debug, Clone, Copy)]
pub(in crate::session_state) struct SettingFacts {
    /// True if each statement is a transaction of its own.
    pub(super) autocommit: bool,
    /// Modes of a transaction that specifies none.
    pub(super) modes: TransactionModes,
    /// True if the collation of the connection is known.
    pub(super) has_collation: bool,
}

impl SettingFacts {
    pub(in crate::session_state) fn of(set: &SettingSet) -> SettingFacts {
        let boolean = |name| set.get(name).and_then(values::boolean);
        let isolation = set.get(variables::ISOLATION);
        let modes = TransactionModes {
            read_only: boolean(variables::READ_ONLY),
            isolation: isolation.map(|isolation| {
                match isolation.eq_ignore_ascii_case(b"serializable") {
                    true => Isolation::Serializable,
                    false => Isolation::Weaker,
                }
            }),
        };
        SettingFacts {
            autocommit: boolean(variables::AUTOCOMMIT) != Some(false),
            modes,
            has_collation: set.get(variables::COLLATION).is_some(),
        }
    }
}
