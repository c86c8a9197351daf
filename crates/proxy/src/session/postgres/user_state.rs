//! What is known for the sessions of one user in one database: how they are greeted, and what is in
//! the database.

pub(crate) mod baseline;

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use self::baseline::{BaselineEntry, WorkerBaseline};
use super::server::ServerConnection;
use super::shared::UserHistory;
use crate::server_info::{Catalog, Database};
use crate::service::database::DatabaseService;
use crate::session_state::analysis::TextAnalysis;
use crate::session_state::settings::{Interner, ServerSessionState, SessionState, SettingSet};
use crate::session_state::templates::Templates;
use crate::upstream::pool_registry::{Parameters, PoolUser};
use crate::upstream::worker_pool;

/// Who a session is towards the servers.
pub(crate) type Account = worker_pool::UserPools<ServerConnection>;

/// What the sessions of an account share besides.
pub(crate) struct UserState {
    greeting: Arc<BaselineEntry>,
    greeter: RefCell<WorkerBaseline>,
    /// What its texts mean.
    pub(crate) templates: RefCell<Templates<Arc<TextAnalysis>>>,
    pub(crate) habits: Arc<UserHistory>,
    /// Once a client has come in, and so it is there.
    database: OnceCell<Arc<Database>>,
}

/// Names and values of ParameterStatus.
pub(crate) type Reports = Parameters;

impl UserState {
    pub(super) fn new(who: &PoolUser, service: &DatabaseService) -> Self {
        // What replicates is greeted by a server each time, and its texts are not read.
        let own = service.of_postgres();
        let own = own.filter(|_| who.replication.is_none());
        Self {
            greeting: own.map_or_else(Arc::default, |own| own.greetings.of(who)),
            greeter: RefCell::default(),
            templates: RefCell::default(),
            habits: own.map_or_else(Arc::default, |own| own.habits(who)),
            database: OnceCell::new(),
        }
    }
}

impl Account {
    /// A client comes in: what is in the database is asked from now on. Anybody who may log in can
    /// name one that is not there.
    pub(crate) fn enters(&self, service: &DatabaseService) {
        if self.known.database.get().is_none()
            && let Some(database) = service.knowledge.databases().want(&self.who.database)
        {
            let _ = self.known.database.set(database);
        }
    }

    /// What is known of the database.
    pub(crate) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.known.database.get()?.catalog()
    }

    /// Waits until something is known of the database, or cannot be.
    pub(crate) async fn catalog_expected(&self) {
        if let Some(database) = self.known.database.get() {
            database.first_reading().await;
        }
    }

    /// Which state of that; zero: nothing is known.
    pub(crate) fn catalog_version(&self) -> u64 {
        let database = self.known.database.get();
        database.map_or(0, |database| database.version())
    }

    pub(crate) fn catalog_changed(&self) {
        if let Some(database) = self.known.database.get() {
            database.changed();
        }
    }

    /// Which plans of its database are good.
    pub(crate) fn plans(&self) -> u64 {
        let database = self.known.database.get();
        database.map_or(0, |database| database.plans())
    }

    pub(crate) fn plans_changed(&self) {
        if let Some(database) = self.known.database.get() {
            database.plans_changed();
        }
    }

    /// Whether the catalog was read after this moment.
    pub(crate) fn knows_catalog_until(&self, us: u64) -> bool {
        let database = self.known.database.get();
        database.is_some_and(|database| database.knows_until(us))
    }

    /// Whether any client of it has ever asked what its session drew from a sequence.
    pub(crate) fn asks_sequences(&self) -> bool {
        self.known.habits.asks_sequences()
    }

    pub(crate) fn asked_sequences(&self) {
        self.known.habits.asked_sequences();
    }

    /// What a client with these settings begins with; `None`: a server must be asked first.
    pub(crate) fn journal(
        &self,
        startup: &SettingSet,
        interner: &Interner,
    ) -> Option<SessionState> {
        let mut greeter = self.known.greeter.borrow_mut();
        let greeting = &self.known.greeting;
        greeting.journal(&mut greeter, startup, interner)
    }

    /// A server connection that has just logged in, or was reset, can greet.
    pub(crate) fn learn_greeting(&self, server: &ServerConnection) {
        self.known.greeting.learn(server);
    }

    /// A server connection has these settings in place.
    pub(crate) fn learn(&self, startup: &SettingSet, on: &ServerSessionState) {
        self.known.greeting.prove(startup, on);
    }

    pub(crate) fn with_greeting(&self, act: impl FnOnce(&Reports)) {
        act(self.known.greeter.borrow().of_server());
    }
}
