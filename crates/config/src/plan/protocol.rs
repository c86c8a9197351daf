//! Describes the protocols of services in one table.

pub use evenkeel_wire::SqlProtocol;

use super::{Algorithm, DatabasePlan, HttpPlan, Probe};

/// Protocol of a service, with the settings that only this protocol has.
pub type Protocol = evenkeel_wire::Protocol<Box<DatabasePlan>, Box<HttpPlan>>;

/// Properties of a protocol: a row of the table.
#[derive(Debug)]
pub struct ProtocolInfo {
    /// Word in the file, and scheme of URLs.
    pub name: &'static str,
    /// Further schemes of URLs.
    pub(crate) schemes: &'static [&'static str],
    /// Port of servers, where an address has none.
    pub port: Option<u16>,
    /// Returns the protocol with default settings.
    pub(crate) new: fn() -> Protocol,
    /// Returns the probe that uses the protocol.
    pub(crate) probe: fn() -> Probe,
    /// Algorithm of services that name none.
    pub balance: Algorithm,
    /// Idle limit of sessions, in milliseconds; zero: none.
    pub idle_timeout_ms: u64,
    /// Use of server connections.
    pub connections: ServerConnections,
}

/// Words of the protocols of databases.
pub(crate) const SQL: &[&str] = &[POSTGRES.name, MYSQL.name];

/// Use of server connections, on which the keys of a service depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerConnections {
    /// Each client has its own. Keys set the choice of its server.
    PerClient,
    /// Requests of all clients share them. Keys set routes, pools and limits of requests.
    PerRequest,
    /// Clients share them. Keys set logins, pools and the routing of statements.
    Pooled,
}

const TCP: ProtocolInfo = ProtocolInfo {
    name: "tcp",
    schemes: &[],
    port: None,
    new: || Protocol::Tcp,
    probe: || Probe::Tcp(Default::default()),
    balance: Algorithm::RoundRobin,
    idle_timeout_ms: 28_800_000,
    connections: ServerConnections::PerClient,
};

const HTTP: ProtocolInfo = ProtocolInfo {
    name: "http",
    port: Some(80),
    new: || Protocol::Http(Box::default()),
    // Requests of one client go to different servers, and differ in their cost.
    balance: Algorithm::LeastConnections,
    idle_timeout_ms: 0,
    connections: ServerConnections::PerRequest,
    ..TCP
};

const POSTGRES: ProtocolInfo = ProtocolInfo {
    name: SqlProtocol::Postgres.name(),
    schemes: &["postgresql"],
    port: Some(5432),
    new: || Protocol::Sql(Box::new(DatabasePlan::new(SqlProtocol::Postgres))),
    probe: || Probe::Postgres(Default::default()),
    balance: Algorithm::LeastConnections,
    // Pools of applications may be idle for days, and an idle session needs few resources.
    idle_timeout_ms: 0,
    connections: ServerConnections::Pooled,
};

const MYSQL: ProtocolInfo = ProtocolInfo {
    name: SqlProtocol::Mysql.name(),
    schemes: &["mariadb"],
    port: Some(3306),
    new: || Protocol::Sql(Box::new(DatabasePlan::new(SqlProtocol::Mysql))),
    probe: || Probe::Mysql(Default::default()),
    ..POSTGRES
};

/// Generates the list of all rows, and the function that finds a protocol's row.
macro_rules! protocols {
    ($($protocol:pat => $info:ident,)+) => {
        /// Words in the file.
        pub(crate) const PROTOCOL_NAMES: &[&str] = &[$($info.name),+];

        const ALL: &[&ProtocolInfo] = &[$(&$info),+];

        fn info_of(protocol: evenkeel_wire::Protocol<SqlProtocol, ()>) -> &'static ProtocolInfo {
            use evenkeel_wire::Protocol;
            match protocol {
                $($protocol => &$info,)+
            }
        }
    };
}

protocols! {
    Protocol::Tcp => TCP,
    Protocol::Http(()) => HTTP,
    Protocol::Sql(SqlProtocol::Postgres) => POSTGRES,
    Protocol::Sql(SqlProtocol::Mysql) => MYSQL,
}

impl ProtocolInfo {
    /// Returns the properties of a protocol.
    pub fn of(protocol: &Protocol) -> &'static ProtocolInfo {
        info_of(protocol.map(|database| database.protocol, |_| ()))
    }

    /// Returns the protocol of a word in the file.
    pub fn named(word: &str) -> Option<&'static ProtocolInfo> {
        ALL.iter().copied().find(|info| info.name == word)
    }

    /// Returns the protocol of a URL's scheme.
    pub(crate) fn of_scheme(scheme: &str) -> Option<&'static ProtocolInfo> {
        let is_meant = |info: &&ProtocolInfo| info.name == scheme || info.schemes.contains(&scheme);
        ALL.iter().copied().find(is_meant)
    }

    /// Returns the probe of services that name none: that of the protocol, if it needs no account
    /// or there is one.
    pub(crate) fn default_probe(&self, has_account: bool) -> Probe {
        let probe = (self.probe)();
        match has_account || probe.sql_protocol().is_none() {
            true => probe,
            false => (TCP.probe)(),
        }
    }
}
