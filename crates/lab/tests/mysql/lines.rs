//! Formats a server's packets as lines of text, without what differs between connections.

use std::fmt;

use evenkeel_wire::mysql::backend::{self, Eof, ErrorReport, OkPacket};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::trackers::{Change, Trackers};

/// Line for an open cursor.
pub(crate) const CURSOR: &str = "cursor";

/// Flags that depend on the session and the statement only, not on the server's speed.
const FLAGS: [(Status, &str); 10] = [
    (Status::IN_TRANSACTION, "transaction"),
    (Status::AUTOCOMMIT, "autocommit"),
    (Status::MORE_RESULTS, "more"),
    (Status::CURSOR_EXISTS, CURSOR),
    (Status::LAST_ROW_SENT, "last-row"),
    (Status::SCHEMA_DROPPED, "schema-dropped"),
    (Status::NO_BACKSLASH_ESCAPES, "no-backslash"),
    (Status::OUT_PARAMETERS, "out-parameters"),
    (Status::READ_ONLY, "read-only"),
    (Status::ANSI_QUOTES, "ansi-quotes"),
];

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn error(report: &ErrorReport<'_>) -> String {
    let state = report.sqlstate.map(|state| text(&state.0));
    let mut message = text(report.message);
    // These errors contain the number of a statement.
    if matches!(report.code, 1243 | 1421) {
        message.retain(|letter| !letter.is_ascii_digit());
    }
    format!(
        "error {} {} {message}",
        report.code,
        state.unwrap_or_default()
    )
}

/// Formats an OK, an EOF or an error; returns also whether another result follows.
pub(crate) fn word(payload: &[u8], agreed: Capabilities) -> (String, bool) {
    let has_no_eof = agreed.has(Capabilities::DEPRECATE_EOF);
    match payload[0] {
        backend::ERROR => (error(&ErrorReport::read(payload).unwrap()), false),
        backend::EOF if !has_no_eof || payload.len() == 5 => {
            let eof = Eof::read(payload).unwrap();
            let line = format!("eof {} warnings={}", flags(eof.status), eof.warnings);
            (line, eof.status.has(Status::MORE_RESULTS))
        }
        backend::OK | backend::EOF => {
            let ok = OkPacket::read(payload, agreed).unwrap();
            (of_ok(&ok), ok.status.has(Status::MORE_RESULTS))
        }
        _ => (format!("what? {payload:?}"), false),
    }
}

fn of_ok(ok: &OkPacket<'_>) -> String {
    let mut line = format!(
        "ok rows={} id={} {} warnings={}",
        ok.affected_rows,
        ok.last_insert_id,
        flags(ok.status),
        ok.warnings
    );
    if !ok.info.is_empty() {
        line += &format!(" {}", text(ok.info));
    }
    for tracker in Trackers::new(ok.session_state) {
        line += &match tracker.change {
            Change::Variable { name, .. } if name == b"last_gtid" => " [last_gtid]".to_owned(),
            Change::Variable { name, value } => format!(" [{}={}]", text(name), text(value)),
            Change::Schema(schema) => format!(" [schema {}]", text(schema)),
            Change::Gtids(_) => " [gtids]".to_owned(),
            other => format!(" [{other:?}]"),
        };
    }
    line
}

pub(crate) fn flags(status: Status) -> String {
    let set = FLAGS.iter().filter(|(flag, _)| status.has(*flag));
    let words: Vec<&str> = set.map(|(_, word)| *word).collect();
    words.join(",")
}

/// Metadata of a column.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Column {
    schema: String,
    table: String,
    name: String,
    charset: u16,
    kind: u8,
    flags: u16,
    /// MariaDB's types and formats that have no number.
    extended: String,
}

impl Column {
    pub(crate) fn read(payload: &[u8], agreed: Capabilities) -> Column {
        let rest = &mut &payload[..];
        let mut next = || text(lenenc_bytes(rest).expect("a column definition"));
        let (_catalog, schema, table) = (next(), next(), next());
        let (_org_table, name, _org_name) = (next(), next(), next());
        let extended = match agreed.has(Capabilities::EXTENDED_METADATA) {
            true => next(),
            false => String::new(),
        };
        let fixed = *rest;
        let number = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        Column {
            schema,
            table,
            name,
            charset: number(1),
            kind: fixed[7],
            flags: number(8),
            extended,
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Column {
            schema,
            table,
            name,
            charset,
            kind,
            flags,
            extended,
        } = self;
        // A user variable that was never set has no certain type.
        if name.starts_with('@') && !name.starts_with("@@") {
            return f.write_str(name);
        }
        if !table.is_empty() {
            write!(f, "{schema}.{table}.")?;
        }
        write!(f, "{name}:{kind}:{charset}:{flags}")?;
        // Each entry has a kind, a length and its characters.
        let letters = extended.chars().filter(|letter| !letter.is_control());
        letters.collect::<String>().fmt(f)
    }
}

/// Formats a row as text, in either protocol.
pub(crate) fn row(payload: &[u8], columns: &[Column], is_binary: bool) -> String {
    let values = match is_binary {
        true => binary(payload, columns),
        false => plain(payload, columns.len()),
    };
    format!("row {}", values.join("|"))
}

fn plain(mut payload: &[u8], count: usize) -> Vec<String> {
    let value = |_| match payload.first() {
        Some(0xfb) => {
            payload = &payload[1..];
            "NULL".to_owned()
        }
        _ => text(lenenc_bytes(&mut payload).expect("a value")),
    };
    (0..count).map(value).collect()
}

fn binary(payload: &[u8], columns: &[Column]) -> Vec<String> {
    let nulls = &payload[1..];
    let mut rest = &payload[1 + (columns.len() + 9) / 8..];
    let value = |(index, column): (usize, &Column)| {
        let bit = index + 2;
        match nulls[bit / 8] & 1 << (bit % 8) {
            0 => one(column.kind, &mut rest),
            _ => "NULL".to_owned(),
        }
    };
    columns.iter().enumerate().map(value).collect()
}

fn one(kind: u8, rest: &mut &[u8]) -> String {
    let length = match kind {
        1 => 1,
        2 | 13 => 2,
        3 | 4 | 9 => 4,
        5 | 8 => 8,
        7 | 10 | 11 | 12 => 1 + usize::from(rest[0]),
        _ => return text(lenenc_bytes(rest).expect("a value")),
    };
    let (bytes, after) = rest.split_at(length);
    *rest = after;
    let mut whole = [0; 8];
    match kind {
        4 => f32::from_le_bytes(bytes.try_into().unwrap()).to_string(),
        5 => f64::from_le_bytes(bytes.try_into().unwrap()).to_string(),
        1 | 2 | 3 | 8 | 9 | 13 => {
            whole[..length].copy_from_slice(bytes);
            u64::from_le_bytes(whole).to_string()
        }
        _ => format!("{bytes:?}"),
    }
}

pub(crate) fn lenenc(rest: &mut &[u8]) -> Option<u64> {
    let (first, after) = rest.split_first()?;
    let count = match first {
        0..=0xfa => {
            *rest = after;
            return Some((*first).into());
        }
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (bytes, after) = after.split_at_checked(count)?;
    *rest = after;
    let mut whole = [0; 8];
    whole[..count].copy_from_slice(bytes);
    Some(u64::from_le_bytes(whole))
}

fn lenenc_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(lenenc(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

pub(crate) fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap();
    match length {
        0..=0xfa => out.push(length.to_le_bytes()[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&length.to_le_bytes()[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&length.to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&u64::from(length).to_le_bytes());
        }
    }
    out.extend_from_slice(bytes);
}
