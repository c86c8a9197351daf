//! Who a session is towards the servers: a user in a database with a credential, and the pools that
//! belong to it.

pub(crate) mod greeting;
pub(crate) mod pause;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_policy::lending::{Books, Key, Pool};
use evenkeel_wire::postgres::login::Credential;

use self::greeting::{Greeter, Greeting, Greetings};
use self::pause::Paused;
use super::server::ServerConnection;
use crate::knowledge::{Catalog, Database};
use crate::server::Server;
use crate::service::figures::Usage;
use crate::service::postgres::{PostgresService, PostgresView};
use crate::state::settings::{Interner, Journal, OnServer, Settings};

/// What the workers of a service share of its pools.
#[derive(Debug)]
pub(crate) struct Lender {
    pub(crate) books: Arc<Books>,
    pooled: Mutex<HashMap<Key, Arc<Pooled>>>,
    paused: Mutex<Paused>,
    numbers: Mutex<HashMap<Box<[u8]>, u64>>,
    pub(crate) greetings: Greetings,
}

/// One pool, and how its connections are made.
pub(crate) struct Pooled {
    pub(crate) pool: Arc<Pool>,
    pub(crate) server: Arc<Server>,
    pub(crate) who: Arc<Who>,
}

/// A user in a database, with what logs in to servers.
pub(crate) struct Who {
    /// As the client calls itself.
    pub(crate) user: String,
    /// As it is called at the servers.
    pub(crate) server_user: String,
    pub(crate) database: String,
    pub(crate) credential: Credential,
    /// Tells credentials of one user apart.
    pub(crate) generation: u64,
    pub(crate) user_number: u64,
    pub(crate) database_number: u64,
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled")
            .field("server", &self.server.name)
            .field("user", &self.who.user)
            .field("database", &self.who.database)
            .finish_non_exhaustive()
    }
}

impl Lender {
    pub(crate) fn new(books: Books) -> Self {
        Self {
            books: Arc::new(books),
            pooled: Mutex::default(),
            paused: Mutex::default(),
            numbers: Mutex::default(),
            greetings: Greetings::default(),
        }
    }

    /// A number for a name: the same for the same one as long as the service lives.
    pub(crate) fn number(&self, name: &[u8]) -> u64 {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len() as u64;
        *numbers.entry(name.into()).or_insert(next)
    }

    /// The pool of that key, while there is one.
    pub(crate) fn pooled(&self, key: &Key) -> Option<Arc<Pooled>> {
        self.map().get(key).cloned()
    }

    /// Every pool.
    pub(crate) fn all(&self) -> Vec<Arc<Pooled>> {
        self.map().values().cloned().collect()
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Key, Arc<Pooled>>> {
        self.pooled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool_for(&self, who: &Arc<Who>, server: &Arc<Server>, view: &PostgresView) -> Arc<Pooled> {
        let key = Key {
            server: server.id,
            user: who.user_number,
            generation: who.generation,
            database: who.database_number,
            identity: 0,
        };
        let mut map = self.map();
        if let Some(known) = map.get(&key).filter(|known| !known.pool.is_outdated()) {
            return Arc::clone(known);
        }
        let quotas = view.sizes.quotas(&who.user, &who.database);
        let pooled = Arc::new(Pooled {
            pool: self.books.pool(key, &quotas, &server.load),
            server: Arc::clone(server),
            who: Arc::clone(who),
        });
        map.insert(key, Arc::clone(&pooled));
        pooled
    }

    /// Forgets pools that nobody uses.
    pub(crate) fn tidy(&self) {
        self.map().retain(|_, pooled| Arc::strong_count(pooled) > 1);
    }
}

/// What the sessions of one worker share that are the same user in the same database.
pub(crate) struct Account {
    pub(crate) who: Arc<Who>,
    lender: Arc<Lender>,
    pooled: RefCell<Vec<Arc<Pooled>>>,
    greeting: Arc<Greeting>,
    greeter: RefCell<Greeter>,
    database: Option<Arc<Database>>,
    pub(crate) usage: Arc<Usage>,
}

/// Names and values of ParameterStatus.
pub(crate) type Reports = Vec<(Box<[u8]>, Box<[u8]>)>;

impl Account {
    pub(crate) fn new(who: Who, shared: &PostgresService, usage: Arc<Usage>) -> Rc<Self> {
        let database = shared.knowledge.databases().want(&who.database);
        let greeting = shared.lender.greetings.of(&who);
        Rc::new(Self {
            who: Arc::new(who),
            lender: Arc::clone(&shared.lender),
            pooled: RefCell::default(),
            greeting,
            greeter: RefCell::default(),
            database,
            usage,
        })
    }

    /// What is known of the database.
    pub(crate) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.database.as_ref()?.catalog()
    }

    /// Which state of that; zero: nothing is known.
    pub(crate) fn catalog_version(&self) -> u64 {
        self.catalog().map_or(0, |catalog| catalog.generation() + 1)
    }

    pub(crate) fn catalog_changed(&self) {
        if let Some(database) = &self.database {
            database.changed();
        }
    }

    /// Whether the catalog was read after this moment.
    pub(crate) fn knows_catalog_until(&self, us: u64) -> bool {
        let database = self.database.as_ref();
        database.is_some_and(|database| database.knows_until(us))
    }

    /// What a client with these settings begins with; `None`: a server must be asked first.
    pub(crate) fn journal(&self, startup: &Settings, interner: &Interner) -> Option<Journal> {
        let mut greeter = self.greeter.borrow_mut();
        self.greeting.journal(&mut greeter, startup, interner)
    }

    /// A server connection that has just logged in, or was reset, can greet.
    pub(crate) fn learn_greeting(&self, server: &ServerConnection) {
        self.greeting.learn(server);
    }

    /// A server connection has these settings in place.
    pub(crate) fn learn(&self, startup: &Settings, on: &OnServer) {
        self.greeting.prove(startup, on);
    }

    pub(crate) fn with_greeting(&self, act: impl FnOnce(&Reports)) {
        act(self.greeter.borrow().of_server());
    }

    /// The pool at a server.
    pub(crate) fn pooled(&self, server: &Arc<Server>, view: &PostgresView) -> Arc<Pooled> {
        let mut pooled = self.pooled.borrow_mut();
        let known = pooled.iter().position(|one| one.server.id == server.id);
        if let Some(index) = known {
            if !pooled[index].pool.is_outdated() {
                return Arc::clone(&pooled[index]);
            }
            pooled.swap_remove(index);
        }
        let new = self.lender.pool_for(&self.who, server, view);
        pooled.push(Arc::clone(&new));
        new
    }
}

/// Tells credentials apart without keeping them.
pub(crate) fn generation_of(verifier: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    verifier.hash(&mut hasher);
    hasher.finish()
}
