//! Determines the greeting sent to clients: it offers only capabilities that all servers have,
//! since a session may use any of them.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_engine::panics::lock;
use evenkeel_engine::{clock, timers};
use evenkeel_sql::mysql::LexerModes;
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::greeting::Greeting;
use evenkeel_wire::mysql::password::{self, Nonce};
use evenkeel_wire::mysql::{build, build::GreetingFields};
use event_listener::Event;

use super::server_login;
use super::shared::MysqlService;
use crate::server::Server;
use crate::service::{Service, ServiceSnapshot};
use crate::worker::Worker;

#[cfg(test)]
mod tests;

/// Time in milliseconds after which a server that sent no greeting is queried again.
const AGAIN_MS: u64 = 500;

/// Time in milliseconds that a client waits for the greetings of new servers if those of others are
/// known.
const PATIENCE_MS: u64 = 300;

/// Capabilities that every server from 5.7 or 10.2 on has, and that Evenkeel needs or implements
/// itself.
const BASE: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::CONNECT_ATTRS);

/// Capabilities that are never offered. Metadata sent only once would be missing for the next
/// session on the connection; the others are meaningful only between a client and a single server.
const NEVER: Capabilities = Capabilities::SSL
    .with(Capabilities::COMPRESS)
    .with(Capabilities::ZSTD)
    .with(Capabilities::OPTIONAL_METADATA)
    .with(Capabilities::MULTI_FACTOR)
    .with(Capabilities::EXPIRED_PASSWORDS)
    .with(Capabilities::CACHE_METADATA)
    .with(Capabilities::PROGRESS)
    .with(Capabilities::COM_MULTI);

/// Version of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// Version text in the greeting.
    pub(crate) text: Box<[u8]>,
    pub(crate) mariadb: bool,
    pub(crate) numbers: (u32, u32, u32),
}

/// Greeting of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerGreeting {
    pub(crate) version: Arc<Version>,
    pub(crate) capabilities: Capabilities,
    pub(crate) collation: u8,
    /// Status flags outside a transaction.
    pub(crate) status: Status,
    /// Plugin with which the server begins, or the default of its family if Evenkeel cannot begin
    /// with it.
    pub(crate) plugin: &'static [u8],
}

/// Greetings of a service's servers.
#[derive(Debug, Default)]
pub(crate) struct ServerGreetings {
    states: Mutex<HashMap<u64, GreetingState>>,
    changed: Event,
}

#[derive(Debug, Clone)]
enum GreetingState {
    Known(Arc<ServerGreeting>),
    /// The server is queried for the first time.
    Querying,
    /// The server sent no greeting at this time in milliseconds.
    Unavailable(u64),
    /// The server sent no greeting, and is queried again.
    QueryingAgain,
}

/// Greeting for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommonGreeting {
    pub(super) version: Arc<Version>,
    pub(super) capabilities: Capabilities,
    pub(super) collation: u8,
    pub(super) status: Status,
    pub(super) plugin: &'static [u8],
}

impl Version {
    pub(crate) fn read(text: &[u8]) -> Self {
        // MariaDB up to 10.11 adds a prefix for its earliest clients.
        let version = text.strip_prefix(b"5.5.5-").unwrap_or(text);
        let words = String::from_utf8_lossy(version);
        let mut numbers = words
            .split(|letter: char| !letter.is_ascii_digit())
            .map(|digits| digits.parse().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            text: text.into(),
            mariadb: words.contains("MariaDB"),
            numbers: (next(), next(), next()),
        }
    }

    /// Returns the number as used in version comments, such as 80403 or 101119.
    pub(crate) fn number(&self) -> u32 {
        let (major, minor, patch) = self.numbers;
        major
            .saturating_mul(10_000)
            .saturating_add(minor.saturating_mul(100))
            .saturating_add(patch)
    }
}

impl ServerGreeting {
    pub(super) fn of(greeting: &Greeting<'_>) -> Self {
        let version = Version::read(greeting.version);
        let plugin = match greeting.plugin {
            password::CACHING_SHA2 => password::CACHING_SHA2,
            password::NATIVE => password::NATIVE,
            _ if version.mariadb => password::NATIVE,
            _ => password::CACHING_SHA2,
        };
        Self {
            version: Arc::new(version),
            capabilities: greeting.capabilities,
            collation: greeting.collation,
            status: greeting.status,
            plugin,
        }
    }
}

impl ServerGreetings {
    /// Records a server's greeting.
    pub(super) fn record(&self, server_id: u64, face: ServerGreeting) {
        let mut states = self.lock();
        if matches!(states.get(&server_id), Some(GreetingState::Known(known)) if **known == face) {
            return;
        }
        states.insert(server_id, GreetingState::Known(Arc::new(face)));
        drop(states);
        self.changed.notify(usize::MAX);
    }

    /// Records that a server sent no greeting.
    fn mark_unavailable(&self, server_id: u64) {
        let mut states = self.lock();
        if !matches!(states.get(&server_id), Some(GreetingState::Known(_))) {
            states.insert(server_id, GreetingState::Unavailable(clock::now_ms()));
        }
        drop(states);
        self.changed.notify(usize::MAX);
    }

