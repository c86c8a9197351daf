//! Queries which session state is left on a server connection although no client should have left
//! any. The reply has one row with names for each kind of state.

use std::fmt;

use evenkeel_policy::pins::{Pin, Pins};

use super::{SettingSet, values};

/// Kinds of state and the SQL for a name of each; NULL if there is none. The names of known
/// settings are appended to the last.
const QUERIES: [(Pin, &str); 7] = [
    (
        Pin::TemporaryTable,
        "CASE WHEN pg_catalog.pg_my_temp_schema() <> 0 THEN (\
         SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.pg_my_temp_schema() UNION ALL \
         SELECT proname FROM pg_catalog.pg_proc WHERE pronamespace = pg_catalog.pg_my_temp_schema() UNION ALL \
         SELECT typname FROM pg_catalog.pg_type WHERE typnamespace = pg_catalog.pg_my_temp_schema() LIMIT 1) END",
    ),
    (
        Pin::NamedLock,
        "(SELECT CASE classid WHEN 0 THEN pg_catalog.format('%s', objid) \
         ELSE pg_catalog.format('%s, %s', classid, objid) END \
         FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid() LIMIT 1)",
    ),
    (
        Pin::Listen,
        "(SELECT channel FROM pg_catalog.pg_listening_channels() AS channel LIMIT 1)",
    ),
    (
        Pin::HeldCursor,
        "(SELECT name FROM pg_catalog.pg_cursors WHERE is_holdable LIMIT 1)",
    ),
    (
        Pin::Prepared,
        "(SELECT name FROM pg_catalog.pg_prepared_statements WHERE from_sql LIMIT 1)",
    ),
    (
        // The role is in no catalog view, and may be a setting of the login.
        Pin::Role,
        "(SELECT pg_catalog.current_setting('role') \
         WHERE pg_catalog.current_setting('role') <> 'none' AND NOT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting, \
         pg_catalog.unnest(setconfig) AS one WHERE one LIKE 'role=%'))",
    ),
    (
        Pin::Settings,
        "(SELECT pg_catalog.string_agg(name, ', ') FROM pg_catalog.pg_settings \
         WHERE source = 'session' AND pg_catalog.lower(name) <> ALL (ARRAY[",
    ),
];

/// Settings of the transaction, which each new transaction resets. After SET TRANSACTION their
/// source stays `session`, even after DISCARD ALL.
const OF_TRANSACTION: &str =
    "'transaction_isolation','transaction_read_only','transaction_deferrable'";

/// Maximum length of a name that is shown, in bytes.
const NAMES_LENGTH_MAX: usize = 200;

/// Maximum length of the reply that is read, in bytes. Names can have 64 bytes each, and there are
/// seven rows.
const ANSWER_LENGTH_MAX: usize = 16 * 1024;

/// State that the server reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftover {
    /// The kinds of state.
    pub pins: Pins,
    /// A name for each kind, for display.
    named: Vec<(Pin, String)>,
}

/// Collects the rows of the reply: DataRow messages in chunks of any length.
#[derive(Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    /// The number of bytes to skip before the first row.
    skipped: usize,
    /// The number of rows, as the server reports at their end.
    count: u64,
}

/// Writes the query. `known` are the settings that the connection is expected to have.
pub fn question(known: &SettingSet, out: &mut Vec<u8>) {
    out.extend_from_slice(b"SELECT kind, name FROM (VALUES ");
    let acts_as = known.get(b"role").is_some();
    for (kind, (pin, name)) in QUERIES.iter().enumerate() {
        if *pin == Pin::Role && acts_as {
            continue;
        }
        let comma = if kind == 0 { "" } else { ", " };
        out.extend_from_slice(format!("{comma}({kind}, {name}").as_bytes());
        if *pin == Pin::Settings {
            out.extend_from_slice(OF_TRANSACTION.as_bytes());
            for (name, _) in known.iter() {
                out.push(b',');
                values::literal(out, name);
            }
            out.extend_from_slice(b"]))");
        }
        out.push(b')');
    }
    out.extend_from_slice(b") AS found (kind, name) WHERE name IS NOT NULL");
}

impl Rows {
    /// Starts a reply: rows follow after `after` bytes, the rest of the RowDescription.
    pub fn begin(&mut self, after: usize) {
        self.bytes.clear();
        self.skipped = after;
    }

