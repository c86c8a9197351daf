//! How the servers greet, and the least of it, with which clients are greeted: what one server
//! cannot do is offered to nobody, for a session may come to any of them.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::greeting::Greeting;
use evenkeel_wire::mysql::password::{self, Nonce};
use evenkeel_wire::mysql::{build, build::GreetingFields};
use evenkeel_wire::sql::mysql::LexerModes;
use tokio::sync::Notify;

use super::server_login;
use super::shared::PostgresService;
use crate::clock;
use crate::engine::worker::Worker;
use crate::server::Server;
use crate::service::{Service, ServiceSnapshot};

#[cfg(test)]
mod tests;

/// A server that did not greet is looked at again after this.
const AGAIN_MS: u64 = 500;

/// How long a client waits for the greeting of servers that were never seen, if there are others.
const PATIENCE_MS: u64 = 300;

/// What every server of 5.7 or 10.2 and later can do, and what we need or do ourselves.
const BASE: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::CONNECT_ATTRS);

/// Never offered. Metadata that is sent once only would be missing for whoever comes to the
/// connection next; the rest is between a client and one server alone.
const NEVER: Capabilities = Capabilities::SSL
    .with(Capabilities::COMPRESS)
    .with(Capabilities::ZSTD)
    .with(Capabilities::OPTIONAL_METADATA)
    .with(Capabilities::MULTI_FACTOR)
    .with(Capabilities::EXPIRED_PASSWORDS)
    .with(Capabilities::CACHE_METADATA)
    .with(Capabilities::PROGRESS)
    .with(Capabilities::COM_MULTI);

/// What a server calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// As it greets.
    pub(crate) text: Box<[u8]>,
    pub(crate) mariadb: bool,
    pub(crate) numbers: (u32, u32, u32),
}

/// How one server greets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerGreeting {
    pub(crate) version: Arc<Version>,
    pub(crate) capabilities: Capabilities,
    pub(crate) collation: u8,
    /// Outside of a transaction.
    pub(crate) status: Status,
    /// The plugin that it begins with, if it is one that we can begin with.
    pub(crate) plugin: &'static [u8],
}

/// How the servers of a service greet.
#[derive(Debug, Default)]
pub(crate) struct ServerGreetings {
    seen: Mutex<HashMap<u64, GreetingState>>,
    changed: Notify,
}

#[derive(Debug, Clone)]
enum GreetingState {
    Face(Arc<ServerGreeting>),
    /// For the first time.
    Looking,
    /// It did not greet, at this moment.
    Away(u64),
    /// It did not greet, and is looked at again.
    LookingAgain,
}

