//! Values that only the server knows: of settings that it has not reported, and of user variables.
//! Questions name them.

use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_wire::mysql::{Parsed, backend, frame};
use smallvec::SmallVec;

use super::super::connection::ServerSessionState;
use super::super::values;
use super::super::variables::{self, VariableHandling};
use super::SessionState;
use crate::session_state::settings::Interner;

/// Maximum number of user variables whose values are asked for.
const USERS_MAX: usize = 100;

/// Maximum length of the reply that is read, in bytes. A client's variables are limited to less.
const ANSWER_LENGTH_MAX: usize = 128 * 1024;

/// Columns of the reply for each variable: the value, its bytes, its collation.
const COLUMNS: usize = 3;

/// Names of settings and user variables whose values only the server connection has.
#[derive(Debug, Default)]
pub(super) struct UnknownValues {
    pub(super) settings: SmallVec<[Box<[u8]>; 2]>,
    /// Names of user variables, in lower case, without the `@`.
    pub(super) users: Vec<Box<[u8]>>,
}

/// Question about the values of user variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVariableQuestion {
    names: Vec<Box<[u8]>>,
}

/// Collects the definitions and the row of the reply, in chunks of any length.
#[derive(Debug, Default)]
pub struct UserVariableRows {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl UnknownValues {
    /// Adds a setting. Returns false if a query by its name cannot show its value.
    pub(super) fn add_setting(&mut self, name: &[u8]) -> bool {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        // A SET of these results to their present value would change their collation.
        let can_ask = name.iter().all(plain)
            && name != variables::RESULTS
            && variables::handling(name) == VariableHandling::Tracked;
        if can_ask && !self.settings.iter().any(|own| **own == *name) {
            self.settings.push(name.into());
        }
        can_ask
    }

    /// Returns whether the next text cannot be analyzed before the server is asked.
    pub(super) fn is_urgent(&self) -> bool {
        let mut names = self.settings.iter();
        names.any(|name| variables::is_of_analysis(name))
    }
}

impl UserVariableQuestion {
    /// Returns the query.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut text = b"SELECT ".to_vec();
        for (index, name) in self.names.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            for (function, end) in [("", ""), (",HEX(", ")"), (",COLLATION(", ")")] {
                text.extend_from_slice(function.as_bytes());
                text.push(b'@');
                values::put_name(name, &mut text);
                text.extend_from_slice(end.as_bytes());
            }
        }
        // An explicit LIMIT overrides `sql_select_limit`.
        text.extend_from_slice(b" LIMIT 1");
        text
    }
}

