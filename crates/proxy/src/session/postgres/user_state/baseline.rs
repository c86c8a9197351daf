//! What clients of one user and database are greeted with. Any worker learns it of a server
//! connection, for all workers: a login need not wait for a connection if another one has not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Reports;
use crate::session::postgres::server::ServerConnection;
use crate::session_state::settings::{
    self, AcceptedSettings, ExportedState, Interner, ServerSessionState, SessionState, SettingSet,
};
use crate::upstream::pool_registry::PoolUser;

/// Those of users and databases without a session are forgotten when there are more.
const KNOWN_MAX: usize = 1_000;

/// All of a service.
#[derive(Debug, Default)]
pub(crate) struct BaselineCache {
    known: Mutex<HashMap<Identity, Arc<BaselineEntry>>>,
}

/// User, database and credential generation.
type Identity = (u64, u64, u64);

/// Of one user and database.
#[derive(Debug, Default)]
pub(crate) struct BaselineEntry {
    learned: Mutex<Learned>,
}

#[derive(Debug, Default)]
struct Learned {
    /// What a server says of itself, and what a connection to it begins with.
    of_server: Arc<Reports>,
    on: Option<ExportedState>,
    /// Counts what was learned of that.
    version: u64,
    proofs: AcceptedSettings,
}

/// As one worker has it.
#[derive(Default)]
pub(super) struct WorkerBaseline {
    of_server: Arc<Reports>,
    on: Option<ServerSessionState>,
    version: u64,
}

impl BaselineCache {
    /// That of a user and database; nothing is known if nobody else is logged in so: the database
    /// may be gone by now.
    pub(super) fn of(&self, who: &PoolUser) -> Arc<BaselineEntry> {
        let mut known = lock(&self.known);
        if known.len() > KNOWN_MAX {
            known.retain(|_, greeting| Arc::strong_count(greeting) > 1);
        }
        let greeting = known.entry(identity(who)).or_default();
        if Arc::strong_count(greeting) == 1 {
            *greeting = Arc::default();
        }
        Arc::clone(greeting)
    }

    /// A connection has just logged in: servers may have changed since the last one did.
    pub(crate) fn refresh(&self, who: &PoolUser, server: &ServerConnection) {
        let known = lock(&self.known).get(&identity(who)).map(Arc::clone);
        if let Some(greeting) = known {
            greeting.learn(server);
        }
    }
}

impl BaselineEntry {
    /// A server connection that has just logged in, or was reset, can greet.
    pub(super) fn learn(&self, server: &ServerConnection) {
        let of_server = server.reported.iter();
        let of_server = of_server.filter(|(name, _)| settings::is_of_server(name));
        let as_primary = |(name, value): &(Box<[u8]>, Box<[u8]>)| {
            // Clients see the primary, wherever they read.
            let value: Box<[u8]> = match &**name {
                b"in_hot_standby" => b"off"[..].into(),
                _ => value.clone(),
            };
            (name.clone(), value)
        };
        let of_server = of_server.map(as_primary).collect();
        let mut learned = lock(&self.learned);
        learned.of_server = Arc::new(of_server);
        learned.on = Some(server.settings.export());
        learned.version += 1;
    }

    /// A server connection has these settings in place.
    pub(super) fn prove(&self, startup: &SettingSet, on: &ServerSessionState) {
        lock(&self.learned).proofs.learn(startup, on);
    }

    /// What a client with these settings begins with; `None`: a server must be asked first.
    pub(super) fn journal(
        &self,
        greeter: &mut WorkerBaseline,
        startup: &SettingSet,
        interner: &Interner,
    ) -> Option<SessionState> {
        let learned = lock(&self.learned);
        if greeter.version != learned.version {
            greeter.version = learned.version;
            greeter.of_server = Arc::clone(&learned.of_server);
            let on = learned.on.as_ref();
            greeter.on = on.map(|on| ServerSessionState::import(on, interner));
        }
        let on = greeter.on.as_ref()?;
        if learned.proofs.is_missing(startup) {
            return None;
        }
        let told = learned.proofs.greeting(startup, on, interner);
        Some(SessionState::new(startup.clone(), told, on))
    }
}

impl WorkerBaseline {
    pub(super) fn of_server(&self) -> &Reports {
        &self.of_server
    }
}

fn identity(who: &PoolUser) -> Identity {
    let database = who.database_number.get();
    (who.user_number.get(), database, who.generation)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
