//! What one client has set, what binds it, and what its last statement has left.

mod apply;
mod things;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use evenkeel_policy::pins::{Pin, Pins, Release};
use evenkeel_policy::route::{Isolation, Modes};
use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::trackers::Change;
use evenkeel_wire::sql::mysql::{self, Modes as Reading};
use smallvec::SmallVec;

use super::collations::{self, Collation};
use super::leftover::{Asked, Hold, InsertId, Left, Needs};
use super::meaning::{Lookup, Meaning, Thing};
use super::server::{self, OnServer};
use super::tracking::Tracking;
use super::values;
use super::variables::{self, Treatment};
use crate::state::settings::{Interner, Settings};
use things::Things;

/// What a session begins with.
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'a> {
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
pub struct Reply {
    /// As it came.
    pub status: Status,
    /// The insert id of an OK.
    pub insert_id: u64,
    /// How many warnings.
    pub warnings: u16,
}

/// A client's settings, and what binds it to its server connection.
///
/// For each command that reaches a server: [`Journal::sent`]; for each OK its trackers by
/// [`Journal::hear`] and then [`Journal::succeeded`], for an ERR [`Journal::failed`]; and
/// [`Journal::ready`] when the reply is complete.
#[derive(Debug)]
pub struct Journal {
    /// What binds the client to its server connection. The session adds and ends those that are
    /// not said by a text or a status.
    pub pins: Pins,
    pub(super) now: Settings,
    pub(super) insert_id: InsertId,
    pub(super) reading: Reading,
    schema: Option<Rc<[u8]>>,
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
    things: Things,
    /// What was said of the next transaction only.
    next: Option<Modes>,
    tracking: Tracking,
    tracking_begun: Tracking,
    /// What it began with.
    begun: Settings,
    left: Left,
    heard: Heard,
    /// What it had when the text under way was sent, if that may change any of it.
    sent_in: Option<Settings>,
    /// How many statements of it have succeeded.
    done: usize,
    is_readable: bool,
    /// The number of its collation has not been put in place yet.
    has_number: bool,
}

/// What the trackers of one OK told.
#[derive(Debug, Default)]
struct Heard {
    names: SmallVec<[Box<[u8]>; 2]>,
    collation: Option<Box<[u8]>>,
    schema: bool,
    state: bool,
}

