//! What a database server says of itself when it is asked for its role.

use super::gtid::Gtids;

/// One answer of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleReport {
    /// When the question was sent.
    pub asked_ms: u64,
    /// The connection was made for this question: nothing of an earlier server behind the same
    /// address can have answered.
    pub fresh: bool,
    /// The answer.
    pub said: ReplicationState,
}

/// The answer, by the kind of cluster that the server says it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicationState {
    /// PostgreSQL, streaming replication.
    Postgres(Postgres),
    /// MySQL or MariaDB, asynchronous or semi-synchronous replication, or alone.
    Replication(Replication),
    /// A Galera node.
    Galera(Galera),
    /// A member of MySQL Group Replication.
    Group(Group),
}

/// A PostgreSQL server (`pg_control_system`, `pg_control_checkpoint`, `pg_is_in_recovery`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    /// The cluster's identity, the same on a primary and all its physical replicas.
    pub system_id: u64,
    /// When it was started, as it writes that (`pg_postmaster_start_time`): another server, or
    /// another run of the same, has another.
    pub started: String,
    /// The timeline it is on; a promotion makes a higher one.
    pub timeline: u32,
    /// It replays somebody's WAL and takes no writes.
    pub in_recovery: bool,
    /// Insert position of a primary, replay position of a replica; bytes of WAL.
    pub lsn: u64,
    /// A replica: a WAL receiver is streaming.
    pub streaming: bool,
    /// A replica: age of the last replayed transaction, by its own clock; `None` if it has replayed
    /// none. Grows while the primary is idle, and is not lag then.
    pub replay_age_ms: Option<u64>,
    /// `default_transaction_read_only` is on.
    pub read_only_by_default: bool,
}

/// A MySQL or MariaDB server outside any group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// `server_uuid` of MySQL, `server_id` of MariaDB as text: who it is, wherever it listens.
    pub server_identity: String,
    /// `read_only` (or `super_read_only`) is on.
    pub read_only: bool,
    /// Every transaction it has executed, as a primary or as a replica.
    pub executed: Gtids,
    /// What of that whoever reads there sees: a log may have a transaction a moment before the
    /// tables do.
    pub visible: Gtids,
    /// Its replication, if it is set up as a replica of somebody; the worst channel of several.
    pub replica: Option<ReplicaThreads>,
}

/// The replication threads of a server (`SHOW REPLICA STATUS`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaThreads {
    /// Host and port that it replicates from, as the server has it.
    pub source: String,
    /// The receiver: connected, trying to connect, or stopped.
    pub receiver: Receiver,
    /// The applier runs.
    pub applier_runs: bool,
    /// By its own clock, or by the configured lag query; `None` is "unknown", which is no number.
    pub lag_ms: Option<u64>,
    /// The last error of either thread; empty if there is none.
    pub error: String,
}

/// The state of a replica's receiver thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// Connected to its source.
    Connected,
    /// It tries to: its source is away.
    Connecting,
    /// Stopped, by an operator or by an error.
    Stopped,
}

/// A Galera node (`wsrep_%`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Galera {
    /// `wsrep_gcomm_uuid`, another one at each start; the server's own identity where it has none.
    pub server_identity: String,
    /// `wsrep_cluster_state_uuid`: which data this is.
    pub cluster_uuid: String,
    /// `wsrep_cluster_status` is `Primary`: its part of the cluster has the quorum.
    pub in_primary_component: bool,
    /// `wsrep_local_state`.
    pub state: GaleraState,
    /// `wsrep_ready`.
    pub ready: bool,
    /// `wsrep_desync`, or `wsrep_reject_queries` is not NONE: an operator has taken it aside.
    pub set_aside: bool,
    /// `read_only` is on.
    pub read_only: bool,
    /// Write sets received and not applied yet.
    pub receive_queue: u64,
    /// One statement can have it wait for all that its cluster has committed (MariaDB).
    pub causal: bool,
}

/// `wsrep_local_state`, numbers 1 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaleraState {
    /// 0 or 1: not a member yet, or asking for a state transfer.
    Joining,
    /// 2: feeds somebody who joins; behind and, with some methods, blocked.
    Donor,
    /// 3: has the state, still catches up.
    Joined,
    /// 4.
    Synced,
}

/// A member of Group Replication (`performance_schema.replication_group_members`, its own view).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// `group_replication_group_name`.
    pub group_name: String,
    /// `server_uuid`.
    pub server_identity: String,
    /// Its own state.
    pub state: MemberState,
    /// It sees itself as a primary (every member of a multi-primary group does).
    pub is_primary: bool,
    /// `super_read_only` or `read_only` is on.
    pub read_only: bool,
    /// Members in its view, and how many of them it does not call unreachable.
    pub members: u32,
    /// See `members`.
    pub members_reachable: u32,
    /// Of them, primaries.
    pub primaries: u32,
    /// The part of `VIEW_ID` before its counter: another one after each bootstrap of the group.
    pub incarnation: String,
    /// `VIEW_ID`'s counter: later views are higher, within one incarnation.
    pub view: u64,
    /// Transactions certified and not applied yet.
    pub applier_queue: u64,
    /// Age of the transaction being applied; 0 when nothing waits, `None` if unknown.
    pub lag_ms: Option<u64>,
    /// What whoever reads there sees.
    pub visible: Gtids,
}

/// `MEMBER_STATE` of a member, as itself sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Takes part.
    Online,
    /// Catches up.
    Recovering,
    /// Group Replication does not run.
    Offline,
    /// Expelled or failed.
    Error,
    /// Suspected.
    Unreachable,
}
