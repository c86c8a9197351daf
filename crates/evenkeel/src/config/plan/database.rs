//! What only a service has that speaks a database's protocol.

use super::{AuthPlan, FailoverPlan, PoolPlan, RulePlan, SplitPlan, TlsPlan};

/// The part of a service that speaks a database's protocol; services of plain TCP have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabasePlan {
    /// Limits of a session's parts.
    pub times: TimesPlan,
    /// Clients that may be at their login at once, 1 to 1 000 000; more wait. Default 1 000.
    pub logins_at_once: u32,
    /// Of these, from one address. Default 100.
    pub logins_per_address: u32,
    /// Different statements that are counted apart, up to 100 000; 0 = none. Default 1 000.
    pub digests_max: u32,
    /// The connections to servers, and who gets one.
    pub pool: PoolPlan,
    /// Which reads go to replicas.
    pub split: SplitPlan,
    /// What an operator wants done with some statements, in order.
    pub rules: Vec<RulePlan>,
    /// What happens while there is no primary.
    pub failover: FailoverPlan,
    /// Who may log in, and how that is known.
    pub auth: AuthPlan,
    /// TLS towards clients. `None`: plaintext only.
    pub tls: Option<TlsPlan>,
}

impl Default for DatabasePlan {
    fn default() -> DatabasePlan {
        DatabasePlan {
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

/// Limits of time, keys of the service itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimesPlan {
    /// From a query's first byte to the end of its result, up to a week. Default 0 = no limit.
    pub query_timeout_ms: u64,
    /// A transaction from its beginning to its end, up to a week. Default 0 = no limit.
    pub transaction_timeout_ms: u64,
    /// A client that says nothing in an open transaction, up to a week. Default 0 = no limit.
    pub idle_in_transaction_timeout_ms: u64,
    /// A login from the first byte to its end, 1 ms to 10 minutes. Default 10 000.
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
