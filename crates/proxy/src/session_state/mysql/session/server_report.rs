//! Applies the trackers and the status that a server reports to the session state.

use evenkeel_policy::pins::{Pin, UnpinEvent};
use evenkeel_policy::route::{Isolation, TransactionModes};
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::trackers::Change;

use super::super::connection::{self, ServerSessionState};
use super::super::information::InsertId;
use super::super::values;
use super::super::variables::{self, VariableHandling};
use super::SessionState;
use crate::session_state::settings::Interner;

impl SessionState {
    /// Applies a tracker from the OK to a command of the session, or to a query of Evenkeel.
    pub fn hear(&mut self, change: &Change<'_>, interner: &Interner) {
        match change {
            Change::Variable { name, value } => self.hear_variable(name, value, interner),
            Change::Schema(name) => {
                self.received.schema = true;
                if !name.is_ascii() {
                    // The character set in which COM_INIT_DB would have to send the name is not
                    // reported.
                    self.bind(Pin::Settings);
                }
                self.schema = connection::schema(name);
            }
            Change::State(changed) => self.received.state |= changed,
            Change::Characteristics(text) => {
                self.next = of_next(text);
                match self.next {
                    Some(_) => self.pins.add(Pin::Transaction),
                    None => self.loosen(Pin::Transaction),
                }
            }
            _ => {}
        }
    }

    fn hear_variable(&mut self, name: &[u8], value: &[u8], interner: &Interner) {
        let lower = name.to_ascii_lowercase();
        let name = variables::canonical(&lower);
        if name == b"last_gtid" {
            self.received.position = Some(value.into());
        }
        if variables::is_no_setting(name) {
            return;
        }
        self.received.names.push(name.into());
        match variables::treatment(name) {
            VariableHandling::Tracked if !is_followable(name, value) => {
                self.bind_setting(name.into())
            }
            VariableHandling::Tracked => {
                if name == variables::COLLATION {
                    self.received.collation = Some(value.into());
                }
                connection::hear(&mut self.now, name, value, interner);
                self.look();
            }
            VariableHandling::InsertId => {
                let number = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                self.insert_id = number.map_or(InsertId::Unknown, InsertId::Exact);
            }
            VariableHandling::Binds(pin, harmless) => {
                self.binding.retain(|(bound, _)| **bound != *name);
                match variables::is_one_of(value, harmless) {
                    true => self.loosen(pin),
                    false => {
                        self.binding.push((name.into(), pin));
                        self.pins.add(pin);
                    }
                }
            }
            // A change of our trackers means that later changes are not reported.
            VariableHandling::Ours if self.is_asked || self.shown.is_some() => {}
            VariableHandling::Ours => self.bind(Pin::Unknown),
            VariableHandling::Timestamp | VariableHandling::Elsewhere => {}
        }
    }

    /// Pins if the server did not report a variable that was set.
    pub(super) fn expect(&mut self, name: &[u8]) {
        let name = variables::canonical(name);
        let other = variables::other_name(name);
        let is_told = self.has_heard(name) || other.is_some_and(|other| self.has_heard(other));
        if !is_told && !self.is_untold_of(name) {
            self.bind_setting(name.into());
        }
    }

    pub(super) fn note_status(
        &mut self,
        status: Status,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let autocommit = status.has(Status::AUTOCOMMIT);
        if autocommit != self.autocommit() {
            let value: &[u8] = if autocommit { b"ON" } else { b"OFF" };
            self.now = interner.with(&self.now, variables::AUTOCOMMIT, value);
            on.now = interner.with(&on.now, variables::AUTOCOMMIT, value);
        }
        if autocommit {
            self.pins.release(UnpinEvent::AutocommitOn);
        }
        if status.has(Status::IN_TRANSACTION) {
            self.next = None;
            self.pins.add(Pin::Transaction);
        } else {
            self.loosen(Pin::Transaction);
        }
    }
}

/// Returns the modes of the next transaction from the reported characteristics, if no transaction
/// is open. MariaDB also keeps them for the next one if `SET autocommit = 1` ended one that was
/// READ ONLY.
fn of_next(characteristics: &[u8]) -> Option<TransactionModes> {
    let has = |words: &[u8]| {
        characteristics
            .windows(words.len())
            .any(|part| part == words)
    };
    let isolation = match has(b"SERIALIZABLE") {
        true => Some(Isolation::Serializable),
        false => has(b"ISOLATION").then_some(Isolation::Weaker),
    };
    let read_only = match has(b"READ ONLY") {
        true => Some(true),
        false => has(b"READ WRITE").then_some(false),
    };
    let is_next = characteristics.starts_with(b"SET TRANSACTION");
    is_next.then_some(TransactionModes {
        read_only,
        isolation,
    })
}

/// Returns whether our SQL text can, and may, set the variable to this value on another connection.
fn is_followable(name: &[u8], value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    // The first COMMIT with this value closes the connection, which no other client must use.
    let ends = name == b"completion_type" && value.eq_ignore_ascii_case(b"RELEASE");
    name.iter().all(plain) && values::is_plain(value) && !ends
}
