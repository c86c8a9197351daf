//! Parses the rows of a small text result, packet by packet.

use evenkeel_wire::mysql::backend;
use evenkeel_wire::mysql::flags::Capabilities;

/// Maximum number of rows in a result of Evenkeel's own queries.
const ROWS_MAX: usize = 1_000;

/// Values of a row; `None` for NULL.
pub(super) type Row = Vec<Option<Box<[u8]>>>;

/// Parser for one result, or for the OK or error in its place.
pub(super) struct Rows {
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
pub(super) enum Answer {
    More,
    Done,
    /// The packet is an error.
    Refused,
    Malformed,
}

impl Rows {
    pub(super) fn new(agreed: Capabilities) -> Self {
        Self {
            no_eof: agreed.has(Capabilities::DEPRECATE_EOF),
            at: At::Header,
            rows: Vec::new(),
        }
    }

    pub(super) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    pub(super) fn packet(&mut self, payload: &[u8]) -> Answer {
        let Some(first) = payload.first() else {
            return Answer::Malformed;
        };
        match (self.at, *first) {
            (_, backend::ERROR) => return Answer::Refused,
            (At::Header, backend::OK) => return Answer::Done,
            (At::Header, _) => match take_number(&mut &*payload) {
                Some(count @ 1..) => self.at = At::Columns(count),
                _ => return Answer::Malformed,
            },
            (At::Columns(1), _) if self.no_eof => self.at = At::Rows,
            (At::Columns(1), _) => self.at = At::Between,
            (At::Columns(left), _) => self.at = At::Columns(left.saturating_sub(1)),
            (At::Between, backend::EOF) => self.at = At::Rows,
            (At::Between, _) => return Answer::Malformed,
            // A row with a very long first value would begin alike; values of these queries are
            // short.
            (At::Rows, backend::EOF) => return Answer::Done,
            (At::Rows, _) => match read_row(payload) {
                Some(row) if self.rows.len() < ROWS_MAX => self.rows.push(row),
                _ => return Answer::Malformed,
            },
        }
        Answer::More
    }
}

fn read_row(mut rest: &[u8]) -> Option<Row> {
    let mut row = Row::new();
    while let Some((first, behind)) = rest.split_first() {
        if *first == 0xfb {
            rest = behind;
            row.push(None);
            continue;
        }
        let length = usize::try_from(take_number(&mut rest)?).ok()?;
        let (value, behind) = rest.split_at_checked(length)?;
        row.push(Some(value.into()));
        rest = behind;
    }
    Some(row)
}

/// Parses a length-encoded integer.
fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first()?;
    let length = match first {
        0..=0xfa => {
            *rest = behind;
            return Some(u64::from(*first));
        }
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (bytes, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    let number = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(bytes.iter().rev().fold(0, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(agreed: Capabilities, packets: &[&[u8]]) -> (Answer, Vec<Row>) {
        let mut rows = Rows::new(agreed);
        let mut answer = Answer::More;
        for packet in packets {
            assert_eq!(answer, Answer::More, "{packet:?} comes too late");
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
            (Answer::Done, expect())
        );
        let ok: &[u8] = b"\xfe\0\0\x02\0\0\0";
        let packets = [&b"\x02"[..], b"\x03def", b"\x03def", ROWS[0], ROWS[1], ok];
        assert_eq!(
            walk(Capabilities::DEPRECATE_EOF, &packets),
            (Answer::Done, expect())
        );
    }

    #[test]
    fn other_answers_are_told_apart() {
        let agreed = Capabilities::DEPRECATE_EOF;
        assert_eq!(walk(agreed, &[b"\0\0\0\x02\0\0\0"]).0, Answer::Done);
        assert_eq!(walk(agreed, &[b"\xff\x15\x04no"]).0, Answer::Refused);
        assert_eq!(walk(agreed, &[b""]).0, Answer::Malformed);
        assert_eq!(
            walk(agreed, &[b"\x01", b"\x03def", b"\x05a"]).0,
            Answer::Malformed
        );
        assert_eq!(walk(agreed, &[b"\xfb"]).0, Answer::Malformed);
    }

    #[test]
    fn long_values_are_read() {
        let mut row = vec![0xfc, 0x2c, 0x01];
        row.extend_from_slice(&[b'x'; 300]);
        assert_eq!(read_row(&row).unwrap()[0].as_ref().unwrap().len(), 300);
        assert!(read_row(&row[..302]).is_none());
    }
}
