//! What a service that speaks a database's protocol says of its pools, its users and its clients.

use serde::{Deserialize, Serialize};

use super::Histogram;

/// The part of a service's status that only those have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatabaseStatus {
    /// `transaction` or `session`.
    pub pool_mode: String,
    /// At most so many server connections in a pool.
    pub pool_size: u64,
    /// Idle connections that a pool in use keeps.
    pub pool_min_idle: u64,
    /// One for each user in a database at a server.
    pub pools: Vec<PoolStatus>,
    /// What each user did in each database since the start.
    pub users: Vec<UsageStatus>,
    /// The statements that took most time, that first; all of them are asked for apart.
    pub digests: Vec<DigestStatus>,
    /// Different statements that are counted apart, at most; 0: none are.
    pub digests_max: u64,
    /// What clients do now: one entry for each word, in the order of their lives.
    pub clients: Vec<CountStatus>,
    /// How many clients are bound to their server connection, by reason; reasons without any are
    /// left out.
    pub pins: Vec<CountStatus>,
    /// Statements that have pinned clients to a server connection since the start, the most
    /// frequent first; at most ten.
    pub pin_causes: Vec<PinCauseStatus>,
    /// What the servers do not let Evenkeel's account know, and what to do about it.
    pub problems: Vec<String>,
    /// The rules for statements, in order.
    pub rules: Vec<RuleStatus>,
    /// Every database is paused.
    pub all_paused: bool,
    /// Databases that are paused.
    pub paused: Vec<String>,
    /// Clients that wait for a primary.
    pub waiting_for_primary: u64,
    /// Queries and batches answered.
    pub queries_total: u64,
    /// Transactions ended.
    pub transactions_total: u64,
    /// Queries and batches that replicas have answered.
    pub on_replicas_total: u64,
    /// Queries and batches run again elsewhere after a server had failed or refused them.
    pub retried_total: u64,
    /// Clients that waited for a server connection in vain.
    pub wait_timeouts_total: u64,
    /// Transactions lost with their server.
    pub lost_transactions_total: u64,
    /// Logins that were refused.
    pub failed_logins_total: u64,
    /// Waits for a server connection, in microseconds.
    pub wait_us: Histogram,
    /// From a query's first byte to the end of its answer, in microseconds.
    pub query_us: Histogram,
    /// Transactions, in microseconds.
    pub transaction_us: Histogram,
}

/// One pool of server connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    /// The user, as clients call it.
    pub user: String,
    /// The database.
    pub database: String,
    /// The server's name.
    pub server: String,
    /// Connections, those that open and close among them.
    pub connections: u64,
    /// Of these, idle.
    pub idle: u64,
    /// Of these, opening.
    pub opening: u64,
    /// Clients that wait for one.
    pub waiting: u64,
    /// How long the first of them has waited.
    pub longest_wait_ms: u64,
}

/// What a user did in a database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageStatus {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// What was run for it.
    #[serde(flatten)]
    pub work: WorkStatus,
    /// Transactions.
    pub transactions_total: u64,
    /// Bytes from its clients.
    pub from_clients: u64,
    /// Bytes to them.
    pub to_clients: u64,
}

/// A statement that pinned clients to a server connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinCauseStatus {
    /// The reason.
    pub reason: String,
    /// The setting, function, table or other object that pins; empty: the statement names it.
    pub object: String,
    /// The statement without its literals; empty: the login, or a text that was not read.
    pub statement: String,
    /// How often it has pinned a client since the start; not given for one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_total: Option<u64>,
}

impl PinCauseStatus {
    /// The statement, or what stands for it.
    pub fn text(&self) -> &str {
        match self.statement.is_empty() {
            true => "the login or a text that was not read",
            false => &self.statement,
        }
    }

    /// The reason, with the object in brackets.
    pub fn described(&self) -> String {
        match self.object.is_empty() {
            true => self.reason.clone(),
            false => format!("{} ({})", self.reason, self.object),
        }
    }
}

/// A rule for statements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleStatus {
    /// Its name.
    pub name: String,
    /// One that is not active is counted, and does nothing.
    pub active: bool,
    /// What it does, in words.
    pub action: String,
    /// Statements that it fitted, of those that no active rule before it did.
    pub hits_total: u64,
}

/// What was run: for a user, at a server, of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkStatus {
    /// Queries and batches.
    pub queries_total: u64,
    /// Of these, failed.
    pub errors_total: u64,
    /// Rows that servers sent.
    pub rows_sent_total: u64,
    /// Rows that were changed.
    pub rows_affected_total: u64,
    /// Time in which a server worked for it, in microseconds.
    pub busy_us_total: u64,
    /// Of a hundred, 95 took no longer, in microseconds; read off a histogram.
    pub p95_us: u64,
}

impl WorkStatus {
    /// The mean time of a query, in microseconds.
    pub fn mean_us(&self) -> u64 {
        self.busy_us_total
            .checked_div(self.queries_total)
            .unwrap_or(0)
    }
}

/// Statements that differ in their literals only
/// (`GET /api/v1/services/{name}/digests`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DigestStatus {
    /// 16 hexadecimal digits; `other` is all for which there was no room.
    pub digest: String,
    /// The text without literals.
    pub statement: String,
    /// What was run.
    #[serde(flatten)]
    pub work: WorkStatus,
    /// How often on a replica.
    pub on_replicas_total: u64,
    /// When it was seen first.
    pub first_seen_unix_ms: u64,
    /// And last.
    pub last_seen_unix_ms: u64,
}

/// How many there are of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CountStatus {
    /// Of what.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// The clients and server connections of a service (`GET /api/v1/services/{name}/clients`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// The service.
    pub service: String,
    /// Its clients, the oldest first; those that are still logging in are not among them.
    pub clients: Vec<ClientStatus>,
    /// Its idle server connections; the others are those of clients.
    pub idle: Vec<IdleStatus>,
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStatus {
    /// Names it as long as the process lives.
    pub id: u64,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// Where it comes from; `unix` for a Unix socket.
    pub peer: String,
    /// What it does.
    pub state: String,
    /// How long it has been there.
    pub age_ms: u64,
    /// How long it has done that.
    pub state_for_ms: u64,
    /// The server whose connection it has.
    pub server: Option<String>,
    /// The process there, as `pg_stat_activity` or SHOW PROCESSLIST calls it.
    pub server_pid: Option<u32>,
    /// What binds it to that connection.
    pub pins: Vec<String>,
    /// Statements that did, the first one first; none for what ends with the transaction or the
    /// next statement.
    pub pinned_by: Vec<PinCauseStatus>,
    /// Bytes from it.
    pub from_client: u64,
    /// Bytes to it.
    pub to_client: u64,
}

impl ClientStatus {
    /// Lists the pins, each with the setting or object that holds it.
    pub fn bound_by(&self) -> String {
        let object = |pin: &String| {
            let mut causes = self.pinned_by.iter();
            let cause = causes.find(|cause| cause.reason.split(", ").any(|one| one == pin));
            cause.filter(|cause| !cause.object.is_empty())
        };
        let pins = self.pins.iter().map(|pin| match object(pin) {
            Some(cause) => format!("{pin} ({})", cause.object),
            None => pin.clone(),
        });
        let pins: Vec<_> = pins.collect();
        pins.join(", ")
    }
}

/// One idle server connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleStatus {
    /// The user, as clients call it.
    pub user: String,
    /// The database.
    pub database: String,
    /// The server.
    pub server: String,
    /// The process there, as `pg_stat_activity` or SHOW PROCESSLIST calls it.
    pub server_pid: Option<u32>,
    /// How long it has been open.
    pub age_ms: u64,
}
