//! Implements streaming replication between PostgreSQL servers: following, demotion, promotion.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::programs::Programs;
use super::{Postgres, give_to_server_user, run};
use crate::eventually;
use crate::lab::ServerSlot;
use crate::replication::{Replication, Retired, parse_instant};
use crate::server::{Kind, Server};

/// Limit for an old primary to end cleanly.
const CLEAN_END_LIMIT: Duration = Duration::from_secs(10);
const RELOAD_LIMIT: Duration = Duration::from_secs(10);
const RECEIVED: &str = "SELECT CASE WHEN pg_is_in_recovery() \
    THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) \
    ELSE pg_current_wal_lsn() END - '0/0'";
const APPLIED: &str = "SELECT CASE WHEN pg_is_in_recovery() \
    THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0'";

impl Replication for Postgres {
    fn received(&self) -> Result<u64> {
        self.number(RECEIVED)
    }

    fn applied(&self) -> Result<u64> {
        self.number(APPLIED)
    }

    /// Returns nothing: the server reports problems only in its log.
    fn replication_error(&self) -> String {
        String::new()
    }

    /// Stops the server: a primary can become a standby only at its start. A clean stop waits until
    /// the standbys have everything.
    fn retire(&self, server: &Server) -> Result<Retired> {
        self.sql("CHECKPOINT")?;
        server.stop()?;
        let at = SystemTime::now();
        self.configure(None)?;
        Ok(Retired {
            at,
            position: self.shutdown_position()?,
        })
    }

    fn promote(&self) -> Result<SystemTime> {
        // One session queries it with minimal delay; the last line is the time.
        let answer = self.sql(
            "SELECT pg_promote(false); \
             DO $$ BEGIN WHILE pg_is_in_recovery() LOOP PERFORM pg_sleep(0.001); END LOOP; END $$; \
             SELECT extract(epoch FROM clock_timestamp())",
        )?;
        parse_instant(answer.lines().last().unwrap_or_default())
    }

    fn follow(&self, server: &Server, primary: &Server) -> Result<()> {
        if !server.is_running() {
            self.configure(Some(primary))?;
            return server.start();
        }
        let source = source(primary).replace('\'', "''");
        self.sql(&format!("ALTER SYSTEM SET primary_conninfo = '{source}'"))?;
        self.reload()
    }

    /// Rejoins the cluster: `pg_rewind` undoes changes that the primary lacks; if it cannot, all
    /// data is copied again.
    fn rejoin(&self, server: &Server, primary: &Server) -> Result<()> {
        if server.is_running() {
            // Without its standbys, a session with temporary tables waits forever at its end:
            // dropping them is a commit.
            server.stop_or_kill(CLEAN_END_LIMIT)?;
        }
        // pg_rewind reads the primary's timeline from its last checkpoint.
        primary.sql("CHECKPOINT")?;
        let data = self.slot.directory.join("data");
        let mut rewind = self.programs.command("pg_rewind")?;
        rewind.arg("--no-sync").arg("--target-pgdata").arg(&data);
        rewind.arg(format!("--source-server={}", socket_source(primary)));
        if run(rewind).is_err() {
            fs::remove_dir_all(&data)?;
            copy_data(self.programs, &self.slot, primary)?;
        }
        self.follow(server, primary)
    }

    fn lag(&self, by: Duration) -> Result<()> {
        let delay_ms = by.as_millis();
        self.sql(&format!(
            "ALTER SYSTEM SET recovery_min_apply_delay = '{delay_ms}ms'"
        ))?;
        self.reload()?;
        // The setting is in effect when new sessions have it, not when the reload is requested.
        let in_force = format!(
            "SELECT setting = '{delay_ms}' FROM pg_settings \
             WHERE name = 'recovery_min_apply_delay'"
        );
        eventually(RELOAD_LIMIT, "the new delay in force", || {
            Ok((self.sql(&in_force)? == "t").then_some(()))
        })
    }

    fn stop_applying(&self) -> Result<()> {
        self.sql("SELECT pg_wal_replay_pause()")?;
        Ok(())
    }

    fn start_applying(&self) -> Result<()> {
        self.sql("SELECT pg_wal_replay_resume()")?;
        Ok(())
    }
}

impl Postgres {
    fn number(&self, query: &str) -> Result<u64> {
        let answer = self.sql(query)?;
        answer
            .parse()
            .with_context(|| format!("not a position: {answer:?}"))
    }

    fn reload(&self) -> Result<()> {
        self.sql("SELECT pg_reload_conf()")?;
        Ok(())
    }

    /// Configures a stopped server as a standby of `primary` at its next start, or of no server.
    fn configure(&self, primary: Option<&Server>) -> Result<()> {
        let data = self.slot.directory.join("data");
        let source = primary.map(source).unwrap_or_default().replace('\'', "''");
        let settings = data.join("postgresql.auto.conf");
        fs::write(&settings, format!("primary_conninfo = '{source}'\n"))?;
        give_to_server_user(&settings)?;
        let signal = data.join("standby.signal");
        File::create(&signal)?;
        give_to_server_user(&signal)
    }

    /// Returns the position of the last record of a cleanly stopped server.
    fn shutdown_position(&self) -> Result<u64> {
        let mut control = self.programs.command("pg_controldata")?;
        control.arg(self.slot.directory.join("data"));
        let text = run(control)?;
        let position = text
            .lines()
            .find_map(|line| line.strip_prefix("Latest checkpoint location:"))
            .and_then(parse_position);
        position.context("pg_controldata reports no checkpoint location")
    }
}

/// Copies a running primary's data; the copy still has its source's settings.
pub(super) fn copy_data(programs: Programs, slot: &ServerSlot, primary: &Server) -> Result<()> {
    let mut copy = programs.command("pg_basebackup")?;
    copy.arg(format!("--dbname={}", socket_source(primary)));
    copy.args(["--checkpoint=fast", "--wal-method=stream", "--no-sync"]);
    copy.arg("--pgdata").arg(slot.directory.join("data"));
    run(copy)?;
    Ok(())
}

/// Returns the lab's own connection to a server: over its Unix socket, independent of its network.
fn socket_source(primary: &Server) -> String {
    let directory = primary.work_dir.join(&primary.name);
    let port = primary.address.port();
    format!(
        "host={} port={port} user=postgres dbname=postgres",
        directory.display()
    )
}

/// Returns a standby's connection to its primary: over the network.
fn source(primary: &Server) -> String {
    let (host, port) = (primary.address.ip(), primary.address.port());
    format!("host={host} port={port} user=replica password=replica connect_timeout=2")
}

/// Parses a log position such as `0/3000028`.
fn parse_position(text: &str) -> Option<u64> {
    let (high, low) = text.trim().split_once('/')?;
    let high = u64::from_str_radix(high, 16).ok()?;
    Some(high << 32 | u64::from_str_radix(low, 16).ok()?)
}
