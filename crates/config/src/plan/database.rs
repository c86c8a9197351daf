//! Defines the settings of services with a database protocol.

use super::protocol::SQL;
use super::{AuthPlan, FailoverPlan, PoolPlan, RulePlan, SplitPlan, SqlProtocol, TlsPlan};
use crate::setting::{TEN_MINUTES_MS, WEEK_MS, number, settings};

settings! {
    /// Settings of a service with a database protocol.
    pub struct DatabasePlan {
        /// Maximum concurrent logins; further ones wait, up to `login_timeout_ms`.
        logins_at_once: u32 = 1_000, number(1, 1_000_000) => SQL;
        /// Maximum concurrent logins from one client address; further ones wait. Unix sockets do
        /// not count.
        logins_per_address: u32 = 100, number(1, 1_000_000) => SQL;
        /// Statements with [statistics](operating.md#statements) of their own; 0 = none.
        digests_max: u32 = 1_000, number(0, 100_000) => SQL;
    } also {
        /// Protocol of the database.
        protocol: SqlProtocol = SqlProtocol::Postgres;
        /// Time limits of a session.
        times: TimesPlan = TimesPlan::default();
        /// Pools of server connections, and their limits.
        pool: PoolPlan = PoolPlan::default();
        /// Distribution of reads to replicas.
        split: SplitPlan = SplitPlan::default();
        /// Rules for statements, in order.
        rules: Vec<RulePlan> = Vec::new();
        /// Treatment of clients while there is no primary.
        failover: FailoverPlan = FailoverPlan::default();
        /// Permitted logins, and their credentials.
        auth: AuthPlan = AuthPlan::default();
        /// TLS to clients. `None`: plaintext only.
        tls: Option<TlsPlan> = None;
    }
}

impl DatabasePlan {
    /// Returns the default settings of a protocol.
    pub fn new(protocol: SqlProtocol) -> DatabasePlan {
        DatabasePlan {
            protocol,
            ..DatabasePlan::default()
        }
    }
}

settings! {
    /// Time limits, from keys of the service itself.
    pub struct TimesPlan {
        /// Cancels a query that takes longer; 0 = no limit.
        query_timeout_ms: u64 = 0, number(0, WEEK_MS) => SQL;
        /// Ends a transaction that takes longer, with an error; 0 = no limit.
        transaction_timeout_ms: u64 = 0, number(0, WEEK_MS) => SQL;
        /// Ends a transaction whose client is idle this long; 0 = no limit.
        idle_in_transaction_timeout_ms: u64 = 0, number(0, WEEK_MS) => SQL;
        /// Time within which a client must log in.
        login_timeout_ms: u64 = 10_000, number(1, TEN_MINUTES_MS) => SQL;
    }
}
