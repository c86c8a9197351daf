//! Reads which part of a cluster a service wants: `role`, and the keys that belong to it.

use super::plan::{Fallback, OnPrimaryChange, Role};
use super::problem::Problems;
use super::reader::Table;

/// Keys of one role, and the role that they belong to.
const ROLE_KEYS: [(&str, &str); 3] = [
    ("on_primary_change", "primary"),
    ("lag_ms_max", "replica"),
    ("fallback", "replica"),
];

/// The role; `any` when the key is left out.
pub(super) fn read(table: &Table<'_>, problems: &mut Problems) -> Role {
    let word = match table.value("role") {
        None => "any",
        Some(_) => match table.word("role", problems) {
            Some(word) => word,
            // Nobody knows which of the other keys would belong to it.
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
            on_change: match table.word("on_primary_change", problems) {
                Some("leave") => OnPrimaryChange::Leave,
                _ => OnPrimaryChange::Cut,
            },
        },
        "replica" => Role::Replica {
            lag_ms_max: table.number("lag_ms_max", problems),
            fallback: match table.word("fallback", problems) {
                Some("primary") => Fallback::Primary,
                _ => Fallback::Nobody,
            },
        },
        _ => Role::Any,
    }
}
