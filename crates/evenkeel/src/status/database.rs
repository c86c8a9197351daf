//! Status of a database service: its pools, users, statements and clients.

use serde::{Deserialize, Serialize};

use super::Histogram;

/// Part of a service's status that only database services have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatabaseStatus {
    /// Pool mode: `transaction` or `session`.
    pub pool_mode: String,
    /// Most server connections in one pool.
    pub pool_size: u64,
    /// Number of idle connections that a pool in use keeps.
    pub pool_min_idle: u64,
    /// Pools, one for each user, database and server.
    pub pools: Vec<PoolStatus>,
    /// Usage of each user in each database since the start.
    pub users: Vec<UsageStatus>,
    /// Digests with the highest total time, in descending order. All are available separately.
    pub digests: Vec<DigestStatus>,
    /// Most digests that are counted separately. 0: none.
    pub digests_max: u64,
    /// Number of clients in each state, in the order of a session's states.
    pub clients: Vec<CountStatus>,
    /// Number of clients pinned to their server connection, by reason. Reasons without clients are
    /// left out.
    pub pins: Vec<CountStatus>,
    /// Statements that have pinned clients to a server connection since the start, by frequency. At
    /// most ten.
    pub pin_causes: Vec<PinCauseStatus>,
    /// Information that Evenkeel's account may not read on the servers, and how to fix that.
    pub problems: Vec<String>,
    /// Statement rules, in order.
    pub rules: Vec<RuleStatus>,
    /// True if every database is paused.
    pub all_paused: bool,
    /// Paused databases.
    pub paused: Vec<String>,
    /// Number of clients that wait for a primary.
    pub waiting_for_primary: u64,
    /// Queries and batches completed.
    pub queries_total: u64,
    /// Transactions completed.
    pub transactions_total: u64,
    /// Queries and batches completed on replicas.
    pub on_replicas_total: u64,
    /// Queries and batches retried on another server after a server had failed or refused them.
    pub retried_total: u64,
    /// Clients that timed out while waiting for a server connection.
    pub wait_timeouts_total: u64,
    /// Transactions lost because their server failed.
    pub lost_transactions_total: u64,
    /// Failed logins.
    pub failed_logins_total: u64,
    /// Wait times for a server connection, in microseconds.
    pub wait_us: Histogram,
    /// Times from a query's first byte to the end of its response, in microseconds.
    pub query_us: Histogram,
    /// Durations of transactions, in microseconds.
    pub transaction_us: Histogram,
}

/// One pool of server connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    /// User, as clients log in.
    pub user: String,
    /// Database.
    pub database: String,
    /// Name of the server.
    pub server: String,
    /// Number of connections, including those being opened or closed.
    pub connections: u64,
    /// Number of idle connections.
    pub idle: u64,
    /// Number of connections being opened.
    pub opening: u64,
    /// Number of clients that wait for a connection.
    pub waiting: u64,
    /// Wait time of the client that has waited longest.
    pub longest_wait_ms: u64,
}

/// Usage of a user in a database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageStatus {
    /// User.
    pub user: String,
    /// Database.
    pub database: String,
    /// Executed statements.
    #[serde(flatten)]
    pub work: WorkStatus,
    /// Transactions completed.
    pub transactions_total: u64,
    /// Bytes received from clients.
    pub from_clients: u64,
    /// Bytes sent to clients.
    pub to_clients: u64,
}

/// A statement that pinned clients to a server connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinCauseStatus {
    /// Reason for the pin.
    pub reason: String,
    /// Setting, function, table or other object that pins. Empty: the statement shows it.
    pub object: String,
    /// Statement without its literals. Empty: the login, or a text that was not analyzed.
    pub statement: String,
    /// Number of clients pinned since the start. `None` in the list of one client's causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_total: Option<u64>,
}

impl PinCauseStatus {
    /// Returns the statement, or a description of what stands for it.
    pub fn text(&self) -> &str {
        match self.statement.is_empty() {
            true => "the login or a text that was not read",
            false => &self.statement,
        }
    }

