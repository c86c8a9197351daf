//! Queries a PostgreSQL server's WAL position: written on a primary, replayed on a replica.

use evenkeel_policy::causality::{Lsn, Position, WAL_SEGMENT_BYTES, WaitSupport};
use evenkeel_wire::lsn;
use tokio_postgres::{Row, Statement};

use super::line::{Caller, MonitorConnection};
use super::{UnexpectedValue, WatchError, answer};
use crate::position::PositionSource;
use crate::probe::{MonitorAccount, ProbeSetupError, Progress, Target, Tls};
use crate::{Clock, ServerPosition};

/// Facts that do not change during a connection, except the timeline.
const CIRCUMSTANCES: &str = "SELECT \
    pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
    (SELECT setting::pg_catalog.int8 FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size'), \
    GREATEST(checkpoint.timeline_id, recovery.min_recovery_end_timeline) \
    FROM pg_catalog.pg_control_checkpoint() AS checkpoint \
    CROSS JOIN pg_catalog.pg_control_recovery() AS recovery";

/// The insert position, because the flushed one may lag after an asynchronous commit.
const QUESTION: &str = "SELECT now.in_recovery, \
    (CASE WHEN now.in_recovery THEN pg_catalog.pg_last_wal_replay_lsn() \
     ELSE pg_catalog.pg_current_wal_insert_lsn() END)::pg_catalog.text, \
    CASE WHEN NOT now.in_recovery THEN \
     pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) END, \
    receiver.received_tli \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS in_recovery) AS now \
    LEFT JOIN pg_catalog.pg_stat_wal_receiver AS receiver ON true";

/// First version that supports `WAIT FOR LSN`.
const WAITS_SINCE: i32 = 190_000;

const STEP: &str = "querying its WAL position";

/// Login for the queries.
pub(crate) struct Positions(Caller);

/// A connection, and what is known of its server.
pub(crate) struct Kept {
    line: MonitorConnection,
    statement: Statement,
    segment_bytes: u64,
    /// The highest timeline seen: a server's only rises while it runs.
    timeline: u32,
    wait: WaitSupport,
}

impl Positions {
    pub(crate) fn new(
        account: MonitorAccount,
        tls: &Tls,
        program: &'static str,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self(Caller::new(account, tls, program)?))
    }
}

impl PositionSource for Positions {
    const STEP: &'static str = STEP;
    type Link = Kept;

    async fn connect(&self, target: &Target, progress: &Progress) -> Result<Kept, WatchError> {
        let line = self.0.call(target, progress, STEP).await?;
        let learn = async {
            let row = line.client.query_one(CIRCUMSTANCES, &[]).await?;
            let statement = line.client.prepare(QUESTION).await?;
            Ok((row, statement))
        };
        let learned = learn.await;
        let (row, statement) = learned.map_err(|error| self.0.classify(&error, &line, progress))?;
        let segment_bytes: Option<i64> = column(&row, 1)?;
        let segment_bytes = segment_bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let timeline: Option<i32> = column(&row, 2)?;
        let version: i32 = column(&row, 0)?;
        Ok(Kept {
            line,
            statement,
            segment_bytes: segment_bytes.unwrap_or(WAL_SEGMENT_BYTES),
            timeline: timeline.unwrap_or(0).cast_unsigned(),
            wait: match version >= WAITS_SINCE {
                true => WaitSupport::Position,
                false => WaitSupport::Nothing,
            },
        })
    }

    fn is_usable(kept: &Kept) -> bool {
        kept.line.is_usable()
    }

    async fn query(
        &self,
        mut kept: Kept,
        now_us: Clock,
        _: &Target,
        progress: &Progress,
    ) -> Result<(ServerPosition, Kept), WatchError> {
        // A canceled query leaves its reply on the connection.
        kept.line.give_up();
        kept.line.begin_answer();
        let queried_us = now_us();
        let row = kept.line.client.query_one(&kept.statement, &[]).await;
        let row = row.map_err(|error| self.0.classify(&error, &kept.line, progress))?;
        let place = kept.read(&row, queried_us)?;
        kept.line.hold();
        Ok((place, kept))
    }
}

impl Kept {
    fn read(&mut self, row: &Row, queried_us: u64) -> Result<ServerPosition, WatchError> {
        let in_recovery: bool = column(row, 0)?;
        let text: Option<&str> = column(row, 1)?;
        let text = text.ok_or_else(|| UnexpectedValue::hidden("its WAL position"))?;
        let at = lsn::parse(text.as_bytes());
        let at = at.map_err(|fault| UnexpectedValue::new(format!("{fault}: {text:?}")))?;
        let wal_file: Option<&str> = column(row, 2)?;
        let received: Option<i32> = column(row, 3)?;
        let timeline = match wal_file {
            Some(wal_file) => answer::primary_timeline(wal_file)?,
            None => received.unwrap_or(0).cast_unsigned(),
        };
        self.timeline = self.timeline.max(timeline);
        let replayed = Lsn {
            timeline: self.timeline,
            at,
        };
        let inserted = Lsn::of_insert(self.timeline, at, self.segment_bytes);
        Ok(ServerPosition {
            written: (!in_recovery).then_some(Position::Lsn(inserted)),
            applied: in_recovery.then_some(Position::Lsn(replayed)),
            queried_us,
            wait: self.wait,
        })
    }
}

fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, WatchError> {
    let value = row.try_get(at);
    value.map_err(|error| UnexpectedValue::new(error).into())
}

impl From<UnexpectedValue> for WatchError {
    fn from(unexpected: UnexpectedValue) -> Self {
        WatchError::CannotTell(unexpected.to_string())
    }
}
