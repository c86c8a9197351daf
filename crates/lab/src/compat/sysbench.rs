//! sysbench with a seed, at the server and through a service that splits: the same rows are left.
//! And with many clients at once: no error.

use std::net::SocketAddr;

use anyhow::Result;

use super::verdict::{Case, Cases, Verdict};
use crate::{Driver, Server, Sysbench, SysbenchReport};

/// Rows of each table; few, so that many clients meet.
pub(super) const ROWS: u32 = 2_000;

/// How many tables.
pub(super) const TABLES: u32 = 2;

const CLIENTS: u32 = 64;

/// What sysbench does; `--skip_trx` has the reads of a transaction go where reads may go.
const SCRIPTS: [&[&str]; 5] = [
    &["oltp_read_write"],
    &["oltp_read_write", "--skip_trx=on"],
    &["oltp_insert"],
    &["oltp_update_index"],
    &["oltp_delete"],
];

/// How it asks: prepared, and as text.
const FORMS: [&str; 2] = ["--db-ps-mode=auto", "--db-ps-mode=disable"];

/// How much of it.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    /// Events of the runs whose rows are compared.
    pub(super) events: u32,
    /// How long many clients are at it; zero: not at all.
    pub(super) seconds: u32,
}

/// Every script in each form at this address, compared with the server's own.
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

/// The same rows, or else both.
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

    /// Puts the rows back, does the same as the last time, and sums up what is there then.
    fn rows_left(&self, address: SocketAddr, events: u32) -> Result<String> {
        for table in tables() {
            self.server.sql(&format!(
                "TRUNCATE TABLE {table}; INSERT INTO {table} SELECT * FROM {table}_first"
            ))?;
        }
        // The thread that reports in between would draw a seed too, before or after the other.
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

    /// Many clients at once; sysbench itself goes on after what happens in the best of worlds
    /// (deadlocks).
    fn many(&self, address: SocketAddr, seconds: u32) -> Case {
        judged(match self.run(address, (CLIENTS, seconds), &[]) {
            Ok(report) => (report.queries == 0).then(|| "no queries were executed".to_owned()),
            Err(error) => Some(format!("{error:#}")),
        })
    }

    /// Fails when sysbench gives up.
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
