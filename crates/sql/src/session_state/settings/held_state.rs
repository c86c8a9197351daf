//! Asks a server what session state a connection holds. The reply has one row for each kind of
//! state, with a name, and one for each setting, with its value.

use std::fmt;

use evenkeel_policy::pins::{Pin, Pins};

use super::values;

/// Kinds of state, and the SQL for a name of each; NULL if there is none. A row of the reply has
/// the index as its kind. Operators are named with their schema, because the client's search path
/// may have others of the same name first.
const STATE: [(Pin, &str); 5] = [
    (
        Pin::TemporaryTable,
        "CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0 THEN (\
         SELECT relname FROM pg_catalog.pg_class \
         WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() UNION ALL \
         SELECT pg_catalog.pg_describe_object(classid, objid, objsubid) FROM pg_catalog.pg_depend \
         WHERE refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
         AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() LIMIT 1) END",
    ),
    (
        Pin::NamedLock,
        "(SELECT CASE WHEN objsubid OPERATOR(pg_catalog.=) 2 \
         THEN pg_catalog.format('%s, %s', classid, objid) \
         ELSE ((classid::bigint OPERATOR(pg_catalog.<<) 32) \
         OPERATOR(pg_catalog.|) objid::bigint)::pg_catalog.text END \
         FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() LIMIT 1)",
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
];

/// Kind of the rows of settings.
const SETTING: usize = STATE.len();

/// Kind of the rows of settings that only some roles may set.
const PRIVILEGED_SETTING: usize = SETTING + 1;

/// Kind of the row with the value of `lastval()`.
const LAST_VALUE: usize = PRIVILEGED_SETTING + 1;

/// Settings that were set in the session. Each new transaction resets three of them, but their
/// source stays `session`, even after DISCARD ALL.
const SETTINGS: &str = "SELECT CASE WHEN context OPERATOR(pg_catalog.=) 'superuser' \
     THEN '6' ELSE '5' END, name, setting FROM pg_catalog.pg_settings \
     WHERE source OPERATOR(pg_catalog.=) 'session' AND name OPERATOR(pg_catalog.<>) ALL (ARRAY[\
     'transaction_isolation','transaction_read_only','transaction_deferrable'])";

/// Maximum length of a name that is shown, in bytes.
const NAMES_LENGTH_MAX: usize = 200;

/// Maximum length of the reply that is read, in bytes. A client's settings are limited to less.
const ANSWER_LENGTH_MAX: usize = 128 * 1024;

/// Question about some kinds of state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    kinds: Pins,
    names: Vec<Box<[u8]>>,
}

/// State that the server reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldState {
    /// The kinds of state that cannot move to another connection.
    pub pins: Pins,
    /// A name for each kind, for display.
    pub named: Vec<(Pin, String)>,
    /// The value of `lastval()`.
    pub last_value: Option<Box<[u8]>>,
    pub(super) settings: Vec<ReportedSetting>,
}

/// A setting of the session that the server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedSetting {
    pub(super) name: Box<[u8]>,
    pub(super) value: Box<[u8]>,
    /// True if only some roles may set it.
    pub(super) is_privileged: bool,
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

impl Question {
    /// Creates a question about these kinds; `names` are settings that no catalog lists.
    pub(super) fn new(kinds: Pins, names: impl IntoIterator<Item = Box<[u8]>>) -> Question {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Question { kinds, names }
    }

    /// Creates the question about the value of `lastval()`. If the session has none, the reply is
    /// the error 55000.
    #[must_use]
    pub fn last_value() -> Question {
        Question {
            kinds: Pins::of(&[Pin::Sequence]),
            names: Vec::new(),
        }
    }

    /// Returns the kinds of state that the reply decides about.
    #[must_use]
    pub fn kinds(&self) -> Pins {
        self.kinds
    }

    /// Writes the query.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.kinds.has(Pin::Sequence) {
            let text = "SELECT '7', 'lastval', pg_catalog.lastval()::pg_catalog.text";
            return out.extend_from_slice(text.as_bytes());
        }
        let is_of_names = self.kinds == Pins::of(&[Pin::NamedSettings]);
        if is_of_names && !self.names.is_empty() {
            return self.write_names(out);
        }
        out.extend_from_slice(b"SELECT kind, name, NULL AS setting FROM (VALUES ('', NULL)");
        for (kind, (pin, name)) in STATE.iter().enumerate() {
            if self.kinds.has(*pin) {
                out.extend_from_slice(format!(", ('{kind}', {name})").as_bytes());
            }
        }
        out.extend_from_slice(b") AS found (kind, name) WHERE name IS NOT NULL");
        if self.kinds.has(Pin::Settings) {
            out.extend_from_slice(b" UNION ALL ");
            out.extend_from_slice(SETTINGS.as_bytes());
        }
        if !self.names.is_empty() {
            out.extend_from_slice(b" UNION ALL ");
            self.write_names(out);
        }
    }

    /// Writes the query for the values of the named settings.
    fn write_names(&self, out: &mut Vec<u8>) {
        for (index, name) in self.names.iter().enumerate() {
            out.extend_from_slice(if index == 0 {
                b"VALUES ('5',"
            } else {
                b",('5',"
            });
            values::literal(out, name);
            out.extend_from_slice(b",pg_catalog.current_setting(");
            values::literal(out, name);
            out.extend_from_slice(b",true))");
        }
    }
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

    /// Parses the complete reply. Returns `None` if not all of it was read.
    #[must_use]
    pub fn read(&self) -> Option<HeldState> {
        let mut held = HeldState::default();
        let (mut at, mut read) = (0_usize, 0_u64);
        while let Some((row, length)) = row(self.bytes.get(at..).unwrap_or_default()) {
            at = at.saturating_add(length);
            read = read.saturating_add(1);
            held.note(&row)?;
        }
        (read == self.count).then_some(held)
    }
}

