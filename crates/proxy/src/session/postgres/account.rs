//! What is known for the sessions of one user in one database: how they are greeted, and what is in
//! the database.

pub(crate) mod greeting;

use std::cell::RefCell;
use std::sync::Arc;

use self::greeting::{Greeter, Greeting};
use super::server::ServerConnection;
use crate::knowledge::{Catalog, Database};
use crate::service::database::DatabaseService;
use crate::state::settings::{Interner, Journal, OnServer, Settings};
use crate::upstream::lender::Who;
use crate::upstream::lending;

/// Who a session is towards the servers.
pub(crate) type Account = lending::Account<ServerConnection>;

/// What the sessions of an account share besides.
pub(crate) struct Known {
    greeting: Arc<Greeting>,
    greeter: RefCell<Greeter>,
    database: Option<Arc<Database>>,
}

/// Names and values of ParameterStatus.
pub(crate) type Reports = Vec<(Box<[u8]>, Box<[u8]>)>;

impl Known {
    pub(super) fn new(who: &Who, service: &DatabaseService) -> Self {
        let own = service.of_postgres();
        Self {
            greeting: own.map_or_else(Arc::default, |own| own.greetings.of(who)),
            greeter: RefCell::default(),
            database: service.knowledge.databases().want(&who.database),
        }
    }
}

impl Account {
    /// What is known of the database.
    pub(crate) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.known.database.as_ref()?.catalog()
    }

    /// Which state of that; zero: nothing is known.
    pub(crate) fn catalog_version(&self) -> u64 {
        self.catalog().map_or(0, |catalog| catalog.generation() + 1)
    }

    pub(crate) fn catalog_changed(&self) {
        if let Some(database) = &self.known.database {
            database.changed();
        }
    }

    /// Whether the catalog was read after this moment.
    pub(crate) fn knows_catalog_until(&self, us: u64) -> bool {
        let database = self.known.database.as_ref();
        database.is_some_and(|database| database.knows_until(us))
    }

    /// What a client with these settings begins with; `None`: a server must be asked first.
    pub(crate) fn journal(&self, startup: &Settings, interner: &Interner) -> Option<Journal> {
        let mut greeter = self.known.greeter.borrow_mut();
        let greeting = &self.known.greeting;
        greeting.journal(&mut greeter, startup, interner)
    }

    /// A server connection that has just logged in, or was reset, can greet.
    pub(crate) fn learn_greeting(&self, server: &ServerConnection) {
        self.known.greeting.learn(server);
    }

    /// A server connection has these settings in place.
    pub(crate) fn learn(&self, startup: &Settings, on: &OnServer) {
        self.known.greeting.prove(startup, on);
    }

    pub(crate) fn with_greeting(&self, act: impl FnOnce(&Reports)) {
        act(self.known.greeter.borrow().of_server());
    }
}
