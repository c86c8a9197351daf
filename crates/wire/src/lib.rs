//! Implements the wire protocols: pure codecs between bytes and borrowed frames, without socket,
//! clock, log or randomness.
#![forbid(unsafe_code)]
// No input of a peer may cause a panic here. Tests may panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod cursor;
pub mod gtid;
pub mod http;
pub mod http2;
mod login_step;
pub mod lsn;
pub mod mysql;
pub mod postgres;
pub mod proxy_header;
mod reply_queue;
mod scan_step;
pub mod stream_editor;
pub mod tls_hello;
mod unproved_password;

pub use login_step::{Authenticated, Credential, LoginStep};
pub use scan_step::ScanStep;
pub use unproved_password::UnprovedPassword;

/// Protocol of a service: the one list of protocols, from the configuration to the sessions. `D` is
/// what belongs to database protocols only, such as their settings, or the state of their sessions;
/// `H` is what belongs to HTTP only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol<D, H> {
    /// None: bytes are relayed unchanged.
    Tcp,
    /// HTTP/1.1: requests are parsed, and each may go to another server.
    Http(H),
    /// Protocol of a database: sessions are parsed, and servers have roles.
    Sql(D),
}

impl<D, H> Protocol<D, H> {
    /// Returns what belongs to a database protocol. `None` for other protocols.
    pub fn database(&self) -> Option<&D> {
        match self {
            Protocol::Sql(database) => Some(database),
            Protocol::Tcp | Protocol::Http(_) => None,
        }
    }

    /// Returns what belongs to a database protocol. `None` for other protocols.
    pub fn database_mut(&mut self) -> Option<&mut D> {
        match self {
            Protocol::Sql(database) => Some(database),
            Protocol::Tcp | Protocol::Http(_) => None,
        }
    }

    /// Returns what belongs to HTTP. `None` for other protocols.
    pub fn http(&self) -> Option<&H> {
        match self {
            Protocol::Http(http) => Some(http),
            Protocol::Tcp | Protocol::Sql(_) => None,
        }
    }

    /// Returns what belongs to HTTP. `None` for other protocols.
    pub fn http_mut(&mut self) -> Option<&mut H> {
        match self {
            Protocol::Http(http) => Some(http),
            Protocol::Tcp | Protocol::Sql(_) => None,
        }
    }

    /// Returns the same protocol with converted values.
    pub fn map<E, G>(
        &self,
        database: impl FnOnce(&D) -> E,
        http: impl FnOnce(&H) -> G,
    ) -> Protocol<E, G> {
        match self {
            Protocol::Tcp => Protocol::Tcp,
            Protocol::Http(value) => Protocol::Http(http(value)),
            Protocol::Sql(value) => Protocol::Sql(database(value)),
        }
    }
}

/// Protocol of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlProtocol {
    /// PostgreSQL's protocol 3.
    Postgres,
    /// Protocol of MySQL and MariaDB.
    Mysql,
}

impl SqlProtocol {
    /// Returns the protocol of a name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = [SqlProtocol::Postgres, SqlProtocol::Mysql].into_iter();
        all.find(|protocol| protocol.name() == name)
    }

    /// Returns whether a server connection remains in the database that its login named. MySQL's
    /// change it at any time.
    pub const fn fixes_database(self) -> bool {
        match self {
            SqlProtocol::Postgres => true,
            SqlProtocol::Mysql => false,
        }
    }

    /// Returns the word in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            SqlProtocol::Postgres => "postgres",
            SqlProtocol::Mysql => "mysql",
        }
    }

    /// Returns the name for messages.
    pub const fn in_words(self) -> &'static str {
        match self {
            SqlProtocol::Postgres => "PostgreSQL",
            SqlProtocol::Mysql => "MySQL",
        }
    }
}
