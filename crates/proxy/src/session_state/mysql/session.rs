//! What one client has set, what binds it, and what its last statement has left.

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

/// What a session begins with.
#[derive(Debug, Clone, Copy)]
pub struct InitialSettings<'a> {
    /// The number of the collation that the client named in its login; 0: none.
    pub collation: u16,
    /// The schema that it named.
    pub schema: Option<&'a [u8]>,
    /// The servers are MariaDB's.
    pub mariadb: bool,
    /// Their version, the least: 80403, 101119.
    pub version: u32,
}

/// One OK, or the end of one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementReply {
    /// As it came.
    pub status: Status,
    /// The insert id of an OK.
    pub insert_id: u64,
    /// How many warnings.
    pub warnings: u16,
    /// It is an OK, whose trackers tell what was set; an EOF has none.
    pub tells: bool,
    /// It ends a result, and has no insert id whatever was inserted.
    pub is_result: bool,
}

/// A client's settings, and what binds it to its server connection.
///
/// For each command that reaches a server: [`Journal::sent`]; for each OK its trackers by
/// [`Journal::hear`] and then [`Journal::succeeded`], for an ERR [`Journal::failed`]; and
/// [`Journal::ready`] when the reply is complete.
#[derive(Debug)]
pub struct SessionState {
    /// What binds the client to its server connection. The session adds and ends those that are
    /// not said by a text or a status.
    pub pins: Pins,
    pub(super) now: SettingSet,
    pub(super) insert_id: InsertId,
    pub(super) reading: Reading,
    schema: Option<Rc<[u8]>>,
    /// Of its last write, as MariaDB tells it.
    last_gtid: Box<[u8]>,
    number: u64,
    /// The server connection that ran its last statement.
    last_on: u64,
    /// The one that ran its last SELECT.
    counted_on: u64,
    /// The one that has its insert id for certain; 0: none.
    insert_on: u64,
    /// What is being put in place has its insert id, and clears what others have left.
    pub(super) puts_leftovers: bool,
    /// Pins that only a reset ends.
    lasting: Pins,
    /// Variables that bind as they are now.
    binding: Vec<(Box<[u8]>, Pin)>,
    things: SessionObjects,
    /// The last setting that could not be followed.
    unfollowed: Box<[u8]>,
    /// What was said of the next transaction only.
    next: Option<TransactionModes>,
    tracking: ClientTrackers,
    tracking_begun: ClientTrackers,
    /// The server connection has the client's trackers in place of ours.
    shown: Option<Shown>,
    /// What it began with.
    begun: SettingSet,
    left: StatementInfo,
    heard: TrackerUpdate,
    /// Its server is asked what only that knows, which may set our trackers.
    is_asked: bool,
    /// So tells the server that it was last sent to.
    is_by_place: bool,
    /// A routine may have set what the server has not told of.
    is_untold: bool,
    /// What it had when the text under way was sent, if that may change any of it.
    sent_in: Option<SettingSet>,
    /// How many statements of it have succeeded.
    done: usize,
    is_readable: bool,
    /// What it has without the number of its collation, which has not been put in place yet.
    without_number: Option<SettingSet>,
}