    /// Returns the reason, with the object in parentheses.
    pub fn described(&self) -> String {
        match self.object.is_empty() {
            true => self.reason.clone(),
            false => format!("{} ({})", self.reason, self.object),
        }
    }
}

/// A statement rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleStatus {
    /// Name of the rule.
    pub name: String,
    /// True if the rule is applied. An inactive rule only counts.
    pub active: bool,
    /// Description of the rule's action.
    pub action: String,
    /// Number of statements that the rule matched, of those that no earlier active rule matched.
    pub hits_total: u64,
}

/// Executed statements of a user, on a server, or of a digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkStatus {
    /// Queries and batches.
    pub queries_total: u64,
    /// Failed queries and batches.
    pub errors_total: u64,
    /// Rows that servers returned.
    pub rows_sent_total: u64,
    /// Rows changed.
    pub rows_affected_total: u64,
    /// Server time used, in microseconds.
    pub busy_us_total: u64,
    /// 95th percentile of the duration in microseconds, estimated from a histogram.
    pub p95_us: u64,
}

impl WorkStatus {
    /// Returns the mean duration of a query, in microseconds.
    pub fn mean_us(&self) -> u64 {
        self.busy_us_total
            .checked_div(self.queries_total)
            .unwrap_or(0)
    }
}

/// Statements that differ only in their literals (`GET /api/v1/services/{name}/digests`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DigestStatus {
    /// Digest with 16 hexadecimal digits. `other` combines the statements beyond `digests_max`.
    pub digest: String,
    /// Text without literals.
    pub statement: String,
    /// Executed statements.
    #[serde(flatten)]
    pub work: WorkStatus,
    /// Executions on replicas.
    pub on_replicas_total: u64,
    /// Time of the first execution.
    pub first_seen_unix_ms: u64,
    /// Time of the last execution.
    pub last_seen_unix_ms: u64,
}

/// A count with its label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CountStatus {
    /// Label.
    pub what: String,
    /// Count.
    pub count: u64,
}

/// The clients and server connections of a service (`GET /api/v1/services/{name}/clients`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Name of the service.
    pub service: String,
    /// Clients, oldest first. Clients that are still logging in are not included.
    pub clients: Vec<ClientStatus>,
    /// Idle server connections. The others are listed with their clients.
    pub idle: Vec<IdleStatus>,
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStatus {
    /// Id, unique for the lifetime of the process.
    pub id: u64,
    /// User.
    pub user: String,
    /// Database.
    pub database: String,
    /// Address of the client. `unix` for a Unix socket.
    pub peer: String,
    /// Name of the client's program (`application_name`, `program_name`). Empty if it gives none.
    pub application: String,
    /// State of the client.
    pub state: String,
    /// Time since the client connected.
    pub age_ms: u64,
    /// Time in this state.
    pub state_for_ms: u64,
    /// Server whose connection the client uses.
    pub server: Option<String>,
    /// Process id on the server, as in `pg_stat_activity` or SHOW PROCESSLIST.
    pub server_pid: Option<u32>,
    /// Reasons that pin the client to its server connection.
    pub pins: Vec<String>,
    /// Statements that pinned the client, the first one first. Empty for pins that end with the
    /// transaction or the next statement.
    pub pinned_by: Vec<PinCauseStatus>,
    /// Bytes received from the client.
    pub from_client: u64,
    /// Bytes sent to the client.
    pub to_client: u64,
}

impl ClientStatus {
    /// Lists the pins, each with the setting or object that holds it.
    pub fn pin_names(&self) -> String {
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
    /// User, as clients log in.
    pub user: String,
    /// Database.
    pub database: String,
    /// Name of the server.
    pub server: String,
    /// Process id on the server, as in `pg_stat_activity` or SHOW PROCESSLIST.
    pub server_pid: Option<u32>,
    /// Time since the connection was opened.
    pub age_ms: u64,
}
