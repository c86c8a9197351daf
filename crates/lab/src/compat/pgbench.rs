//! Runs pgbench in its three query modes, with one connection for all transactions and with one for
//! each.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;

use super::step::{Ended, Step};
use super::verdict::{Case, Cases, Verdict};
use crate::Server;
use crate::pooler::ask;
use crate::postgres::programs::Programs;
use crate::postgres::server_user;

const CLIENTS: u32 = 8;
const LIMIT: Duration = Duration::from_secs(120);
const MODES: [&str; 3] = ["simple", "extended", "prepared"];
/// Query for the sums of the accounts: every transaction changes all sums by the same amount.
const BALANCED: &str = "SELECT sum(abalance) = (SELECT sum(delta) FROM pgbench_history) \
    AND sum(abalance) = (SELECT sum(tbalance) FROM pgbench_tellers) \
    AND sum(abalance) = (SELECT sum(bbalance) FROM pgbench_branches) FROM pgbench_accounts";
const DONE: &str = "SELECT count(*) FROM pgbench_history";

/// Extent of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pgbench {
    pub(super) version: Option<u32>,
    /// Transactions of each client, if it connects once.
    pub(super) transactions: u32,
}

impl Pgbench {
    /// Runs every mode as the superuser at this address, in a new database.
    pub(super) fn run(
        self,
        server: &Server,
        address: SocketAddr,
        work_dir: &Path,
    ) -> Result<Cases> {
        server.sql("CREATE DATABASE bench")?;
        let prepare = ["--initialize", "--quiet", "--scale=2"];
        let made = self.pgbench(server.address, &prepare.map(str::to_owned), work_dir)?;
        if !made.is_success() {
            bail!("pgbench cannot make its tables: {}", made.printed);
        }
        let mut cases = Cases::new();
        for mode in MODES {
            for connects_once in [true, false] {
                for is_select in [false, true] {
                    let run = Run {
                        mode,
                        connects_once,
                        is_select,
                    };
                    cases.insert(run.name(), self.case(run, address, work_dir)?);
                }
            }
        }
        Ok(cases)
    }

    fn case(self, run: Run, address: SocketAddr, work_dir: &Path) -> Result<Case> {
        let transactions = if run.connects_once {
            self.transactions
        } else {
            (self.transactions / 10).max(2)
        };
        let before = count(address)?;
        let ended = self.pgbench(address, &run.arguments(transactions), work_dir)?;
        let written = if run.is_select {
            0
        } else {
            u64::from(CLIENTS * transactions)
        };
        let all = format!(
            "number of transactions actually processed: {0}/{0}",
            CLIENTS * transactions
        );
        let mut faults = Vec::new();
        if !ended.is_success() || !ended.printed.contains(&all) {
            faults.push(ended.printed);
        }
        let after = count(address)?;
        if after != before + written {
            faults.push(format!(
                "{} of {written} transactions found",
                after - before
            ));
        }
        if query(address, BALANCED)? != "t" && after > 0 {
            faults.push("balances are inconsistent".to_owned());
        }
        Ok(Case {
            verdict: if faults.is_empty() {
                Verdict::Passed
            } else {
                Verdict::Failed
            },
            output: faults.join("\n"),
        })
    }

    fn pgbench(self, address: SocketAddr, arguments: &[String], work_dir: &Path) -> Result<Ended> {
        let program = Programs(Some(Programs(self.version).version()?)).find("pgbench")?;
        let mut all = vec![
            format!("--host={}", address.ip()),
            format!("--port={}", address.port()),
            "--username=postgres".to_owned(),
        ];
        all.extend_from_slice(arguments);
        all.push("bench".to_owned());
        let step = Step {
            program: &program,
            arguments: all,
            environment: vec![("PGPASSWORD".to_owned(), "postgres".to_owned())],
            user: server_user()?,
            directory: Path::new("/"),
            output: work_dir.join("pgbench.log"),
            limit: LIMIT,
            child_limit: LIMIT,
        };
        step.run()
    }
}

/// One run of pgbench.
#[derive(Clone, Copy)]
struct Run {
    mode: &'static str,
    connects_once: bool,
    is_select: bool,
}

impl Run {
    fn name(self) -> String {
        let script = if self.is_select { "selects" } else { "tpcb" };
        let connect = if self.connects_once { "" } else { " -C" };
        format!("{script} -M {}{connect}", self.mode)
    }

    fn arguments(self, transactions: u32) -> Vec<String> {
        let mut arguments = vec![
            "--no-vacuum".to_owned(),
            format!("--protocol={}", self.mode),
            format!("--client={CLIENTS}"),
            "--jobs=2".to_owned(),
            format!("--transactions={transactions}"),
        ];
        if !self.connects_once {
            arguments.push("--connect".to_owned());
        }
        if self.is_select {
            arguments.push("--select-only".to_owned());
        }
        arguments
    }
}

fn count(address: SocketAddr) -> Result<u64> {
    Ok(query(address, DONE)?.parse()?)
}

/// Runs the query on the connection's own server, so that no transaction can still be pending
/// elsewhere.
fn query(address: SocketAddr, text: &str) -> Result<String> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(ask(address, ("postgres", "bench"), text));
    let answer = answer.with_context(|| format!("{address}: {text}"))?;
    Ok(answer.unwrap_or_default())
}
