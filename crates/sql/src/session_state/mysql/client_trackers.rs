//! Session trackers: Evenkeel's, which are enabled except for statements that name trackers, and
//! the client's, which are enabled for those and decide which other reports the client receives.

use evenkeel_wire::mysql::trackers::Change;

use super::{values, variables};

/// Returns whether servers report all variables that are stored in one place under the name of the
/// one named first: `foreign_key_checks` as `autocommit`, `timestamp` as `last_gtid` (MDEV-31746).
pub(super) fn has_merged_reports(mariadb: bool, version: u32) -> bool {
    mariadb && version >= 110_000
}

/// Returns the statement that enables Evenkeel's trackers on a server connection.
#[must_use]
pub fn trackers(mariadb: bool, version: u32) -> &'static str {
    match mariadb {
        // The followed name of each place is named first.
        true if has_merged_reports(mariadb, version) => {
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

/// Returns the statement that enables Evenkeel's trackers again after the client's. A client's
/// `ALL_GTIDS` is kept, since it reports more than `OWN_GTID`. MySQL rejects changes of the GTID
/// tracker in a transaction; Evenkeel's is still active there.
#[must_use]
pub(super) fn trackers_again(mariadb: bool, version: u32, in_transaction: bool) -> &'static str {
    match (mariadb, in_transaction) {
        (true, _) => trackers(mariadb, version),
        (false, true) => {
            "SET @@session.session_track_system_variables='*',\
             @@session.session_track_schema=ON,\
             @@session.session_track_state_change=ON,\
             @@session.session_track_transaction_info='CHARACTERISTICS'"
        }
        (false, false) => {
            "SET @@session.session_track_system_variables='*',\
             @@session.session_track_schema=ON,\
             @@session.session_track_state_change=ON,\
             @@session.session_track_gtids=\
             IF(@@session.session_track_gtids='ALL_GTIDS','ALL_GTIDS','OWN_GTID'),\
             @@session.session_track_transaction_info='CHARACTERISTICS'"
        }
    }
}

/// Returns the query for `character_set_results` and the values of the trackers, in the order of
/// [`NAMES`]. Binary strings are the same in every character set.
#[must_use]
pub(super) fn values_of_trackers(mariadb: bool) -> String {
    let names = ["character_set_results"]
        .into_iter()
        .chain(names(mariadb).iter().copied());
    let casts: Vec<String> = names
        .map(|name| format!("CAST(@@session.{name} AS BINARY)"))
        .collect();
    // An explicit LIMIT overrides `sql_select_limit`.
    format!("SELECT {} LIMIT 1", casts.join(","))
}

/// Tracker variables; MariaDB lacks the last one.
const NAMES: [&str; 5] = [
    "session_track_system_variables",
    "session_track_schema",
    "session_track_state_change",
    "session_track_transaction_info",
    "session_track_gtids",
];

pub(super) fn names(mariadb: bool) -> &'static [&'static str] {
    let count = NAMES.len().saturating_sub(usize::from(mariadb));
    NAMES.get(..count).unwrap_or_default()
}

fn info(value: &[u8]) -> Option<TransactionInfo> {
    let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
    if is(b"OFF") || is(b"0") {
        return Some(TransactionInfo::Off);
    }
    if is(b"STATE") || is(b"1") {
        return Some(TransactionInfo::State);
    }
    (is(b"CHARACTERISTICS") || is(b"2")).then_some(TransactionInfo::Characteristics)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TransactionInfo {
    #[default]
    Off,
    State,
    Characteristics,
}

impl TransactionInfo {
    fn name(self) -> &'static str {
        match self {
            TransactionInfo::Off => "OFF",
            TransactionInfo::State => "STATE",
            TransactionInfo::Characteristics => "CHARACTERISTICS",
        }
    }
}

/// GTIDs that the server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum GtidTracking {
    #[default]
    Off,
    Own,
    All,
}

impl GtidTracking {
    fn name(self) -> &'static str {
        match self {
            GtidTracking::Off => "OFF",
            GtidTracking::Own => "OWN_GTID",
            GtidTracking::All => "ALL_GTIDS",
        }
    }
}

