//! Session trackers: ours, which are always on, and the client's, which are virtual.

use evenkeel_wire::mysql::trackers::Change;

use super::{values, variables};

/// The variable of the tracker that tells that anything has changed.
pub(super) const STATE_CHANGE: &[u8] = b"session_track_state_change";

/// Whether servers tell all variables that are kept in one place by the name of the one that was
/// named first: `foreign_key_checks` as `autocommit`, `timestamp` as `last_gtid` (MDEV-31746).
pub(super) fn is_by_place(mariadb: bool, version: u32) -> bool {
    mariadb && version >= 110_000
}

/// What switches the trackers of a server connection on, as one text.
#[must_use]
pub fn trackers(mariadb: bool, version: u32) -> &'static str {
    match mariadb {
        // Of each place the name that is followed is named first.
        true if is_by_place(mariadb, version) => {
            "SET @@session.session_track_system_variables=\
             'autocommit,collation_connection,collation_server,last_gtid,*',\
             @@session.session_track_schema=ON,\
             @@session.session_track_state_change=ON,\
             @@session.session_track_transaction_info='CHARACTERISTICS'"
        }
        true => {
            "SET @@session.session_track_system_variables='*',\
             @@session.session_track_schema=ON,\
             @@session.session_track_state_change=ON,\
             @@session.session_track_transaction_info='CHARACTERISTICS'"
        }
        false => {
            "SET @@session.session_track_system_variables='*',\
             @@session.session_track_schema=ON,\
             @@session.session_track_state_change=ON,\
             @@session.session_track_gtids=OWN_GTID,\
             @@session.session_track_transaction_info='CHARACTERISTICS'"
        }
    }
}

/// Whether a value of one of the client's trackers can be virtual.
pub(super) fn is_understood(name: &[u8], value: Option<&[u8]>) -> bool {
    let Some(value) = value else {
        return true;
    };
    let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
    match name {
        b"session_track_schema" | STATE_CHANGE => values::boolean(value).is_some(),
        // ALL_GTIDS is more than we have.
        b"session_track_gtids" => is(b"OFF") || is(b"0") || is(b"OWN_GTID") || is(b"1"),
        b"session_track_transaction_info" => info(value).is_some(),
        b"session_track_system_variables" => {
            let plain = |byte: &u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b' ' | b'*' | b'.')
            };
            value.iter().all(plain)
        }
        _ => false,
    }
}

fn info(value: &[u8]) -> Option<Info> {
    let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
    if is(b"OFF") || is(b"0") {
        return Some(Info::Off);
    }
    if is(b"STATE") || is(b"1") {
        return Some(Info::State);
    }
    (is(b"CHARACTERISTICS") || is(b"2")).then_some(Info::Characteristics)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Info {
    #[default]
    Off,
    State,
    Characteristics,
}

/// What a client wants to be told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tracking {
    /// Names with commas between them, in lower case; `*`: all.
    variables: Box<[u8]>,
    schema: bool,
    state: bool,
    gtids: bool,
    info: Info,
}

impl Tracking {
    /// As the server's trackers were before ours were set.
    pub(super) fn new<'a>(fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Tracking {
        let mut tracking = Tracking::default();
        for (name, value) in fresh {
            tracking.set(&name.to_ascii_lowercase(), value);
        }
        tracking
    }

    /// Sets one; of a name that is none of them nothing happens.
    pub(super) fn set(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"session_track_schema" => self.schema = values::boolean(value) == Some(true),
            STATE_CHANGE => self.state = values::boolean(value) == Some(true),
            b"session_track_gtids" => {
                self.gtids = !(value.eq_ignore_ascii_case(b"OFF") || value == b"0");
            }
            b"session_track_transaction_info" => self.info = info(value).unwrap_or_default(),
            b"session_track_system_variables" => {
                self.variables = value.to_ascii_lowercase().into();
            }
            _ => {}
        }
    }

    /// As it was to begin with.
    pub(super) fn reset(&mut self, name: &[u8], begun: &Tracking) {
        match name {
            b"session_track_schema" => self.schema = begun.schema,
            STATE_CHANGE => self.state = begun.state,
            b"session_track_gtids" => self.gtids = begun.gtids,
            b"session_track_transaction_info" => self.info = begun.info,
            b"session_track_system_variables" => self.variables = begun.variables.clone(),
            _ => {}
        }
    }

    /// Whether it is told that anything has changed.
    pub(super) fn tells_state(&self) -> bool {
        self.state
    }

    /// Whether the client is to see a change.
    pub(super) fn keeps(&self, change: &Change<'_>) -> bool {
        match change {
            Change::Variable { name, .. } => self.names(name),
            Change::Schema(_) => self.schema,
            Change::State(_) => self.state,
            Change::Gtids(_) => self.gtids,
            Change::Transaction(_) => self.info != Info::Off,
            Change::Characteristics(_) => self.info == Info::Characteristics,
            Change::Other(_) => false,
        }
    }

    /// Whether the client is to see the connection's collation as its character set.
    pub(super) fn renames(&self, name: &[u8]) -> bool {
        let hides = name == variables::COLLATION && !self.names(name);
        hides && self.names(variables::CONNECTION)
    }

    fn names(&self, name: &[u8]) -> bool {
        let mut names = self.variables.split(|byte| *byte == b',');
        names.any(|own| {
            let own = own.trim_ascii();
            own == b"*" || own.eq_ignore_ascii_case(name)
        })
    }
}