/// What clients are greeted with.
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
        // MariaDB up to 10.11 stands behind the version that its first clients knew.
        let own = text.strip_prefix(b"5.5.5-").unwrap_or(text);
        let words = String::from_utf8_lossy(own);
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

    /// As in comments that are meant for some versions: 80403, 101119.
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
    /// A server has greeted.
    pub(super) fn learn(&self, server_id: u64, face: ServerGreeting) {
        let mut seen = self.lock();
        if matches!(seen.get(&server_id), Some(GreetingState::Face(known)) if **known == face) {
            return;
        }
        seen.insert(server_id, GreetingState::Face(Arc::new(face)));
        drop(seen);
        self.changed.notify_waiters();
    }

    /// It has not.
    fn is_away(&self, server_id: u64) {
        let mut seen = self.lock();
        if !matches!(seen.get(&server_id), Some(GreetingState::Face(_))) {
            seen.insert(server_id, GreetingState::Away(clock::now_ms()));
        }
        drop(seen);
        self.changed.notify_waiters();
    }

    /// What to greet a client with, as soon as it is known; the caller limits the time.
    pub(super) async fn least(
        &self,
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        shared: &Arc<PostgresService>,
    ) -> CommonGreeting {
        let since_ms = clock::now_ms();
        loop {
            let changed = self.changed.notified();
            let view = service.view_owned();
            for server in self.to_look_at(&view) {
                look_at(worker, service, &server, shared);
            }
            let waited_ms = clock::now_ms().saturating_sub(since_ms);
            if let Some(least) = self.known(&view, waited_ms >= PATIENCE_MS) {
                return least;
            }
            let _ = compio::time::timeout(Duration::from_millis(AGAIN_MS / 5), changed).await;
        }
    }

    /// The servers that nobody has seen, or not for a while.
    fn to_look_at(&self, view: &ServiceSnapshot) -> Vec<Arc<Server>> {
        let now_ms = clock::now_ms();
        let mut seen = self.lock();
        let due = view.servers.iter().filter(|server| {
            let next = match seen.get(&server.id) {
                None => GreetingState::Looking,
                Some(GreetingState::Away(since_ms))
                    if now_ms.saturating_sub(*since_ms) >= AGAIN_MS =>
                {
                    GreetingState::LookingAgain
                }
                Some(_) => return false,
            };
            seen.insert(server.id, next);
            true
        });
        due.cloned().collect()
    }

    /// `None`: wait, for a server that is being looked at, or for any.
    fn known(&self, view: &ServiceSnapshot, is_impatient: bool) -> Option<CommonGreeting> {
        let seen = self.lock();
        let of_view = || view.servers.iter().map(|server| seen.get(&server.id));
        let is_unseen =
            |one: Option<&GreetingState>| matches!(one, None | Some(GreetingState::Looking));
        if !is_impatient && of_view().any(is_unseen) {
            return None;
        }
        let primary = view.database.as_ref().and_then(|own| own.primary);
        let first = primary.and_then(|index| of_view().nth(index).flatten());
        // The primary decides about what is no matter of less or more.
        let faces = first.into_iter().chain(of_view().flatten());
        least(faces.filter_map(|one| match one {
            GreetingState::Face(face) => Some(&**face),
            _ => None,
        }))
    }

    /// How texts of clients are read that have set nothing; `None`: no server has greeted yet.
    pub(super) fn modes(&self, view: &ServiceSnapshot) -> Option<LexerModes> {
        let version = self.known(view, true)?.version;
        Some(LexerModes {
            mariadb: version.mariadb,
            version: version.number(),
            ..LexerModes::default()
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, GreetingState>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn least<'a>(mut faces: impl Iterator<Item = &'a ServerGreeting>) -> Option<CommonGreeting> {
    let first = faces.next()?;
    let mut least = CommonGreeting {
        version: Arc::clone(&first.version),
        capabilities: first.capabilities,
        collation: first.collation,
        status: first.status,
        plugin: first.plugin,
    };
    for face in faces {
        least.capabilities = least.capabilities.both(face.capabilities);
        let is_same_kind = face.version.mariadb == least.version.mariadb;
        if is_same_kind && face.version.numbers < least.version.numbers {
            least.version = Arc::clone(&face.version);
        }
    }
    Some(least)
}

impl CommonGreeting {
    /// MariaDB from 11.4 on ("Zero-Configuration SSL").
    pub(super) fn proves_certificates(&self) -> bool {
        self.version.mariadb && self.version.number() >= 110_400
    }

    /// What a client is offered.
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
            // Client libraries write the strings of their first statement as it says.
            status: self.status,
            nonce: nonce.bytes(),
            plugin: self.plugin,
        };
        build::greeting(out, &fields);
    }
}

/// Reads a server's greeting and closes. The server counts a client that gave up; so this is done
/// once for each server, and every login at it that follows tells the same, and clears the count.
fn look_at(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    server: &Arc<Server>,
    shared: &Arc<PostgresService>,
) {
    let (home, shared) = (Rc::clone(worker), Arc::clone(shared));
    let (service, server) = (Arc::clone(service), Arc::clone(server));
    worker.spawn(async move {
        let faces = &shared.logins.faces;
        match server_login::greeted(&home, &service, &server).await {
            Ok(face) => faces.learn(server.id, face),
            Err(error) => {
                let why = error.message;
                tracing::debug!(server = %server.name, why, "server sent no handshake");
                faces.is_away(server.id);
            }
        }
    });
}