/// What the trackers of one OK told.
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
    /// Of a client that has just logged in. `fresh` is what a server connection of it has by itself
    /// ([`super::FOLLOWED`]).
    #[must_use]
    pub fn new<'a>(
        fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])> + Clone,
        begin: InitialSettings<'_>,
        interner: &Interner,
    ) -> SessionState {
        let tracking = ClientTrackers::new(fresh.clone());
        let now = connection::compared(fresh, interner);
        let mut journal = SessionState {
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
            heard: TrackerUpdate::default(),
            is_asked: false,
            is_by_place: false,
            is_untold: false,
            sent_in: None,
            done: 0,
            is_readable: true,
            without_number: None,
        };
        journal.begin_in(begin, interner);
        journal.begun = journal.now.clone();
        journal.look();
        journal
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

    /// What a text of it means.
    #[must_use]
    pub fn read(&self, text: &[u8], lookup: Option<&dyn CatalogLookup>) -> TextAnalysis {
        match self.is_readable {
            true => super::read(text, self.reading, lookup),
            false => TextAnalysis::unreadable(),
        }
    }

    /// How its texts are read; `None`: they cannot be.
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        self.is_readable.then_some(Dialect::Mysql(self.reading))
    }

    /// How its texts are read.
    #[must_use]
    pub fn modes(&self) -> Reading {
        self.reading
    }

    /// How they would be with another `sql_mode` and `character_set_client`.
    #[must_use]
    pub fn dialect_in(&self, mode: &[u8], client: &[u8]) -> Option<Dialect> {
        let mut reading = self.reading;
        values::read_sql_mode(mode, &mut reading);
        reading.odd_blank = mysql::odd_blank(client);
        collations::can_be_read(client).then_some(Dialect::Mysql(reading))
    }

    /// What the next server connection must have.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.now
    }

    /// The schema that it is in.
    #[must_use]
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// Where in the log MariaDB has put what it wrote last; empty: it has written nothing.
    #[must_use]
    pub fn last_gtid(&self) -> &[u8] {
        &self.last_gtid
    }

    /// Whether each statement is a transaction of its own.
    #[must_use]
    pub fn autocommit(&self) -> bool {
        self.now.facts().autocommit
    }

    /// What a server would say of it, outside of a transaction.
    #[must_use]
    pub fn status(&self) -> Status {
        values::status_of(self.reading.mariadb, |name| self.now.get(name))
    }

    /// What the client has set `wait_timeout` to.
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

    /// What tells prepared statements of the same text apart.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.schema.hash(&mut hasher);
        for name in [variables::SQL_MODE, variables::CLIENT, variables::COLLATION] {
            self.now.get(name).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// What its next transaction begins with if it does not say.
    #[must_use]
    pub fn transaction_defaults(&self) -> TransactionModes {
        self.next.unwrap_or_default().or(self.now.facts().modes)
    }

    /// Whether the client is to see this tracker.
    #[must_use]
    pub fn keeps(&self, change: &Change<'_>) -> bool {
        self.tracking.keeps(change)
    }

    /// The same of one that it may be told by another name.
    pub fn shows(&self, tracker: &mut Tracker<'_>) -> bool {
        match tracker.change {
            // The server tells what the client's trackers ask for.
            _ if self.shown.is_some() => true,
            Change::Variable { name, value } if self.tracking.renames(name) => {
                tracker.call(variables::CONNECTION, values::charset_of(value));
                true
            }
            change => self.keeps(&change),
        }
    }

    /// How long the connection is to be kept though nothing binds.
    #[must_use]
    pub fn hold(&self, asked: &InfoUsage) -> HoldPolicy {
        self.left.hold(asked)
    }

    /// Its connection was reset at its wish, and asked again. MariaDB goes back to the character
    /// set of the login, MySQL to its own (manual: "mysql_reset_connection()").
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

    /// Its session is as new, and these bind it all the same.
    pub fn keep(&mut self, pins: Pins) {
        pins.iter().for_each(|pin| self.bind(pin));
    }

    /// The server connection is gone, and with it all that bound to it.
    pub fn lost(&mut self) {
        self.pins = Pins::NONE;
        self.lasting = Pins::NONE;
        self.binding.clear();
        self.things = SessionObjects::default();
        self.next = None;
        self.left = StatementInfo::default();
        self.heard = TrackerUpdate::default();
        self.shown = None;
        self.is_untold = false;
        self.last_on = 0;
        self.insert_on = 0;
        if self.insert_id == InsertId::Unknown {
            self.insert_id = InsertId::NONE;
        }
    }

    /// A command is on its way to the server; one without a text has the default meaning.
    pub fn sent(&mut self, meaning: &TextAnalysis, on: &mut ServerSessionState) {
        on.leftovers.holder = self.number;
        on.leftovers.last_user = self.number;
        self.last_on = on.number;
        if !meaning.statements.is_empty() {
            self.left = StatementInfo::default();
        }
        self.heard = TrackerUpdate::default();
        self.is_asked = false;
        self.is_by_place = on.is_by_place;
        self.done = 0;
        self.sent_in = (!meaning.effects.is_empty()).then(|| self.now.clone());
        self.runs_shown(meaning);
        if meaning.read_for != 0 && meaning.read_for != on.version {
            // A comment says something else there, or nothing.
            self.bind(Pin::Unknown);
        }
        let begins = meaning.statements.iter().any(apply::may_begin);
        let mut effects = meaning.effects.iter();
        let begins = begins || effects.any(|effect| effect.does == EffectKind::Savepoint);
        if begins && !self.autocommit() {
            self.pins.add(Pin::AutocommitOff);
        }
    }

    /// The reply is complete; `None`: it ended in an error, which tells no status.
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

    /// What it has set is the server's secret: any OK with trackers tells.
    fn owes_settings(&self) -> bool {
        self.is_untold || self.owes_collation()
    }

    fn owes_collation(&self) -> bool {
        !self.now.facts().has_collation
    }

    /// An OK is over: the connection's collation, if it was told.
    fn take_collation(&mut self, on: &mut ServerSessionState, interner: &Interner) {
        if let Some(collation) = self.heard.collation.take() {
            self.now = interner.with(&self.now, variables::COLLATION, &collation);
            on.now = interner.with(&on.now, variables::COLLATION, &collation);
        }
    }

    /// Binds until a reset.
    fn bind(&mut self, pin: Pin) {
        self.pins.add(pin);
        self.lasting.add(pin);
        for thing in ALL_THINGS {
            if thing.pin() == pin {
                self.things.unknown(thing);
            }
        }
    }

    /// Pins for a setting that cannot be followed, until a reset.
    fn bind_setting(&mut self, name: Box<[u8]>) {
        self.unfollowed = name;
        self.bind(Pin::Settings);
    }

    /// Names of what has these pins, for people: settings, tables, locks, statements.
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

    /// Takes a pin away if nothing asks for it any more.
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

    /// How texts are read now.
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
