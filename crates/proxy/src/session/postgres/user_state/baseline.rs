//! Caches the baseline that clients of a user and database receive at login. All workers share it,
//! so that a login need not wait for a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use evenkeel_engine::panics::lock;

use super::Reports;
use crate::session::postgres::server::ServerConnection;
use crate::upstream::pool_registry::PoolUser;
use evenkeel_sql::session_state::settings::{
    self, AcceptedSettings, ExportedState, Interner, ServerSessionState, SessionState, SettingSet,
};

/// Limit above which entries of users and databases without a session are removed.
const KNOWN_MAX: usize = 1_000;

/// Baselines of a service.
#[derive(Debug, Default)]
pub(crate) struct BaselineCache {
    known: Mutex<HashMap<Identity, Arc<BaselineEntry>>>,
}

/// User, database and credential generation.
type Identity = (u64, u64, u64);

/// Baseline of one user and database.
#[derive(Debug, Default)]
pub(crate) struct BaselineEntry {
    learned: Mutex<Learned>,
}

#[derive(Debug, Default)]
struct Learned {
    /// Parameters that a server reports of itself. The next field holds the initial state of a
    /// connection to it.
    reports: Arc<Reports>,
    on: Option<ExportedState>,
    /// Version of the two, increased with each update.
    version: u64,
    accepted: AcceptedSettings,
}

/// Baseline as imported by one worker.
#[derive(Default)]
pub(super) struct WorkerBaseline {
    reports: Arc<Reports>,
    on: Option<ServerSessionState>,
    version: u64,
}

impl BaselineCache {
    /// Returns the entry of a user and database. It is reset if no session uses it, because the
    /// database may have been dropped.
    pub(super) fn of(&self, pool_user: &PoolUser) -> Arc<BaselineEntry> {
        let mut known = lock(&self.known);
        if known.len() > KNOWN_MAX {
            known.retain(|_, baseline| Arc::strong_count(baseline) > 1);
        }
        let baseline = known.entry(identity(pool_user)).or_default();
        if Arc::strong_count(baseline) == 1 {
            *baseline = Arc::default();
        }
        Arc::clone(baseline)
    }

    /// Updates the baseline from a connection that has just logged in, because the servers may have
    /// changed.
    pub(crate) fn refresh(&self, pool_user: &PoolUser, server: &ServerConnection) {
        let known = lock(&self.known).get(&identity(pool_user)).map(Arc::clone);
        if let Some(baseline) = known {
            baseline.update(server);
        }
    }
}

impl BaselineEntry {
    /// Updates the baseline from a server connection that has just logged in or was reset.
    pub(super) fn update(&self, server: &ServerConnection) {
        let reports = server.reported.iter();
        let reports = reports.filter(|(name, _)| settings::is_of_server(name));
        let as_primary = |(name, value): &(Box<[u8]>, Box<[u8]>)| {
            // Clients see the primary's value, wherever they read.
            let value: Box<[u8]> = match &**name {
                b"in_hot_standby" => b"off"[..].into(),
                _ => value.clone(),
            };
            (name.clone(), value)
        };
        let reports = reports.map(as_primary).collect();
        let mut learned = lock(&self.learned);
        learned.reports = Arc::new(reports);
        learned.on = Some(server.settings.export());
        learned.version += 1;
    }

    /// Records that the startup settings are in effect on a server connection.
    pub(super) fn record_accepted(&self, startup: &SettingSet, on: &ServerSessionState) {
        lock(&self.learned).accepted.learn(startup, on);
    }

    /// Returns the initial session state for these startup settings; `None`: a server must be
    /// queried first.
    pub(super) fn session_state(
        &self,
        worker_baseline: &mut WorkerBaseline,
        startup: &SettingSet,
        interner: &Interner,
    ) -> Option<SessionState> {
        let learned = lock(&self.learned);
        if worker_baseline.version != learned.version {
            let on = learned.on.as_ref();
            *worker_baseline = WorkerBaseline {
                on: on.map(|on| ServerSessionState::import(on, interner)),
                reports: Arc::clone(&learned.reports),
                version: learned.version,
            };
        }
        let on = worker_baseline.on.as_ref()?;
        if learned.accepted.is_missing(startup) {
            return None;
        }
        let login_settings = learned.accepted.greeting(startup, on, interner);
        Some(SessionState::new(startup.clone(), login_settings, on))
    }
}

impl WorkerBaseline {
    pub(super) fn reports(&self) -> &Reports {
        &self.reports
    }
}

fn identity(pool_user: &PoolUser) -> Identity {
    let database = pool_user.database_number.get();
    (pool_user.user_number.get(), database, pool_user.generation)
}
