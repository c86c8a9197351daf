//! Defines the settings of services with a database protocol.

use super::{AuthPlan, FailoverPlan, PoolPlan, RulePlan, SplitPlan, SqlProtocol, TlsPlan};

/// Settings of a service with a database protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabasePlan {
    /// Protocol of the database.
    pub protocol: SqlProtocol,
    /// Time limits of a session.
    pub times: TimesPlan,
    /// Concurrent logins, 1 to 1 000 000; further ones wait. Default 1 000.
    pub logins_at_once: u32,
    /// Concurrent logins from one address. Default 100.
    pub logins_per_address: u32,
    /// Maximum number of digests with separate statistics, up to 100 000; 0 = none. Default 1 000.
    pub digests_max: u32,
    /// Pools of server connections, and their limits.
    pub pool: PoolPlan,
    /// Distribution of reads to replicas.
    pub split: SplitPlan,
    /// Rules for statements, in order.
    pub rules: Vec<RulePlan>,
    /// Treatment of clients while there is no primary.
    pub failover: FailoverPlan,
    /// Permitted logins, and their credentials.
    pub auth: AuthPlan,
    /// TLS to clients. `None`: plaintext only.
    pub tls: Option<TlsPlan>,
}

impl DatabasePlan {
    /// Returns the default settings of a protocol.
    pub fn new(protocol: SqlProtocol) -> DatabasePlan {
        DatabasePlan {
            protocol,
            times: TimesPlan::default(),
            logins_at_once: 1_000,
            logins_per_address: 100,
            digests_max: 1_000,
            rules: Vec::new(),
            pool: PoolPlan::default(),
            split: SplitPlan::default(),
            failover: FailoverPlan::default(),
            auth: AuthPlan::default(),
            tls: None,
        }
    }
}

/// Time limits, from keys of the service itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimesPlan {
    /// Limit from a query's first byte to the end of its result, up to a week. Default 0 = no
    /// limit.
    pub query_timeout_ms: u64,
    /// Limit for a transaction, up to a week. Default 0 = no limit.
    pub transaction_timeout_ms: u64,
    /// Limit for silence in an open transaction, up to a week. Default 0 = no limit.
    pub idle_in_transaction_timeout_ms: u64,
    /// Limit for a login, from its first byte, 1 ms to 10 minutes. Default 10 000.
    pub login_timeout_ms: u64,
}

impl Default for TimesPlan {
    fn default() -> TimesPlan {
        TimesPlan {
            query_timeout_ms: 0,
            transaction_timeout_ms: 0,
            idle_in_transaction_timeout_ms: 0,
            login_timeout_ms: 10_000,
        }
    }
}
