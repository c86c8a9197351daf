//! Defines the protocols of services, and the values of the configuration that depend on them.

pub use evenkeel_wire::SqlProtocol;

use super::{Algorithm, DatabasePlan, Probe};

/// Protocol of a service, with the settings that only this protocol has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// None: bytes are relayed unchanged.
    Tcp,
    /// Protocol of a database: sessions are parsed, and servers have roles.
    Sql(Box<DatabasePlan>),
}

impl Protocol {
    /// Words in the file.
    pub const NAMES: [&str; 3] = ["tcp", "postgres", "mysql"];

    /// Returns a database protocol with default settings.
    pub fn sql(protocol: SqlProtocol) -> Protocol {
        Protocol::Sql(Box::new(DatabasePlan::new(protocol)))
    }

    /// Returns the protocol of a word in the file, with default settings.
    pub fn named(word: &str) -> Option<Protocol> {
        match word {
            "tcp" => Some(Protocol::Tcp),
            "postgres" => Some(Protocol::sql(SqlProtocol::Postgres)),
            "mysql" => Some(Protocol::sql(SqlProtocol::Mysql)),
            _ => None,
        }
    }

    /// Returns the protocol of a URL's scheme. Schemes have further names.
    pub fn of_scheme(scheme: &str) -> Option<Protocol> {
        match scheme {
            "postgresql" => Protocol::named("postgres"),
            "mariadb" => Protocol::named("mysql"),
            name => Protocol::named(name),
        }
    }

    /// Returns the settings of a database protocol. `None` for other protocols.
    pub fn database(&self) -> Option<&DatabasePlan> {
        match self {
            Protocol::Sql(database) => Some(database),
            Protocol::Tcp => None,
        }
    }

    /// Returns the settings of a database protocol. `None` for other protocols.
    pub fn database_mut(&mut self) -> Option<&mut DatabasePlan> {
        match self {
            Protocol::Sql(database) => Some(database),
            Protocol::Tcp => None,
        }
    }

    /// Returns the algorithm of services that name none.
    pub fn default_balance(&self) -> Algorithm {
        match self {
            Protocol::Tcp => Algorithm::RoundRobin,
            Protocol::Sql(_) => Algorithm::LeastConnections,
        }
    }

    /// Returns the idle limit of sessions, in milliseconds; zero: none.
    pub fn default_idle_timeout_ms(&self) -> u64 {
        match self {
            Protocol::Tcp => 28_800_000,
            // Pools of applications may be idle for days, and an idle session needs few resources.
            Protocol::Sql(_) => 0,
        }
    }

    /// Returns whether a service uses the servers of one role, which its key `role` names.
    pub fn has_role_key(&self) -> bool {
        match self {
            Protocol::Tcp => true,
            Protocol::Sql(_) => false,
        }
    }

    /// Returns the word in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Sql(database) => database.protocol.name(),
        }
    }
}

/// Returns the probe that logs in with a database protocol.
pub fn probe_of(protocol: SqlProtocol) -> Probe {
    match protocol {
        SqlProtocol::Postgres => Probe::Postgres(Default::default()),
        SqlProtocol::Mysql => Probe::Mysql(Default::default()),
    }
}
