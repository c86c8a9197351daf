//! Defines the protocols of services.

use super::DatabasePlan;

/// Protocol of a service, with the settings that only this protocol has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// None: bytes are relayed unchanged.
    Tcp,
    /// Protocol of a database: sessions are parsed, and servers have roles.
    Sql(Box<DatabasePlan>),
}

impl Protocol {
    /// Returns a database protocol with default settings.
    pub fn sql(protocol: SqlProtocol) -> Protocol {
        Protocol::Sql(Box::new(DatabasePlan::new(protocol)))
    }

    /// Returns the word in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Sql(database) => database.protocol.name(),
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
    /// Returns the word in the file.
    pub fn name(self) -> &'static str {
        match self {
            SqlProtocol::Postgres => "postgres",
            SqlProtocol::Mysql => "mysql",
        }
    }

    /// Returns the name for messages.
    pub fn in_words(self) -> &'static str {
        match self {
            SqlProtocol::Postgres => "PostgreSQL",
            SqlProtocol::Mysql => "MySQL",
        }
    }
}
