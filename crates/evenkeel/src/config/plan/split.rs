//! Which statements go to replicas, and what happens to the others while there is no primary.

/// `[service.split]`: reads on replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPlan {
    /// Known reads are spread over the servers. Default false: all goes to the primary.
    pub reads: bool,
    /// The primary takes its share of the reads too, by its weight. Default true.
    pub primary_reads: bool,
    /// What a read must see. Default read-your-writes.
    pub consistency: Consistency,
    /// How long a read may wait on a replica for what it must see, up to 10 minutes. Default 50;
    /// 0 = it does not wait, but goes elsewhere.
    pub wait_ms: u64,
    /// What a replica said of its position longer ago counts no more, 1 ms to 10 minutes. Default
    /// 1 000.
    pub stale_ms: u64,
    /// Reads of a session that has written may go to other nodes of Galera. Default false.
    pub galera_wait: bool,
    /// The service's `lag_ms_max`: a replica further behind gets no reads, up to a day. `None`: as
    /// far as it likes.
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

/// What a read on a replica must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// What its own session wrote.
    ReadYourWrites,
    /// What any session of the service wrote.
    Global,
    /// Whatever is there.
    Eventual,
}

impl Consistency {
    /// The word used in the file.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::ReadYourWrites => "read-your-writes",
            Consistency::Global => "global",
            Consistency::Eventual => "eventual",
        }
    }
}

/// `[service.failover]`: work for the primary while there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverPlan {
    /// How long it may wait, up to 10 minutes. Default 10 000; 0 = it is refused at once.
    pub wait_ms: u64,
    /// Clients that may wait. Default 10 000; 0 = nobody waits.
    pub queue_length: u32,
    /// So many of them go on at once when there is a primary again, from 1. Default 32.
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
