//! Implements the participants' operations for PostgreSQL.

mod client;
mod cruel;
mod reply;
mod write_methods;

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_wire::postgres::build;

use super::abrupt_clients::AbruptAction;
use super::client::{self as all, Leftover, READ, Rows};
use super::failure::Failure;
use super::writer::WriteMethod;

pub(super) use client::Client;

impl all::Client for Client {
    const SESSIONS: &'static str = "SELECT pid, state, wait_event, query FROM pg_stat_activity \
        WHERE usename = 'sbtest' AND state <> 'idle'";
    const PORT: &'static str = "inet_server_port()";
    const ROWS: &'static str = "SELECT session, id, tag FROM chaos";
    // No effect outside a transaction.
    const AFTER_FAILURE: &'static [&'static str] = &["ROLLBACK"];

    fn tables() -> Vec<String> {
        let tables = "CREATE TABLE chaos (session bigint NOT NULL, id bigint NOT NULL, \
            tag text NOT NULL); CREATE INDEX ON chaos (session, id); \
            CREATE TABLE chaos_ghost (tag text)";
        vec![tables.to_owned()]
    }

    fn write_methods() -> &'static [WriteMethod<Client>] {
        &write_methods::ALL
    }

    fn abrupt_actions() -> &'static [(&'static str, AbruptAction<Client>)] {
        &cruel::ALL
    }

    fn leftovers() -> Vec<Leftover> {
        let leftover = |what, query: &str, most| Leftover {
            what,
            query: query.to_owned(),
            most,
        };
        vec![
            leftover(
                "sessions that are not idle",
                "SELECT count(*) FROM pg_stat_activity WHERE usename = 'sbtest' \
                 AND state <> 'idle'",
                Some(0),
            ),
            leftover(
                "advisory locks",
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
                Some(0),
            ),
            leftover(
                "connections",
                "SELECT count(*) FROM pg_stat_activity WHERE usename = 'sbtest'",
                None,
            ),
        ]
    }

    fn connect(
        address: SocketAddr,
        name: &str,
        answer_timeout: Duration,
    ) -> Result<Client, Failure> {
        Client::log_in_as(address, name, answer_timeout)
    }

    fn run_query(&mut self, text: &str) -> Result<Rows, Failure> {
        self.query(text).map(|reply| reply.rows)
    }

    /// Uses the unnamed statement.
    fn run_prepared(&mut self, text: &str) -> Result<Rows, Failure> {
        write_methods::extended(self, text).map(|reply| reply.rows)
    }

    fn run_read_only(&mut self, text: &str) -> Result<Rows, Failure> {
        self.query("BEGIN READ ONLY")?;
        let reply = self.query(text)?;
        self.query("COMMIT")?;
        Ok(reply.rows)
    }

    fn prepare_read(&mut self) -> Result<(), Failure> {
        let mut packet = Vec::new();
        let text = format!("SELECT $1::text, {READ}");
        build::parse(&mut packet, b"read", text.as_bytes(), &[]);
        build::sync(&mut packet);
        self.send(&packet)?;
        self.reply()?.into_result().map(drop)
    }

    fn read(&mut self, word: &str) -> Result<Rows, Failure> {
        let mut packet = Vec::new();
        build::bind(&mut packet, b"", b"read", &[Some(word.as_bytes())]);
        build::execute(&mut packet, b"", 0);
        build::sync(&mut packet);
        self.send(&packet)?;
        self.reply()?.into_result().map(|reply| reply.rows)
    }

    /// Changes a setting that servers do not report; `application_name`, which they report, is set
    /// at login.
    fn mark(&mut self, name: &str) -> Result<(), Failure> {
        self.query(&format!("SET chaos.owner = '{name}'")).map(drop)
    }

    fn marks(&mut self, name: &str) -> Result<Vec<(String, Option<String>)>, Failure> {
        let (writer, _) = name.split_once('.').unwrap_or((name, ""));
        let mut marks = Vec::new();
        for (setting, wanted) in [("chaos.owner", name), ("application_name", writer)] {
            let reply = self.query(&format!("SHOW {setting}"))?;
            marks.push((wanted.to_owned(), reply.value(0, 0).map(str::to_owned)));
        }
        Ok(marks)
    }

    fn unsolicited(&mut self) -> Vec<String> {
        let notification_channels = std::mem::take(&mut self.notification_channels);
        let reported = |channel| format!("a notification on {channel}");
        notification_channels.into_iter().map(reported).collect()
    }

    fn leave(self) {
        self.quit();
    }
}
