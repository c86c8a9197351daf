//! Reads `role`, and the keys that depend on it.

use crate::plan::{Fallback, OnPrimaryChange, Role};
use crate::problem::Problems;
use crate::reader::Table;
use crate::setting::Setting;

/// Keys that require a role, and that role.
const ROLE_KEYS: [(&str, &str); 3] = [
    ("on_primary_change", "primary"),
    ("lag_ms_max", "replica"),
    ("fallback", "replica"),
];

/// Reads the role; `any` if the key is missing.
pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Role {
    let word = match table.value("role") {
        None => "any",
        Some(_) => match table.word("role", problems) {
            Some(word) => word,
            // Without a valid word it is unknown which other keys are valid.
            None => return Role::Any,
        },
    };
    for (key, role) in ROLE_KEYS.into_iter().filter(|(_, role)| *role != word) {
        if table.value(key).is_some() {
            let message = format!("`{key}` is for `role = \"{role}\"`, not for `{word}`");
            let help = format!("set `role = \"{role}\"`, or remove `{key}`");
            problems.error(&table.key_span(key), "E_ROLE_KEY", message, help);
        }
    }
    match word {
        "primary" => Role::Primary {
            on_change: OnPrimaryChange::read(table, "on_primary_change", problems)
                .unwrap_or(OnPrimaryChange::Cut),
        },
        "replica" => Role::Replica {
            lag_ms_max: table.number("lag_ms_max", problems),
            fallback: Fallback::read(table, "fallback", problems).unwrap_or(Fallback::Nobody),
        },
        _ => Role::Any,
    }
}