    /// Adds bytes of DataRow messages, or of the RowDescription before them.
    pub fn add(&mut self, bytes: &[u8]) {
        let skipped = self.skipped.min(bytes.len());
        self.skipped = self.skipped.saturating_sub(skipped);
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let free = ANSWER_LENGTH_MAX.saturating_sub(self.bytes.len());
        let bytes = bytes.get(..free).unwrap_or(bytes);
        self.bytes.extend_from_slice(bytes);
    }

    /// Records that the server has sent all `count` rows.
    pub fn end(&mut self, count: u64) {
        self.count = count;
    }

    /// Parses the complete reply.
    pub fn read(&self) -> Leftover {
        let mut left = Leftover::default();
        let (mut at, mut read) = (0_usize, 0_u64);
        while let Some((kind, name, length)) = row(self.bytes.get(at..).unwrap_or_default()) {
            at = at.saturating_add(length);
            read = read.saturating_add(1);
            let Some((pin, _)) = QUERIES.get(kind) else {
                left.pins.add(Pin::Unknown);
                continue;
            };
            left.pins.add(*pin);
            let name = String::from_utf8_lossy(name).into_owned();
            left.named.push((*pin, name));
        }
        if read < self.count {
            // The reply was longer than the limit: there is more state than was read.
            left.pins.add(Pin::Unknown);
        }
        left
    }
}

impl Leftover {
    /// Returns the names without their kinds, separated by commas.
    pub fn names(&self) -> String {
        let names: Vec<_> = self.named.iter().map(|(_, name)| &**name).collect();
        names.join(", ")
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (pin, name)) in self.named.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let name = name.get(..name.floor_char_boundary(NAMES_LENGTH_MAX));
            write!(f, "{comma}{} ({})", pin.as_str(), name.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Parses the DataRow message at the beginning into kind, name and message length
/// (protocol-message-formats, "DataRow").
fn row(bytes: &[u8]) -> Option<(usize, &[u8], usize)> {
    let rest = bytes.strip_prefix(b"D")?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length))
        .ok()?
        .saturating_add(1);
    let (columns, rest) = rest.split_first_chunk::<2>()?;
    let (kind, rest) = column(rest)?;
    let (name, _) = column(rest)?;
    let kind = str::from_utf8(kind).ok()?.parse().ok()?;
    (*columns == [0, 2]).then_some((kind, name, length))
}

fn column(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::super::Interner;
    use super::*;

    fn data_row(kind: &str, name: &str) -> Vec<u8> {
        let mut body = vec![0, 2];
        for column in [kind, name] {
            body.extend_from_slice(&u32::try_from(column.len()).unwrap().to_be_bytes());
            body.extend_from_slice(column.as_bytes());
        }
        let length = u32::try_from(body.len() + 4).unwrap();
        [&b"D"[..], &length.to_be_bytes(), &body].concat()
    }

    fn read(bytes: &[u8], rows: u64) -> Leftover {
        let mut collected = Rows::default();
        collected.begin(3);
        collected.add(b"the");
        bytes.iter().for_each(|byte| collected.add(&[*byte]));
        collected.end(rows);
        collected.read()
    }

    #[test]
    fn the_rows_of_the_answer_name_the_state_that_there_is() {
        assert_eq!(read(b"", 0), Leftover::default());
        let bytes = [data_row("1", "7"), data_row("6", "jit, work_mem")].concat();
        let left = read(&bytes, 2);
        assert_eq!(left.pins, Pins::of(&[Pin::NamedLock, Pin::Settings]));
        let names = "advisory or named locks (7), untracked settings (jit, work_mem)";
        assert_eq!(left.to_string(), names);
        assert_eq!(left.names(), "7, jit, work_mem");
    }

    #[test]
    fn an_answer_that_is_not_read_to_its_end_is_not_taken_for_nothing() {
        let row = data_row("1", "7");
        assert!(read(&row[..9], 1).pins.has(Pin::Unknown));
        let long = data_row("6", &"x".repeat(ANSWER_LENGTH_MAX));
        assert!(read(&long, 1).pins.has(Pin::Unknown));
        assert!(read(&data_row("60", "x"), 1).pins.has(Pin::Unknown));
    }

    #[test]
    fn known_settings_are_quoted_in_the_question() {
        let interner = Interner::new();
        let mut out = Vec::new();
        question(&interner.of([(&b"a.b'c"[..], &b"1"[..])]), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("'transaction_deferrable',"), "{text}");
        assert!(text.contains("a.b''c"), "{text}");
    }
}