impl HeldState {
    fn note(&mut self, row: &Row<'_>) -> Option<()> {
        if let Some((pin, _)) = STATE.get(row.kind) {
            let name = String::from_utf8_lossy(row.name);
            let shown = name.get(..name.floor_char_boundary(NAMES_LENGTH_MAX));
            self.pins.add(*pin);
            self.named
                .push((*pin, shown.unwrap_or_default().to_owned()));
            return Some(());
        }
        if row.kind == LAST_VALUE {
            self.last_value = row.value.map(Box::from);
            return Some(());
        }
        if !matches!(row.kind, SETTING | PRIVILEGED_SETTING) {
            return None;
        }
        // A setting of a user that was never set has no value.
        if let Some(value) = row.value {
            self.settings.push(ReportedSetting {
                name: row.name.to_ascii_lowercase().into(),
                value: value.into(),
                is_privileged: row.kind == PRIVILEGED_SETTING,
            });
        }
        Some(())
    }
}

impl fmt::Display for HeldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (pin, name)) in self.named.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({name})", pin.as_str())?;
        }
        Ok(())
    }
}

/// Row of the reply.
struct Row<'a> {
    kind: usize,
    name: &'a [u8],
    value: Option<&'a [u8]>,
}

/// Parses the DataRow message at the beginning into a row and the message length
/// (protocol-message-formats, "DataRow").
fn row(bytes: &[u8]) -> Option<(Row<'_>, usize)> {
    let rest = bytes.strip_prefix(b"D")?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length))
        .ok()?
        .saturating_add(1);
    let (columns, rest) = rest.split_first_chunk::<2>()?;
    let (kind, rest) = column(rest)?;
    let (name, rest) = column(rest)?;
    let (value, _) = column(rest)?;
    let row = Row {
        kind: str::from_utf8(kind?).ok()?.parse().ok()?,
        name: name?,
        value,
    };
    (*columns == [0, 3]).then_some((row, length))
}

/// Parses a column, whose value may be NULL.
fn column(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    if *length == [0xff; 4] {
        return Some((None, rest));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some((Some(value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_row(kind: &str, name: &str, value: Option<&str>) -> Vec<u8> {
        let mut body = vec![0, 3];
        for column in [Some(kind), Some(name), value] {
            let length = column.map_or(u32::MAX, |text| u32::try_from(text.len()).unwrap());
            body.extend_from_slice(&length.to_be_bytes());
            body.extend_from_slice(column.unwrap_or_default().as_bytes());
        }
        let length = u32::try_from(body.len() + 4).unwrap();
        [&b"D"[..], &length.to_be_bytes(), &body].concat()
    }

    fn read(bytes: &[u8], rows: u64) -> Option<HeldState> {
        let mut collected = Rows::default();
        collected.begin(3);
        collected.add(b"the");
        bytes.iter().for_each(|byte| collected.add(&[*byte]));
        collected.end(rows);
        collected.read()
    }

    #[test]
    fn the_rows_of_the_answer_name_the_state_that_there_is() {
        assert_eq!(read(b"", 0), Some(HeldState::default()));
        let bytes = [
            data_row("1", "7", None),
            data_row("5", "Work_mem", Some("1024")),
            data_row("5", "app.unset", None),
            data_row("6", "log_min_messages", Some("panic")),
        ];
        let held = read(&bytes.concat(), 4).unwrap();
        assert_eq!(held.pins, Pins::of(&[Pin::NamedLock]));
        assert_eq!(held.to_string(), "advisory or named locks (7)");
        let setting = |name: &[u8], value: &[u8], is_privileged| ReportedSetting {
            name: name.into(),
            value: value.into(),
            is_privileged,
        };
        let settings = [
            setting(b"work_mem", b"1024", false),
            setting(b"log_min_messages", b"panic", true),
        ];
        assert_eq!(held.settings, settings);
    }

    #[test]
    fn an_answer_that_is_not_read_to_its_end_is_not_taken_for_nothing() {
        let row = data_row("1", "7", None);
        assert_eq!(read(&row[..9], 1), None);
        let long = data_row("5", "x", Some(&"x".repeat(ANSWER_LENGTH_MAX)));
        assert_eq!(read(&long, 1), None);
        assert_eq!(read(&data_row("60", "x", None), 1), None);
        assert_eq!(read(b"", 1), None);
    }

    #[test]
    fn only_what_may_be_there_is_asked_for() {
        let text = |question: &Question| {
            let mut out = Vec::new();
            question.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        let locks = text(&Question::new(Pins::of(&[Pin::NamedLock]), []));
        assert!(
            locks.contains("pg_locks") && !locks.contains("pg_settings"),
            "{locks}"
        );
        let names = [b"a.b'c"[..].into(), b"a.b'c"[..].into()];
        let settings = text(&Question::new(Pins::of(&[Pin::Settings]), names));
        assert!(
            settings.contains("pg_settings") && !settings.contains("pg_locks"),
            "{settings}"
        );
        let value = "UNION ALL VALUES ('5','a.b''c',pg_catalog.current_setting('a.b''c',true))";
        assert!(settings.contains(value), "{settings}");
        let named = Question::new(Pins::of(&[Pin::NamedSettings]), [b"a.b"[..].into()]);
        let value = "VALUES ('5','a.b',pg_catalog.current_setting('a.b',true))";
        assert_eq!(text(&named), value);
    }
}
