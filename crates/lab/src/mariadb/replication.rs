//! Implements replication by GTID between MariaDB servers: following, demotion, promotion.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::{Mariadb, copy_directory};
use crate::replication::{Replication, Retired, parse_instant};
use crate::server::Server;

/// Query for the time; SYSDATE is the time of its evaluation, NOW would be the start of the
/// statements.
const NOW: &str = "SELECT UNIX_TIMESTAMP(SYSDATE(6))";

impl Replication for Mariadb {
    fn received(&self) -> Result<u64> {
        let status = self.client.row("SHOW SLAVE STATUS")?;
        let from_primary = status.get("Gtid_IO_Pos").map(String::as_str);
        Ok(sum(from_primary.unwrap_or_default())?.max(self.applied()?))
    }

    /// Sums both positions: transactions that were applied without being logged (some with
    /// temporary tables) are in the other one.
    fn applied(&self) -> Result<u64> {
        let logged = sum(&self.client.sql("SELECT @@gtid_binlog_pos")?)?;
        Ok(logged.max(sum(&self.client.sql("SELECT @@gtid_slave_pos")?)?))
    }

    fn replication_error(&self) -> String {
        const REPORTED: [&str; 6] = [
            "Slave_IO_State",
            "Slave_SQL_Running_State",
            "Gtid_IO_Pos",
            "Gtid_Slave_Pos",
            "Last_IO_Error",
            "Last_SQL_Error",
        ];
        let status = self
            .client
            .row("SHOW ALL SLAVES STATUS")
            .unwrap_or_default();
        let reported = REPORTED.map(|column| {
            let value = status.get(column).map(String::as_str);
            format!("{column} {:?}", value.unwrap_or_default())
        });
        let logged = self.client.sql("SELECT @@gtid_binlog_state");
        format!(
            "{}, logged {:?}",
            reported.join(", "),
            logged.unwrap_or_default()
        )
    }

    fn retire(&self, _server: &Server) -> Result<Retired> {
        // Waits for commits in progress; later ones fail.
        let at = self.client.sql(&format!("SET GLOBAL read_only=1; {NOW}"))?;
        self.cut_clients()?;
        Ok(Retired {
            at: parse_instant(&at)?,
            position: self.applied()?,
        })
    }

    fn promote(&self) -> Result<SystemTime> {
        let statements = format!("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only=0; {NOW}");
        parse_instant(&self.client.sql(&statements)?)
    }

    fn follow(&self, server: &Server, primary: &Server) -> Result<()> {
        if !server.is_running() {
            server.start()?;
        }
        // A demoted primary has its position only in its own log; on replicas both are equal.
        self.client.sql(&format!(
            "STOP SLAVE; SET GLOBAL gtid_slave_pos=@@gtid_binlog_pos; \
             CHANGE MASTER TO MASTER_HOST='{}', MASTER_PORT={}, MASTER_USER='replica', \
             MASTER_PASSWORD='replica', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, \
             MASTER_HEARTBEAT_PERIOD=1; START SLAVE",
            primary.address.ip(),
            primary.address.port()
        ))?;
        Ok(())
    }

    /// Rejoins the cluster. A server with transactions that the primary lacks is emptied: the
    /// primary's log reaches back to the first statement.
    fn rejoin(&self, server: &Server, primary: &Server) -> Result<()> {
        if server.is_running() {
            self.retire(server)?;
            self.client.sql("STOP SLAVE")?;
        } else {
            self.be_another();
            server.start()?;
        }
        let state = "SELECT @@gtid_binlog_state";
        if !contains(&primary.sql(state)?, &self.client.sql(state)?)? {
            server.stop()?;
            let data = self.slot.directory.join("data");
            fs::remove_dir_all(&data)?;
            copy_directory(&self.template, &data)?;
            self.be_another();
        }
        self.follow(server, primary)
    }

    fn lag(&self, by: Duration) -> Result<()> {
        let delay_s = by.as_millis().div_ceil(1000);
        self.client.sql(&format!(
            "STOP SLAVE; CHANGE MASTER TO MASTER_DELAY={delay_s}; START SLAVE"
        ))?;
        Ok(())
    }

    fn stop_applying(&self) -> Result<()> {
        self.client.sql("STOP SLAVE SQL_THREAD")?;
        Ok(())
    }

    fn start_applying(&self) -> Result<()> {
        self.client.sql("START SLAVE SQL_THREAD")?;
        Ok(())
    }
}

impl Mariadb {
    /// Changes the server id from the next start on.
    fn be_another(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn cut_clients(&self) -> Result<()> {
        let users = self.client.sql(
            "SELECT DISTINCT user FROM information_schema.processlist WHERE id <> CONNECTION_ID() \
             AND user NOT IN ('system user', 'event_scheduler', 'unauthenticated user', \
             'replica', 'monitor')",
        )?;
        for user in users.lines() {
            self.client.sql(&format!("KILL USER '{user}'"))?;
        }
        Ok(())
    }
}

/// Returns the sum of all sequence numbers of a GTID position, which grows with each transaction.
fn sum(position: &str) -> Result<u64> {
    let last = |gtid: &str| Ok(parse(gtid)?.1);
    gtids(position).map(last).sum()
}

/// Returns whether a log with position `whole` has all transactions of `part`.
fn contains(whole: &str, part: &str) -> Result<bool> {
    let whole: HashMap<String, u64> = gtids(whole).map(parse).collect::<Result<_>>()?;
    for gtid in gtids(part) {
        let (source, last) = parse(gtid)?;
        if whole.get(&source).is_none_or(|known| *known < last) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn gtids(position: &str) -> impl Iterator<Item = &str> {
    position
        .split(',')
        .map(str::trim)
        .filter(|gtid| !gtid.is_empty() && *gtid != "NULL")
}

/// Returns domain and server of a GTID such as `0-20001-7`, and its sequence number.
fn parse(gtid: &str) -> Result<(String, u64)> {
    let parts = gtid
        .rsplit_once('-')
        .and_then(|(source, number)| Some((source.to_owned(), number.parse().ok()?)));
    parts.with_context(|| format!("not a GTID: {gtid:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_contains_another_only_if_it_has_the_last_transaction_of_each_server() {
        let state = "0-1-100,0-2-150";
        assert!(contains(state, "0-1-100").expect("GTIDs"));
        assert!(contains(state, "0-2-120,0-1-9").expect("GTIDs"));
        assert!(contains(state, "").expect("no GTID"));
        assert!(!contains(state, "0-1-101").expect("GTIDs"));
        assert!(!contains(state, "0-3-1").expect("GTIDs"));
        assert!(contains(state, "nonsense").is_err());
    }
}
