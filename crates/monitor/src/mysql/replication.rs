//! Reads the state of a server that replicates asynchronously, or stands alone.

use std::cmp::Reverse;

use evenkeel_policy::cluster::{
    Gtids,
    report::{Receiver, ReplicaThreads, Replication},
};
use evenkeel_wire::gtid;

use crate::{
    probe::messages,
    row::{Row, UnexpectedValue},
};

/// Both timestamps are truncated to whole seconds.
const WHOLE_SECONDS_ERROR_MS: u64 = 999;

pub(super) fn read(facts: &Row, channels: &[Row]) -> Result<Replication, UnexpectedValue> {
    let super_read_only = facts.has("super_read_only") && facts.flag(&["super_read_only"])?;
    Ok(Replication {
        server_identity: facts.text(&["server_identity"])?.to_owned(),
        read_only: super_read_only || facts.flag(&["read_only"])?,
        executed: executed(facts)?,
        visible: visible(facts)?,
        replica: worst(facts, channels)?,
    })
}

/// Returns all transactions that the server has executed.
pub(super) fn executed(facts: &Row) -> Result<Gtids, UnexpectedValue> {
    if facts.has("executed") {
        return mysql_executed(facts.text(&["executed"])?);
    }
    let mut written = positions(facts, "binlog_state")?;
    if !facts.flag(&["log_bin"])? {
        // Without a binary log there is no other state.
        written.extend(positions(facts, "current_pos")?);
    }
    // Transactions applied by a replica without `log_slave_updates` appear only in its position.
    Ok(Gtids::mariadb(written).with_applied(positions(facts, "slave_pos")?))
}

/// Returns the executed transactions that are visible to readers.
///
/// MySQL adds a transaction to its set when the tables have it. MariaDB writes it to its log, and
/// lists it there, before the tables have it: only `gtid_slave_pos` advances after the commit.
/// Earlier transactions of the same domain in the log were committed before, in the order of the
/// domain.
pub(super) fn visible(facts: &Row) -> Result<Gtids, UnexpectedValue> {
    if facts.has("executed") {
        return mysql_executed(facts.text(&["executed"])?);
    }
    let applied = positions(facts, "slave_pos")?;
    let last = |domain: u32| {
        let of_domain = applied.iter().filter(|(of, ..)| *of == domain);
        of_domain.map(|(.., sequence)| *sequence).max()
    };
    let logged = positions(facts, "binlog_state")?;
    let committed = logged
        .into_iter()
        .filter(|(domain, _, sequence)| last(*domain) >= Some(*sequence));
    Ok(Gtids::mariadb(committed).with_applied(applied.iter().copied()))
}

fn positions(facts: &Row, column: &str) -> Result<Vec<(u32, u32, u64)>, UnexpectedValue> {
    let text = facts.value(&[column])?.unwrap_or_default();
    let read = gtid::mariadb(text.as_bytes());
    read.map(|position| {
        let one = position.map_err(|fault| malformed(text, &fault))?;
        Ok((one.domain, one.server, one.sequence))
    })
    .collect()
}

fn mysql_executed(text: &str) -> Result<Gtids, UnexpectedValue> {
    let intervals: Vec<_> = gtid::mysql(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|fault| malformed(text, &fault))?;
    let parts = intervals.iter();
    Ok(Gtids::mysql(
        parts.map(|one| (one.uuid, one.tag, one.first, one.last)),
    ))
}

fn malformed(text: &str, fault: &gtid::ParseError) -> UnexpectedValue {
    UnexpectedValue::new(format!("{fault} of {text:?}"))
}

fn worst(facts: &Row, channels: &[Row]) -> Result<Option<ReplicaThreads>, UnexpectedValue> {
    let applying_us = match facts.has("applying_us") {
        true => facts.number_or_null(&["applying_us"])?,
        false => None,
    };
    let mut all = Vec::new();
    for channel in channels {
        all.extend(threads(channel, applying_us)?);
    }
    Ok(all.into_iter().max_by_key(|threads| {
        let receiver = match threads.receiver {
            Receiver::Connected => 0,
            Receiver::Connecting => 1,
            Receiver::Stopped => 2,
        };
        let lag = (threads.lag_ms.is_none(), threads.lag_ms);
        // The first of equals.
        (
            !threads.applier_runs,
            receiver,
            lag,
            Reverse(threads.source.clone()),
        )
    }))
}

/// Reads one channel; `None` if it has no source or belongs to Group Replication.
fn threads(
    channel: &Row,
    applying_us: Option<i64>,
) -> Result<Option<ReplicaThreads>, UnexpectedValue> {
    let host = channel
        .value(&["Source_Host", "Master_Host"])?
        .unwrap_or_default();
    let name = channel
        .value(&["Channel_Name", "Connection_name"])
        .ok()
        .flatten();
    let of_a_group = name.is_some_and(|name| name.starts_with("group_replication_"));
    if host.is_empty() || of_a_group {
        return Ok(None);
    }
    let port = channel.text(&["Source_Port", "Master_Port"])?;
    let seconds = channel.number_or_null(&["Seconds_Behind_Source", "Seconds_Behind_Master"])?;
    Ok(Some(ReplicaThreads {
        source: format!("{host}:{port}"),
        receiver: receiver(channel)?,
        applier_runs: channel.text(&["Replica_SQL_Running", "Slave_SQL_Running"])? == "Yes",
        lag_ms: lag_ms(seconds, applying_us),
        error: error(channel)?,
    }))
}

fn receiver(channel: &Row) -> Result<Receiver, UnexpectedValue> {
    Ok(
        match channel.text(&["Replica_IO_Running", "Slave_IO_Running"])? {
            "Yes" => Receiver::Connected,
            "Connecting" | "Preparing" => Receiver::Connecting,
            _ => Receiver::Stopped,
        },
    )
}

fn error(channel: &Row) -> Result<String, UnexpectedValue> {
    let applier = channel.value(&["Last_SQL_Error"])?.unwrap_or_default();
    let receiver = channel.value(&["Last_IO_Error"])?.unwrap_or_default();
    Ok(messages::truncated(if applier.is_empty() {
        receiver
    } else {
        applier
    }))
}

/// Returns the lag. Seconds are corrected for the difference of the clocks; the workers'
/// microseconds are not, and count only within the range of the seconds.
fn lag_ms(seconds: Option<u64>, applying_us: Option<i64>) -> Option<u64> {
    let whole_ms = seconds?.saturating_mul(1000);
    let Some(us) = applying_us else {
        return Some(whole_ms);
    };
    let fine_ms = u64::try_from(us).unwrap_or(0) / 1000;
    Some(fine_ms.clamp(
        whole_ms.saturating_sub(WHOLE_SECONDS_ERROR_MS),
        whole_ms.saturating_add(WHOLE_SECONDS_ERROR_MS),
    ))
}
