//! Applies the trackers and the status that a server reports to the session state.

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{Isolation, TransactionModes};
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::trackers::Change;

use super::super::connection::{self, ServerSessionState};
use super::super::previous_results::InsertId;
use super::super::values;
use super::super::variables::{self, VariableHandling};
use super::SessionState;
use crate::session_state::settings::Interner;

impl SessionState {
    /// Applies a tracker from the OK to a command of the session, or to a query of Evenkeel.
    pub fn record_report(&mut self, change: &Change<'_>, interner: &Interner) {
        match change {
            Change::Variable { name, value } => self.record_variable(name, value, interner),
            Change::Schema(name) => {
                self.received.schema = true;
                if !name.is_ascii() {
                    // The character set in which COM_INIT_DB would have to send the name is not
                    // reported.
                    self.pin(Pin::Settings);
                }
                self.schema = connection::schema(name);
            }
            Change::State(changed) => self.received.state |= changed,
            Change::Characteristics(text) => {
                self.next_modes = next_modes(text);
                match self.next_modes {
                    Some(_) => self.pins.add(Pin::Transaction),
                    None => self.unpin(Pin::Transaction),
                }
            }
            _ => {}
        }
    }

    fn record_variable(&mut self, name: &[u8], value: &[u8], interner: &Interner) {
        let lower = name.to_ascii_lowercase();
        let name = variables::canonical(&lower);
        if name == b"last_gtid" {
            self.received.position = Some(value.into());
        }
        if variables::is_no_setting(name) {
            return;
        }
        self.received.names.push(name.into());
        match variables::handling(name) {
            VariableHandling::Tracked if !is_followable(name, value) => {
                self.pin_setting(name.into())
            }
            VariableHandling::Tracked => {
                if name == variables::COLLATION {
                    self.received.collation = Some(value.into());
                }
                connection::apply_variable(&mut self.settings, name, value, interner);
                self.update_modes();
            }
            VariableHandling::InsertId => {
                let number = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                self.insert_id = number.map_or(InsertId::Unknown, InsertId::Exact);
            }
            VariableHandling::Pins(pin, harmless) => {
                self.pinning.retain(|(bound, _)| **bound != *name);
                match variables::is_one_of(value, harmless) {
                    true => self.unpin(pin),
                    false => {
                        self.pinning.push((name.into(), pin));
                        self.pins.add(pin);
                    }
                }
            }
            // A change of our trackers means that later changes are not reported.
            VariableHandling::Tracker if self.is_querying || self.swap.is_some() => {}
            VariableHandling::Tracker => self.pin(Pin::Unknown),
            VariableHandling::Timestamp | VariableHandling::Unfollowed => {}
        }
    }

    /// Records that a variable was set: if the server did not report it, it is asked before the
    /// connection is released. Pins if that cannot be done, or comes too late for the next text.
    pub(super) fn require_report(&mut self, name: &[u8], status: Status) {
        const ASKED: Pins = Pins::of(&[Pin::Settings, Pin::InsertId, Pin::Variables]);
        let name = variables::canonical(name);
        let is_known = self.is_reported(name) || self.mark_unreported(name);
        let is_asked_now =
            !status.has(Status::IN_TRANSACTION) && self.pins.except(ASKED).is_empty();
        let can_ask = is_asked_now || !variables::is_of_analysis(name);
        if !(is_known || can_ask && self.unknown.add_setting(name)) {
            self.pin_setting(name.into());
        }
    }

    /// Returns whether the last OK reported the variable, or the status of each reply does.
    pub(super) fn is_reported(&self, name: &[u8]) -> bool {
        let other = variables::other_name(name);
        name == variables::AUTOCOMMIT
            || self.was_reported(name)
            || other.is_some_and(|other| self.was_reported(other))
    }

    pub(super) fn apply_status(
        &mut self,
        status: Status,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        let autocommit = status.has(Status::AUTOCOMMIT);
        if autocommit != self.autocommit() {
            let value: &[u8] = if autocommit { b"ON" } else { b"OFF" };
            self.settings = interner.with(&self.settings, variables::AUTOCOMMIT, value);
            server.settings = interner.with(&server.settings, variables::AUTOCOMMIT, value);
        }
        if autocommit {
            self.pins.release(UnpinEvent::AutocommitOn);
        }
        if status.has(Status::IN_TRANSACTION) {
            self.next_modes = None;
            self.pins.add(Pin::Transaction);
        } else {
            self.unpin(Pin::Transaction);
        }
    }
}

/// Returns the modes of the next transaction from the reported characteristics, if no transaction
/// is open. MariaDB also keeps them for the next one if `SET autocommit = 1` ended one that was
/// READ ONLY.
fn next_modes(characteristics: &[u8]) -> Option<TransactionModes> {
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
