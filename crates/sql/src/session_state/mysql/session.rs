//! Session state of one client: settings, pins, and results of its last statement.

mod apply;
mod restore;
mod results;
mod server_report;
mod session_objects;
mod state_query;
mod trackers;
mod unknown_values;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use crate::Dialect;
use crate::mysql::{self, LexerModes};
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::TransactionModes;
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::trackers::{Change, Tracker};
use smallvec::SmallVec;

use super::analysis::{CatalogLookup, EffectKind, SessionObject, TextAnalysis};
use super::client_trackers::ClientTrackers;
use super::collations::{self, Collation};
use super::connection::{self, ServerSessionState};
use super::previous_results::{
    HoldPolicy, InsertId, ObservedResultReads, ResultReads, StatementResults,
};
use super::values;
use super::variables;
use crate::session_state::settings::{Interner, SettingSet};
use session_objects::SessionObjects;
pub use state_query::StateQuery;
pub use trackers::TrackerRestore;
use trackers::TrackerSwap;
use unknown_values::UnknownValues;
pub use unknown_values::{UserVariableQuestion, UserVariableRows};

/// Initial state of a session.
#[derive(Debug, Clone, Copy)]
pub struct InitialSettings<'a> {
    /// Id of the collation in the client's login; 0 if there is none.
    pub collation: u16,
    /// Schema in the client's login.
    pub schema: Option<&'a [u8]>,
    /// True if the servers are MariaDB's.
    pub mariadb: bool,
    /// Lowest version of the servers, such as 80403 or 101119.
    pub version: u32,
}

/// Reply to one statement: an OK, or the end of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementReply {
    /// Status in the reply.
    pub status: Status,
    /// Insert id of an OK.
    pub insert_id: u64,
    /// Number of warnings.
    pub warnings: u16,
    /// True for an OK, whose trackers report what was set; an EOF has none.
    pub has_trackers: bool,
    /// True for the end of a result, which has no insert id even after an insert.
    pub is_result: bool,
    /// True if the value is 1, `None` if there is no row: for [`TextAnalysis::answers_lock`].
    pub value: Option<bool>,
}

/// Settings of a client, and its pins to a server connection.
///
/// Each command that reaches a server requires a call of [`SessionState::sent`]. Each OK requires
/// [`SessionState::record_report`] for its trackers, then [`SessionState::succeeded`]; each ERR
/// requires [`SessionState::failed`]. A complete reply requires [`SessionState::ready`].
#[derive(Debug)]
pub struct SessionState {
    /// Pins to the server connection. The session adds and removes those that no text or status
    /// shows.
    pub pins: Pins,
    pub(super) settings: SettingSet,
    pub(super) insert_id: InsertId,
    pub(super) modes: LexerModes,
    schema: Option<Rc<[u8]>>,
    /// GTID of the last write, as reported by MariaDB.
    last_gtid: Box<[u8]>,
    number: u64,
    /// Number of the server connection that ran the last statement; 0 if there is none.
    last_connection: u64,
    /// Number of the connection that ran the last SELECT.
    count_connection: u64,
    /// Number of the connection that is certain to have the insert id; 0 if there is none.
    insert_connection: u64,
    /// Results that the pending changes restore.
    pub(super) missing_results: ResultReads,
    /// Pins that only a reset removes.
    reset_pins: Pins,
    /// Variables that pin with their current values.
    pinning: Vec<(Box<[u8]>, Pin)>,
    objects: SessionObjects,
    /// Name of the last setting that could not be followed.
    untracked_setting: Box<[u8]>,
    /// Modes that were set for the next transaction only.
    next_modes: Option<TransactionModes>,
    trackers: ClientTrackers,
    initial_trackers: ClientTrackers,
    /// Set while the server connection has the client's trackers instead of Evenkeel's.
    swap: Option<TrackerSwap>,
    /// Initial settings.
    initial: SettingSet,
    results: StatementResults,
    received: TrackerUpdate,
    /// True while the server is queried for state; the query may set Evenkeel's trackers.
    is_querying: bool,
    /// True if the last server reports by place ([`super::client_trackers::has_merged_reports`]).
    has_merged_reports: bool,
    /// True if a routine may have set variables that the server has not reported.
    has_unreported: bool,
    unknown: UnknownValues,
    /// Settings when the current text was sent; `None` if it has no effects.
    sent_settings: Option<SettingSet>,
    /// Number of statements of the text that have succeeded.
    completed: usize,
    is_readable: bool,
    /// Settings without the collation id of the login, until that id is applied.
    fallback_settings: Option<SettingSet>,
}

