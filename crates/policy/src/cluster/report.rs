//! Defines the report of a database server about its role.

use super::gtid::Gtids;

/// One reply of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleReport {
    /// Time when the query was sent.
    pub queried_ms: u64,
    /// True if the connection was opened for this query: no earlier server at the same address can
    /// have replied.
    pub fresh: bool,
    /// Reported state.
    pub status: ReplicationState,
}

/// Reported state, by the kind of cluster that the server belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicationState {
    /// PostgreSQL, streaming replication.
    Postgres(Postgres),
    /// MySQL or MariaDB: asynchronous or semi-synchronous replication, or a single server.
    Replication(Replication),
    /// A Galera node.
    Galera(Galera),
    /// A member of MySQL Group Replication.
    Group(Group),
}

/// State of a PostgreSQL server (`pg_control_system`, `pg_control_checkpoint`,
/// `pg_is_in_recovery`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    /// Identity of the cluster, the same on a primary and all its physical replicas.
    pub system_id: u64,
    /// Start time as the server formats it (`pg_postmaster_start_time`): another server, or another
    /// run of the same server, has a different one.
    pub started: String,
    /// Current timeline; a promotion increases it.
    pub timeline: u32,
    /// True if the server replays WAL and takes no writes.
    pub in_recovery: bool,
    /// Insert position of a primary, replay position of a replica; bytes of WAL.
    pub lsn: u64,
    /// Replica: true if a WAL receiver is streaming.
    pub streaming: bool,
    /// Replica: age of the last replayed transaction, by the server's clock; `None` if it has
    /// replayed none. It grows while the primary is idle, and is then not the lag.
    pub replay_age_ms: Option<u64>,
    /// True if `default_transaction_read_only` is on.
    pub read_only_by_default: bool,
}

/// State of a MySQL or MariaDB server outside any group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// `server_uuid` of MySQL, or `server_id` of MariaDB as text: the identity, independent of the
    /// address.
    pub server_identity: String,
    /// True if `read_only` (or `super_read_only`) is on.
    pub read_only: bool,
    /// Every transaction that the server has executed, as a primary or as a replica.
    pub executed: Gtids,
    /// Transactions of `executed` that are visible to readers: a log may have a transaction a
    /// moment before the tables do.
    pub visible: Gtids,
    /// Replication state, if the server is set up as a replica; the worst channel of several.
    pub replica: Option<ReplicaThreads>,
}

/// Replication threads of a server (`SHOW REPLICA STATUS`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaThreads {
    /// Host and port of the source, as the server stores them.
    pub source: String,
    /// State of the receiver: connected, connecting, or stopped.
    pub receiver: Receiver,
    /// True if the applier runs.
    pub applier_runs: bool,
    /// Lag by the server's clock, or from the configured lag query; `None` is unknown.
    pub lag_ms: Option<u64>,
    /// Last error of either thread; empty if there is none.
    pub error: String,
}

/// State of a replica's receiver thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// Connected to its source.
    Connected,
    /// Connecting: its source is not available.
    Connecting,
    /// Stopped, by an operator or by an error.
    Stopped,
}

/// State of a Galera node (`wsrep_%`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Galera {
    /// `wsrep_gcomm_uuid`, which changes at each start; the server's own identity if there is none.
    pub server_identity: String,
    /// `wsrep_cluster_state_uuid`: identity of the data.
    pub cluster_uuid: String,
    /// True if `wsrep_cluster_status` is `Primary`: the node's part of the cluster has the quorum.
    pub in_primary_component: bool,
    /// `wsrep_local_state`.
    pub state: GaleraState,
    /// `wsrep_ready`.
    pub ready: bool,
    /// True if `wsrep_desync` is on, or `wsrep_reject_queries` is not NONE: an operator has set the
    /// node aside.
    pub set_aside: bool,
    /// True if `read_only` is on.
    pub read_only: bool,
    /// Number of write sets that were received and not applied yet.
    pub receive_queue: u64,
    /// True if one statement can make the node wait for all committed transactions of the cluster
    /// (MariaDB).
    pub causal: bool,
}

/// `wsrep_local_state`, numbers 1 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaleraState {
    /// 0 or 1: not a member yet, or requesting a state transfer.
    Joining,
    /// 2: sends the state to a joining node; lags and, with some methods, is blocked.
    Donor,
    /// 3: has the state, and is catching up.
    Joined,
    /// 4.
    Synced,
}

/// State of a member of Group Replication (`performance_schema.replication_group_members`, in its
/// own view).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// `group_replication_group_name`.
    pub group_name: String,
    /// `server_uuid`.
    pub server_identity: String,
    /// State of the member.
    pub state: MemberState,
    /// True if the member sees itself as a primary (every member of a multi-primary group does).
    pub is_primary: bool,
    /// True if `super_read_only` or `read_only` is on.
    pub read_only: bool,
    /// Number of members in its view; below, of those that it does not call unreachable.
    pub members: u32,
    /// See `members`.
    pub members_reachable: u32,
    /// Number of primaries among them.
    pub primaries: u32,
    /// Part of `VIEW_ID` before its counter; changes at each bootstrap of the group.
    pub incarnation: String,
    /// Counter of `VIEW_ID`: later views are higher, within one incarnation.
    pub view: u64,
    /// Number of transactions that were certified and not applied yet.
    pub applier_queue: u64,
    /// Age of the transaction being applied; 0 if none is pending, `None` if unknown.
    pub lag_ms: Option<u64>,
    /// Transactions that are visible to readers.
    pub visible: Gtids,
}

/// `MEMBER_STATE` of a member in its own view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Active.
    Online,
    /// Catching up.
    Recovering,
    /// Group Replication is not running.
    Offline,
    /// Expelled or failed.
    Error,
    /// Suspected.
    Unreachable,
}