/// Session trackers that a client has enabled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ClientTrackers {
    /// Names of variables, separated by commas, as the server has them; `*` means all.
    variables: Box<[u8]>,
    /// True if it was set to NULL. MySQL then shows NULL, but keeps the list in use.
    is_null: bool,
    schema: bool,
    state: bool,
    gtids: GtidTracking,
    info: TransactionInfo,
}

impl ClientTrackers {
    /// Returns the server's trackers as they were before Evenkeel's were set.
    pub(super) fn new<'a>(fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> ClientTrackers {
        let mut trackers = ClientTrackers::default();
        for (name, value) in fresh {
            trackers.set(&name.to_ascii_lowercase(), Some(value));
        }
        trackers
    }

    /// Sets one tracker; ignores other names.
    fn set(&mut self, name: &[u8], value: Option<&[u8]>) {
        let text = value.unwrap_or_default();
        match name {
            b"session_track_schema" => self.schema = values::boolean(text) == Some(true),
            b"session_track_state_change" => self.state = values::boolean(text) == Some(true),
            b"session_track_gtids" => {
                self.gtids = match text.to_ascii_uppercase().as_slice() {
                    b"OWN_GTID" | b"1" => GtidTracking::Own,
                    b"ALL_GTIDS" | b"2" => GtidTracking::All,
                    _ => GtidTracking::Off,
                };
            }
            b"session_track_transaction_info" => self.info = info(text).unwrap_or_default(),
            b"session_track_system_variables" => {
                self.is_null = value.is_none();
                if let Some(list) = value {
                    self.variables = list.into();
                }
            }
            _ => {}
        }
    }

    /// Sets the trackers from a row of [`values_of_trackers`] without its first value. The value
    /// for GTIDs is ignored if that tracker was not the client's at the time of the query.
    pub(super) fn learn(&mut self, mariadb: bool, has_gtids: bool, row: &[Option<&[u8]>]) {
        for (name, value) in names(mariadb).iter().zip(row) {
            if has_gtids || *name != "session_track_gtids" {
                self.set(name.as_bytes(), *value);
            }
        }
    }

    /// Returns the statement that replaces Evenkeel's trackers by the client's on a server
    /// connection.
    pub(super) fn sql(&self, mariadb: bool, has_gtids: bool) -> Vec<u8> {
        let mut sql = b"SET @@session.session_track_system_variables=".to_vec();
        match values::is_plain(&self.variables) {
            true => values::put_quoted(&self.variables, &mut sql),
            false => values::put_hex(&self.variables, &mut sql),
        }
        if self.is_null {
            sql.extend_from_slice(b",@@session.session_track_system_variables=NULL");
        }
        let rest = format!(
            ",@@session.session_track_schema={},@@session.session_track_state_change={},\
             @@session.session_track_transaction_info='{}'",
            u8::from(self.schema),
            u8::from(self.state),
            self.info.name()
        );
        sql.extend_from_slice(rest.as_bytes());
        if !mariadb && has_gtids {
            let gtids = format!(",@@session.session_track_gtids='{}'", self.gtids.name());
            sql.extend_from_slice(gtids.as_bytes());
        }
        sql
    }

    /// Returns whether the client receives all GTIDs, which Evenkeel's trackers do not report.
    pub(super) fn wants_all_gtids(&self) -> bool {
        self.gtids == GtidTracking::All
    }

    /// Returns whether the client receives a change.
    pub(super) fn keeps(&self, change: &Change<'_>) -> bool {
        match change {
            Change::Variable { name, .. } => self.names(name),
            Change::Schema(_) => self.schema,
            Change::State(_) => self.state,
            Change::Gtids(_) => self.gtids != GtidTracking::Off,
            Change::Transaction(_) => self.info != TransactionInfo::Off,
            Change::Characteristics(_) => self.info == TransactionInfo::Characteristics,
            Change::Other(_) => false,
        }
    }

    /// Returns whether the client receives the connection's collation as its character set.
    pub(super) fn renames(&self, name: &[u8]) -> bool {
        let hides = name == variables::COLLATION && !self.names(name);
        hides && self.names(variables::CONNECTION)
    }

    fn names(&self, name: &[u8]) -> bool {
        let mut names = self.variables.split(|byte| *byte == b',');
        names.any(|listed| {
            let listed = listed.trim_ascii();
            listed == b"*" || listed.eq_ignore_ascii_case(name)
        })
    }
}
