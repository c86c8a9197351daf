//! Defines which statements are routed to replicas, and the treatment of others while there is no
//! primary.

use crate::setting::{TEN_MINUTES_MS, number, settings, words};

settings! {
    /// `[service.split]`: routing of reads to replicas.
    pub struct SplitPlan {
        /// Send known reads to all servers, everything else to the primary; with false everything
        /// goes to the primary.
        reads: bool = false;
        /// The primary serves reads according to its weight; with false only while no replica can.
        primary_reads: bool = true;
        /// Writes that a read must see: those of its own session, those of all sessions of the
        /// service, or no more than the replica has.
        consistency: Consistency = Consistency::ReadYourWrites;
        /// MySQL, MariaDB, Galera: Limit for the wait of a read on a replica for those writes; 0 =
        /// it goes to another server immediately.
        wait_ms: u64 = 50, number(0, TEN_MINUTES_MS);
        /// Age from which a replica's position is ignored.
        stale_ms: u64 = 1_000, number(1, TEN_MINUTES_MS);
        /// Galera: A session that has written may read on nodes that have its writes or wait for
        /// the cluster; with false it reads on the primary.
        galera_wait: bool = false;
    } also {
        /// The service's `lag_ms_max`: maximum lag of a replica that receives reads, up to a day.
        /// `None`: no limit.
        lag_ms_max: Option<u64> = None;
    }
}

words! {
    /// Writes that a read on a replica must see.
    pub enum Consistency {
        /// Writes of its own session.
        ReadYourWrites = "read-your-writes",
        /// Writes of any session of the service.
        Global = "global",
        /// None in particular.
        Eventual = "eventual",
    }
}

settings! {
    /// `[service.failover]`: treatment of statements for the primary while there is none.
    pub struct FailoverPlan {
        /// Limit for the wait of new work for the primary (a login: at most 10 s); 0 = it is
        /// refused immediately.
        wait_ms: u64 = 10_000, number(0, TEN_MINUTES_MS);
        /// Maximum clients that wait; 0 = clients are refused.
        queue_length: u32 = 10_000, number(0, 1_000_000);
        /// Waiting clients that resume concurrently after a failover; the next one follows when one
        /// of them is done, or after a second.
        resume_at_once: u32 = 32, number(1, 1_000_000);
    }
}
