//! Session state of one client: settings, pins, and information left by its last statement.

mod apply;
mod restore;
mod server_report;
mod session_objects;
mod state_query;
mod trackers;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::TransactionModes;
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::trackers::{Change, Tracker};
use evenkeel_wire::sql::Dialect;
use evenkeel_wire::sql::mysql::{self, LexerModes as Reading};
use smallvec::SmallVec;

use super::analysis::{CatalogLookup, EffectKind, IN_SCHEMA, SessionObject, TextAnalysis};
use super::client_trackers::ClientTrackers;
use super::collations::{self, Collation};
use super::connection::{self, ServerSessionState};
use super::information::{HoldPolicy, InfoUsage, InsertId, StatementInfo};
use super::values;
use super::variables;
use crate::session_state::settings::{Interner, SettingSet};
use session_objects::SessionObjects;
pub use state_query::StateQuery;
use trackers::Shown;
pub use trackers::TakeBack;

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
    pub tells: bool,
    /// True for the end of a result, which has no insert id even after an insert.
    pub is_result: bool,
}

/// Settings of a client, and its pins to a server connection.
///
/// Each command that reaches a server requires a call of [`SessionState::sent`]. Each OK requires
/// [`SessionState::hear`] for its trackers, then [`SessionState::succeeded`]; each ERR requires
/// [`SessionState::failed`]. A complete reply requires [`SessionState::ready`].
#[derive(Debug)]
pub struct SessionState {
    /// Pins to the server connection. The session adds and removes those that no text or status
    /// shows.
    pub pins: Pins,
    pub(super) now: SettingSet,
    pub(super) insert_id: InsertId,
    pub(super) reading: Reading,
    schema: Option<Rc<[u8]>>,
    /// GTID of the last write, as reported by MariaDB.
    last_gtid: Box<[u8]>,
    number: u64,
    /// Number of the server connection that ran the last statement; 0 if there is none.
    last_on: u64,
    /// Number of the connection that ran the last SELECT.
    counted_on: u64,
    /// Number of the connection that is certain to have the insert id; 0 if there is none.
    insert_on: u64,
    /// True if the pending changes restore the insert id and clear other clients' information.
    pub(super) puts_leftovers: bool,
    /// Pins that only a reset removes.
    lasting: Pins,
    /// Variables that pin with their current values.
    binding: Vec<(Box<[u8]>, Pin)>,
    things: SessionObjects,
    /// Name of the last setting that could not be followed.
    unfollowed: Box<[u8]>,
    /// Modes that were set for the next transaction only.
    next: Option<TransactionModes>,
    tracking: ClientTrackers,
    tracking_begun: ClientTrackers,
    /// Set while the server connection has the client's trackers instead of Evenkeel's.
    shown: Option<Shown>,
    /// Initial settings.
    begun: SettingSet,
    left: StatementInfo,
    received: TrackerUpdate,
    /// True while the server is queried for state; the query may set Evenkeel's trackers.
    is_asked: bool,
    /// True if the last server reports by place ([`super::client_trackers::is_by_place`]).
    is_by_place: bool,
    /// True if a routine may have set variables that the server has not reported.
    is_untold: bool,
    /// Settings when the current text was sent; `None` if it has no effects.
    sent_in: Option<SettingSet>,
    /// Number of statements of the text that have succeeded.
    done: usize,
    is_readable: bool,
    /// Settings without the collation id of the login, until that id is applied.
    without_number: Option<SettingSet>,
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
        let tracking = ClientTrackers::new(fresh.clone());
        let now = connection::compared(fresh, interner);
        let mut session_state = SessionState {
            pins: Pins::NONE,
            begun: now.clone(),
            now,
            insert_id: InsertId::NONE,
            reading: Reading {
                mariadb: begin.mariadb,
                version: begin.version,
                ..Reading::default()
            },
            schema: begin.schema.map(Rc::from),
            last_gtid: Box::default(),
            number: connection::next_number(),
            last_on: 0,
            counted_on: 0,
            insert_on: 0,
            puts_leftovers: false,
            lasting: Pins::NONE,
            binding: Vec::new(),
            things: SessionObjects::default(),
            unfollowed: Box::default(),
            next: None,
            tracking_begun: tracking.clone(),
            tracking,
            shown: None,
            left: StatementInfo::default(),
            received: TrackerUpdate::default(),
            is_asked: false,
            is_by_place: false,
            is_untold: false,
            sent_in: None,
            done: 0,
            is_readable: true,
            without_number: None,
        };
        session_state.begin_in(begin, interner);
        session_state.begun = session_state.now.clone();
        session_state.look();
        session_state
    }

    fn begin_in(&mut self, begin: InitialSettings<'_>, interner: &Interner) {
        let chosen = self.now.get(variables::COLLATIONS).map(<[u8]>::to_vec);
        let chosen = chosen.unwrap_or_default();
        if let Some(instead) = collations::instead(begin.collation, &chosen) {
            return self.name_charset(instead, interner);
        }
        let collation = collations::of_login(begin.collation, begin.mariadb, begin.version);
        let number;
        let (charset, collation) = match collation {
            Collation::Servers => return,
            Collation::Named(name) => (values::charset_of(name.as_bytes()), name.as_bytes()),
            Collation::Number(own) => {
                self.without_number = Some(self.now.clone());
                number = own.to_string();
                (number.as_bytes(), number.as_bytes())
            }
        };
        self.name_charset((charset, collation), interner);
    }

    fn name_charset(&mut self, (charset, collation): (&[u8], &[u8]), interner: &Interner) {
        for (name, value) in [
            (variables::CLIENT, charset),
            (variables::RESULTS, charset),
            (variables::COLLATION, collation),
        ] {
            self.now = interner.with(&self.now, name, value);
        }
    }

    /// Returns the analysis of a text of the session.
    #[must_use]
    pub fn read(&self, text: &[u8], lookup: Option<&dyn CatalogLookup>) -> TextAnalysis {
        match self.is_readable {
            true => super::read(text, self.reading, lookup),
            false => TextAnalysis::unreadable(),
        }
    }

    /// Returns the dialect of the session's texts; `None` if they cannot be parsed.
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        self.is_readable.then_some(Dialect::Mysql(self.reading))
    }

    /// Returns the lexer modes for the session's texts.
    #[must_use]
    pub fn modes(&self) -> Reading {
        self.reading
    }

    /// Returns the dialect that another `sql_mode` and `character_set_client` would give.
    #[must_use]
    pub fn dialect_in(&self, mode: &[u8], client: &[u8]) -> Option<Dialect> {
        let mut reading = self.reading;
        values::read_sql_mode(mode, &mut reading);
        reading.odd_blank = mysql::odd_blank(client);
        collations::can_be_read(client).then_some(Dialect::Mysql(reading))
    }

    /// Returns the settings that the next server connection must have.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.now
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
        self.now.facts().autocommit
    }

    /// Returns the status that a server would report outside of a transaction.
    #[must_use]
    pub fn status(&self) -> Status {
        values::status_of(self.reading.mariadb, |name| self.now.get(name))
    }

    /// Returns the client's `wait_timeout` in milliseconds; `None` if it has set none.
    #[must_use]
    pub fn wait_timeout_ms(&self) -> Option<u64> {
        // Most clients have set nothing.
        if self.now == self.begun {
            return None;
        }
        let value = self.now.get(b"wait_timeout")?;
        let seconds: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
        seconds.checked_mul(1_000)
    }

    /// Returns a hash of the context that distinguishes prepared statements of the same text.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.schema.hash(&mut hasher);
        for name in [variables::SQL_MODE, variables::CLIENT, variables::COLLATION] {
            self.now.get(name).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Returns the modes of the next transaction, unless that specifies its own.
    #[must_use]
    pub fn transaction_defaults(&self) -> TransactionModes {
        self.next.unwrap_or_default().or(self.now.facts().modes)
    }

    /// Returns whether the client receives this tracker.
    #[must_use]
    pub fn keeps(&self, change: &Change<'_>) -> bool {
        self.tracking.keeps(change)
    }

    /// Returns whether the client receives this tracker, and renames it if necessary.
    pub fn shows(&self, tracker: &mut Tracker<'_>) -> bool {
        match tracker.change {
            // The server reports what the client's trackers request.
            _ if self.shown.is_some() => true,
            Change::Variable { name, value } if self.tracking.renames(name) => {
                tracker.call(variables::CONNECTION, values::charset_of(value));
                true
            }
            change => self.keeps(&change),
        }
    }

    /// Returns how long the connection is kept although no pin requires it.
    #[must_use]
    pub fn hold(&self, pending: &InfoUsage) -> HoldPolicy {
        self.left.hold(pending)
    }

    /// Applies a reset requested by the client, after the variables were queried again. MariaDB
    /// uses the login's character set, MySQL its default (manual: "mysql_reset_connection()").
    pub fn renewed(&mut self, on: &ServerSessionState, interner: &Interner) {
        self.now = on.now.clone();
        let charset = [variables::CLIENT, variables::RESULTS, variables::COLLATION];
        for name in charset.into_iter().filter(|_| self.reading.mariadb) {
            if let Some(value) = self.begun.get(name) {
                self.now = interner.with(&self.now, name, value);
            }
        }
        self.schema = on.schema.clone();
        self.pins.release(UnpinEvent::ResetConnection);
        self.lasting.release(UnpinEvent::ResetConnection);
        self.binding.clear();
        self.things = SessionObjects::default();
        self.next = None;
        self.insert_id = InsertId::NONE;
        self.insert_on = 0;
        self.tracking = self.tracking_begun.clone();
        self.shown = None;
        self.left = StatementInfo::default();
        self.is_untold = false;
        self.look();
    }

    /// Pins a session that was reset, for state that the reset has kept.
    pub fn keep(&mut self, pins: Pins) {
        pins.iter().for_each(|pin| self.bind(pin));
    }

    /// Removes all pins and state that were lost with the server connection.
    pub fn lost(&mut self) {
        self.pins = Pins::NONE;
        self.lasting = Pins::NONE;
        self.binding.clear();
        self.things = SessionObjects::default();
        self.next = None;
        self.left = StatementInfo::default();
        self.received = TrackerUpdate::default();
        self.shown = None;
        self.is_untold = false;
        self.last_on = 0;
        self.insert_on = 0;
        if self.insert_id == InsertId::Unknown {
            self.insert_id = InsertId::NONE;
        }
    }

    /// Records a command that is sent to the server; one without a text has the default analysis.
    pub fn sent(&mut self, meaning: &TextAnalysis, on: &mut ServerSessionState) {
        on.leftovers.holder = self.number;
        on.leftovers.last_user = self.number;
        self.last_on = on.number;
        if !meaning.statements.is_empty() {
            self.left = StatementInfo::default();
        }
        self.received = TrackerUpdate::default();
        self.is_asked = false;
        self.is_by_place = on.is_by_place;
        self.done = 0;
        self.sent_in = (!meaning.effects.is_empty()).then(|| self.now.clone());
        self.runs_shown(meaning);
        if meaning.read_for != 0 && meaning.read_for != on.version {
            // A comment for certain versions has another effect, or none, on this server.
            self.bind(Pin::Unknown);
        }
        let begins = meaning.statements.iter().any(apply::may_begin);
        let mut effects = meaning.effects.iter();
        let begins = begins || effects.any(|effect| effect.does == EffectKind::Savepoint);
        if begins && !self.autocommit() {
            self.pins.add(Pin::AutocommitOff);
        }
    }

    /// Completes a reply. `status` is `None` after an error, which reports no status.
    pub fn ready(
        &mut self,
        status: Option<Status>,
        on: &mut ServerSessionState,
        interner: &Interner,
    ) {
        if let Some(status) = status {
            self.note_status(status, on, interner);
        }
        if self.owes_settings() {
            self.pins.add(Pin::Settings);
        }
        if self.insert_id == InsertId::Unknown {
            self.pins.add(Pin::InsertId);
        }
        self.sent_in = None;
    }

    /// Returns whether only the server knows some settings; any OK with trackers reports them.
    fn owes_settings(&self) -> bool {
        self.is_untold || self.owes_collation()
    }

    fn owes_collation(&self) -> bool {
        !self.now.facts().has_collation
    }

    /// Applies the connection's collation if an OK reported it.
    fn take_collation(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        if let Some(collation) = self.received.collation.take() {
            self.now = interner.with(&self.now, variables::COLLATION, &collation);
            on.now = interner.with(&on.now, variables::COLLATION, &collation);
        }
    }

    /// Pins the session until a reset.
    fn bind(&mut self, pin: Pin) {
        self.pins.add(pin);
        self.lasting.add(pin);
        for thing in ALL_THINGS {
            if thing.pin() == pin {
                self.things.unknown(thing);
            }
        }
    }

    /// Pins the session until a reset, for a setting that cannot be followed.
    fn bind_setting(&mut self, name: Box<[u8]>) {
        self.unfollowed = name;
        self.bind(Pin::Settings);
    }

    /// Returns the names of settings, tables, locks and statements with these pins, for display.
    #[must_use]
    pub fn names_of(&self, pins: Pins) -> String {
        let binding = self.binding.iter().filter(|(_, pin)| pins.has(*pin));
        let mut names: Vec<_> = binding.map(|(name, _)| &**name).collect();
        if pins.has(Pin::Settings) && names.is_empty() && !self.unfollowed.is_empty() {
            names.push(&self.unfollowed);
        }
        names.extend(self.things.names(pins));
        let name = |name: &&[u8]| String::from_utf8_lossy(name).replace(char::from(IN_SCHEMA), ".");
        let names: Vec<_> = names.iter().map(name).collect();
        names.join(", ")
    }

    /// Removes a pin if nothing requires it any longer.
    fn loosen(&mut self, pin: Pin) {
        let is_thing = |thing: &SessionObject| thing.pin() == pin && self.things.has(*thing);
        let wanted = self.lasting.has(pin)
            || self.binding.iter().any(|(_, binds)| *binds == pin)
            || ALL_THINGS.iter().any(is_thing)
            || pin == Pin::Settings && (self.owes_settings() || self.shown.is_some())
            || pin == Pin::InsertId && self.insert_id == InsertId::Unknown
            || pin == Pin::Transaction && self.next.is_some();
        if !wanted {
            self.pins = self.pins.without(pin);
        }
    }

    /// Updates how the session's texts are parsed.
    fn look(&mut self) {
        let client = self.now.get(variables::CLIENT).unwrap_or_default();
        self.is_readable = collations::can_be_read(client);
        let mode = self.now.get(variables::SQL_MODE).unwrap_or_default();
        let mut reading = self.reading;
        values::read_sql_mode(mode, &mut reading);
        reading.odd_blank = mysql::odd_blank(client);
        self.reading = reading;
    }
}

const ALL_THINGS: [SessionObject; 5] = [
    SessionObject::TemporaryTable,
    SessionObject::Prepared,
    SessionObject::Handler,
    SessionObject::NamedLock,
    SessionObject::BackupLock,
];
