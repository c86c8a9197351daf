//! The question what is left on a server connection that nobody should have left there, and its
//! answer: as many rows as the number whose bits say what there is.

use evenkeel_policy::pins::{Pin, Pins};

use super::{Settings, values};

/// What there may be, and how to find out. Of the settings those follow that are known.
const ASKED: [(Pin, &str); 7] = [
    (
        Pin::TemporaryTable,
        "pg_catalog.pg_my_temp_schema() <> 0 AND (\
         EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.pg_my_temp_schema()) OR \
         EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = pg_catalog.pg_my_temp_schema()) OR \
         EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace = pg_catalog.pg_my_temp_schema()))",
    ),
    (
        Pin::NamedLock,
        "EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND \
         pid = pg_catalog.pg_backend_pid())",
    ),
    (
        Pin::Listen,
        "EXISTS (SELECT FROM pg_catalog.pg_listening_channels())",
    ),
    (
        Pin::HeldCursor,
        "EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable)",
    ),
    (
        Pin::Prepared,
        "EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql)",
    ),
    (
        // It is in no list, and may be of the login.
        Pin::Role,
        "pg_catalog.current_setting('role') <> 'none' AND NOT EXISTS (SELECT FROM \
         pg_catalog.pg_db_role_setting, pg_catalog.unnest(setconfig) AS one WHERE one LIKE 'role=%')",
    ),
    (
        Pin::Settings,
        "EXISTS (SELECT FROM pg_catalog.pg_settings WHERE source = 'session' AND \
         pg_catalog.lower(name) <> ALL (ARRAY[''",
    ),
];

/// Writes the question. `known`: the settings that are to be there.
pub(crate) fn question(known: &Settings, out: &mut Vec<u8>) {
    out.extend_from_slice(b"SELECT FROM pg_catalog.generate_series(1, 0");
    let acts_as = known.get(b"role").is_some();
    for (bit, (pin, condition)) in ASKED.iter().enumerate() {
        if *pin == Pin::Role && acts_as {
            continue;
        }
        out.extend_from_slice(b" + CASE WHEN ");
        out.extend_from_slice(condition.as_bytes());
        if *pin == Pin::Settings {
            for (name, _) in known.iter() {
                out.push(b',');
                values::literal(out, name);
            }
            out.extend_from_slice(b"]))");
        }
        out.extend_from_slice(format!(" THEN {} ELSE 0 END", 1 << bit).as_bytes());
    }
    out.push(b')');
}

/// What there is, of the number of rows.
pub(crate) fn of_answer(rows: u64) -> Pins {
    let mut left = Pins::NONE;
    for (bit, (pin, _)) in ASKED.iter().enumerate() {
        if rows >> bit & 1 == 1 {
            left.add(*pin);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::super::Interner;
    use super::*;

    #[test]
    fn the_rows_of_the_answer_say_what_there_is() {
        assert_eq!(of_answer(0), Pins::NONE);
        let pins = Pins::of(&[Pin::NamedLock, Pin::Settings]);
        assert_eq!(of_answer(2 + 64), pins);
    }

    #[test]
    fn known_settings_are_quoted_in_the_question() {
        let interner = Interner::new();
        let mut out = Vec::new();
        question(&interner.of([(&b"a.b'c"[..], &b"1"[..])]), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("ARRAY['',"), "{text}");
        assert!(text.contains("a.b''c"), "{text}");
        assert!(text.ends_with("THEN 64 ELSE 0 END)"), "{text}");
    }
}
