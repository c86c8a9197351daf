//! Collects the rows of a small text result, packet by packet.

use super::backend;
use super::cursor::Cursor;
use super::flags::Capabilities;

/// Maximum number of rows. Larger results are malformed.
const ROWS_MAX: usize = 1_000;

/// First byte of NULL in a row, where a value has the first byte of its length.
const NULL: u8 = 0xfb;

/// Values of a row; `None` for NULL.
pub type Row = Vec<Option<Box<[u8]>>>;

/// Collector of one result with at most 1,000 rows, or of the OK or error in its place.
#[derive(Debug)]
pub struct Rows {
    /// True if results end in an OK, and no EOF separates columns and rows.
    no_eof: bool,
    at: At,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Header,
    Columns(u64),
    /// The EOF after the columns is expected.
    Between,
    Rows,
}

/// State after a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsState {
    /// Another packet follows.
    More,
    /// The packet has ended the result.
    Done,
    /// The packet is an error.
    Refused,
    /// The packet is not one of a result.
    Malformed,
}

impl Rows {
    /// Creates the collector for a connection with these capabilities.
    #[must_use]
    pub fn new(agreed: Capabilities) -> Self {
        Self {
            no_eof: agreed.has(Capabilities::DEPRECATE_EOF),
            at: At::Header,
            rows: Vec::new(),
        }
    }

    /// Returns the rows that were collected.
    #[must_use]
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// Processes the next packet of the server, by its payload.
    #[must_use]
    pub fn packet(&mut self, payload: &[u8]) -> RowsState {
        let Some(first) = payload.first() else {
            return RowsState::Malformed;
        };
        match (self.at, *first) {
            (_, backend::ERROR) => return RowsState::Refused,
            (At::Header, backend::OK) => return RowsState::Done,
            (At::Header, _) => match Cursor(payload).lenenc() {
                Some(count @ 1..) => self.at = At::Columns(count),
                _ => return RowsState::Malformed,
            },
            (At::Columns(1), _) if self.no_eof => self.at = At::Rows,
            (At::Columns(1), _) => self.at = At::Between,
            (At::Columns(left), _) => self.at = At::Columns(left.saturating_sub(1)),
            (At::Between, backend::EOF) => self.at = At::Rows,
            (At::Between, _) => return RowsState::Malformed,
            // A row with a very long first value would begin alike; small results have none.
            (At::Rows, backend::EOF) => return RowsState::Done,
            (At::Rows, _) => match read_row(payload) {
                Some(row) if self.rows.len() < ROWS_MAX => self.rows.push(row),
                _ => return RowsState::Malformed,
            },
        }
        RowsState::More
    }
}

fn read_row(payload: &[u8]) -> Option<Row> {
    let mut cursor = Cursor(payload);
    let mut row = Row::new();
    while !cursor.is_empty() {
        let mut value = cursor;
        if value.byte() == Some(NULL) {
            cursor = value;
            row.push(None);
            continue;
        }
        row.push(Some(cursor.lenenc_bytes()?.into()));
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(agreed: Capabilities, packets: &[&[u8]]) -> (RowsState, Vec<Row>) {
        let mut rows = Rows::new(agreed);
        let mut answer = RowsState::More;
        for packet in packets {
            assert_eq!(answer, RowsState::More, "{packet:?} comes too late");
            answer = rows.packet(packet);
        }
        (answer, rows.into_rows())
    }

    const ROWS: [&[u8]; 2] = [b"\x01a\x011", b"\x01b\xfb"];

    fn expect() -> Vec<Row> {
        let text = |text: &[u8]| Some(Box::from(text));
        vec![vec![text(b"a"), text(b"1")], vec![text(b"b"), None]]
    }

    #[test]
    fn rows_are_read_with_and_without_eof() {
        let eof: &[u8] = b"\xfe\0\0\x02\0";
        let packets = [
            &b"\x02"[..],
            b"\x03def",
            b"\x03def",
            eof,
            ROWS[0],
            ROWS[1],
            eof,
        ];
        assert_eq!(
            walk(Capabilities::default(), &packets),
            (RowsState::Done, expect())
        );
        let ok: &[u8] = b"\xfe\0\0\x02\0\0\0";
        let packets = [&b"\x02"[..], b"\x03def", b"\x03def", ROWS[0], ROWS[1], ok];
        assert_eq!(
            walk(Capabilities::DEPRECATE_EOF, &packets),
            (RowsState::Done, expect())
        );
    }

    #[test]
    fn other_answers_are_told_apart() {
        let agreed = Capabilities::DEPRECATE_EOF;
        assert_eq!(walk(agreed, &[b"\0\0\0\x02\0\0\0"]).0, RowsState::Done);
        assert_eq!(walk(agreed, &[b"\xff\x15\x04no"]).0, RowsState::Refused);
        assert_eq!(walk(agreed, &[b""]).0, RowsState::Malformed);
        assert_eq!(
            walk(agreed, &[b"\x01", b"\x03def", b"\x05a"]).0,
            RowsState::Malformed
        );
        assert_eq!(walk(agreed, &[b"\xfb"]).0, RowsState::Malformed);
    }

    #[test]
    fn long_values_are_read() {
        let mut row = vec![0xfc, 0x2c, 0x01];
        row.extend_from_slice(&[b'x'; 300]);
        assert_eq!(read_row(&row).unwrap()[0].as_ref().unwrap().len(), 300);
        assert!(read_row(&row[..302]).is_none());
    }
}
