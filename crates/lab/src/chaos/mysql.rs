//! Implements the participants' operations for MySQL and MariaDB.

mod answer;
mod client;
mod cruel;
mod write_methods;

use std::net::SocketAddr;
use std::time::Duration;

use super::abrupt_clients::AbruptAction;
use super::client::{self as all, Leftover, READ, Rows};
use super::failure::Failure;
use super::writer::WriteMethod;
use client::Value;

pub(super) use client::Client;

/// Number of rows in `chaos_numbers`.
const NUMBERS: u32 = 1_000;

impl all::Client for Client {
    const SESSIONS: &'static str = "SELECT id, command, time, state, LEFT(info, 200) \
        FROM information_schema.processlist WHERE user = 'sbtest' AND command <> 'Sleep'";
    // A query for a server variable would go to the primary.
    const PORT: &'static str = "chaos_port()";
    const ROWS: &'static str = "SELECT session, id, tag, n FROM chaos";
    // No effect outside a transaction.
    const AFTER_FAILURE: &'static [&'static str] = &["ROLLBACK", "SET autocommit = 1"];

    fn tables() -> Vec<String> {
        let numbers: Vec<String> = (0..NUMBERS).map(|n| format!("({n})")).collect();
        let key = "n bigint AUTO_INCREMENT PRIMARY KEY";
        vec![
            format!(
                "CREATE TABLE chaos ({key}, session bigint NOT NULL, id bigint NOT NULL, \
                 tag varchar(100) NOT NULL, KEY (session, id))"
            ),
            format!("CREATE TABLE chaos_ghost ({key}, tag varchar(100) NOT NULL)"),
            "CREATE TABLE chaos_numbers (n int PRIMARY KEY)".to_owned(),
            format!("INSERT INTO chaos_numbers VALUES {}", numbers.join(",")),
            "CREATE FUNCTION chaos_port() RETURNS int NO SQL RETURN @@port".to_owned(),
        ]
    }

    fn write_methods() -> &'static [WriteMethod<Client>] {
        &write_methods::ALL
    }

    fn abrupt_actions() -> &'static [(&'static str, AbruptAction<Client>)] {
        &cruel::ALL
    }

    fn leftovers() -> Vec<Leftover> {
        let sessions = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'sbtest'";
        let locks: Vec<String> = (1..=20)
            .flat_map(|number| [format!("chaos.c{number}"), format!("w{number}")])
            .map(|name| format!("(IS_USED_LOCK('{name}') IS NOT NULL)"))
            .collect();
        // MariaDB shows an idle session as killed from a KILL QUERY that came after the statement
        // to the next statement, which runs.
        let busy = "command <> 'Sleep' AND NOT (command = 'Killed' AND info IS NULL)";
        let leftover = |what, query, most| Leftover { what, query, most };
        vec![
            leftover(
                "sessions that are not idle",
                format!("{sessions} AND {busy}"),
                Some(0),
            ),
            leftover(
                "open transactions",
                "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id IN \
                 (SELECT id FROM information_schema.processlist WHERE user = 'sbtest')"
                    .to_owned(),
                Some(0),
            ),
            leftover("locks", format!("SELECT {}", locks.join(" + ")), Some(0)),
            leftover("connections", sessions.to_owned(), None),
        ]
    }

    fn connect(address: SocketAddr, _: &str, answer_timeout: Duration) -> Result<Client, Failure> {
        Client::log_in(address, answer_timeout)
    }

    fn run_query(&mut self, text: &str) -> Result<Rows, Failure> {
        self.query(text).map(|answer| answer.rows)
    }

    fn run_prepared(&mut self, text: &str) -> Result<Rows, Failure> {
        let statement = self.prepare(text)?;
        let answer = self.execute(statement, &[])?;
        self.close(statement)?;
        Ok(answer.rows)
    }

    fn run_read_only(&mut self, text: &str) -> Result<Rows, Failure> {
        self.query("START TRANSACTION READ ONLY")?;
        let answer = self.query(text)?;
        self.query("COMMIT")?;
        Ok(answer.rows)
    }

    fn prepare_read(&mut self) -> Result<(), Failure> {
        let statement = self.prepare(&format!("SELECT concat(?), {READ}"))?;
        self.reading = Some(statement);
        Ok(())
    }

    fn read(&mut self, word: &str) -> Result<Rows, Failure> {
        let none = || Failure::Broken("nothing was prepared to be read".to_owned());
        let statement = self.reading.ok_or_else(none)?;
        let answer = self.execute(statement, &[Value::Text(word)])?;
        Ok(answer.rows)
    }

    /// Changes a setting that the server reports, and one that it does not.
    fn mark(&mut self, name: &str) -> Result<(), Failure> {
        let [timeout, zone] = settings(name);
        let text =
            format!("SET @owner = '{name}', lock_wait_timeout = {timeout}, time_zone = '{zone}'");
        self.query(&text).map(drop)
    }

    fn marks(&mut self, name: &str) -> Result<Vec<(String, Option<String>)>, Failure> {
        let text = "SELECT @owner, concat(@@session.lock_wait_timeout), @@session.time_zone";
        let rows = self.query(text)?.rows;
        let [timeout, zone] = settings(name);
        let wanted = [name.to_owned(), timeout, zone];
        let came = (0..).map(|column| rows.value(0, column).map(str::to_owned));
        Ok(wanted.into_iter().zip(came).collect())
    }

    fn leave(self) {
        self.quit();
    }
}

/// Returns a `lock_wait_timeout` and a time zone that only this writer uses.
fn settings(name: &str) -> [String; 2] {
    let (writer, _) = name.split_once('.').unwrap_or((name, ""));
    let number: u32 = writer.trim_start_matches('w').parse().unwrap_or(0);
    let zone = format!("+0{}:{:02}", number / 60 % 10, number % 60);
    [(10_000 + number).to_string(), zone]
}
