//! Defines which statements are routed to replicas, and the treatment of others while there is no
//! primary.

/// `[service.split]`: routing of reads to replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPlan {
    /// True if known reads are distributed over the servers. Default false: the primary receives
    /// all statements.
    pub reads: bool,
    /// True if the primary also takes reads, by its weight. Default true.
    pub primary_reads: bool,
    /// Writes that a read must see. Default read-your-writes.
    pub consistency: Consistency,
    /// Limit for the wait of a read until a replica has the required writes, up to 10 minutes.
    /// Default 50; 0 = the read does not wait, but is routed to another server.
    pub wait_ms: u64,
    /// Age from which a replica's reported position is ignored, 1 ms to 10 minutes. Default 1 000.
    pub stale_ms: u64,
    /// True if reads of a session that has written may be routed to other Galera nodes. Default
    /// false.
    pub galera_wait: bool,
    /// The service's `lag_ms_max`: maximum lag of a replica that receives reads, up to a day.
    /// `None`: no limit.
    pub lag_ms_max: Option<u64>,
}

impl Default for SplitPlan {
    fn default() -> SplitPlan {
        SplitPlan {
            reads: false,
            primary_reads: true,
            consistency: Consistency::ReadYourWrites,
            wait_ms: 50,
            stale_ms: 1_000,
            galera_wait: false,
            lag_ms_max: None,
        }
    }
}

/// Writes that a read on a replica must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Writes of its own session.
    ReadYourWrites,
    /// Writes of any session of the service.
    Global,
    /// None in particular.
    Eventual,
}

impl Consistency {
    /// Returns the word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::ReadYourWrites => "read-your-writes",
            Consistency::Global => "global",
            Consistency::Eventual => "eventual",
        }
    }
}

/// `[service.failover]`: treatment of statements for the primary while there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverPlan {
    /// Limit for their wait, up to 10 minutes. Default 10 000; 0 = they are rejected immediately.
    pub wait_ms: u64,
    /// Maximum number of waiting clients. Default 10 000; 0 = no queue.
    pub queue_length: u32,
    /// Number of clients that may resume concurrently when there is a primary again, from 1.
    /// Default 32.
    pub resume_at_once: u32,
}

impl Default for FailoverPlan {
    fn default() -> FailoverPlan {
        FailoverPlan {
            wait_ms: 10_000,
            queue_length: 10_000,
            resume_at_once: 32,
        }
    }
}
