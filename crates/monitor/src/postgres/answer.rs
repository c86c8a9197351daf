//! Defines the role query for PostgreSQL, and parses its result.

use evenkeel_policy::cluster::report::Postgres;
use evenkeel_wire::lsn;

use crate::row::{Row, UnexpectedValue};

/// Returns one row. Every name is qualified: the database controls the search path.
///
/// A primary's timeline is in the name of the WAL file that it writes, from the moment of its
/// promotion; the control file has the old one until the first checkpoint.
pub(super) const QUESTION: &str = "SELECT now.in_recovery, sys.system_identifier, \
    CASE WHEN now.in_recovery THEN pg_catalog.pg_last_wal_replay_lsn() \
     ELSE pg_catalog.pg_current_wal_insert_lsn() END AS lsn, \
    CASE WHEN NOT now.in_recovery THEN \
     pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) END AS wal_file, \
    checkpoint.timeline_id AS checkpoint_timeline, \
    recovery.min_recovery_end_timeline AS recovery_timeline, \
    receiver.pid AS receiver_pid, receiver.status AS receiver_status, \
    receiver.received_tli AS received_timeline, \
    pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) AS started, \
    pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) AS clock, \
    pg_catalog.date_part('epoch', pg_catalog.pg_last_xact_replay_timestamp()) AS replayed, \
    pg_catalog.current_setting('default_transaction_read_only') AS read_only \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS in_recovery) AS now \
    CROSS JOIN pg_catalog.pg_control_system() AS sys \
    CROSS JOIN pg_catalog.pg_control_checkpoint() AS checkpoint \
    CROSS JOIN pg_catalog.pg_control_recovery() AS recovery \
    LEFT JOIN pg_catalog.pg_stat_wal_receiver AS receiver ON true";

/// Source of the session's default. Queried once: it does not change during a session.
pub(super) const SETTING: &str = "SELECT source FROM pg_catalog.pg_settings \
    WHERE name = 'default_transaction_read_only'";

/// Returns whether a default was set for the account (or its database), and hides the server's own.
pub(super) fn is_account_setting(row: &Row) -> Result<bool, UnexpectedValue> {
    let source = row.text(&["source"])?;
    Ok(matches!(source, "user" | "database" | "database user"))
}

/// The highest timeline that a server has been on since its start. A replica reports its own only
/// while it receives; afterwards the control file may be outdated until the next restartpoint.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    /// Start time of the server, and its system identifier.
    run: (String, u64),
    highest: u32,
}

impl Timelines {
    fn highest(&mut self, started: &str, system_id: u64, timeline: u32) -> u32 {
        let run = (started.to_owned(), system_id);
        if self.run != run {
            *self = Self { run, highest: 0 };
        }
        self.highest = self.highest.max(timeline);
        self.highest
    }
}

pub(super) fn read(
    row: &Row,
    is_account_default: bool,
    timelines: &mut Timelines,
) -> Result<Postgres, UnexpectedValue> {
    let in_recovery = row.text(&["in_recovery"])? == "t";
    let system_id = row.number::<i64>(&["system_identifier"])?.cast_unsigned();
    let timeline = match in_recovery {
        true => replica_timeline(row)?,
        false => primary_timeline(row.text(&["wal_file"])?)?,
    };
    let (lsn, started) = (row.text(&["lsn"])?, row.text(&["started"])?);
    Ok(Postgres {
        system_id,
        started: started.to_owned(),
        timeline: timelines.highest(started, system_id, timeline),
        in_recovery,
        lsn: lsn::parse(lsn.as_bytes())
            .map_err(|fault| UnexpectedValue::new(format!("{fault}: {lsn:?}")))?,
        streaming: in_recovery && streaming(row)?,
        replay_age_ms: match in_recovery {
            true => replay_age_ms(row)?,
            false => None,
        },
        read_only_by_default: !is_account_default && row.text(&["read_only"])? == "on",
    })
}

/// Parses the timeline: the first eight digits of a WAL file's name.
pub(super) fn primary_timeline(wal_file: &str) -> Result<u32, UnexpectedValue> {
    let digits = wal_file.get(..8).unwrap_or_default();
    u32::from_str_radix(digits, 16)
        .map_err(|_| UnexpectedValue::new(format!("unexpected WAL file name {wal_file:?}")))
}

fn replica_timeline(row: &Row) -> Result<u32, UnexpectedValue> {
    let checkpoint = row.number::<u32>(&["checkpoint_timeline"])?;
    let recovery = row.number::<u32>(&["recovery_timeline"])?;
    let received = row.number_or_null(&["received_timeline"])?.unwrap_or(0);
    Ok(checkpoint.max(recovery).max(received))
}

fn streaming(row: &Row) -> Result<bool, UnexpectedValue> {
    let runs = row.value(&["receiver_pid"])?.is_some();
    match row.value(&["receiver_status"])? {
        Some(status) => Ok(status == "streaming"),
        // The server hides it from accounts without pg_read_all_stats.
        None if runs => Err(UnexpectedValue::hidden(
            "the WAL receiver status: GRANT pg_monitor to the monitor account",
        )),
        None => Ok(false),
    }
}

fn replay_age_ms(row: &Row) -> Result<Option<u64>, UnexpectedValue> {
    let clock: f64 = row.number(&["clock"])?;
    let replayed: Option<f64> = row.number_or_null(&["replayed"])?;
    // The clocks of two servers differ, but a replica cannot be ahead of its source.
    Ok(replayed.map(|at| ((clock - at) * 1000.0).max(0.0) as u64))
}