impl Journal {
    /// Of a client that has just logged in. `fresh` is what a server connection of it has by itself
    /// ([`super::FOLLOWED`]).
    #[must_use]
    pub fn new<'a>(
        fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])> + Clone,
        begin: Beginning<'_>,
        interner: &Interner,
    ) -> Journal {
        let tracking = Tracking::new(fresh.clone());
        let now = server::compared(fresh, interner);
        let mut journal = Journal {
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
            number: server::next_number(),
            last_on: 0,
            counted_on: 0,
            insert_on: 0,
            puts_leftovers: false,
            lasting: Pins::NONE,
            binding: Vec::new(),
            things: Things::default(),
            next: None,
            tracking_begun: tracking.clone(),
            tracking,
            left: Left::default(),
            heard: Heard::default(),
            sent_in: None,
            done: 0,
            is_readable: true,
            has_number: false,
        };
        journal.begin_in(begin, interner);
        journal.begun = journal.now.clone();
        journal.look();
        journal
    }

    fn begin_in(&mut self, begin: Beginning<'_>, interner: &Interner) {
        let collation = collations::of_login(begin.collation, begin.mariadb, begin.version);
        let number;
        let (charset, collation) = match collation {
            Collation::Servers => return,
            Collation::Named(name) => (values::charset_of(name.as_bytes()), name.as_bytes()),
            Collation::Number(own) => {
                self.has_number = true;
                number = own.to_string();
                (number.as_bytes(), number.as_bytes())
            }
        };
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
    pub fn read(&self, text: &[u8], lookup: Option<&dyn Lookup>) -> Meaning {
        match self.is_readable {
            true => super::read(text, self.reading, lookup),
            false => Meaning::unreadable(),
        }
    }

    /// How its texts are read.
    #[must_use]
    pub fn modes(&self) -> Reading {
        self.reading
    }

    /// What the next server connection must have.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.now
    }

    /// The schema that it is in.
    #[must_use]
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// Whether each statement is a transaction of its own.
    #[must_use]
    pub fn autocommit(&self) -> bool {
        let value = self.now.get(variables::AUTOCOMMIT);
        value.and_then(values::boolean) != Some(false)
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
    pub fn transaction_defaults(&self) -> Modes {
        let read_only = self.now.get(variables::READ_ONLY);
        let isolation = self.now.get(variables::ISOLATION);
        let session = Modes {
            read_only: read_only.and_then(values::boolean),
            isolation: isolation.map(|isolation| {
                match isolation.eq_ignore_ascii_case(b"serializable") {
                    true => Isolation::Serializable,
                    false => Isolation::Weaker,
                }
            }),
        };
        self.next.unwrap_or_default().or(session)
    }

    /// Whether the client is to see this tracker.
    #[must_use]
    pub fn keeps(&self, change: &Change<'_>) -> bool {
        self.tracking.keeps(change)
    }

    /// How long the connection is to be kept though nothing binds.
    #[must_use]
    pub fn hold(&self, asked: &Asked) -> Hold {
        self.left.hold(asked)
    }

    /// What the server must be asked before the connection is given away: a text of ours, whose
    /// trackers tell. `None`: all is known.
    #[must_use]
    pub fn question(&self, asked: &Asked) -> Option<&'static [u8]> {
        const COLLATION: &[u8] =
            b"SET @@session.collation_connection=@@session.collation_connection";
        const INSERT_ID: &[u8] = b"SET @@session.last_insert_id=LAST_INSERT_ID()";
        const BOTH: &[u8] = b"SET @@session.collation_connection=@@session.collation_connection,\
            @@session.last_insert_id=LAST_INSERT_ID()";
        match (self.owes_collation(), self.is_insert_id_open(asked)) {
            (true, true) => Some(BOTH),
            (true, false) => Some(COLLATION),
            (false, true) => Some(INSERT_ID),
            (false, false) => None,
        }
    }

    fn is_insert_id_open(&self, asked: &Asked) -> bool {
        match self.insert_id {
            InsertId::Exact(_) => false,
            InsertId::Likely(_) => self.insert_on != 0 && asked.any(Needs::INSERT_ID),
            InsertId::Unknown => true,
        }
    }

    /// The answer to the question has come, its trackers heard.
    pub fn answered(&mut self, on: &mut OnServer, interner: &Interner) {
        self.take_collation(on, interner);
        self.heard = Heard::default();
        on.disturbed();
        self.loosen(Pin::Settings);
        self.loosen(Pin::InsertId);
    }

    /// What [`super::difference`] asked for is in place, its trackers heard.
    pub fn placed(&mut self, on: &mut OnServer, interner: &Interner) {
        if self.has_number {
            self.take_charset(on, interner);
        }
        on.now = self.now.clone();
        on.schema = self.schema.clone();
        on.is_doubtful = false;
        if std::mem::take(&mut self.puts_leftovers) {
            self.has_insert_id(on);
            self.has_counted(on);
            on.leftovers.warned = false;
        }
    }

    /// FOUND_ROWS() on the connection is about a SELECT of its own, or nobody's.
    fn has_counted(&mut self, on: &mut OnServer) {
        on.leftovers.counts_of = self.number;
        self.counted_on = on.number;
    }

    /// The connection has its insert id.
    fn has_insert_id(&mut self, on: &mut OnServer) {
        on.leftovers.insert_id_of = self.number;
        self.insert_on = on.number;
    }

    /// Whether the connection has its insert id, as far as that is known.
    pub(super) fn is_insert_id_on(&self, on: &OnServer) -> bool {
        let own = on.leftovers.insert_id_of == self.number && self.insert_on == on.number;
        own || on.leftovers.insert_id_of == 0 && self.insert_id == InsertId::NONE
    }

    /// It could not be put in place. True: the client's number of a collation is none of this
    /// server, which then has its own; the difference can be made again.
    pub fn not_placed(&mut self, on: &OnServer, interner: &Interner) -> bool {
        if !self.has_number {
            return false;
        }
        self.take_charset(on, interner);
        true
    }

    /// What the number of its collation stands for is what the server has.
    fn take_charset(&mut self, on: &OnServer, interner: &Interner) {
        for name in [variables::CLIENT, variables::RESULTS, variables::COLLATION] {
            if let Some(value) = on.now.get(name) {
                self.now = interner.with(&self.now, name, value);
                self.begun = interner.with(&self.begun, name, value);
            }
        }
        self.has_number = false;
        self.look();
    }

    /// Whether it has kept the connection since its last statement: there all is as it made it, also
    /// what cannot be followed.
    pub(super) fn has_kept(&self, on: &OnServer) -> bool {
        on.leftovers.holder == self.number && self.last_on == on.number
    }

    /// Whether the connection has what is somebody else's, or lacks what is its own, and a statement
    /// that asks `needs` would see that.
    pub(super) fn lacks(&self, on: &OnServer, needs: Needs) -> bool {
        let left = on.leftovers;
        let is_last = left.last_user == self.number && self.last_on == on.number;
        let insert_id = needs.any(Needs::INSERT_ID) && !self.is_insert_id_on(on);
        let has_counted = left.counts_of == self.number && self.counted_on == on.number;
        let counts = needs.any(Needs::FOUND_ROWS) && !has_counted;
        let last = needs.any(Needs::DIAGNOSTICS.and(Needs::ROW_COUNT)) && !is_last;
        // Not every statement clears what was there before it.
        let foreign = left.warned && left.last_user != self.number;
        insert_id || counts || last || foreign
    }

    /// Its connection was reset at its wish, and asked again. MariaDB goes back to the character set
    /// of the login, MySQL to its own (manual: "mysql_reset_connection()").
    pub fn renewed(&mut self, on: &OnServer, interner: &Interner) {
        self.now = on.now.clone();
        let charset = [variables::CLIENT, variables::RESULTS, variables::COLLATION];
        for name in charset.into_iter().filter(|_| self.reading.mariadb) {
            if let Some(value) = self.begun.get(name) {
                self.now = interner.with(&self.now, name, value);
            }
        }
        self.schema = on.schema.clone();
        self.pins.release(Release::ResetConnection);
        self.lasting.release(Release::ResetConnection);
        self.binding.clear();
        self.things = Things::default();
        self.next = None;
        self.insert_id = InsertId::NONE;
        self.insert_on = 0;
        self.tracking = self.tracking_begun.clone();
        self.left = Left::default();
        self.look();
    }

    /// The server connection is gone, and with it all that bound to it.
    pub fn lost(&mut self) {
        self.pins = Pins::NONE;
        self.lasting = Pins::NONE;
        self.binding.clear();
        self.things = Things::default();
        self.next = None;
        self.left = Left::default();
        self.heard = Heard::default();
        self.last_on = 0;
        self.insert_on = 0;
        if self.insert_id == InsertId::Unknown {
            self.insert_id = InsertId::NONE;
        }
    }

    /// A command is on its way to the server; one without a text has the default meaning.
    pub fn sent(&mut self, meaning: &Meaning, on: &mut OnServer) {
        on.leftovers.holder = self.number;
        on.leftovers.last_user = self.number;
        self.last_on = on.number;
        self.left = Left::default();
        self.heard = Heard::default();
        self.done = 0;
        self.sent_in = (!meaning.effects.is_empty()).then(|| self.now.clone());
        if !self.autocommit() && meaning.statements.iter().any(apply::may_begin) {
            self.pins.add(Pin::AutocommitOff);
        }
    }

    /// A tracker of an OK to a command of its own, or to a question.
    pub fn hear(&mut self, change: &Change<'_>, interner: &Interner) {
        match change {
            Change::Variable { name, value } => self.hear_variable(name, value, interner),
            Change::Schema(name) => {
                self.heard.schema = true;
                if !name.is_ascii() {
                    // In which character set COM_INIT_DB would have to name it, is not said.
                    self.bind(Pin::Settings);
                }
                self.schema = server::schema(name);
            }
            Change::State(changed) => self.heard.state |= changed,
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
        if variables::is_no_setting(name) {
            return;
        }
        self.heard.names.push(name.into());
        match variables::treatment(name) {
            Treatment::Told if !is_followable(name, value) => self.bind(Pin::Settings),
            Treatment::Told => {
                if name == variables::COLLATION {
                    self.heard.collation = Some(value.into());
                }
                server::hear(&mut self.now, name, value, interner);
                self.look();
            }
            Treatment::InsertId => {
                let number = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                self.insert_id = number.map_or(InsertId::Unknown, InsertId::Exact);
            }
            Treatment::Binds(pin, harmless) => {
                self.binding.retain(|(bound, _)| **bound != *name);
                match variables::is_one_of(value, harmless) {
                    true => self.loosen(pin),
                    false => {
                        self.binding.push((name.into(), pin));
                        self.pins.add(pin);
                    }
                }
            }
            // Whatever has set our own trackers, we hear no more.
            Treatment::Ours => self.bind(Pin::Unknown),
            Treatment::Timestamp | Treatment::Elsewhere => {}
        }
    }

    /// The reply is complete; `None`: it ended in an error, which tells no status.
    pub fn ready(&mut self, status: Option<Status>, on: &mut OnServer, interner: &Interner) {
        if let Some(status) = status {
            self.note_status(status, on, interner);
        }
        if self.owes_collation() {
            self.pins.add(Pin::Settings);
        }
        if self.insert_id == InsertId::Unknown {
            self.pins.add(Pin::InsertId);
        }
        self.sent_in = None;
    }

    fn note_status(&mut self, status: Status, on: &mut OnServer, interner: &Interner) {
        let autocommit = status.has(Status::AUTOCOMMIT);
        if autocommit != self.autocommit() {
            let value: &[u8] = if autocommit { b"ON" } else { b"OFF" };
            self.now = interner.with(&self.now, variables::AUTOCOMMIT, value);
            on.now = interner.with(&on.now, variables::AUTOCOMMIT, value);
        }
        if autocommit {
            self.pins.release(Release::AutocommitOn);
        }
        if status.has(Status::IN_TRANSACTION) {
            self.next = None;
            self.pins.add(Pin::Transaction);
        } else {
            self.loosen(Pin::Transaction);
        }
    }

    fn owes_collation(&self) -> bool {
        self.now.get(variables::COLLATION).is_none()
    }

    /// An OK is over: the connection's collation, if it was told.
    fn take_collation(&mut self, on: &mut OnServer, interner: &Interner) {
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

    /// Takes a pin away if nothing asks for it any more.
    fn loosen(&mut self, pin: Pin) {
        let is_thing = |thing: &Thing| thing.pin() == pin && self.things.has(*thing);
        let wanted = self.lasting.has(pin)
            || self.binding.iter().any(|(_, binds)| *binds == pin)
            || ALL_THINGS.iter().any(is_thing)
            || pin == Pin::Settings && self.owes_collation()
            || pin == Pin::InsertId && self.insert_id == InsertId::Unknown
            || pin == Pin::Transaction && self.next.is_some();
        if !wanted {
            self.pins = without(self.pins, pin);
        }
    }

    /// How texts are read now.
    fn look(&mut self) {
        let client = self.now.get(variables::CLIENT).unwrap_or_default();
        self.is_readable = mysql::charset_is_safe(client);
        let mode = self.now.get(variables::SQL_MODE).unwrap_or_default();
        let mut reading = self.reading;
        values::read_sql_mode(mode, &mut reading);
        self.reading = reading;
    }
}

const ALL_THINGS: [Thing; 4] = [
    Thing::TemporaryTable,
    Thing::Prepared,
    Thing::Handler,
    Thing::NamedLock,
];

/// What the server says of the transaction: of the next one, where none is open. MariaDB keeps it
/// for that one too where `SET autocommit = 1` has ended one that was READ ONLY.
fn of_next(characteristics: &[u8]) -> Option<Modes> {
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
    is_next.then_some(Modes {
        read_only,
        isolation,
    })
}

/// Whether a text of ours can set it again.
fn is_followable(name: &[u8], value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    name.iter().all(plain) && values::is_plain(value)
}

fn without(pins: Pins, pin: Pin) -> Pins {
    let mut left = Pins::NONE;
    for other in pins.iter().filter(|other| *other != pin) {
        left.add(other);
    }
    left
}