    /// Returns the greeting for a client, as soon as it is known; the caller limits the time.
    pub(super) async fn least(
        &self,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        shared: &Arc<MysqlService>,
    ) -> CommonGreeting {
        let since_ms = clock::now_ms();
        loop {
            let changed = self.changed.listen();
            let view = service.snapshot_owned();
            for server in self.servers_to_query(&view) {
                query_greeting(worker, service, &server, shared);
            }
            let waited_ms = clock::now_ms().saturating_sub(since_ms);
            if let Some(least) = self.known(&view, waited_ms >= PATIENCE_MS) {
                return least;
            }
            let _ = timers::timeout(Duration::from_millis(AGAIN_MS / 5), changed).await;
        }
    }

    /// Returns the servers to query: new ones, and those without a greeting for `AGAIN_MS`.
    fn servers_to_query(&self, view: &ServiceSnapshot) -> Vec<Arc<Server>> {
        let now_ms = clock::now_ms();
        let mut states = self.lock();
        let due = view.servers.iter().filter(|server| {
            let next = match states.get(&server.id) {
                None => GreetingState::Querying,
                Some(GreetingState::Unavailable(since_ms))
                    if now_ms.saturating_sub(*since_ms) >= AGAIN_MS =>
                {
                    GreetingState::QueryingAgain
                }
                Some(_) => return false,
            };
            states.insert(server.id, next);
            true
        });
        due.cloned().collect()
    }

    /// Returns the common greeting; `None` if a server's greeting must be awaited.
    fn known(&self, view: &ServiceSnapshot, is_impatient: bool) -> Option<CommonGreeting> {
        let states = self.lock();
        let of_view = || view.servers.iter().map(|server| states.get(&server.id));
        let is_unseen =
            |one: Option<&GreetingState>| matches!(one, None | Some(GreetingState::Querying));
        if !is_impatient && of_view().any(is_unseen) {
            return None;
        }
        let primary = view.database().and_then(|database| database.primary);
        let first = primary.and_then(|index| of_view().nth(index).flatten());
        // The primary determines the properties that have no common minimum.
        let greetings = first.into_iter().chain(of_view().flatten());
        least(greetings.filter_map(|one| match one {
            GreetingState::Known(face) => Some(&**face),
            _ => None,
        }))
    }

    /// Returns the lexer modes for clients that have changed no setting; `None` if no server has
    /// sent a greeting yet.
    pub(super) fn modes(&self, view: &ServiceSnapshot) -> Option<LexerModes> {
        let version = self.known(view, true)?.version;
        Some(LexerModes {
            mariadb: version.mariadb,
            version: version.number(),
            ..LexerModes::default()
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, GreetingState>> {
        lock(&self.states)
    }
}

fn least<'a>(mut greetings: impl Iterator<Item = &'a ServerGreeting>) -> Option<CommonGreeting> {
    let first = greetings.next()?;
    let mut least = CommonGreeting {
        version: Arc::clone(&first.version),
        capabilities: first.capabilities,
        collation: first.collation,
        status: first.status,
        plugin: first.plugin,
    };
    for face in greetings {
        least.capabilities = least.capabilities.both(face.capabilities);
        let is_same_kind = face.version.mariadb == least.version.mariadb;
        if is_same_kind && face.version.numbers < least.version.numbers {
            least.version = Arc::clone(&face.version);
        }
    }
    Some(least)
}

impl CommonGreeting {
    /// Returns whether the servers prove their certificates: MariaDB from 11.4 on
    /// ("Zero-Configuration SSL").
    pub(super) fn proves_certificates(&self) -> bool {
        self.version.mariadb && self.version.number() >= 110_400
    }

    /// Returns the capabilities offered to a client.
    pub(super) fn offered(&self, with_tls: bool) -> Capabilities {
        let spoken = self.capabilities.both(Capabilities::SPOKEN);
        let offered = spoken.without(NEVER).with(BASE);
        match with_tls {
            true => offered.with(Capabilities::SSL),
            false => offered,
        }
    }

    pub(super) fn write(
        &self,
        (offered, connection): (Capabilities, u32),
        nonce: &Nonce,
        out: &mut Vec<u8>,
    ) {
        let fields = GreetingFields {
            version: &self.version.text,
            connection,
            capabilities: offered,
            collation: self.collation,
            // Client libraries escape the strings of their first statement according to this
            // status.
            status: self.status,
            nonce: nonce.bytes(),
            plugin: self.plugin,
        };
        build::greeting(out, &fields);
    }
}

/// Queries a server's greeting and disconnects. The server counts this as a client error, so it is
/// done only once per server. Every later login yields the greeting too, and clears the count.
fn query_greeting(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    server: &Arc<Server>,
    shared: &Arc<MysqlService>,
) {
    let (task_worker, shared) = (Rc::clone(worker), Arc::clone(shared));
    let (service, server) = (Arc::clone(service), Arc::clone(server));
    worker.spawn(async move {
        let greetings = &shared.logins.greetings;
        match server_login::greeted(&task_worker, &service, &server).await {
            Ok(face) => greetings.record(server.id, face),
            Err(error) => {
                let why = error.message;
                tracing::debug!(server = %server.name, why, "server sent no handshake");
                greetings.mark_unavailable(server.id);
            }
        }
    });
}
