//! Runs sysbench with a fixed seed directly and through a service with read/write split, and
//! compares the remaining rows. Also runs many concurrent clients, without an error.

use std::net::SocketAddr;

use anyhow::Result;

use super::verdict::{Case, Cases, Verdict};
use crate::{Driver, Server, Sysbench, SysbenchReport};

/// Rows of each table; few, so that many clients conflict.
pub(super) const ROWS: u32 = 2_000;

/// Number of tables.
pub(super) const TABLES: u32 = 2;

const CLIENTS: u32 = 64;

/// Scripts of sysbench; `--skip_trx` lets the reads of a transaction go to replicas.
const SCRIPTS: [&[&str]; 5] = [
    &["oltp_read_write"],
    &["oltp_read_write", "--skip_trx=on"],
    &["oltp_insert"],
    &["oltp_update_index"],
    &["oltp_delete"],
];

/// Forms of the queries: prepared, and as text.
const FORMS: [&str; 2] = ["--db-ps-mode=auto", "--db-ps-mode=disable"];

/// Extent of the runs.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    /// Events of the runs whose rows are compared.
    pub(super) events: u32,
    /// Duration in seconds of the run with many clients; zero skips it.
    pub(super) seconds: u32,
}

/// Runs every script in each form at this address, and compares the results with direct ones.
pub(super) fn run(server: &Server, address: SocketAddr, amount: Amount) -> Result<Cases> {
    for table in tables() {
        server.sql(&format!(
            "CREATE TABLE {table}_first LIKE {table}; \
             INSERT INTO {table}_first SELECT * FROM {table}"
        ))?;
    }
    let mut cases = Cases::new();
    for script in SCRIPTS {
        for form in FORMS {
            let work = Work {
                server,
                script,
                form,
            };
            let name = work.name();
            let direct = work.rows_left(server.address, amount.events)?;
            let through = work.rows_left(address, amount.events);
            let through = through.unwrap_or_else(|error| format!("{error:#}"));
            cases.insert(name.clone(), case(&direct, &through));
            if amount.seconds > 0 {
                let name = format!("{name} {CLIENTS} clients");
                cases.insert(name, work.many(address, amount.seconds));
            }
        }
    }
    Ok(cases)
}

/// Passes if the rows are equal; otherwise the output has both.
fn case(direct: &str, through: &str) -> Case {
    let fault = format!("at the server:\n{direct}\nthrough:\n{through}");
    judged((direct != through).then_some(fault))
}

fn judged(fault: Option<String>) -> Case {
    let verdict = match fault {
        None => Verdict::Passed,
        Some(_) => Verdict::Failed,
    };
    let output = fault.unwrap_or_default();
    Case { verdict, output }
}

fn tables() -> impl Iterator<Item = String> {
    (1..=TABLES).map(|number| format!("sbtest.sbtest{number}"))
}

/// One script in one form.
struct Work<'a> {
    server: &'a Server,
    script: &'a [&'a str],
    form: &'a str,
}

impl Work<'_> {
    fn name(&self) -> String {
        [self.script, &[self.form]].concat().join(" ")
    }

    /// Restores the rows, repeats the same work, and returns a checksum of the rows.
    fn rows_left(&self, address: SocketAddr, events: u32) -> Result<String> {
        for table in tables() {
            self.server.sql(&format!(
                "TRUNCATE TABLE {table}; INSERT INTO {table} SELECT * FROM {table}_first"
            ))?;
        }
        // The reporting thread would also draw a seed, before or after the other.
        let seeded = [
            "--rand-seed=20261122".to_owned(),
            format!("--events={events}"),
            "--report-interval=0".to_owned(),
        ];
        let report = self.run(address, (1, 0), &seeded)?;
        let sums: Vec<String> = tables().collect();
        let sums = format!("CHECKSUM TABLE {}", sums.join(", "));
        Ok(format!(
            "{} queries\n{}",
            report.queries,
            self.server.sql(&sums)?
        ))
    }

    /// Runs many concurrent clients; sysbench itself continues after errors that are normal, such
    /// as deadlocks.
    fn many(&self, address: SocketAddr, seconds: u32) -> Case {
        judged(match self.run(address, (CLIENTS, seconds), &[]) {
            Ok(report) => (report.queries == 0).then(|| "no queries were executed".to_owned()),
            Err(error) => Some(format!("{error:#}")),
        })
    }

    /// Runs sysbench; returns an error if it fails.
    fn run(
        &self,
        address: SocketAddr,
        (threads, seconds): (u32, u32),
        further: &[String],
    ) -> Result<SysbenchReport> {
        let (script, options) = self.script.split_at(1);
        let mut extra: Vec<String> = options.iter().map(|one| (*one).to_owned()).collect();
        extra.push(self.form.to_owned());
        extra.extend_from_slice(further);
        let sysbench = Sysbench {
            script: script.concat(),
            threads,
            seconds,
            tables: TABLES,
            rows: ROWS,
            extra,
            ..Sysbench::new(Driver::Mysql, address)
        };
        sysbench.run()
    }
}
