//! Parses the session state in an OK ("Session State Information").

use super::build;
use super::cursor::Cursor;

/// Iterator over changes; a malformed entry ends it, see [`Trackers::is_broken`].
#[derive(Debug, Clone, Copy)]
pub struct Trackers<'a> {
    rest: Cursor<'a>,
    /// Rest of an entry that holds several variables.
    variables: Cursor<'a>,
    broken: bool,
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracker<'a> {
    /// Content of the change.
    pub change: Change<'a>,
    /// Type of the entry.
    kind: u8,
    /// Data of the entry as received.
    data: &'a [u8],
    /// True if `change` was replaced and no longer matches `data`.
    pub(super) is_renamed: bool,
}

impl<'a> Tracker<'a> {
    /// Replaces the change by one of this variable.
    pub fn rename(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.change = Change::Variable { name, value };
        self.is_renamed = true;
    }

    /// Writes the change as an entry of its own.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.kind);
        match self.change {
            Change::Variable { name, value } if self.is_renamed => {
                let mut data = Vec::with_capacity(name.len().saturating_add(value.len()));
                build::put_lenenc_bytes(&mut data, name);
                build::put_lenenc_bytes(&mut data, value);
                build::put_lenenc_bytes(out, &data);
            }
            _ => build::put_lenenc_bytes(out, self.data),
        }
    }
}

/// Content of a change of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// New value of a system variable.
    Variable {
        /// Name of the variable, in lower case.
        name: &'a [u8],
        /// Value as text.
        value: &'a [u8],
    },
    /// New current schema; empty for none.
    Schema(&'a [u8]),
    /// Flag for any change of session state, not only of system variables and the schema; true for
    /// `1`.
    State(bool),
    /// MySQL: GTIDs of what was committed.
    Gtids(&'a [u8]),
    /// SQL that would begin the transaction again with the same characteristics; empty if it has
    /// none.
    Characteristics(&'a [u8]),
    /// State of the transaction so far.
    Transaction(TransactionState),
    /// An unknown tracker (its type).
    Other(u8),
}

/// The eight letters of the transaction tracker; `_` for a property that does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionState(pub [u8; 8]);

impl TransactionState {
    /// Returns `T` for an explicit, `I` for an implicit transaction; `None` if none is open.
    #[must_use]
    pub fn begun(self) -> Option<u8> {
        let [begun, ..] = self.0;
        (begun != b'_').then_some(begun)
    }

    /// Returns whether tables were written, transactional or not.
    #[must_use]
    pub fn has_written(self) -> bool {
        let [_, _, _, unsafe_write, write, ..] = self.0;
        unsafe_write == b'w' || write == b'W'
    }
}

impl<'a> Trackers<'a> {
    /// Parses an OK's session state.
    #[must_use]
    pub fn new(session_state: &'a [u8]) -> Self {
        Trackers {
            rest: Cursor(session_state),
            variables: Cursor(&[]),
            broken: false,
        }
    }

    /// Returns whether the list is malformed: then no conclusion may be drawn from it.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    fn read(&mut self) -> Option<Tracker<'a>> {
        if !self.variables.is_empty() {
            return read_variable(&mut self.variables);
        }
        let kind = self.rest.byte()?;
        let data = self.rest.lenenc_bytes()?;
        let mut body = Cursor(data);
        let change = match kind {
            0 => {
                self.variables = body;
                return read_variable(&mut self.variables);
            }
            1 => Change::Schema(body.lenenc_bytes()?),
            2 => Change::State(data == b"1"),
            3 => {
                // The byte is the encoding of the GTIDs; only 0, text, is defined.
                let encoding = body.byte()?;
                let text = body.lenenc_bytes()?;
                match encoding {
                    0 => Change::Gtids(text),
                    _ => Change::Other(kind),
                }
            }
            4 => Change::Characteristics(body.lenenc_bytes()?),
            5 => match body.lenenc_bytes()?.first_chunk() {
                Some(letters) => Change::Transaction(TransactionState(*letters)),
                None => return None,
            },
            _ => Change::Other(kind),
        };
        Some(Tracker {
            change,
            kind,
            data,
            is_renamed: false,
        })
    }
}

impl<'a> Iterator for Trackers<'a> {
    type Item = Tracker<'a>;

    fn next(&mut self) -> Option<Tracker<'a>> {
        if self.broken || self.rest.is_empty() && self.variables.is_empty() {
            return None;
        }
        let read = self.read();
        self.broken = read.is_none();
        read
    }
}

fn read_variable<'a>(body: &mut Cursor<'a>) -> Option<Tracker<'a>> {
    let whole = body.0;
    let (name, value) = (body.lenenc_bytes()?, body.lenenc_bytes()?);
    let length = whole.len().saturating_sub(body.0.len());
    Some(Tracker {
        change: Change::Variable { name, value },
        kind: 0,
        data: whole.get(..length)?,
        is_renamed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Session state of MySQL 9 after `SET autocommit=0, time_zone='+01:00'; USE a; INSERT …`.
    const STATE: &[u8] = b"\x00\x0f\x0aautocommit\x03OFF\
        \x00\x11\x09time_zone\x06+01:00\x01\x02\x01a\x02\x011\
        \x03\x2b\x00\x293e11fa47-71ca-11e1-9e33-c80aa9429562:1-23\
        \x04\x12\x11START TRANSACTION\x05\x09\x08T_R_Wsx_";

    #[test]
    fn every_kind_of_tracker_is_read() {
        let mut trackers = Trackers::new(STATE);
        let changes: Vec<_> = trackers.by_ref().map(|tracker| tracker.change).collect();
        assert!(!trackers.is_broken(), "{changes:?}");
        let (name, value) = (&b"autocommit"[..], &b"OFF"[..]);
        assert_eq!(changes[0], Change::Variable { name, value });
        let (name, value) = (&b"time_zone"[..], &b"+01:00"[..]);
        assert_eq!(changes[1], Change::Variable { name, value });
        assert_eq!(changes[2], Change::Schema(b"a"));
        assert_eq!(changes[3], Change::State(true));
        let gtids = b"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23";
        assert_eq!(changes[4], Change::Gtids(&gtids[..]));
        assert_eq!(changes[5], Change::Characteristics(b"START TRANSACTION"));
        let Change::Transaction(state) = changes[6] else {
            panic!("{changes:?}");
        };
        assert!(state.has_written());
        assert_eq!(state.begun(), Some(b'T'));
    }

    #[test]
    fn variables_in_one_entry_are_told_apart() {
        let trackers = Trackers::new(b"\x00\x08\x01a\x011\x01b\x012");
        let changes: Vec<_> = trackers.map(|tracker| tracker.data).collect();
        assert_eq!(changes, [b"\x01a\x011", b"\x01b\x012"]);
    }

    #[test]
    fn a_state_that_did_not_change_is_told() {
        let changes: Vec<_> = Trackers::new(b"\x02\x010").collect();
        assert_eq!(changes[0].change, Change::State(false));
    }

    #[test]
    fn a_list_that_is_cut_anywhere_is_whole_or_broken() {
        for cut in 0..STATE.len() {
            let mut trackers = Trackers::new(&STATE[..cut]);
            let length: usize = trackers
                .by_ref()
                .map(|tracker| tracker.data.len() + 2)
                .sum();
            assert!(trackers.is_broken() || length == cut, "{cut}");
        }
    }
}
