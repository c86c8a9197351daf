//! Holds the state that sessions of one user in one database share: their baseline and the
//! database's catalog.

pub(crate) mod baseline;

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use self::baseline::{BaselineEntry, WorkerBaseline};
use super::sequences::SequenceRead;
use super::server::ServerConnection;
use super::shared::{PostgresService, UserHistory};
use crate::server_info::Database;
use crate::service::database::DatabaseService;
use crate::upstream::pool_registry::{Parameters, PoolUser};
use crate::upstream::worker_pool;
use evenkeel_sql::catalog::Catalog;
use evenkeel_sql::session_state::analysis::TextAnalysis;
use evenkeel_sql::session_state::settings::{
    Interner, ServerSessionState, SessionState, SettingSet,
};
use evenkeel_sql::session_state::templates::Templates;

/// Identity of a session at the servers, with its pools.
pub(crate) type Account = worker_pool::UserPools<ServerConnection>;

/// Further state that the sessions of an account share.
pub(crate) struct UserState {
    baseline: Arc<BaselineEntry>,
    worker_baseline: RefCell<WorkerBaseline>,
    /// Analyses of its texts.
    pub(crate) templates: RefCell<Templates<Arc<TextAnalysis>>>,
    pub(crate) history: Arc<UserHistory>,
    /// Set once a client has logged in, which proves that the database exists.
    database: OnceCell<Arc<Database>>,
}

/// Names and values of ParameterStatus messages.
pub(crate) type Reports = Parameters;

impl UserState {
    pub(super) fn new(pool_user: &PoolUser, service: &DatabaseService) -> Self {
        // A server greets replication clients each time, and their texts are not analyzed.
        let protocol = service.state_of::<PostgresService>();
        let protocol = protocol.filter(|_| pool_user.replication.is_none());
        Self {
            baseline: protocol
                .as_ref()
                .map_or_else(Arc::default, |protocol| protocol.baselines.of(pool_user)),
            worker_baseline: RefCell::default(),
            templates: RefCell::default(),
            history: protocol.map_or_else(Arc::default, |protocol| protocol.history(pool_user)),
            database: OnceCell::new(),
        }
    }
}

impl Account {
    /// Starts reading the database's catalog. It is called after a login: any client can name a
    /// database that does not exist.
    pub(crate) fn enters(&self, service: &DatabaseService) {
        if self.known.database.get().is_none()
            && let Some(database) = service
                .server_info
                .databases()
                .get_or_add(&self.pool_user.database)
        {
            let _ = self.known.database.set(database);
        }
    }

    /// Returns the catalog of the database, if it has been read.
    pub(crate) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.known.database.get()?.catalog()
    }

    /// Waits until the catalog has been read, or cannot be.
    pub(crate) async fn catalog_expected(&self) {
        if let Some(database) = self.known.database.get() {
            database.wait_for_first_reading().await;
        }
    }

    /// Returns the version of the catalog; zero: it has not been read.
    pub(crate) fn catalog_version(&self) -> u64 {
        let database = self.known.database.get();
        database.map_or(0, |database| database.version())
    }

    pub(crate) fn catalog_changed(&self) {
        if let Some(database) = self.known.database.get() {
            database.changed();
        }
    }

    /// Returns the version of the valid plans of the database.
    pub(crate) fn plans(&self) -> u64 {
        let database = self.known.database.get();
        database.map_or(0, |database| database.plans())
    }

    pub(crate) fn plans_changed(&self) {
        if let Some(database) = self.known.database.get() {
            database.plans_changed();
        }
    }

    /// Records that a session has changed functions at this time, in microseconds.
    pub(crate) fn functions_changed(&self, us: u64) {
        if let Some(database) = self.known.database.get() {
            database.functions_changed(us);
        }
    }

    /// Returns whether any session has changed functions since the catalog was read.
    pub(crate) fn are_functions_changed(&self) -> bool {
        let database = self.known.database.get();
        database.is_some_and(|database| database.are_functions_changed())
    }

    /// Returns whether the catalog was read after this time, in microseconds.
    pub(crate) fn knows_catalog_until(&self, us: u64) -> bool {
        let database = self.known.database.get();
        database.is_some_and(|database| database.is_read_since(us))
    }

    /// Returns whether any session has changed functions since the catalog was read, or the calling
    /// one has changed the catalog. `own_us`: time of its last change, in microseconds; zero: none.
    pub(crate) fn has_unread_changes(&self, own_us: u64) -> bool {
        self.are_functions_changed() || own_us > 0 && !self.knows_catalog_until(own_us)
    }

    /// Returns whether any client of the user has used `currval` or `lastval`.
    pub(crate) fn asks_sequences(&self) -> bool {
        self.known.history.asks_sequences()
    }

    /// Returns whether clients of the user have used `lastval`, and only in ways that can be
    /// answered with a known value.
    pub(crate) fn asks_only_last_value(&self) -> bool {
        self.asks_sequences() && !self.pins_sequences()
    }

    /// Returns whether any client of the user needs the connection on which it has called
    /// `nextval`.
    pub(crate) fn pins_sequences(&self) -> bool {
        self.known.history.pins_sequences()
    }

    pub(crate) fn asked_sequences(&self, read: SequenceRead) {
        self.known.history.asked_sequences(read);
    }

    /// Returns the initial session state for these startup settings; `None`: a server must be
    /// queried first.
    pub(crate) fn session_state(
        &self,
        startup: &SettingSet,
        interner: &Interner,
    ) -> Option<SessionState> {
        let mut worker_baseline = self.known.worker_baseline.borrow_mut();
        let baseline = &self.known.baseline;
        baseline.session_state(&mut worker_baseline, startup, interner)
    }

    /// Updates the baseline from a server connection that has just logged in or was reset.
    pub(crate) fn update_baseline(&self, server: &ServerConnection) {
        self.known.baseline.update(server);
    }

    /// Records that the startup settings are in effect on a server connection.
    pub(crate) fn record_accepted(&self, startup: &SettingSet, on: &ServerSessionState) {
        self.known.baseline.record_accepted(startup, on);
    }

    pub(crate) fn with_reports(&self, act: impl FnOnce(&Reports)) {
        act(self.known.worker_baseline.borrow().reports());
    }
}