impl UserVariableRows {
    /// Adds bytes of definitions or of the row.
    pub fn add(&mut self, bytes: &[u8]) {
        let free = ANSWER_LENGTH_MAX.saturating_sub(self.bytes.len());
        self.is_cut |= bytes.len() > free;
        if !self.is_cut {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the values as literals that mean the same in every session; `None` if any of `count`
    /// values cannot be read.
    fn literals(&self, count: usize) -> Option<Vec<Vec<u8>>> {
        let mut packets = Vec::new();
        let mut rest = &*self.bytes;
        while let Parsed::Frame(packet, length) = frame::frame(rest, u32::MAX) {
            packets.push(packet.payload);
            rest = rest.get(length..)?;
        }
        let (row, definitions) = packets.split_last().filter(|_| !self.is_cut)?;
        let row: Vec<_> = backend::values(row).collect();
        let columns = count.checked_mul(COLUMNS)?;
        if definitions.len() != columns || row.len() != columns {
            return None;
        }
        let of_each = definitions.chunks(COLUMNS).zip(row.chunks(COLUMNS));
        of_each
            .map(|(definitions, row)| literal(ColumnType::of(definitions.first()?)?, row))
            .collect()
    }
}

impl SessionState {
    /// Returns whether only the server knows the collation of the connection.
    pub(super) fn has_unknown_collation(&self) -> bool {
        !self.settings.facts().has_collation
    }

    /// Records that these user variables may have values that only the server knows.
    pub(super) fn compute_users(&mut self, names: &[Box<[u8]>]) {
        for name in names {
            if self.unknown.users.contains(name) {
                continue;
            }
            if self.unknown.users.len() >= USERS_MAX {
                return self.pin(Pin::Variables);
            }
            self.unknown.users.push(name.clone());
        }
        self.pins.add(Pin::Variables);
    }

    /// Returns whether the server must be asked before the next text, which cannot be analyzed
    /// otherwise.
    #[must_use]
    pub fn must_ask_now(&self) -> bool {
        self.unknown.is_urgent()
    }

    /// Returns whether values of user variables may be all that pins the client. Settings and the
    /// insert id are asked for as soon as nothing else does.
    #[must_use]
    pub fn can_be_asked(&self) -> bool {
        const ASKED: Pins = Pins::of(&[Pin::Variables, Pin::Settings, Pin::InsertId]);
        self.pins.has(Pin::Variables)
            && self.pins.except(ASKED).is_empty()
            && !self.reset_pins.has(Pin::Variables)
    }

    /// Returns the question for the values of user variables that only the server knows.
    #[must_use]
    pub fn user_variable_question(&self) -> UserVariableQuestion {
        UserVariableQuestion {
            names: self.unknown.users.clone(),
        }
    }

    /// Takes over the server's answer. `None`: it has given none.
    pub fn user_variables_answered(
        &mut self,
        question: &UserVariableQuestion,
        rows: Option<&UserVariableRows>,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        server.disown_results();
        let literals = rows.and_then(|rows| rows.literals(question.names.len()));
        let Some(literals) = literals else {
            return self.pin(Pin::Variables);
        };
        for (name, literal) in question.names.iter().zip(literals) {
            if !self.has_room_for(&literal) {
                return self.pin(Pin::Variables);
            }
            let key = [b"@", &**name].concat();
            self.settings = interner.with(&self.settings, &key, &literal);
            server.settings = interner.with(&server.settings, &key, &literal);
        }
        self.unknown.users.clear();
        self.unpin(Pin::Variables);
    }
}

/// Type of a column, as its definition describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnType {
    Integer { is_unsigned: bool },
    Decimal,
    Double,
    String,
    Null,
}

impl ColumnType {
    /// Reads the fixed part at the end of a definition: the type, 2 bytes of flags, the decimals,
    /// and 2 unused bytes (manual: "Protocol::ColumnDefinition41").
    fn of(definition: &[u8]) -> Option<ColumnType> {
        const UNSIGNED: u8 = 32;
        let [kind, flags, _, _, 0, 0] = definition.last_chunk::<6>()? else {
            return None;
        };
        Some(match kind {
            1 | 2 | 3 | 8 | 9 => ColumnType::Integer {
                is_unsigned: flags & UNSIGNED != 0,
            },
            0 | 246 => ColumnType::Decimal,
            4 | 5 => ColumnType::Double,
            6 => ColumnType::Null,
            15 | 249..=254 => ColumnType::String,
            _ => return None,
        })
    }
}

/// Returns a value as a literal of the same type.
fn literal(column: ColumnType, row: &[Option<&[u8]>]) -> Option<Vec<u8>> {
    let [value, hex, collation] = row else {
        return None;
    };
    let Some(value) = value else {
        return Some(b"NULL".to_vec());
    };
    let number = || values::is_number(value).then(|| value.to_vec());
    match column {
        ColumnType::Integer { is_unsigned } => {
            let own = number()?;
            let is_small = str::from_utf8(value).ok()?.parse::<i64>();
            match is_small {
                Ok(i64::MIN) => None,
                Ok(_) if is_unsigned => Some([b"CAST(", &*own, b" AS UNSIGNED)"].concat()),
                Ok(_) => Some(own),
                Err(_) => is_unsigned.then_some(own),
            }
        }
        ColumnType::Decimal => {
            let mut own = number()?;
            if !own.contains(&b'.') {
                own.push(b'.');
            }
            Some(own)
        }
        ColumnType::Double => double(value),
        ColumnType::String => {
            let bytes = from_hex((*hex)?)?;
            let collation = (*collation)?;
            values::string_of_variable(&bytes, values::charset_of(collation), collation)
        }
        ColumnType::Null => None,
    }
}

/// Returns a floating-point number with an exponent, without which it would be a decimal number.
fn double(value: &[u8]) -> Option<Vec<u8>> {
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e');
    let is_finite = value.iter().all(is_part) && value.iter().any(u8::is_ascii_digit);
    let end: &[u8] = if value.contains(&b'e') { b"" } else { b"e0" };
    is_finite.then(|| [value, end].concat())
}

fn from_hex(hex: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = hex.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal_of(kind: u8, flags: u8, row: [&str; 3]) -> Option<String> {
        let definition = [kind, flags, 0, 0, 0, 0];
        let row = row.map(|value| Some(value.as_bytes()));
        let literal = literal(ColumnType::of(&definition)?, &row)?;
        Some(String::from_utf8(literal).unwrap())
    }

    #[test]
    fn a_value_becomes_a_literal_of_its_type() {
        let of = |kind, flags, value| literal_of(kind, flags, [value, "", "binary"]);
        assert_eq!(of(8, 0, "-5").as_deref(), Some("-5"));
        assert_eq!(of(8, 32, "5").as_deref(), Some("CAST(5 AS UNSIGNED)"));
        let large = "18446744073709551615";
        assert_eq!(of(8, 32, large).as_deref(), Some(large));
        assert_eq!(of(8, 0, "-9223372036854775808"), None);
        assert_eq!(of(246, 0, "7").as_deref(), Some("7."));
        assert_eq!(of(246, 0, "1.50").as_deref(), Some("1.50"));
        assert_eq!(of(5, 0, "0.5").as_deref(), Some("0.5e0"));
        assert_eq!(of(5, 0, "1e100").as_deref(), Some("1e100"));
        assert_eq!(of(5, 0, "inf"), None);
        assert_eq!(of(12, 0, "2024-01-01"), None);
        let string = |hex, collation| literal_of(253, 0, ["?", hex, collation]);
        assert_eq!(
            string("C3A427", "utf8mb4_general_ci").as_deref(),
            Some("_utf8mb4 x'c3a427' COLLATE utf8mb4_general_ci")
        );
        assert_eq!(string("00", "binary").as_deref(), Some("_binary x'00'"));
        assert_eq!(string("0", "binary"), None);
        assert_eq!(string("0041", "utf16_general_ci"), None);
    }

    #[test]
    fn an_answer_that_is_not_whole_is_not_taken_for_values() {
        let rows = |packets: &[&[u8]]| {
            let mut rows = UserVariableRows::default();
            for packet in packets {
                let length = u8::try_from(packet.len()).unwrap();
                rows.add(&[length, 0, 0, 1]);
                rows.add(packet);
            }
            rows
        };
        let definition: &[u8] = &[8, 0, 0, 0, 0, 0];
        let row: &[u8] = b"\x015\x0235\x06binary";
        let whole = rows(&[definition, definition, definition, row]);
        assert_eq!(whole.literals(1), Some(vec![b"5".to_vec()]));
        assert_eq!(whole.literals(2), None);
        assert_eq!(
            rows(&[definition, definition, definition]).literals(1),
            None
        );
        assert_eq!(rows(&[]).literals(1), None);
        let mut long = rows(&[definition, definition, definition, row]);
        long.add(&vec![0; ANSWER_LENGTH_MAX]);
        assert_eq!(long.literals(1), None);
    }
}
