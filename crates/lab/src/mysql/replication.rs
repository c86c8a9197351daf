//! Implements MySQL's asynchronous replication as an operator's script controls it.

use std::time::{Duration, SystemTime};

use anyhow::Result;

use super::{Mysql, gtid};
use crate::replication::{Replication, Retired, parse_instant};
use crate::server::{Kind, Server};

/// Query for the executed position, and the part received beyond it.
const POSITIONS: &str = "SELECT REPLACE(@@gtid_executed, '\\n', ''), \
    REPLACE(IFNULL(GTID_SUBTRACT((SELECT received_transaction_set \
        FROM performance_schema.replication_connection_status WHERE channel_name = ''), \
        @@gtid_executed), ''), '\\n', '')";

/// Query for the statements that kill every connection of accounts other than the superuser.
const WRITERS: &str = "SELECT CONCAT('KILL ', id) FROM information_schema.processlist \
    WHERE user NOT IN ('root', 'replica', 'system user', 'event_scheduler', 'monitor')";

/// Query for the last errors of receiver and applier.
const TROUBLE: &str = "SELECT CONCAT((SELECT COALESCE(MAX(LAST_ERROR_MESSAGE), '') \
    FROM performance_schema.replication_connection_status), ' ', \
    (SELECT COALESCE(MAX(LAST_ERROR_MESSAGE), '') \
    FROM performance_schema.replication_applier_status_by_worker))";

impl Replication for Mysql {
    fn received(&self) -> Result<u64> {
        let positions = self.sql(POSITIONS)?;
        Ok(positions.split('\t').map(gtid::count).sum())
    }

    fn applied(&self) -> Result<u64> {
        Ok(gtid::count(
            &self.sql("SELECT REPLACE(@@gtid_executed, '\\n', '')")?,
        ))
    }

    fn replication_error(&self) -> String {
        self.sql(TROUBLE).unwrap_or_default()
    }

    fn retire(&self, _server: &Server) -> Result<Retired> {
        // Waits for commits in progress; later ones are refused, those of the superuser too.
        let at = self.sql("SET GLOBAL super_read_only = ON; SELECT UNIX_TIMESTAMP(NOW(6))")?;
        for kill in self.sql(WRITERS)?.lines() {
            // The connection may already have ended.
            let _ = self.sql(kill);
        }
        Ok(Retired {
            at: parse_instant(&at)?,
            position: self.applied()?,
        })
    }

    fn promote(&self) -> Result<SystemTime> {
        let at = self.sql(
            "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only = OFF; \
             SET GLOBAL read_only = OFF; SELECT UNIX_TIMESTAMP(NOW(6))",
        )?;
        parse_instant(&at)
    }

    fn follow(&self, server: &Server, primary: &Server) -> Result<()> {
        if !server.is_running() {
            server.start()?;
        }
        self.sql(&format!(
            "STOP REPLICA; SET GLOBAL super_read_only = ON; \
             CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, \
             SOURCE_USER = 'replica', SOURCE_PASSWORD = 'replica', SOURCE_SSL = 1, \
             SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_HEARTBEAT_PERIOD = 1; \
             START REPLICA",
            primary.address.ip(),
            primary.address.port()
        ))?;
        Ok(())
    }

    fn rejoin(&self, server: &Server, primary: &Server) -> Result<()> {
        if !server.is_running() {
            server.start()?;
        }
        let theirs = primary.sql("SELECT REPLACE(@@gtid_executed, '\\n', '')")?;
        let more = format!("SELECT REPLACE(GTID_SUBTRACT(@@gtid_executed, '{theirs}'), '\\n', '')");
        if gtid::count(&self.sql(&more)?) > 0 {
            self.make_anew(server, primary)?;
        }
        self.follow(server, primary)
    }

    fn lag(&self, by: Duration) -> Result<()> {
        let seconds = by.as_millis().div_ceil(1000);
        self.sql(&format!(
            "STOP REPLICA SQL_THREAD; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = {seconds}; \
             START REPLICA SQL_THREAD"
        ))?;
        Ok(())
    }

    fn stop_applying(&self) -> Result<()> {
        self.sql("STOP REPLICA SQL_THREAD").map(drop)
    }

    fn start_applying(&self) -> Result<()> {
        self.sql("START REPLICA SQL_THREAD").map(drop)
    }
}

impl Mysql {
    /// Replaces all its data by the primary's, which stops the server, and restarts it.
    fn make_anew(&self, server: &Server, primary: &Server) -> Result<()> {
        let (host, port) = (primary.address.ip(), primary.address.port());
        self.sql(&format!(
            "STOP REPLICA; SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF; \
             SET GLOBAL clone_valid_donor_list = '{host}:{port}'"
        ))?;
        let cloned = self.sql(&format!(
            "CLONE INSTANCE FROM replica@'{host}':{port} IDENTIFIED BY 'replica' REQUIRE SSL"
        ));
        // Successful, although with "Restart server failed (mysqld is not managed by supervisor
        // process)".
        if let Err(error) = cloned
            && !error.to_string().contains("3707")
        {
            return Err(error.context("cannot copy the primary"));
        }
        server.process.wait_end(Duration::from_secs(60))?;
        server.start()
    }
}