/// Values that the trackers of one OK reported.
#[derive(Debug, Default)]
struct TrackerUpdate {
    names: SmallVec<[Box<[u8]>; 2]>,
    collation: Option<Box<[u8]>>,
    schema: bool,
    state: bool,
    /// `last_gtid`.
    position: Option<Box<[u8]>>,
}

impl SessionState {
    /// Returns the state of a client that has just logged in. `fresh` has the initial values of its
    /// server connections ([`super::FOLLOWED`]).
    #[must_use]
    pub fn new<'a>(
        fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])> + Clone,
        begin: InitialSettings<'_>,
        interner: &Interner,
    ) -> SessionState {
        let trackers = ClientTrackers::new(fresh.clone());
        let settings = connection::initial_settings(fresh, interner);
        let mut session_state = SessionState {
            pins: Pins::NONE,
            initial: settings.clone(),
            settings,
            insert_id: InsertId::NONE,
            modes: LexerModes {
                mariadb: begin.mariadb,
                version: begin.version,
                ..LexerModes::default()
            },
            schema: begin.schema.map(Rc::from),
            last_gtid: Box::default(),
            number: connection::next_number(),
            last_connection: 0,
            count_connection: 0,
            insert_connection: 0,
            missing_results: ResultReads::NONE,
            reset_pins: Pins::NONE,
            pinning: Vec::new(),
            objects: SessionObjects::default(),
            untracked_setting: Box::default(),
            next_modes: None,
            initial_trackers: trackers.clone(),
            trackers,
            swap: None,
            results: StatementResults::default(),
            received: TrackerUpdate::default(),
            is_querying: false,
            has_merged_reports: false,
            has_unreported: false,
            unknown: UnknownValues::default(),
            sent_settings: None,
            completed: 0,
            is_readable: true,
            fallback_settings: None,
        };
        session_state.apply_login(begin, interner);
        session_state.initial = session_state.settings.clone();
        session_state.update_modes();
        session_state
    }

    fn apply_login(&mut self, begin: InitialSettings<'_>, interner: &Interner) {
        let chosen = self.settings.get(variables::COLLATIONS).map(<[u8]>::to_vec);
        let chosen = chosen.unwrap_or_default();
        if let Some(configured_default) = collations::configured_default(begin.collation, &chosen) {
            return self.set_charset(configured_default, interner);
        }
        let collation = collations::of_login(begin.collation, begin.mariadb, begin.version);
        let number;
        let (charset, collation) = match collation {
            Collation::Default => return,
            Collation::Named(name) => (values::charset_of(name.as_bytes()), name.as_bytes()),
            Collation::Number(own) => {
                self.fallback_settings = Some(self.settings.clone());
                number = own.to_string();
                (number.as_bytes(), number.as_bytes())
            }
        };
        self.set_charset((charset, collation), interner);
    }

    fn set_charset(&mut self, (charset, collation): (&[u8], &[u8]), interner: &Interner) {
        for (name, value) in [
            (variables::CLIENT, charset),
            (variables::RESULTS, charset),
            (variables::COLLATION, collation),
        ] {
            self.settings = interner.with(&self.settings, name, value);
        }
    }

    /// Returns the analysis of a text of the session.
    #[must_use]
    pub fn read(&self, text: &[u8], lookup: Option<&dyn CatalogLookup>) -> TextAnalysis {
        match self.is_readable {
            true => super::read(text, self.modes, lookup),
            false => TextAnalysis::unreadable(),
        }
    }

    /// Returns the dialect of the session's texts; `None` if they cannot be parsed.
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        self.is_readable.then_some(Dialect::Mysql(self.modes))
    }

    /// Returns the lexer modes for the session's texts.
    #[must_use]
    pub fn modes(&self) -> LexerModes {
        self.modes
    }

    /// Returns the dialect that another `sql_mode` and `character_set_client` would give.
    #[must_use]
    pub fn dialect_in(&self, mode: &[u8], client: &[u8]) -> Option<Dialect> {
        let mut modes = self.modes;
        values::read_sql_mode(mode, &mut modes);
        modes.nbsp_byte = mysql::nbsp_byte(client);
        collations::can_be_read(client).then_some(Dialect::Mysql(modes))
    }

    /// Returns the settings that the next server connection must have.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.settings
    }

    /// Returns the current schema.
    #[must_use]
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// Returns the GTID of the last write, as reported by MariaDB; empty if nothing was written.
    #[must_use]
    pub fn last_gtid(&self) -> &[u8] {
        &self.last_gtid
    }

    /// Returns whether each statement is a transaction of its own.
    #[must_use]
    pub fn autocommit(&self) -> bool {
        self.settings.facts().autocommit
    }

    /// Returns the status that a server would report outside of a transaction.
    #[must_use]
    pub fn status(&self) -> Status {
        values::status_of(self.modes.mariadb, |name| self.settings.get(name))
    }

    /// Returns the client's `wait_timeout` in milliseconds; `None` if it has set none.
    #[must_use]
    pub fn wait_timeout_ms(&self) -> Option<u64> {
        // Most clients have set nothing.
        if self.settings == self.initial {
            return None;
        }
        let value = self.settings.get(b"wait_timeout")?;
        let seconds: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
        seconds.checked_mul(1_000)
    }

    /// Returns a hash of the context that distinguishes prepared statements of the same text.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.schema.hash(&mut hasher);
        for name in [variables::SQL_MODE, variables::CLIENT, variables::COLLATION] {
            self.settings.get(name).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Returns the modes of the next transaction, unless that specifies its own.
    #[must_use]
    pub fn transaction_defaults(&self) -> TransactionModes {
        let modes = self.settings.facts().modes;
        self.next_modes.unwrap_or_default().or(modes)
    }

    /// Returns whether the client receives this tracker.
    #[must_use]
    pub fn keeps(&self, change: &Change<'_>) -> bool {
        self.trackers.keeps(change)
    }

    /// Returns whether the client receives this tracker, and renames it if necessary.
    pub fn shows(&self, tracker: &mut Tracker<'_>) -> bool {
        match tracker.change {
            // The server reports what the client's trackers request.
            _ if self.swap.is_some() => true,
            Change::Variable { name, value } if self.trackers.renames(name) => {
                tracker.rename(variables::CONNECTION, values::charset_of(value));
                true
            }
            change => self.keeps(&change),
        }
    }

    /// Returns how long the connection is kept although no pin requires it.
    #[must_use]
    pub fn hold(&self, observed: &ObservedResultReads) -> HoldPolicy {
        match self.unknown.is_urgent() {
            true => HoldPolicy::Release,
            false => self.results.hold(observed),
        }
    }

    /// Applies a reset requested by the client, after the variables were queried again. MariaDB
    /// uses the login's character set, MySQL its default (manual: "mysql_reset_connection()").
    pub fn apply_reset(&mut self, server: &ServerSessionState, interner: &Interner) {
        self.settings = server.settings.clone();
        let charset = [variables::CLIENT, variables::RESULTS, variables::COLLATION];
        for name in charset.into_iter().filter(|_| self.modes.mariadb) {
            if let Some(value) = self.initial.get(name) {
                self.settings = interner.with(&self.settings, name, value);
            }
        }
        self.schema = server.schema.clone();
        self.pins.release(UnpinEvent::ResetConnection);
        self.reset_pins.release(UnpinEvent::ResetConnection);
        self.pinning.clear();
        self.objects = SessionObjects::default();
        self.next_modes = None;
        self.insert_id = InsertId::NONE;
        self.insert_connection = 0;
        self.trackers = self.initial_trackers.clone();
        self.swap = None;
        self.results = StatementResults::default();
        self.has_unreported = false;
        self.unknown = UnknownValues::default();
        self.update_modes();
    }

    /// Pins a session that was reset, for state that the reset has kept.
    pub fn keep(&mut self, pins: Pins) {
        pins.iter().for_each(|pin| self.pin(pin));
    }

    /// Removes all pins and state that were lost with the server connection.
    pub fn connection_lost(&mut self) {
        self.pins = Pins::NONE;
        self.reset_pins = Pins::NONE;
        self.pinning.clear();
        self.objects = SessionObjects::default();
        self.next_modes = None;
        self.results = StatementResults::default();
        self.received = TrackerUpdate::default();
        self.swap = None;
        self.has_unreported = false;
        self.unknown = UnknownValues::default();
        self.last_connection = 0;
        self.insert_connection = 0;
        if self.insert_id == InsertId::Unknown {
            self.insert_id = InsertId::NONE;
        }
    }

    /// Records a command that is sent to the server; one without a text has the default analysis.
    pub fn sent(&mut self, analysis: &TextAnalysis, server: &mut ServerSessionState) {
        self.use_connection(server);
        self.received = TrackerUpdate::default();
        self.is_querying = false;
        self.has_merged_reports = server.has_merged_reports;
        self.completed = 0;
        self.sent_settings = (!analysis.effects.is_empty()).then(|| self.settings.clone());
        self.record_tracker_sets(analysis);
        if analysis.read_for != 0 && analysis.read_for != server.version {
            // A comment for certain versions has another effect, or none, on this server.
            self.pin(Pin::Unknown);
        }
        let mut indices = 0..analysis.statements.len();
        let begins = indices.any(|index| analysis.may_begin_at(index));
        let mut effects = analysis.effects.iter();
        let begins = begins || effects.any(|effect| effect.kind == EffectKind::Savepoint);
        if begins && !self.autocommit() {
            self.pins.add(Pin::AutocommitOff);
        }
    }

    /// Completes a reply. `status` is `None` after an error, which reports no status.
    pub fn ready(
        &mut self,
        status: Option<Status>,
        server: &mut ServerSessionState,
        interner: &Interner,
    ) {
        if let Some(status) = status {
            self.apply_status(status, server, interner);
        }
        match self.has_unknown_settings() {
            true => self.pins.add(Pin::Settings),
            // A later statement has shown what only the server knew.
            false => self.unpin(Pin::Settings),
        }
        if self.insert_id == InsertId::Unknown {
            self.pins.add(Pin::InsertId);
        }
        self.sent_settings = None;
    }

    /// Returns whether only the server knows some settings; any OK with trackers reports them.
    fn has_unknown_settings(&self) -> bool {
        self.has_unreported || self.has_unknown_collation() || !self.unknown.settings.is_empty()
    }

    /// Applies the connection's collation if an OK reported it.
    fn apply_collation(&mut self, server: &mut ServerSessionState, interner: &Interner) {
        if let Some(collation) = self.received.collation.take() {
            self.settings = interner.with(&self.settings, variables::COLLATION, &collation);
            server.settings = interner.with(&server.settings, variables::COLLATION, &collation);
        }
    }

    /// Pins the session until a reset.
    fn pin(&mut self, pin: Pin) {
        self.pins.add(pin);
        self.reset_pins.add(pin);
        for object in ALL_OBJECTS {
            if object.pin() == pin {
                self.objects.add_unknown(object);
            }
        }
    }

    /// Pins the session until a reset, for a setting that cannot be followed.
    fn pin_setting(&mut self, name: Box<[u8]>) {
        self.untracked_setting = name;
        self.pin(Pin::Settings);
    }

    /// Removes a pin if nothing requires it any longer.
    fn unpin(&mut self, pin: Pin) {
        let is_pinning = |object: &SessionObject| object.pin() == pin && self.objects.has(*object);
        let wanted = self.reset_pins.has(pin)
            || self.pinning.iter().any(|(_, own)| *own == pin)
            || ALL_OBJECTS.iter().any(is_pinning)
            || pin == Pin::Settings && (self.has_unknown_settings() || self.swap.is_some())
            || pin == Pin::InsertId && self.insert_id == InsertId::Unknown
            || pin == Pin::Variables && !self.unknown.users.is_empty()
            || pin == Pin::Transaction && self.next_modes.is_some();
        if !wanted {
            self.pins = self.pins.without(pin);
        }
    }

    /// Updates how the session's texts are parsed.
    fn update_modes(&mut self) {
        let client = self.settings.get(variables::CLIENT).unwrap_or_default();
        self.is_readable = collations::can_be_read(client);
        let mode = self.settings.get(variables::SQL_MODE).unwrap_or_default();
        let mut modes = self.modes;
        values::read_sql_mode(mode, &mut modes);
        modes.nbsp_byte = mysql::nbsp_byte(client);
        self.modes = modes;
    }
}

const ALL_OBJECTS: [SessionObject; 5] = [
    SessionObject::TemporaryTable,
    SessionObject::Prepared,
    SessionObject::Handler,
    SessionObject::NamedLock,
    SessionObject::BackupLock,
];
